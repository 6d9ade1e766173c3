"""The service under load: plans at a steady rate, plans from the store, jobs, uploads at once, slow sockets.

One server of several processes, started as users do, on the machine of its client. Requests are sent when
they are due, whether or not earlier ones were answered, so waiting counts; an empty route is asked in the
same seconds, and the client's own processor time is told apart. Usage, from the repository root:
`python -m benchmarks.service_load [--seconds 60] [--rate 100] [--processes 2] [--only plans,uploads]
[--write]`
"""

import argparse
import asyncio
import hashlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.faults import prepared
from benchmarks.service import COMMAND, ROOT, TICK, model, wait_until_ready
from benchmarks.service_page import note

KERNELS: Final = 50
CONNECTIONS: Final = 32
EMPTY_RATE: Final = 10
SUBMIT_RATE: Final = 10
PARTS: Final = 65_536
UPLOADS: Final = 50
UPLOAD_BYTES: Final = 20_000_000
SOCKETS: Final = 200
SLOW_EVERY: Final = 1.0
NUDGE: Final = re.compile(rb"<-([0-9.]+):\1>")


@dataclass(slots=True)
class Found:
    """What a part of the run found: lines to print, and figures with their limits."""

    figures: dict[str, tuple[float, float]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)


class Fleet:
    """A running server: its address and every process of its."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.port = int(url.rpartition(":")[2])

    def pids(self) -> list[int]:
        """The supervisor and its servers, not the children that read."""
        top = self.process.pid
        found = Path(f"/proc/{top}/task/{top}/children").read_text().split()
        own = [int(pid) for pid in found if b"api.server.run" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return [top, *own]

    def cpu_ms(self) -> float:
        """Processor time of them all."""
        return sum(_cpu_ms(pid) for pid in self.pids())

    def memory(self, line: str) -> float:
        """MB of `VmRSS` or `VmHWM` of them all."""
        texts = (Path(f"/proc/{pid}/status").read_text() for pid in self.pids())
        return sum(int(text.split(f"{line}:")[1].split()[0]) for text in texts) / 1024


@contextmanager
def fleet(processes: int) -> Iterator[Fleet]:
    """Start a server and wait until each process answers."""
    with tempfile.TemporaryDirectory(prefix="load.") as data:
        line = [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--json", "--data", data]
        line += ["--processes", str(processes)]
        with subprocess.Popen(
            line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
                for _ in range(20):
                    wait_until_ready(told["url"])
                yield Fleet(process, told["url"])
            finally:
                process.terminate()
                process.wait(timeout=60)


class Line:
    """One kept connection, with as little of a client as HTTP/1.1 allows."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "Line":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and read its answer: status and body."""
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        return int(head[9:12]), await self.reader.readexactly(length)


def post(body: bytes, more: str = "") -> bytes:
    """A request for a plan, with more headers."""
    head = f"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


EMPTY: Final = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def fresh_bodies(kernels: int = KERNELS) -> Iterator[bytes]:
    """Requests of models that no earlier one had: one number of each is its own; cheap to write."""
    text = json.dumps({"model": model(kernels), "target": "litert-int8"}).encode()
    first = NUDGE.search(text)
    if first is None:
        raise RuntimeError("the model has no range to nudge")
    before, after = text[: first.start()], text[first.end() :]
    stamp = int(time.time() * 1000) % 1_000_000
    for number in range(1 << 40):
        bound = b"%d.%06d%06d" % (1, stamp, number % 1_000_000)
        yield before + b"<-" + bound + b":" + bound + b">" + after


