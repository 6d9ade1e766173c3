"""Job records, and the work a job asks for.

A work is a task of `api.child` and its arguments, in which `stored`, `written`, `made` and `carried` stand
for files: only digests travel, whoever runs it opens the files from the store. Source: docs/service.md.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ..storage.store import Kind
from .task_names import QUANTIZE

State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]

ENDED: Final = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Job:
    """One row; times are seconds since 1970.

    Attributes:
      id: 32 hexadecimal digits; later ones sort later.
      kind: what the client requested, one of `JobKind`.
      told: what answers tell of its work, `told_of`.
      result: once done; written once.
      problem: once failed: `name`, `detail` and the members of its type.
      progress: what the work last said of itself: `done`, and `total` where known.
      principal: who asked.
      tenant: whose it is.
      attempt: how often it was leased; a fence against owners that lost their lease.
      lost: how often its worker was lost.
      cancelling: a client requested its cancellation while it ran.
      owner, heartbeat: who runs it, and when they last said so.
      work: of `work`; only of a job that was just leased, to be run.
    """

    id: str
    kind: str
    state: State
    told: Mapping[str, Any]
    result: Mapping[str, Any] | None
    problem: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    principal: str
    tenant: str
    attempt: int
    lost: int
    cancelling: bool
    owner: str | None
    created: float
    started: float | None
    finished: float | None
    heartbeat: float | None
    work: Mapping[str, Any] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class File:
    """An argument that is a path.

    `stored` and `carried` kind and digest, `written` text, `made` kind, `drafted` the path itself.
    """

    how: Literal["stored", "written", "made", "carried", "drafted"]
    what: tuple[str, ...]


def stored(kind: Kind, digest: str) -> File:
    """A file of the store."""
    return File("stored", (kind, digest))


def written(text: str) -> File:
    """A file with this text."""
    return File("written", (text,))


def drafted(path: Path) -> File:
    """A file in a draft of the server that has the work done: of requests, never of jobs."""
    return File("drafted", (str(path),))


def made(kind: Kind, *digest: str) -> File:
    """A file the task writes, kept in the store afterwards.

    Its digest is the one given here, else the `key` of the task's result, else that of its bytes; the result
    has the digests in `kept`, by where the files stand in the arguments (`out`, `parts.0`).
    """
    return File("made", (kind, *digest))


def carried(digest: str) -> File:
    """A file that the task goes on with, if an earlier child left one, and writes again.

    It is kept, as `states`, whenever the task tells its progress: whoever runs the work next goes on there.
    """
    return File("carried", ("states", digest))


def work(
    task: str, arguments: Mapping[str, Any], *, link: str | None = None, origin: str | None = None
) -> dict[str, Any]:
    """Make the request of a job: plain JSON, its files apart, so that no untrusted text becomes a path.

    Args:
      task: key of `api.child.TASKS`.
      arguments: JSON with a `File` wherever the task wants a path.
      link: digest of a request whose answer is the plan made.
      origin: text kept as the plan's origin.
    """
    files: list[dict[str, Any]] = []
    plain = _plain(dict(arguments), (), files)
    return {"task": task, "arguments": plain, "files": files, "link": link, "origin": origin}


def told_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What answers tell of a work: who asked, the format, and of a quantization its model."""
    is_whole = asked.get("task") == QUANTIZE
    return {
        "request_id": asked.get("asked", {}).get("request_id"),
        "format": asked.get("arguments", {}).get("format"),
        "model": json.loads(asked["origin"])["request"][0]["model"] if is_whole else None,
    }


def follow_up(
    asked: Mapping[str, Any], task: str, more: Mapping[str, Any], keep: Collection[str] | None = None
) -> dict[str, Any]:
    """A work with the arguments and files of another one, and more, which take the place of those.

    Args:
      keep: names of the arguments that stay; all by default.
    """
    own = work(task, more)
    kept = [name for name in (asked["arguments"] if keep is None else keep) if name not in more]
    # A job that an older version took may lack what a newer one says beside.
    arguments = {name: asked["arguments"][name] for name in kept if name in asked["arguments"]}
    arguments |= own["arguments"]
    files = [file for file in asked["files"] if file["at"][0] in kept]
    return {**own, "arguments": arguments, "files": [*files, *own["files"]]}


def _plain(tree: Any, place: tuple[str | int, ...], files: list[dict[str, Any]]) -> Any:
    if isinstance(tree, File):
        files.append({"at": list(place), "how": tree.how, "what": list(tree.what)})
        return None
    if isinstance(tree, Mapping):
        return {key: _plain(item, (*place, key), files) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(item, (*place, k), files) for k, item in enumerate(tree)]
    return tree
