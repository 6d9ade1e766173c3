"""Problems: every failure of the service as `application/problem+json` (RFC 9457) of a listed type.

`TYPES` lists them all, `CLASSES` says which error of the planner is which; docs/problems.md is made of them.
Nothing here knows a route. Source: RFC 9457; docs/service.md.
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any, Final

from planner.errors import (
    AnnotationError,
    Conflict,
    EngineError,
    InputError,
    LimitError,
    ModelError,
    PlanFormatError,
    PlanInvalid,
    PlannerError,
    QTypeError,
    RuleError,
    SampleError,
    StatsError,
    TargetError,
    UnknownName,
    UnsupportedExport,
    nearest_names,
)

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "urn:qplan:problem:"
MOST_ERRORS: Final = 100
LONGEST: Final = 4000
_PATH: Final = re.compile(r"([a-z_]\w*(?:\[\d+\]|\.\w+)+): ")
_NAME: Final = re.compile(r"'((?:[^'\\]|\\.)+)'")
_PORT: Final = re.compile(r"(.+?\.(?:in|out)\[\d+\])[ :]")
_ROW: Final = re.compile(r"\brow (\S+?[@:]\d+)")
NO_KERNEL: Final = "on_no_kernel: error"
"""Ends the fact of a target that has every kernel served."""

# A child that ran out of something is the input's doing, and trying again would end the same: 422, not 5xx.
TYPES: Final[Mapping[str, tuple[int, str]]] = {
    "annotation-invalid": (422, "an annotation does not fit the model"),
    "busy": (503, "too many requests wait for a worker"),
    "conflict": (422, "constraints that cannot all hold"),
    "corrupted": (410, "the stored content was damaged and is removed: send it again"),
    "digest-mismatch": (422, "the content does not match its digest"),
    "exists": (409, "something else is kept under this name already"),
    "expired": (410, "the upload was not finished in time"),
    "forbidden": (403, "the token's scopes do not include this"),
    "foreign-origin": (403, "a page of another origin sent this form"),
    "head-too-large": (431, "the head of the request is larger than allowed"),
    "http-invalid": (400, "the request is not valid HTTP/1.1"),
    "input-invalid": (422, "something given is not usable"),
    "internal": (500, "a bug of the service"),
    "json-invalid": (400, "the body is no JSON the service reads"),
    "key-reused": (422, "this Idempotency-Key came with another request before"),
    "method-not-allowed": (405, "this address does not take that method"),
    "model-invalid": (422, "the model cannot be read"),
    "no-kernel": (422, "no row of the target serves a kernel"),
    "not-ended": (409, "the job has not ended"),
    "not-found": (404, "there is nothing at this address"),
    "not-local": (403, "a server without tokens answers on loopback only"),
    "not-ready": (503, "the service cannot work yet"),
    "offset-mismatch": (409, "the part does not go on where the upload stands"),
    "out-of-memory": (422, "the work for this input exceeds the memory limit"),
    "overloaded": (503, "the machine was too busy to end the work in time"),
    "plan-invalid": (422, "the plan does not fit the model"),
    "precondition-failed": (412, "the content differs from that of If-Match"),
    "queue-full": (503, "too many jobs wait already"),
    "quota": (507, "the stored content has reached its quota"),
    "range-invalid": (416, "the file has no such bytes"),
    "rate-limited": (429, "too many requests in too short a time"),
    "request-invalid": (422, "the request does not fit its schema"),
    "rule-invalid": (422, "a rule of the target cannot be applied"),
    "share-taken": (429, "one token's share is taken; the rest is for others"),
    "slow-body": (408, "the body stopped arriving"),
    "slow-head": (408, "the head of the request stopped arriving"),
    "stats-invalid": (422, "the statistics do not fit the model, or are not numbers"),
    "storage-full": (507, "the disk of the service is full"),
    "target-invalid": (422, "the target description has errors"),
    "timeout": (422, "the work for this input exceeds the limit of processor time"),
    "too-large": (413, "the body is larger than allowed"),
    "type-invalid": (422, "text that is no quantized type"),
    "unauthorized": (401, "a bearer token is needed"),
    "unknown-name": (404, "a name that is not there"),
    "unknown-value": (422, "statistics for values that the model does not have"),
    "unsupported-coding": (415, "the body is compressed, which no address takes"),
    "unsupported-export": (422, "the format cannot say this plan"),
    "unsupported-media": (415, "the body is of another media type than this address takes"),
    "worker-crashed": (422, "the process that reads this input crashed"),
    "worker-lost": (503, "the processes that worked for this were killed from outside, again and again"),
    "wrong-host": (421, "the server does not answer to this host name"),
}

REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "annotation-invalid": ("`hint`", "correct the name"),
    "busy": ("", "send it later; raise `QPLAN_CHILDREN`, or use jobs"),
    "conflict": ("`facts`: a minimal set", 'drop one, or `"best_effort": true`'),
    "corrupted": ("", "send the bytes again"),
    "digest-mismatch": ("`found`", "compute the digest of the sent bytes; announce the upload again"),
    "exists": ("`found`", "use the next version or another id"),
    "expired": ("", "announce it again, and finish it within QPLAN_UPLOAD_HOURS"),
    "forbidden": ("`scope`", "another token"),
    "foreign-origin": ("", "send JSON, or the form from the server's own address"),
    "head-too-large": ("`limit`", "at most 16 KiB of address and headers; the connection closes"),
    "http-invalid": ("", "send each header once, and one length; look for a proxy"),
    "input-invalid": ("`hint`", "as the detail says"),
    "internal": ("", "report it with the request id"),
    "json-invalid": ("", "at most 64 levels and integers of 19 digits; large documents go as blobs"),
    "key-reused": ("", "use a new key"),
    "method-not-allowed": ("", "use one of `Allow`"),
    "model-invalid": ("`hint`, `names`, `pointer`", "export it again"),
    "no-kernel": ("`facts`, `hint`", "add a row, or drop that line"),
    "not-ended": ("", "cancel it first"),
    "not-found": ("", "see `/openapi.json`"),
    "not-local": ("", "set `QPLAN_TOKENS`"),
    "not-ready": ("`missing`", "`qplan doctor`"),
    "offset-mismatch": ("`offset`", "continue there"),
    "out-of-memory": ("", "raise `QPLAN_CHILD_MEMORY`, `QPLAN_JOB_MEMORY`"),
    "overloaded": ("", "send it later: work waited for five times its processor time"),
    "plan-invalid": ("`port`, `row`, `hint`", "request the plan again"),
    "precondition-failed": ("`found`", "read it again"),
    "queue-full": ("", "send it later"),
    "quota": ("", "delete something, raise it, or set `QPLAN_KEEP_DAYS`"),
    "range-invalid": ("`bytes`", "ask for bytes below"),
    "rate-limited": ("`retry_after`", "wait"),
    "request-invalid": ("`errors`: `pointer` (RFC 6901), `message`", "correct it; types are JSON's"),
    "rule-invalid": ("`hint`", "correct the rule or its `when`"),
    "share-taken": ("`retry_after`", "wait"),
    "slow-body": ("", "send it again; upload parts are kept"),
    "slow-head": ("", "send it at once"),
    "stats-invalid": ("`hint`", "calibrate again; give statistics where no range is known"),
    "storage-full": ("", "make room; nothing half written is kept"),
    "target-invalid": ("`errors`: `line`, `column`, `path`, `code`, `message`", "see targets/codes.md"),
    "timeout": ("", "`Prefer: respond-async`, `QPLAN_JOB_SECONDS`"),
    "too-large": ("`limit`", "upload in parts"),
    "type-invalid": ("`hint`", "see types.md"),
    "unauthorized": ("", "get a token"),
    "unknown-name": ("`nearest` or `hint`", "correct the name"),
    "unknown-value": ("`nearest`", "calibrate again"),
    "unsupported-coding": ("", "send it without `Content-Encoding`"),
    "unsupported-export": ("`hint`, `port`, `row`", "another format, or annotate the port"),
    "unsupported-media": ("`accepted`", "set `Content-Type`"),
    "worker-crashed": ("", "report it with the input"),
    "worker-lost": ("", "add memory, or lower `QPLAN_CHILD_MEMORY`, `QPLAN_JOB_MEMORY`"),
    "wrong-host": ("", "use the address, `localhost`, or `QPLAN_HOSTS`"),
}
"""Members of a type beside those of all, and what to do about it, as docs/problems.md has them."""

AGAIN: Final[Mapping[str, int]] = {
    "busy": 1,
    "not-ready": 5,
    "overloaded": 5,
    "queue-full": 5,
    "rate-limited": 1,
    "share-taken": 1,
    "worker-lost": 5,
}
"""Seconds after which the same request may be answered, where the problem itself does not say it."""

CLASSES: Final[Mapping[type[PlannerError], str]] = {
    AnnotationError: "annotation-invalid",
    Conflict: "conflict",
    EngineError: "model-invalid",
    InputError: "input-invalid",
    LimitError: "target-invalid",
    ModelError: "model-invalid",
    PlanFormatError: "model-invalid",
    PlanInvalid: "plan-invalid",
    PlannerError: "input-invalid",
    QTypeError: "type-invalid",
    RuleError: "rule-invalid",
    SampleError: "input-invalid",
    StatsError: "stats-invalid",
    TargetError: "target-invalid",
    UnknownName: "unknown-name",
    UnsupportedExport: "unsupported-export",
}


DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the system that say that a disk is full."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One failure to answer with: its type, what happened, and members of that type."""

    name: str
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """HTTP status of the type."""
        return TYPES[self.name][0]

    @property
    def retry_after(self) -> int | None:
        """Seconds after which to send the same again; None: it would end the same."""
        found: int | None = self.more.get("retry_after", AGAIN.get(self.name))
        return found