async def steady(
    port: int,
    rate: float,
    seconds: float,
    requests: Iterator[bytes],
    times: list[float],
    *,
    late: list[float] | None = None,
) -> None:
    """Ask at a rate; a time is from when a request was due until its answer was whole.

    Args:
      late: by how much requests were sent late, told apart: the client's own doing, or no free connection.
    """
    lines: asyncio.Queue[Line] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        lines.put_nowait(await Line.open(port))
    clock = time.perf_counter

    async def one(due: float) -> None:
        line = await lines.get()
        if late is not None:
            late.append((clock() - due) * 1e3)
        status, _ = await line.ask(next(requests))
        times.append((clock() - due) * 1e3)
        lines.put_nowait(line)
        if status not in (200, 202):
            raise RuntimeError(f"an answer with {status}")

    start = clock()
    under_way = set()
    for number in range(int(rate * seconds)):
        due = start + number / rate
        await asyncio.sleep(max(0.0, due - clock()))
        under_way.add(asyncio.create_task(one(due)))
    await asyncio.gather(*under_way)
    for _ in range(CONNECTIONS):
        lines.get_nowait().writer.close()


def punctual() -> asyncio.AbstractEventLoop:
    """An event loop that wakes when it is asked to: epoll, asyncio's own, counts in whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def percentile(times: list[float], share: float) -> float:
    """Of times in milliseconds."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def repeated(request: bytes) -> Iterator[bytes]:
    """The same again and again."""
    while True:
        yield request


async def loaded(
    server: Fleet, options: argparse.Namespace, requests: Iterator[bytes], name: str, limit: float
) -> Found:
    """A rate of requests, with the empty route beside them."""
    times: list[float] = []
    empty: list[float] = []
    late: list[float] = []
    await steady(server.port, 20, 1, requests, [])
    clock, own, theirs = time.perf_counter(), time.process_time(), server.cpu_ms()
    await asyncio.gather(
        steady(server.port, options.rate, options.seconds, requests, times, late=late),
        steady(server.port, EMPTY_RATE, options.seconds, repeated(EMPTY), empty),
    )
    took = time.perf_counter() - clock
    answered = len(times)
    return Found(
        {
            f"{name}: p95, ms": (percentile(times, 0.95), limit),
            f"{name}: missing of {options.rate:g} requests/s": (
                options.rate - answered / took,
                options.rate * 0.01,
            ),
        },
        {
            "p50, ms": percentile(times, 0.5),
            "p99, ms": percentile(times, 0.99),
            "empty route, p50, ms": percentile(empty, 0.5),
            "empty route, p95, ms": percentile(empty, 0.95),
            "server's processor, ms a request": (server.cpu_ms() - theirs) / answered,
            "client's own processor, ms a request": (time.process_time() - own) * 1e3 / answered,
            "sent late, p95, ms": percentile(late, 0.95),
            "requests": answered,
        },
    )


async def plans(server: Fleet, options: argparse.Namespace) -> Found:
    """Models of 50 kernels, each new."""
    return await loaded(server, options, map(post, fresh_bodies()), "small annotated plan", 25.0)


async def stored(server: Fleet, options: argparse.Namespace) -> Found:
    """The same request, from the store."""
    return await loaded(server, options, repeated(post(next(fresh_bodies()))), "plan from the store", 5.0)


async def submits(server: Fleet, options: argparse.Namespace) -> Found:
    """Jobs at a rate, while those before them run: plans of an ONNX file, each at a price of its own."""
    asked = {"model": await asyncio.to_thread(prepared, server.port), "target": "onnxruntime-cpu"}
    bodies = (
        json.dumps({**asked, "options": {"costs": {"bit_price": 1 + k / 1000}}}).encode() for k in count()
    )
    times: list[float] = []
    requests = (post(body, "Prefer: respond-async\r\n") for body in bodies)
    await steady(server.port, SUBMIT_RATE, options.seconds, requests, times)
    return Found(
        {f"{SUBMIT_RATE} jobs a second: submit p95, ms": (percentile(times, 0.95), 50.0)},
        {"p50, ms": percentile(times, 0.5), "most, ms": max(times)},
    )


