"""Bodies: JSON is scanned before anything parses it, streams are written as they come."""

import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter, WouldBlock
from anyio.to_thread import run_sync
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from api.intake.scan import require_unicode, scan_json
from api.problems import Refused
from api.server.limits import Quota

CHUNK: Final = 1 << 18
SMALL: Final = 1 << 16
JSON: Final = ("application/json",)
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")
BYTES: Final = ("application/octet-stream",)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class BodyLimits:
    """Bounds how many bodies are in memory at once, by size, so that all of them stay small.

    JSON takes up to thirty times its length once parsed: 64 bodies of 64 KiB, or 2 of 4 MiB.
    """

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.small = CapacityLimiter(64)
        self.big = CapacityLimiter(2)

    def of(self, request: Request) -> CapacityLimiter:
        """The limiter of a request, by the length it announces; none announced is big.

        Raises:
          Refused: too many wait already.
        """
        length = request.headers.get("content-length", "")
        limiter = self.small if length.isdecimal() and int(length) <= SMALL else self.big
        if limiter.statistics().tasks_waiting >= self.waiting:
            raise Refused("busy", f"{self.waiting} requests with a body wait already")
        return limiter


class JsonRoute(APIRoute):
    """A route whose JSON body is scanned before FastAPI parses it; other media types are refused."""

    def get_route_handler(self) -> Handler:
        """Wrap the handler that parses.

        Raises:
          Refused: `json-invalid` where the body is no text, or deeper or longer than here it may be.
        """
        parse = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.method != "POST":
                return await parse(request)
            require_media(request, JSON)
            service = request.app.state.service
            limiter = service.body_limits.of(request)
            try:
                limiter.acquire_on_behalf_of_nowait(request)
            except WouldBlock:
                await limiter.acquire_on_behalf_of(request)
            try:
                body = await request.body()
                require_unicode(body)
                scan_json(body, service.settings.max_values)
                return await parse(request)
            finally:
                limiter.release_on_behalf_of(request)

        return handle


def require_media(request: Request, accepted: tuple[str, ...]) -> None:
    """Refuse a body of a media type that is not accepted.

    Raises:
      Refused: with what is.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        what = repr(given[:100]) if given else "no Content-Type"
        raise Refused("unsupported-media", f"{what}, not {accepted[0]}", accepted=list(accepted))


async def write_body(request: Request, path: Path, quota: Quota | None = None) -> str:
    """Write a body to a file as it arrives.

    Returns:
      Its digest.

    Raises:
      Refused: `quota`, as soon as it is more than still fits.
    """
    digest = hashlib.sha256()
    waiting = bytearray()
    size = 0
    with path.open("wb") as file:

        def write(data: bytearray) -> None:
            digest.update(data)
            file.write(data)

        async for part in request.stream():
            waiting += part
            size += len(part)
            if quota is not None:
                quota.check(size)
            if len(waiting) >= CHUNK:
                await run_sync(write, waiting)
                waiting = bytearray()
        await run_sync(write, waiting)
    return f"sha256:{digest.hexdigest()}"
