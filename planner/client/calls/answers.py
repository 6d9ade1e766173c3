"""Answers: what calls make of the server's replies: an object, all items of a list, the result of a job."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from planner.client.failures import ServiceError, failure_of
from planner.client.steps import Ask, Pause, Steps
from planner.file_names import name_by_file

FIRST_LOOK: Final = 0.05
LAST_LOOK: Final = 2.0
_ENDED: Final = ("done", "failed", "cancelled")
AS_JOB: Final = {"Prefer": "wait=30"}
LONGEST_NAME: Final = 300
Source = bytes | str | Path


def name_of(source: Source) -> str:
    """The name that the library gives a model by its file; empty for bytes, which say it themselves."""
    return "" if isinstance(source, bytes) else name_by_file(source)[:LONGEST_NAME]


def object_of(ask: Ask) -> Steps[dict[str, Any]]:
    """The object that a request is answered with."""
    return dict((yield ask).json())


def items_of(path: str, params: Mapping[str, str | None]) -> Steps[list[dict[str, Any]]]:
    """All items of a list, page by page; parameters that are None do not count."""
    found: list[dict[str, Any]] = []
    known = {name: text for name, text in params.items() if text is not None}
    cursor: str | None = ""
    while cursor is not None:
        page = (yield Ask("GET", path, params={**known, **({"cursor": cursor} if cursor else {})})).json()
        found += page["items"]
        cursor = page["next"]
    return found


def job(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """The state of a job, and its result."""
    return (yield from object_of(Ask("GET", f"/v1/jobs/{quoted(id)}")))


def wait(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """Wait for a job to end; returns its result.

    Raises:
      PlannerError: its failure.
      ServiceError: it was cancelled.
    """
    pause = FIRST_LOOK
    while (found := (yield from job(id)))["state"] not in _ENDED:
        yield Pause(pause)
        pause = min(2 * pause, LAST_LOOK)
    if found["state"] == "failed":
        raise failure_of(found["problem"])
    if found["state"] == "cancelled":
        raise ServiceError(f"job {id} was cancelled")
    return dict(found["result"])


def made(ask: Ask) -> Steps[dict[str, Any]]:
    """The result of a request that may become a job: waited for, if it did."""
    answer = yield ask
    if answer.status_code == 202:
        return (yield from wait(answer.json()["id"]))
    return dict(answer.json())


def quoted(name: str) -> str:
    """A name as part of a path."""
    return quote(name, safe=":@")
