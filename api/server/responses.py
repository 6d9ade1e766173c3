"""Responses: entity tags, conditional requests, parts of files, pages. Source: RFC 9110, sections 13 and 14.

Everything kept is named by its content, so a tag is a digest and a fresh one needs no look at the body.
"""

import base64
import binascii
import heapq
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from ..problems import Refused

JSON: Final = "application/json"
PAGE: Final = 100
MOST: Final = 1000
UNCHANGING: Final = {"Cache-Control": "private, max-age=31536000, immutable"}
"""Headers of what its address names by content. Private: another token may not have it."""
OPEN_FILES: Final = "/proc/self/fd"
T = TypeVar("T")
Order: TypeAlias = Literal["name", "newest"]
"""Of a list: by name, or the newest first."""
_RANGE: Final = re.compile(r"(?i:bytes)=[ \t]*(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")
_TAGS: Final = re.compile(r'(?:W/)?("[^"]*")')


def unchanged(request: Request, tag: str) -> Response | None:
    """304 where `If-None-Match` has the tag, so that nothing need be made or sent."""
    given = request.headers.get("if-none-match")
    if given is None:
        return None
    known = {found[1]: found[0] for found in _TAGS.finditer(given)}
    if given.strip() != "*" and f'"{tag}"' not in known:
        return None
    # As the client has it: weak where its copy came compressed.
    return Response(status_code=304, headers={"ETag": known.get(f'"{tag}"', f'"{tag}"')})


def require_match(request: Request, tag: str) -> None:
    """Refuse a change of something that is not what the client last saw.

    Raises:
      Refused: `If-Match` is there, and has another tag.
    """
    given = request.headers.get("if-match")
    if given is not None and given.strip() != "*" and f'"{tag}"' not in _TAGS.findall(given):
        raise Refused("precondition-failed", f"it is {tag}", found=tag)


class StoredFile(FileResponse):
    """A file as it was when it was opened, though somebody takes it away while it is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
          FileNotFoundError: somebody was faster.
        """
        with await run_sync(open, self.path, "rb") as file:
            self.path = f"{OPEN_FILES}/{file.fileno()}"
            await super().__call__(scope, receive, send)


def file_answer(request: Request, path: Path, tag: str, media: str = JSON, **headers: str) -> Response:
    """Give a file that never changes: whole, a part of it, or 304.

    Raises:
      Refused: `Range` asks for bytes beyond its end; `If-Match` has another tag.
    """
    require_match(request, tag)
    same = unchanged(request, tag)
    if same is not None:
        same.headers.update({name: text for name, text in headers.items() if name in UNCHANGING})
        return same
    _check_range(request, path, tag)
    return StoredFile(path, media_type=media, headers={"ETag": f'"{tag}"', **headers})


def json_answer(request: Request, tag: str, make: Callable[[], Any]) -> Response:
    """Give a document that a tag stands for, or 304."""
    same = unchanged(request, tag)
    if same is not None:
        return same
    return Response(json.dumps(make()), media_type=JSON, headers={"ETag": f'"{tag}"'})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page that a request asks for: at most `limit` items, after the place that a cursor stands for."""

    limit: int = PAGE
    cursor: str | None = None
    order: Order = "name"


def page_of(names: Iterable[str], limit: int, cursor: str | None) -> tuple[list[str], str | None]:
    """Take the names after a cursor, in order, and the cursor of those that follow.

    Raises:
      Refused: a cursor that no page gave.
    """
    after = read_cursor(cursor)
    found = heapq.nsmallest(limit + 1, (name for name in names if name > after))
    return found[:limit], make_cursor(found[limit - 1]) if len(found) > limit else None


def page_of_records(
    names: Iterable[str], limit: int, cursor: str | None, record: Callable[[str], T | None], looks: int = 0
) -> tuple[list[T], str | None]:
    """Take the records after a cursor, in the order of their names, and the cursor of those that follow.

    Args:
      record: gives the record of a name; None where there is none, or one that is not requested.
      looks: names that are looked at, at most, where only some are requested: a page may be short then.

    Raises:
      Refused: a cursor that no page gave.
    """
    found, after = page_of(names, max(limit, looks), cursor)
    items: list[T] = []
    for place, name in enumerate(found, 1):
        one = record(name)
        items += [] if one is None else [one]
        if len(items) == limit:
            return items, make_cursor(name) if place < len(found) else after
    return items, after


def make_cursor(place: str) -> str:
    """Word a place in a list so that it fits into an address."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> str:
    """The place a cursor stands for; the beginning without one.

    Raises:
      Refused: a cursor that no page gave.
    """
    try:
        text = cursor or ""
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise no_cursor() from None


def no_cursor() -> Refused:
    """Make the refusal of a cursor that no page gave."""
    message = "cursor: none that a page of this list gave"
    return Refused("request-invalid", message, errors=[{"pointer": "/cursor", "message": message}])


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """The `Link` header of a page (RFC 8288); nothing on the last one."""
    if cursor is None:
        return {}
    url = request.url.include_query_params(cursor=cursor)
    return {"Link": f'<{url.path}?{url.query}>; rel="next"'}


def _check_range(request: Request, path: Path, tag: str) -> None:
    """Leave out ranges of no sense and refuse those beyond the end; starlette would answer in plain text.

    Only GET has parts (section 14.2), and a part of something else than the client has is none (13.1.5).
    """
    text = request.headers.get("range")
    if text is None:
        return
    found = _RANGE.fullmatch(text.strip())
    first, last, suffix = found.groups() if found else (None, None, None)
    backwards = bool(first and last and int(last) < int(first))
    others = request.headers.get("if-range", f'"{tag}"') != f'"{tag}"'
    if request.method != "GET" or others or not found or backwards:
        drop_range(request.scope)
        return
    size = path.stat().st_size
    if size == 0 or (first and int(first) >= size) or (suffix and not int(suffix)):
        raise Refused("range-invalid", f"the file has {size} bytes", bytes=size)


def drop_range(scope: Scope) -> None:
    """Go on as if no range had been requested."""
    scope["headers"] = [item for item in scope["headers"] if item[0] != b"range"]