class Refused(Exception):
    """Carries a problem to the one handler."""

    def __init__(self, name: str, detail: str, **more: Any) -> None:
        super().__init__(f"{name}: {detail}")
        self.problem = Problem(name, detail, more)


def as_arguments(problem: Problem) -> dict[str, Any]:
    """Lay a problem out as plain JSON, the arguments of `Refused`."""
    return {"name": problem.name, "detail": problem.detail, **problem.more}


def problem_of(error: PlannerError) -> Problem:
    """Word an error of the planner as a problem, with its hint, facts, port, row or places."""
    more: dict[str, Any] = {"hint": _short(error.hint)} if error.hint else {}
    if isinstance(error, Conflict):
        more["facts"] = list(error.facts)[:MOST_ERRORS]
    if isinstance(error, PlanInvalid):
        more |= {name: text for name, text in (("port", error.port), ("row", error.row)) if text}
    more |= _places(error)
    if isinstance(error, TargetError):
        fields = ("line", "column", "path", "code", "message")
        found = [asdict(entry) for entry in error.errors[:MOST_ERRORS]]
        more["errors"] = [{name: _short(entry[name]) for name in fields} for entry in found]
    name = next(CLASSES[kind] for kind in type(error).__mro__ if kind in CLASSES)
    if name == "conflict" and any(fact.endswith(NO_KERNEL) for fact in more["facts"]):
        name = "no-kernel"
    return Problem(name, _short(error.message), more)


