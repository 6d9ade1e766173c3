"""The service beside a bare FastAPI echo, and small plans beside heavy ones: ratios of one run.

Both servers have one process and uvicorn's h11; one client with four connections asks each as fast as it
answers, in turns. Then small plans come at a steady rate, alone and while another token's jobs plan large
models on every worker. Usage, from the repository root: `python -m benchmarks.service_echo
[--seconds 5] [--rounds 3] [--beside 30] [--write]`.
"""

import argparse
import asyncio
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import repeat
from typing import Final, TypeAlias

import httpx

from benchmarks.service import ROOT, cpu_ms, model, server
from benchmarks.service_load import KERNELS, Line, fresh_bodies, post
from benchmarks.service_page import note

CONNECTIONS: Final = 4
RATE: Final = 5
LARGE: Final = 3000
"""Kernels of a heavy plan: more than are planned in the server's process."""
WAITING: Final = 6
"""Heavy jobs that wait or run at any time."""
Row: TypeAlias = tuple[str, str, str]
WORDS: Final = {
    "echo": "bare FastAPI echo, 4 connections",
    "stored": "the plan from the store",
    "fresh": "a fresh plan of 50 kernels",
}
ECHO: Final = """
import sys, uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.post("/v1/plans")
async def echo(body: dict) -> dict:
    return body

uvicorn.run(app, port=int(sys.argv[1]), http="h11", log_level="critical", access_log=False)
"""


@contextmanager
def echo(port: int) -> Iterator[int]:
    """A bare FastAPI application that answers with the JSON it was sent; its process id."""
    with subprocess.Popen([sys.executable, "-c", ECHO, str(port)], cwd=ROOT) as process:
        try:
            for _ in repeat(None, 100):
                with suppress(OSError):
                    asyncio.run(Line.open(port))
                    break
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()
            process.wait(timeout=60)


async def answered(port: int, bodies: Iterator[bytes], seconds: float, more: str = "") -> int:
    """Requests answered within some seconds, as fast as they are."""
    until, done = time.perf_counter() + seconds, 0

    async def ask() -> None:
        nonlocal done
        line = await Line.open(port)
        while time.perf_counter() < until:
            status, _ = await line.ask(post(next(bodies), more))
            if status != 200:
                raise RuntimeError(f"a plan was answered with {status}")
            done += 1
        line.writer.close()

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    return done


def beside_echo(seconds: float, rounds: int) -> list[Row]:
    """Print requests a second and processor time of each, and shares of the echo's; the page's rows."""
    same = json.dumps({"model": model(KERNELS), "target": "litert-int8"}).encode()
    fresh = fresh_bodies()
    with server(QPLAN_ACCESS_LOG="off") as (url, pid), echo(port_of(url) + 1) as other:
        asked: dict[str, tuple[int, int, Callable[[], Iterator[bytes]]]] = {
            "echo": (port_of(url) + 1, other, lambda: repeat(same)),
            "stored": (port_of(url), pid, lambda: repeat(same)),
            "fresh": (port_of(url), pid, lambda: fresh),
        }
        rates: dict[str, list[float]] = {name: [] for name in asked}
        used: dict[str, list[float]] = {name: [] for name in asked}
        for turn in range(rounds + 1):
            for name, (port, process, bodies) in asked.items():
                before = cpu_ms(process)
                done = asyncio.run(answered(port, bodies(), seconds))
                if turn:  # the first one warms up
                    rates[name].append(done / seconds)
                    used[name].append((cpu_ms(process) - before) / done)
    rows = []
    for name in asked:
        rate, ms = (statistics.median(found[name]) for found in (rates, used))
        share = rate / statistics.median(rates["echo"])
        times = ms / statistics.median(used["echo"])
        print(f"{name:8}{rate:8.1f} a second ({share:.3f} of echo){ms:8.2f} ms CPU ({times:.1f} times echo)")
        measured = f"{rate:.0f} a second ({share:.3f} of echo), {ms:.2f} ms of processor ({times:.1f} times)"
        rows.append((WORDS[name], measured, ""))
    return rows


