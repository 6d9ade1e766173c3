"""Arrivals: bodies come whole before anything is taken for them: short ones in memory, longer ones on disk.

Whoever promises a body and sends none holds a connection and nothing else. The bytes of all bodies that are
here or on their way are bounded; beyond, the one that has been coming the longest is given up.
Source: design 06.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from anyio.to_thread import run_sync
from starlette.requests import Request

from api.problems import Refused

SMALL: Final = 1 << 16
"""Bytes of a body that stay in memory."""


class Body:
    """The bytes of one body; `counted` are those that `Arrivals` counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
        """Let go of the bytes."""
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
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.bytes = 0
        self.coming: dict[Body, asyncio.Timeout] = {}

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[Body]:
        """Give the body of a request once it is here.

        Raises:
          Refused: `busy`, where it came for so long that others needed its room.
        """
        body = Body(self.folder)
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
            raise Refused(
                "busy", f"bodies of more than {self.most} bytes are on their way; this one took the longest"
            ) from None
        finally:
            self.coming.pop(body, None)

    def _count(self, body: Body, size: int) -> None:
        body.counted += size
        self.bytes += size
        now = asyncio.get_running_loop().time()
        while self.bytes > self.most and self.coming:
            # Eldest first: whoever sends a body whole is done before others have sent as much after it.
            eldest = next(iter(self.coming))
            self.coming.pop(eldest).reschedule(now)
            self._forget(eldest)

    def _forget(self, body: Body) -> None:
        self.bytes -= body.counted
        body.counted = 0
