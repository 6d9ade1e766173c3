"""Writes: plans on their way to the disk while their answers are already on theirs.

A plan can be made again, so its answer need not wait for fsync; whoever asks for it by key waits for the
write, and a server that ends waits for all of them.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync

from api.store import Store

MOST: Final = 64

log: Final = logging.getLogger("qplan.writes")


class Writes:
    """The writes under way of one server, by plan key."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.under_way: dict[str, asyncio.Task[None]] = {}

    async def begin(self, request: str, key: str, text: bytes, origin: bytes) -> None:
        """Start to keep a plan as the answer of a request, and where it comes from.

        Waits only when too many writes are under way.
        """
        if len(self.under_way) >= MOST:
            await asyncio.wait(self.under_way.values(), return_when=asyncio.FIRST_COMPLETED)
        before = self.under_way.get(key)
        self.under_way[key] = task = asyncio.create_task(self._write(before, request, key, text, origin))
        task.add_done_callback(lambda done: self._done(key, done))

    async def find(self, key: str) -> Path:
        """Path of a plan, once it is written.

        Raises:
          Refused: there is none, with the nearest.
        """
        if key in self.under_way:
            await asyncio.wait([self.under_way[key]])
        return self.store.find("plans", key)

    async def finish(self) -> None:
        """Wait for every write."""
        if self.under_way:
            await asyncio.wait(self.under_way.values())

    async def _write(
        self, before: asyncio.Task[None] | None, request: str, key: str, text: bytes, origin: bytes
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        await run_sync(self._keep, request, key, text, origin)

    def _keep(self, request: str, key: str, text: bytes, origin: bytes) -> None:
        self.store.put_all([("origins", key, origin), ("plans", key, text)])
        self.store.link(request, key)

    def _done(self, key: str, task: asyncio.Task[None]) -> None:
        if self.under_way.get(key) is task:
            del self.under_way[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("plan %s is not kept: %s", key, task.exception())
