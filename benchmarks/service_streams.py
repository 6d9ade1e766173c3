"""Streams of events: what they cost a server while nothing happens, and whether they delay others.

One server of one process, started as users do; its jobs wait for a cluster that is not there. Processor time
and the empty route are measured alone and beside the streams, in one run; the route is asked by a process of
its own, as waiting at a thousand sockets delays the one that does. Usage, from the repository root:
`python -m benchmarks.service_streams [--streams 1000] [--seconds 10] [--write]`
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Final

from benchmarks.faults import prepared
from benchmarks.service_load import (
    EMPTY,
    EMPTY_RATE,
    Fleet,
    Line,
    fleet,
    percentile,
    post,
    punctual,
    repeated,
    steady,
)
from benchmarks.service_page import note

NOWHERE: Final = "dask://127.0.0.1:9"
JOBS: Final = 50
MOST_CORES: Final = 0.2


async def submitted(server: Fleet) -> list[str]:
    """Ask for jobs; the links of their events."""
    model = await asyncio.to_thread(prepared, server.port)
    line, found = await Line.open(server.port), []
    for number in range(JOBS):
        asked = {"model": model, "target": "onnxruntime-cpu", "options": {"costs": {"bit_price": 1 + number}}}
        _, body = await line.ask(post(json.dumps(asked).encode(), "Prefer: respond-async\r\n"))
        found.append(json.loads(body)["link"] + "/events")
    line.writer.close()
    return found


async def stream(port: int, link: str) -> Line:
    """Open a stream and read its first event."""
    line = await Line.open(port)
    line.writer.write(f"GET {link} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await line.reader.readuntil(b"event: queued")
    return line


async def turn(server: Fleet, seconds: float) -> tuple[float, float]:
    """Cores that the server uses, without the empty route's share, and the p95 of that in milliseconds."""
    before = server.cpu_ms()
    await asyncio.sleep(seconds)
    cores = (server.cpu_ms() - before) / 1e3 / seconds
    line = [sys.executable, "-m", "benchmarks.service_streams", "--seconds", str(seconds)]
    asking = await asyncio.create_subprocess_exec(
        *line, "--ask", str(server.port), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asking.communicate()
    return cores, float(told)


async def ask(port: int, seconds: float) -> float:
    """Ask the empty route at a rate: the p95 in milliseconds."""
    times: list[float] = []
    await steady(port, EMPTY_RATE, seconds, repeated(EMPTY), times)
    return percentile(times, 0.95)


async def measure(server: Fleet, options: argparse.Namespace) -> bool:
    """Print both turns; whether the figure is met."""
    links = await submitted(server)
    await turn(server, 2.0)
    alone, quiet = await turn(server, options.seconds)
    lines: list[Line] = []
    for first in range(0, options.streams, 50):
        some = range(first, min(first + 50, options.streams))
        lines += await asyncio.gather(*(stream(server.port, links[k % JOBS]) for k in some))
    await asyncio.sleep(1)
    beside, crowded = await turn(server, options.seconds)
    for line in lines:
        line.writer.close()
    print(f"{'':34}{'alone':>10}{'beside':>10}   {options.streams} streams")
    print(f"{'cores of the server':34}{alone:10.3f}{beside:10.3f}")
    print(f"{'empty route, p95, ms':34}{quiet:10.1f}{crowded:10.1f}")
    if options.write:
        rows = [
            (
                f"cores of the server, beside {options.streams} streams",
                f"{alone:.3f}, {beside:.3f} beside",
                "0.2 more",
            ),
            (
                f"empty route, p95, beside {options.streams} streams",
                f"{quiet:.1f}, {crowded:.1f} ms beside",
                "no delay",
            ),
        ]
        note("benchmarks.service_streams", rows)
    return beside - alone <= MOST_CORES


def main() -> None:
    """Measure, print, and end with 1 where the figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--write", action="store_true", help="into docs/results/service-load.md")
    parser.add_argument("--ask", type=int, metavar="PORT", help="only ask a server that runs")
    options = parser.parse_args()
    if options.ask:
        with asyncio.Runner(loop_factory=punctual) as runner:
            print(runner.run(ask(options.ask, options.seconds)))
        return
    os.environ |= {"QPLAN_EXECUTOR": NOWHERE, "QPLAN_CONNECTIONS": str(options.streams + 100)}
    with fleet(1) as server, asyncio.Runner(loop_factory=punctual) as runner:
        met = runner.run(measure(server, options))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
