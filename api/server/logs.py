"""Logs: one JSON object a line on standard error. Digests, sizes and ids; never the content of a model or
body.

Source: docs/service.md.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

ACCESS: Final[Mapping[str, str]] = {
    "request_id": "as in the header `X-Request-Id` and in problems",
    "method": "of the request",
    "route": "the template of its address, `none` where there is none",
    "path": "its address without the query",
    "status": "of the answer; 0 where the client left before it",
    "problem": "type of the problem that was the answer",
    "ms": "milliseconds from the head of the request to the end of the answer",
    "received": "bytes of the body",
    "sent": "bytes of the answer's body",
    "client": "address of the client",
    "token": "name of its token",
}
"""Fields of an access line."""
MOST_FRAMES: Final = 30

access: Final = logging.getLogger("qplan.access")


class JsonLines(logging.Formatter):
    """Formats a record as one line; of an exception its class and places, for its message may quote input."""

    def format(self, record: logging.LogRecord) -> str:
        """Lay out one record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info and record.exc_info[1] is not None:
            line |= frames(record.exc_info[1])
        return json.dumps(line)


def frames(error: BaseException) -> dict[str, Any]:
    """The class of an exception and where it was raised, innermost last; not its message."""
    found = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    return {"error": type(error).__name__, "frames": [f"{f.filename}:{f.lineno} {f.name}" for f in found]}


def log_failure(answer: Mapping[str, Any], asked: Mapping[str, str]) -> None:
    """Write where a child failed, if its answer says that it did, and for which request."""
    if "trace" in answer:
        trace = answer["trace"]
        told = {"message": "a child failed", "request_id": asked.get("request_id"), **trace}
        place = " < ".join(reversed(trace["frames"]))
        log = logging.getLogger("qplan.child")
        log.error("a child failed: %s at %s", trace["error"], place, extra={"fields": told})


def configure() -> None:
    """Send every log of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for noisy in ("alembic", "asyncio", "uvicorn", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def log_job(job: Any, ending: str, seconds: float) -> None:
    """Write one line for a job that ended: `ending` is `done`, what stopped it, or its problem."""
    told = {
        "message": "job ended",
        "job": job.id,
        "kind": job.kind,
        "request_id": job.told["request_id"],
        "attempt": job.attempt,
        "ending": ending,
        "ms": round(seconds * 1000, 2),
    }
    logging.getLogger("qplan.jobs").info("job ended", extra={"fields": told})


def log_request(fields: dict[str, Any]) -> None:
    """Write one access line."""
    access.info("request", extra={"fields": fields})
