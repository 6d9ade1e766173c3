"""Heads of requests: which ones leave open where a request ends or whose it is, and their targets.

A proxy in front may read such a head in another way than we do. Source: RFC 9112, sections 3.2, 6.1 and 11;
RFC 9110, sections 5.3 and 8.4; RFC 6585, section 5.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from starlette.types import Scope

from ..problems import Problem

HEAD_BYTES: Final = 16_384
"""Of the address and the headers of a request."""
JSON_MEDIA: Final = "application/json"
HEADER_SIGNS: Final = 4
"""Colon, space and end of the line of a header."""
SINGLE: Final = frozenset(
    (
        *(b"authorization", b"content-encoding", b"content-length", b"content-type", b"expect", b"host"),
        *(b"idempotency-key", b"if-range", b"last-event-id", b"origin", b"range", b"transfer-encoding"),
        b"upload-offset",
    )
)
"""Headers that come once: of two, one parser takes the first and another one the last."""
_ABSOLUTE: Final = re.compile(rb"(?i)https?://([^/?#@\s]+)(/[^?#]*)?")


def in_origin_form(scope: Scope) -> Problem | None:
    """Bring an address in the form of proxies (`GET http://host/path`) to the usual one.

    Its authority takes the place of `Host`.
    """
    target = scope.get("raw_path") or b""
    if target.startswith(b"/") or b":" not in target:
        return None
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return Problem("http-invalid", "the address of the request is none of an HTTP resource")
    scope["raw_path"] = found[2] or b"/"
    scope["path"] = unquote(scope["raw_path"].decode("latin-1"))
    others = [item for item in scope["headers"] if item[0] != b"host"]
    scope["headers"] = [(b"host", found[1]), *others]
    return None


def refused_head(scope: Scope) -> Problem | None:
    """Refuse a head after which nobody can be sure where the request ends, or one that is too large."""
    names = [name for name, _ in scope["headers"]]
    if not scope["http_version"].startswith("1."):
        return Problem("http-invalid", f"HTTP/{scope['http_version']}, not HTTP/1.1")
    if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
        other = "Content-Length" if b"content-length" in names else "HTTP/1.0"
        return Problem("http-invalid", f"{other} and Transfer-Encoding in one request")
    twice = _twice(names)
    if twice is not None:
        return Problem("http-invalid", f"the header {twice.decode('latin-1').title()} comes twice")
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(text) + HEADER_SIGNS for name, text in scope["headers"])
    if size > HEAD_BYTES:
        return head_too_large()
    return in_origin_form(scope)


def media_in(scope: Scope) -> str:
    """The media type of a body, without its parameters; "" without one.

    Limits and routes both go by it, so that no spelling is one type to the one and another to the other.
    """
    text = next((text for name, text in scope["headers"] if name == b"content-type"), b"")
    return text.partition(b";")[0].strip(b" \t").decode("latin-1").lower()


def refused_coding(scope: Scope) -> Problem | None:
    """Refuse a body that is compressed: what it unpacks to is not known before."""
    coding = next((text for name, text in scope["headers"] if name == b"content-encoding"), b"identity")
    if coding.strip().lower() in (b"identity", b""):
        return None
    return Problem("unsupported-coding", f"{coding.decode('latin-1')[:100]!r}: send the bytes as they are")


def head_too_large() -> Problem:
    """Make the problem of a head beyond the limit."""
    return Problem("head-too-large", f"a head has at most {HEAD_BYTES} bytes", {"limit": HEAD_BYTES})


def _twice(names: Iterable[bytes]) -> bytes | None:
    """A header that may come once, and comes again."""
    seen = set[bytes]()
    for name in names:
        if name in seen:
            return name
        if name in SINGLE:
            seen.add(name)
    return None