async def steady(port: int, seconds: float, more: str) -> list[float]:
    """Milliseconds of small plans that come at a steady rate, from when each was due."""
    lines: list[Line] = []
    bodies, times = fresh_bodies(), list[float]()

    async def ask(due: float) -> None:
        line = lines.pop(0) if lines else await Line.open(port)
        if line.reader.at_eof():  # the server closed it, for nothing came
            line = await Line.open(port)
        status, _ = await line.ask(post(next(bodies), more))
        times.append((time.perf_counter() - due) * 1e3 if status == 200 else float("inf"))
        lines.append(line)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * RATE)):
            due = begun + number / RATE
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            group.create_task(ask(due))
    return times


@asynccontextmanager
async def heavy(url: str, token: str) -> AsyncIterator[list[int]]:
    """Keep jobs of another token at work; how many of them ended, once it is over."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Prefer": "respond-async",
    }
    ended, ending = [0], asyncio.Event()
    # Written out before anything is timed: the small plans are timed in this process.
    bodies = fresh_bodies(LARGE)
    next(bodies)

    async def feed() -> None:
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            running: list[str] = []
            while True:
                while len(running) < WAITING:
                    answer = await client.post("/v1/plans", content=next(bodies))
                    running.append(answer.json()["link"])
                await asyncio.sleep(0.5)
                states = [(link, (await client.get(link)).json()["state"]) for link in running]
                ended[0] += sum(state == "done" for _, state in states)
                running = [link for link, state in states if state in ("queued", "running")]
                if ending.is_set():
                    break
            for link in running:  # what comes after this is measured alone
                await client.delete(link)

    feeding = asyncio.create_task(feed())
    await asyncio.sleep(5)
    try:
        yield ended
    finally:
        ending.set()
        await feeding


def beside_heavy(seconds: float) -> list[Row]:
    """Print p50, p95 and p99 of small plans alone and beside heavy ones, in turns; the rows of the page."""
    rows: list[Row] = []
    own, other = "small-plans", "heavy-plans"
    tokens = ",".join(f"{name}:plan:{hashlib.sha256(name.encode()).hexdigest()}" for name in (own, other))
    more = f"Authorization: Bearer {own}\r\n"
    settings = {
        "QPLAN_TOKENS": tokens,
        "QPLAN_ACCESS_LOG": "off",
        "QPLAN_RATE": "1000",
        "QPLAN_BURST": "1000",
    }
    with server(**settings) as (url, _):

        async def both() -> None:
            await steady(port_of(url), 3, more)
            alone = await steady(port_of(url), seconds, more)
            async with heavy(url, other) as ended:
                beside = await steady(port_of(url), seconds, more)
            alone += await steady(port_of(url), seconds, more)
            for name, times in (("alone", alone), (f"beside {ended[0]} heavy plans", beside)):
                found = sorted(times)
                shown = ", ".join(f"p{share:g} {at(found, share):.1f}" for share in (50, 95, 99))
                print(f"{name:24}{len(found):5} small plans: {shown} ms")
                asked = "p95 under 50 ms" if times is beside else ""
                where = "beside heavy plans" if times is beside else "alone"
                measured = f"{shown} ms, {len(found)} plans" + (f", {name}" if times is beside else "")
                rows.append((f"small plans, {RATE} a second, {where}", measured, asked))
            ratios = (
                f"p{share:g} {at(sorted(beside), share) / at(sorted(alone), share):.2f}"
                for share in (50, 95, 99)
            )
            print(f"times: {', '.join(ratios)}")

        asyncio.run(both())
    return rows


def at(found: list[float], share: float) -> float:
    """A percentile of sorted numbers."""
    return found[min(int(len(found) * share / 100), len(found) - 1)]


def port_of(url: str) -> int:
    """The port of an address."""
    return int(re.sub(r".*:", "", url))


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=float, default=30.0)
    parser.add_argument("--write", action="store_true", help="into docs/results/service-load.md")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} before")
    rows = beside_echo(given.seconds, given.rounds)
    rows += beside_heavy(given.beside)
    if given.write:
        note("benchmarks.service_echo", rows)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
