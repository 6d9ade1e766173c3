"""Compression: answers of more than a packet or two are gzip to those who take it.

Streams of events pass as they are, and bytes that somebody else made: blobs are named by what they are, and
most weights do not shrink. Source: RFC 9110, sections 8.4, 8.8.3 and 12.5.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipResponder, IdentityResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST: Final = 4096
"""Bytes of an answer that is worth it."""
LEVEL: Final = 5
_LEFT_ALONE: Final = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")
_GZIP: Final = frozenset({"gzip", "x-gzip", "*"})
_VARY: Final = "Accept-Encoding"
_ABRIDGED: Final = (206, 304)
"""Answers that tell what the whole one varies with (sections 15.3.7 and 15.4.5)."""


class Compression:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                _tag(MutableHeaders(raw=message["headers"]), message["status"])
            await send(message)

        responder: ASGIApp
        if takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
            responder = GZipResponder(self.app, LEAST, LEVEL, exclude_content_types=_LEFT_ALONE)
        else:
            responder = IdentityResponder(self.app, LEAST, exclude_content_types=_LEFT_ALONE)
        await responder(scope, receive, tagged)


def takes_gzip(text: str) -> bool:
    """Whether an `Accept-Encoding` allows gzip; what names it counts for more than `*`."""
    found: dict[str, bool] = {}
    for part in text.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weights = [word.partition("=")[2] for word in parameters if word.startswith("q=")]
        if name in _GZIP:
            found[name] = not weights or weights[0].strip("0.") != ""
    return found.get("gzip", found.get("x-gzip", found.get("*", False)))


def _tag(headers: MutableHeaders, status: int) -> None:
    """A tag that is strong stands for the bytes as they are kept, a weak one for what they say."""
    tag = headers.get("etag")
    if headers.get("content-encoding") == "gzip" and tag and not tag.startswith("W/"):
        headers["etag"] = f"W/{tag}"
    if status in _ABRIDGED:
        headers.add_vary_header(_VARY)
