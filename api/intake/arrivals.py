"""Arrivals: bodies come whole before anything is taken for them: short ones in memory, longer ones on disk.

Whoever promises a body and sends none holds a connection and nothing else. The bytes of all bodies that are
here or on their way are bounded, in all and for each principal; beyond, the one that has been coming the
longest is given up: of the principal who went beyond his share, else of the one who has the most.
Source: docs/service.md.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from anyio.to_thread import run_sync
from starlette.requests import Request

from ..problems import Refused
from .turns import ALL, portion, refuse_share

SMALL: Final = 1 << 16
"""Bytes of a body that stay in memory."""


class Body:
    """The bytes of one body; `counted` are those that `Arrivals` counts."""

    def __init__(self, folder: Path, principal: str = "") -> None:
        self.folder = folder
        self.principal = principal
        self.size = 0
        self.counted = 0
        self._waiting = bytearray()
        self._file: IO[bytes] | None = None

    async def write(self, part: bytes) -> None:
        """Take the next part."""
        self.size += len(part)
        self._waiting += part
        if len(self._waiting) > SMALL:
            await run_sync(self._spill)

    async def read(self) -> bytes:
        """Give all of it."""
        return bytes(self._waiting) if self._file is None else await run_sync(self._whole)

    def close(self) -> None:
        """Release the bytes."""
        self._waiting.clear()
        if self._file is not None:
            self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self.folder)  # noqa: SIM115 - `close` ends it; it has no name
        self._file.write(self._waiting)
        self._waiting = bytearray()

    def _whole(self) -> bytes:
        self._spill()
        if self._file is None:
            return b""
        self._file.seek(0)
        return self._file.read()


class Arrivals:
    """The bodies of one process that are on their way, or here and not yet answered.

    Args:
      folder: where longer ones lie, without a name, so that nothing is left of them.
      most: bytes of all of them.
      share: the percentage of that for one principal.
    """

    def __init__(self, folder: Path, most: int, share: int = ALL) -> None:
        self.folder = folder
        self.most = most
        self.own = portion(most, share)
        self.bytes = 0
        self.held: dict[str, int] = {}
        self.beyond: set[Body] = set()
        self.coming: dict[Body, asyncio.Timeout] = {}

    @asynccontextmanager
    async def receive(self, request: Request, principal: str = "") -> AsyncIterator[Body]:
        """Give the body of a request once it is here.

        Raises:
          Refused: `busy`, where it came for so long that others needed its room; `share-taken`, where other
            bodies of the same principal did.
        """
        body = Body(self.folder, principal)
        try:
            await self._fill(body, request)
            yield body
        finally:
            self._forget(body)
            body.close()

    async def _fill(self, body: Body, request: Request) -> None:
        try:
            async with asyncio.timeout(None) as patience:
                self.coming[body] = patience
                async for part in request.stream():
                    self._count(body, len(part))
                    await body.write(part)
        except TimeoutError:
            if body in self.beyond:
                refuse_share(
                    f"more than {self.own} bytes of yours are on their way; this body took the longest"
                )
            raise Refused(
                "busy", f"bodies of more than {self.most} bytes are on their way; this one took the longest"
            ) from None
        finally:
            self.coming.pop(body, None)
            self.beyond.discard(body)

    def _count(self, body: Body, size: int) -> None:
        body.counted += size
        self.bytes += size
        self.held[body.principal] = self.held.get(body.principal, 0) + size
        while self.own < self.most and self.held.get(body.principal, 0) > self.own:
            if not self._give_up(body.principal, is_beyond=True):
                break
        while self.bytes > self.most and self.coming:
            most = max({one.principal for one in self.coming}, key=lambda name: self.held.get(name, 0))
            self._give_up(most)

    def _give_up(self, principal: str, *, is_beyond: bool = False) -> bool:
        """Give up the eldest body of a principal that is still coming; whether there was one.

        Eldest first: whoever sends a body whole is done before others have sent as much after it.
        """
        eldest = next((one for one in self.coming if one.principal == principal), None)
        if eldest is None:
            return False
        if is_beyond:
            self.beyond.add(eldest)
        self.coming.pop(eldest).reschedule(asyncio.get_running_loop().time())
        self._forget(eldest)
        return True

    def _forget(self, body: Body) -> None:
        self.bytes -= body.counted
        self.held[body.principal] = self.held.get(body.principal, 0) - body.counted
        if not self.held[body.principal]:
            del self.held[body.principal]
        body.counted = 0
