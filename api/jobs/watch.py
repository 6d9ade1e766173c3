"""Watch: streams wait here for news of their jobs; one look at the database serves all of them.

A thousand streams that each looked for themselves would keep a core busy with jobs to which nothing happens.
Nothing here knows HTTP. Source: docs/service.md.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from anyio.to_thread import run_sync
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from . import queue

EVERY: Final = 0.25
"""Seconds between two looks for all."""
SOON: Final = 0.02
"""Seconds between two looks for those who just came."""

log: Final = logging.getLogger("qplan.jobs")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A stream that has the events of a job up to a number; `ended` will say whether the job has."""

    job: str
    number: int
    ended: asyncio.Future[bool]


class Watch:
    """The streams of one server that wait; `fresh` are those that no look has seen yet."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: set[_Waiting] = set()
        self.fresh: set[_Waiting] = set()
        self.came = asyncio.Event()
        self.looking: asyncio.Task[None] | None = None

    async def news(self, job: str, number: int) -> bool:
        """Wait until a job has an event after the one of a number, or has ended; whether it has.

        A job that is no longer there has ended.
        """
        one = _Waiting(job, number, asyncio.get_running_loop().create_future())
        self.waiting.add(one)
        self.fresh.add(one)
        self.came.set()
        if self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self._look_on())
        try:
            return await one.ended
        finally:
            self.waiting.discard(one)
            self.fresh.discard(one)

    async def _look_on(self) -> None:
        """Look while anybody waits: soon for those who came, now and then for all."""
        due = 0.0
        while self.waiting:
            everybody = time.monotonic() >= due
            if everybody:
                due = time.monotonic() + EVERY
            asked = tuple(self.waiting if everybody else self.fresh)
            self.fresh.clear()
            self.came.clear()
            try:
                await self._look(asked)
            except DatabaseError as error:
                log.warning("streams wait: %s", str(error).splitlines()[0][:300])
            await asyncio.sleep(SOON)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(due - time.monotonic(), 0.0)):
                    await self.came.wait()

    async def _look(self, asked: Sequence[_Waiting]) -> None:
        stands = await run_sync(queue.stands, self.engine, {one.job for one in asked})
        for one in asked:
            number, ended = stands.get(one.job, (0, True))
            if (ended or number > one.number) and not one.ended.done():
                one.ended.set_result(ended)
                self.waiting.discard(one)
