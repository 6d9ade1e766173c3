"""Job records, and the work a job asks for.

A work is a task of `api.child` and its arguments as plain JSON, in which `stored`, `written` and `made` stand
for files: only digests travel, whoever runs it opens the files from the store. Source: design 06, "Jobs".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from api.store import Kind

State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]

ENDED: Final = ("done", "failed", "cancelled")
STORED: Final = "$stored"
WRITTEN: Final = "$written"
MADE: Final = "$made"


@dataclass(frozen=True, slots=True)
class Job:
    """One row; times are seconds since 1970.

    Attributes:
      id: 32 hexadecimal digits; later ones sort later.
      kind: what the client asked for: `plan`, `export`, `calibration`, `comparison`.
      request: the work, of `work`.
      result: once done; written once.
      problem: once failed: `name`, `detail` and the members of its type.
      progress: what the work last said of itself: `done`, and `total` where known.
      principal: who asked.
      attempt: how often it was leased; a fence against owners that lost their lease.
      lost: how often its worker was lost.
      cancelling: somebody asked to cancel it while it ran.
      owner, heartbeat: who runs it, and when they last said so.
    """

    id: str
    kind: str
    state: State
    request: Mapping[str, Any]
    result: Mapping[str, Any] | None
    problem: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    principal: str
    attempt: int
    lost: int
    cancelling: bool
    owner: str | None
    created: float
    started: float | None
    finished: float | None
    heartbeat: float | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job; numbers of one job count from 1 (SSE ids).

    Kinds: `queued`, `running`, `progress`, `retried`, `cancelling`, and the states a job ends in.
    """

    job: str
    number: int
    kind: str
    data: Mapping[str, Any]
    at: float


def work(task: str, arguments: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Make the request of a job: a task of `api.child.TASKS` and its arguments.

    Args:
      more: `links` (digest of a request whose answer is the plan made), `shards` (of a calibration).
    """
    return {"task": task, "arguments": dict(arguments), **more}


def stored(kind: Kind, digest: str) -> dict[str, Any]:
    """An argument that is the path of a file of the store."""
    return {STORED: [kind, digest]}


def written(text: str) -> dict[str, Any]:
    """An argument that is the path of a file with this text."""
    return {WRITTEN: text}


def made(kind: Kind) -> dict[str, Any]:
    """An argument that is the path of a file the task writes, kept in the store afterwards.

    A plan is kept under the task's `key`, everything else under its digest; the job's result has them in
    `kept` by argument.
    """
    return {MADE: kind}