def _places(error: PlannerError) -> dict[str, Any]:
    """Places in the request: for programs, members that repeat the places in the message."""
    path, port = _PATH.match(error.message), _PORT.match(error.message)
    row = _ROW.search(error.message)
    if isinstance(error, UnsupportedExport):
        return {name: found[1] for name, found in (("port", port), ("row", row)) if found}
    if isinstance(error, PlanFormatError) and path:
        return {"pointer": "/" + re.sub(r"[\[\].]+", "/", path[1]).rstrip("/")}
    if isinstance(error, ModelError):
        return {"names": list(dict.fromkeys(_NAME.findall(error.message)))[:MOST_ERRORS]}
    return {}


def disk_full() -> Problem:
    """Word that nothing more can be kept."""
    return Problem("storage-full", "there is no room left to keep anything")


def http_problem(status: int, detail: str) -> Problem:
    """Word what the router refuses: no such address, or not with that method."""
    names = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "unsupported-media"}
    if status in names:
        return Problem(names[status], detail or HTTPStatus(status).phrase)
    return Problem("request-invalid" if status < 500 else "internal", detail)


def unknown(kind: str, name: str, known: list[str]) -> Refused:
    """Make the refusal of a `name` that is none of `known`, with the nearest three."""
    near = nearest_names(name, known)
    return Refused("unknown-name", f"unknown {kind} {_short(name)!r}", nearest=near)


def document(problem: Problem, request_id: str) -> dict[str, Any]:
    """Lay a problem out as RFC 9457 has it."""
    status, title = TYPES[problem.name]
    head = {"type": f"{PREFIX}{problem.name}", "title": title, "status": status, "detail": problem.detail}
    return {**head, **problem.more, "request_id": request_id}


def _short(item: Any) -> Any:
    return item[:LONGEST] + "..." if isinstance(item, str) and len(item) > LONGEST else item
