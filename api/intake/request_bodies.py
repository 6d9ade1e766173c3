"""Bodies: JSON is scanned before anything parses it, streams are written as they come.

A body is whole (`arrivals`) before it takes one of the places in which bodies are parsed, so that nobody who
is slow, or sends nothing, keeps others waiting.
"""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from anyio.to_thread import run_sync
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from ..problems import Refused
from ..server.heads import JSON_MEDIA, media_in
from ..server.limits import Quota
from ..server.tokens import PRINCIPAL
from .arrivals import SMALL, Arrivals
from .scan import require_unicode, scan_json
from .turns import ALL, Turns

CHUNK: Final = 1 << 18
SHORT_PLACES: Final = 64
LONG_PLACES: Final = 2
JSON: Final = (JSON_MEDIA,)
BYTES: Final = ("application/octet-stream",)
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", *BYTES)
"""Bytes, too: generated clients know no YAML."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
AsJson = Callable[[Request], Awaitable[bytes]]
"""Takes a body of another media type, and gives the JSON that says the same."""


class BodyLimits:
    """Bounds how many bodies are parsed at once, by size, so that all of them stay small in memory.

    JSON takes up to thirty times its length once parsed: 64 bodies of 64 KiB, or 2 of 4 MiB.
    """

    def __init__(self, waiting: int, arrivals: Arrivals, share: int = ALL, tenant_share: int = ALL) -> None:
        self.arrivals = arrivals
        self.small = Turns("a place for a short body", SHORT_PLACES, waiting, share, tenant_share)
        self.big = Turns("a place for a long body", LONG_PLACES, waiting, share, tenant_share)

    @asynccontextmanager
    async def whole(self, request: Request) -> AsyncIterator[bytes]:
        """Give the body of a request, which then has a place to be parsed in.

        Raises:
          Refused: too many wait for one already, or too many of the same token.
        """
        principal = request.scope.get(PRINCIPAL, "")
        async with self.arrivals.receive(request, principal) as body:
            turns = self.small if body.size <= SMALL else self.big
            async with turns.place(principal):
                yield await body.read()


class JsonRoute(APIRoute):
    """A route whose JSON body is scanned before FastAPI parses it; other media types are refused.

    `others`: media types that it takes too, each with what makes JSON of such a body.
    """

    others: ClassVar[Mapping[str, AsJson]] = {}

    def get_route_handler(self) -> Handler:
        """Wrap the handler that parses.

        Raises:
          Refused: `json-invalid` where the body is no text, or deeper or longer than here it may be.
        """
        parse = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.method != "POST":
                return await parse(request)
            convert = self.others.get(media_of(request))
            if convert is not None:
                return await parse(_as_json(await convert(request), request))
            require_media(request, (*JSON, *self.others))
            service = request.app.state.service
            async with service.body_limits.whole(request) as body:
                require_unicode(body)
                scan_json(body, service.settings.max_values)
                return await parse(Request(request.scope, _again(body, request)))

        return handle


def route_taking(others: Mapping[str, AsJson]) -> type[JsonRoute]:
    """Make the class of routes that take other media types beside JSON."""

    class Taking(JsonRoute):
        """These routes."""

    Taking.others = others
    return Taking


def _as_json(body: bytes, request: Request) -> Request:
    """A request with a JSON body in the place of its own."""
    headers = [
        item for item in request.scope["headers"] if item[0] not in (b"content-type", b"content-length")
    ]
    scope = {**request.scope, "headers": [*headers, (b"content-type", JSON[0].encode())]}
    return Request(scope, _again(body, request))


def _again(body: bytes, request: Request) -> Receive:
    """Give a body that is here to whoever asks for the next message, then what the client says."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await request.receive()

    return receive


def media_of(request: Request) -> str:
    """The media type of a body, without its parameters; "" without one."""
    return media_in(request.scope)


def require_media(request: Request, accepted: tuple[str, ...]) -> None:
    """Refuse a body of a media type that is not accepted.

    Raises:
      Refused: with what is.
    """
    given = media_of(request)
    if given not in accepted:
        what = repr(given[:100]) if given else "no Content-Type"
        raise Refused("unsupported-media", f"{what}, not {accepted[0]}", accepted=list(accepted))


async def digest_of_body(request: Request) -> str:
    """The digest of a body whose bytes are kept already: they are read and not written again."""
    digest = hashlib.sha256()
    async for part in request.stream():
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


async def write_body(request: Request, path: Path, quota: Quota | None = None) -> str:
    """Write a body to a file as it arrives, as `write_parts`."""
    return await write_parts(request.stream(), path, quota)


async def write_parts(parts: AsyncIterable[bytes], path: Path, quota: Quota | None = None) -> str:
    """Write bytes to a file as they arrive.

    Returns:
      Its digest.

    Bodies on their way count as if they were kept, so that several at once are no more than fits.

    Raises:
      Refused: `quota`, as soon as it is more than still fits.
    """
    digest = hashlib.sha256()
    waiting = bytearray()
    taken = 0
    try:
        with path.open("wb") as file:

            def write(data: bytearray) -> None:
                digest.update(data)
                file.write(data)

            async for part in parts:
                if quota is not None:
                    quota.take(len(part))
                    taken += len(part)
                waiting += part
                if len(waiting) >= CHUNK:
                    await run_sync(write, waiting)
                    waiting = bytearray()
            await run_sync(write, waiting)
    finally:
        if quota is not None:
            quota.give_back(taken)
    return f"sha256:{digest.hexdigest()}"
