"""Turns: whoever asks more does not wait less for it, and nobody takes a place twice or loses one."""

import asyncio
import random

import pytest

from api.intake.turns import Turns, portion
from api.problems import Refused


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def hold(turns: Turns, principal: str, order: list[str], done: asyncio.Event) -> None:
    async with turns.place(principal):
        order.append(principal)
        await done.wait()


@pytest.mark.parametrize(
    ("whole", "share", "own"), [(2, 50, 1), (1, 50, 1), (5, 50, 2), (4, 100, 4), (3, 1, 1)]
)
def test_a_share_is_never_nothing(whole, share, own):
    assert portion(whole, share) == own


def test_one_place_goes_round():
    async def run() -> list[str]:
        turns, order = Turns("a test", 1, 100), []
        go = [asyncio.Event() for _ in range(7)]
        names = ["a", "a", "a", "a", "b", "c", "b"]
        tasks = [asyncio.create_task(hold(turns, name, order, go[k])) for k, name in enumerate(names)]
        await settle()
        assert (order, turns.queued) == (["a"], 6)
        for event in go:
            event.set()
        await asyncio.gather(*tasks)
        assert (turns.free, turns.taken, dict(turns.lines)) == (1, {}, {})
        return order

    assert asyncio.run(run()) == ["a", "a", "b", "c", "a", "b", "a"]


def test_one_place_of_two_stays_for_others():
    async def run() -> None:
        turns, order, done = Turns("a test", 2, 8, share=50), [], asyncio.Event()
        first = [asyncio.create_task(hold(turns, "a", order, done)) for _ in range(5)]
        await settle()
        assert (order, turns.free, turns.queued) == (["a"], 1, 4)
        with pytest.raises(Refused) as caught:
            async with turns.place("a"):
                pass
        assert (caught.value.problem.name, caught.value.problem.more["retry_after"]) == ("share-taken", 1)
        other = asyncio.create_task(hold(turns, "b", order, done))
        await settle()
        assert order == ["a", "b"]
        done.set()
        await asyncio.gather(other, *first)

    asyncio.run(run())


def test_all_places_to_wait_are_taken():
    async def run() -> str:
        turns, order, done = Turns("a test", 1, 2, share=100), [], asyncio.Event()
        tasks = [asyncio.create_task(hold(turns, name, order, done)) for name in "abc"]
        await settle()
        with pytest.raises(Refused) as caught:
            async with turns.place("c"):
                pass
        done.set()
        await asyncio.gather(*tasks)
        assert dict(turns.lines) == {}
        return caught.value.problem.name

    assert asyncio.run(run()) == "busy"


def test_of_whom_nothing_waits_one_may_wait_though_all_places_are_taken():
    async def run() -> tuple[list[str], int]:
        turns, order, done = Turns("a test", 1, 4, share=50), [], asyncio.Event()
        names = ["a/one", "a/one", "a/one", "a/two", "a/two"]
        tasks = [asyncio.create_task(hold(turns, name, order, done)) for name in names]
        await settle()
        tasks.append(asyncio.create_task(hold(turns, "b/one", order, done)))
        await settle()
        waiting = turns.queued
        with pytest.raises(Refused, match="5 requests wait for a test"):
            async with turns.place("b/one"):
                pass
        done.set()
        await asyncio.gather(*tasks)
        return order, waiting

    order, waiting = asyncio.run(run())
    assert waiting == 5
    assert "b/one" in order


def test_the_tokens_of_a_tenant_have_a_share_together():
    async def run() -> tuple[list[str], str]:
        turns = Turns("a test", 2, 4, share=50, tenant_share=50)
        order, done = [], asyncio.Event()
        names = ["a/one", "a/two", "a/one", "b/one"]
        tasks = [asyncio.create_task(hold(turns, name, order, done)) for name in names]
        await settle()
        with pytest.raises(Refused, match="2 requests of your tenant wait") as caught:
            async with turns.place("a/two"):
                pass
        first = list(order)
        done.set()
        await asyncio.gather(*tasks)
        return first, caught.value.problem.name

    assert asyncio.run(run()) == (["a/one", "b/one"], "share-taken")


@pytest.mark.parametrize("seed", range(20))
def test_no_place_is_lost_whoever_gives_up(seed):
    chance = random.Random(seed)  # noqa: S311 - no secret

    async def run() -> None:
        turns, at_work = Turns("a test", 3, 1000, share=60), dict.fromkeys("abcd", 0)

        async def work(principal: str) -> None:
            async with turns.place(principal):
                at_work[principal] += 1
                assert sum(at_work.values()) <= 3
                assert at_work[principal] <= turns.most == 1
                try:
                    await asyncio.sleep(chance.random() * 0.002)
                finally:
                    at_work[principal] -= 1

        tasks = [asyncio.create_task(work(chance.choice("abcd"))) for _ in range(80)]
        for _ in range(30):
            await asyncio.sleep(chance.random() * 0.001)
            chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (turns.free, turns.taken, dict(turns.lines)) == (3, {}, {})

    asyncio.run(run())
