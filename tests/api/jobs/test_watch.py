"""Streams that wait: one look serves all, and each hears of its own job alone."""

import asyncio
import time

import pytest
from sqlalchemy.exc import OperationalError

from api.jobs import queue
from api.jobs.watch import EVERY, SOON, Watch


@pytest.fixture
def looks(monkeypatch) -> list[int]:
    """How many jobs each look asked for."""
    found: list[int] = []
    real = queue.stands

    def counted(engine, names):
        found.append(len(names))
        return real(engine, names)

    monkeypatch.setattr(queue, "stands", counted)
    return found


def test_one_look_serves_all(engine, looks):
    jobs = [queue.submit(engine, "plan", {}) for _ in range(4)]

    async def run() -> None:
        watch = Watch(engine)
        start = time.monotonic()
        waiting = [asyncio.create_task(watch.news(job.id, 1)) for job in jobs for _ in range(50)]
        await asyncio.sleep(4 * EVERY)
        assert not any(task.done() for task in waiting)
        queue.cancel(engine, jobs[0].id)
        ended = await asyncio.gather(*waiting[:50])
        assert ended == [True] * 50
        assert not any(task.done() for task in waiting[50:])
        assert len(looks) <= (time.monotonic() - start) / EVERY + 3
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (watch.waiting, watch.fresh) == (set(), set())
        if watch.looking is not None:
            await watch.looking

    asyncio.run(run())


def test_news_that_are_there_come_at_once(engine, looks):
    job = queue.submit(engine, "plan", {})

    async def run() -> list[bool]:
        watch = Watch(engine)
        never = asyncio.create_task(watch.news(job.id, 1))
        await asyncio.sleep(SOON)
        found = [await watch.news(job.id, 0), await watch.news("0" * 32, 0)]
        never.cancel()
        return found

    assert asyncio.run(run()) == [False, True]
    assert looks


def test_a_database_that_is_away_ends_no_stream(engine, monkeypatch):
    job = queue.submit(engine, "plan", {})
    real, failures = queue.stands, [1, 2]

    def failing(engine, names):
        if failures:
            failures.pop()
            raise OperationalError("select", {}, Exception("away"))
        return real(engine, names)

    monkeypatch.setattr(queue, "stands", failing)
    assert asyncio.run(Watch(engine).news(job.id, 0)) is False
    assert failures == []
