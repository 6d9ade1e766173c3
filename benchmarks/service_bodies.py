"""Bodies that do not come: small plans and an upload, alone and beside many sockets that send no body.

One server of one process, started as users do; the quiet and the crowded turns are asked of the same server,
one after the other, so ratios are what counts. Every socket sends a head that promises a body: a third are
chunked, a third send half of it; one that the server closes is opened again. Usage, from the repository root:
 `python -m benchmarks.service_bodies [--sockets 500] [--seconds 10] [--rate 20] [--write]`
"""

import argparse
import asyncio
import hashlib
import os
import sys
import time
from contextlib import suppress
from typing import Final

from benchmarks.service_load import Fleet, Line, fleet, fresh_bodies, percentile, post, punctual, steady
from benchmarks.service_page import note

UPLOAD_BYTES: Final = 50_000_000
PART: Final = 65_536
MOST_P95: Final = 50.0
LEAST_SHARE: Final = 0.5
GIVEN_UP: Final = 60.0
HEAD: Final = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PROMISES: Final = (
    HEAD + b"Content-Length: 9000\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    HEAD + b"Content-Length: 9000\r\n\r\n" + b" " * 4500,
)
"""What a socket sends before it falls silent."""


async def idle(port: int, place: int, ending: asyncio.Event) -> None:
    """One socket that promises a body and sends no end of it."""
    while not ending.is_set():
        line = await Line.open(port)
        with suppress(ConnectionError):
            line.writer.write(PROMISES[place % len(PROMISES)])
            reading = asyncio.create_task(line.reader.read())
            end = asyncio.create_task(ending.wait())
            await asyncio.wait((reading, end), return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            end.cancel()
        line.writer.close()


async def upload(port: int) -> float:
    """Send a file nobody sent before; MB a second."""
    start, rest = os.urandom(16), bytes(PART)
    digest = hashlib.sha256(start)
    left = UPLOAD_BYTES - len(start)
    while left > 0:
        digest.update(rest[: min(left, PART)])
        left -= PART
    head = f"PUT /v1/blobs/sha256:{digest.hexdigest()} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/octet-stream\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"
    line = await Line.open(port)
    clock = time.perf_counter()
    line.writer.write(head.encode() + start)
    left = UPLOAD_BYTES - len(start)
    while left > 0:
        line.writer.write(rest[: min(left, PART)])
        left -= PART
        await line.writer.drain()
    status, body = await line.answer()
    line.writer.close()
    if status != 201:
        raise RuntimeError(f"an upload ended with {status}: {body[:200]!r}")
    return UPLOAD_BYTES / 1e6 / (time.perf_counter() - clock)


async def turn(server: Fleet, options: argparse.Namespace) -> tuple[list[float], float]:
    """Ask for plans at a rate, then upload: the times in milliseconds, and the best MB a second of three."""
    times: list[float] = []
    requests = map(post, fresh_bodies())
    try:
        async with asyncio.timeout(options.seconds + GIVEN_UP):
            await steady(server.port, options.rate, options.seconds, requests, times)
    except TimeoutError:
        times += [GIVEN_UP * 1e3] * (int(options.rate * options.seconds) - len(times))
    return times, max([await upload(server.port) for _ in range(3)])


async def measure(server: Fleet, options: argparse.Namespace) -> bool:
    """Print both turns; whether the figures are met."""
    await turn(server, options)
    quiet, quiet_rate = await turn(server, options)
    ending = asyncio.Event()
    sockets = [asyncio.create_task(idle(server.port, k, ending)) for k in range(options.sockets)]
    await asyncio.sleep(2)
    crowded, crowded_rate = await turn(server, options)
    ending.set()
    await asyncio.gather(*sockets, return_exceptions=True)
    before, beside = percentile(quiet, 0.95), percentile(crowded, 0.95)
    share = crowded_rate / quiet_rate
    print(f"{'':34}{'alone':>10}{'beside':>10}{'ratio':>8}   {options.sockets} sockets")
    print(f"{'small plan, p50, ms':34}{percentile(quiet, 0.5):10.1f}{percentile(crowded, 0.5):10.1f}")
    print(f"{'small plan, p95, ms':34}{before:10.1f}{beside:10.1f}{beside / before:8.2f}")
    print(f"{'upload, MB a second':34}{quiet_rate:10.1f}{crowded_rate:10.1f}{share:8.2f}")
    if options.write:
        many = f"beside {options.sockets} sockets"
        plans = f"{before:.1f}, {beside:.1f} ms beside"
        upload = f"{quiet_rate:.0f}, {crowded_rate:.0f} beside: {share:.2f} times"
        rows = [
            (f"small plan, {options.rate:g} a second, p95, {many}", plans, f"under {MOST_P95:g} ms"),
            (f"upload, MB a second, {many}", upload, f"{LEAST_SHARE:g} times"),
        ]
        note("benchmarks.service_bodies", rows)
    return beside <= MOST_P95 and share >= LEAST_SHARE


def main() -> None:
    """Measure, print, and end with 1 where a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--write", action="store_true", help="into docs/results/service-load.md")
    options = parser.parse_args()
    with fleet(1) as server, asyncio.Runner(loop_factory=punctual) as runner:
        met = runner.run(measure(server, options))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