async def uploads(server: Fleet, _options: argparse.Namespace) -> Found:
    """50 files of 20 MB at once."""
    before = server.memory("VmRSS")
    contents = [os.urandom(16) for _ in range(UPLOADS)]
    rest = bytes(PARTS)

    async def one(start: bytes) -> None:
        digest = hashlib.sha256(start)
        left = UPLOAD_BYTES - len(start)
        while left > 0:
            digest.update(rest[: min(left, PARTS)])
            left -= PARTS
        head = f"PUT /v1/blobs/sha256:{digest.hexdigest()} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/octet-stream\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"
        line = await Line.open(server.port)
        line.writer.write(head.encode() + start)
        left = UPLOAD_BYTES - len(start)
        while left > 0:
            line.writer.write(rest[: min(left, PARTS)])
            left -= PARTS
            await line.writer.drain()
        status, body = await line.answer()
        line.writer.close()
        if status != 201:
            raise RuntimeError(f"an upload ended with {status}: {body[:200]!r}")

    clock = time.perf_counter()
    await asyncio.gather(*map(one, contents))
    took = time.perf_counter() - clock
    return Found(
        {f"{UPLOADS} uploads of 20 MB: growth of memory, MB": (server.memory("VmHWM") - before, 64.0)},
        {"MB a second": UPLOADS * UPLOAD_BYTES / 1e6 / took, "memory before, MB": before},
    )


async def slow(server: Fleet, options: argparse.Namespace) -> Found:
    """200 sockets that send a byte a second, heads and bodies."""
    head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n"
    head += b"Content-Type: application/json\r\n"
    ending = asyncio.Event()

    async def one(place: int) -> None:
        while not ending.is_set():
            line = await Line.open(server.port)
            line.writer.write(head + b"\r\n{" if place % 2 else head)
            with suppress(ConnectionError):
                while not ending.is_set() and not line.reader.at_eof():
                    line.writer.write(b"a")
                    await line.writer.drain()
                    await asyncio.sleep(SLOW_EVERY)
            line.writer.close()

    sockets = [asyncio.create_task(one(place)) for place in range(SOCKETS)]
    await asyncio.sleep(1)
    times: list[float] = []
    await steady(server.port, EMPTY_RATE, options.seconds, repeated(EMPTY), times)
    ending.set()
    await asyncio.gather(*sockets)
    return Found(
        {f"{SOCKETS} slow sockets: health p95, ms": (percentile(times, 0.95), 100.0)},
        {"p50, ms": percentile(times, 0.5), "most, ms": max(times)},
    )


PARTS_OF_A_RUN: Final[Mapping[str, Callable[[Fleet, argparse.Namespace], Awaitable[Found]]]] = {
    "plans": plans,
    "stored": stored,
    "submits": submits,
    "uploads": uploads,
    "slow": slow,
}


def rows_of(name: str, found: Found, options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Return the rows of a part for the page: its figures, and what was told beside them."""
    told = ", ".join(f"{what} {value:.1f}" for what, value in found.told.items())
    rate = f"{options.rate:g} a second, " if name in ("plans", "stored") else ""
    of = f"{rate}{options.processes} processes"
    rows = [
        (f"{what} ({of})", f"{value:.1f}", f"at most {limit:g}" + ("" if value <= limit else ", **missed**"))
        for what, (value, limit) in found.figures.items()
    ]
    return [*rows, (f"beside {name} ({of})", told, "")]


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def main() -> None:
    """Measure, print, and end with 1 where a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default=",".join(PARTS_OF_A_RUN))
    parser.add_argument("--write", action="store_true", help="into docs/results/service-load.md")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "seconds": options.seconds,
        "rate": options.rate,
        "processes": options.processes,
    }
    missed = 0
    for name in options.only.split(","):
        with fleet(options.processes) as server, asyncio.Runner(loop_factory=punctual) as runner:
            found = runner.run(PARTS_OF_A_RUN[name](server, options))
        for what, (value, limit) in found.figures.items():
            missed += value > limit
            print(f"{what:52}{value:9.2f}   at most {limit:g}{'' if value <= limit else '   MISSED'}")
        for what, value in found.told.items():
            print(f"  {what:50}{value:9.2f}")
        if options.write:
            note("benchmarks.service_load", rows_of(name, found, options))
        record[name] = {**{what: value for what, (value, _) in found.figures.items()}, **found.told}
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
