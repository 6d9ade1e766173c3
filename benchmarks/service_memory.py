"""Memory of a server over many requests: whether what it holds grows with what it has answered.

One server of one process, started as users do. Plans that were never asked for before, plans from the store,
lists and the empty route in turns, over a few connections. Memory is read after each tenth; the first tenth
fills caches. Usage, from the repository root: `python -m benchmarks.service_memory [--requests 50000]`
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

from benchmarks.service_load import EMPTY, Fleet, Line, fleet, fresh_bodies, post

CONNECTIONS: Final = 4
TENTHS: Final = 10
FRESH_EVERY: Final = 10
"""Of so many requests one is a plan that is new."""
LIST: Final = b"GET /v1/plans?limit=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
MOST_GROWTH: Final = 0.05
"""Growth from the second tenth to the last that counts as none."""


async def measure(server: Fleet, requests: int) -> bool:
    """Print memory after each tenth; whether it stays."""
    lines = [await Line.open(server.port) for _ in range(CONNECTIONS)]
    fresh = fresh_bodies()
    known = post(next(fresh))
    codes = Counter[int]()

    async def turns(line: Line, numbers: Iterator[int]) -> None:
        for number in numbers:
            kind = number % FRESH_EVERY
            asked = post(next(fresh)) if kind == 0 else (known, LIST, EMPTY)[kind % 3]
            code, _ = await line.ask(asked)
            codes[code] += 1

    held: list[float] = []
    print(f"{'requests':>10}{'VmRSS, MB':>12}{'VmHWM, MB':>12}")
    for tenth in range(1, TENTHS + 1):
        numbers = iter(range(requests * (tenth - 1) // TENTHS, requests * tenth // TENTHS))
        await asyncio.gather(*(turns(line, numbers) for line in lines))
        held.append(server.memory("VmRSS"))
        print(f"{requests * tenth // TENTHS:10,}{held[-1]:12.0f}{server.memory('VmHWM'):12.0f}", flush=True)
    for line in lines:
        line.writer.close()
    growth = held[-1] / held[1] - 1
    print(f"from the second tenth to the last {growth:+.1%}; answers by status: {dict(codes)}")
    return growth <= MOST_GROWTH and set(codes) <= {200, 201}


def main() -> None:
    """Measure, print, and end with 1 where memory grows or an answer is an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=50_000)
    options = parser.parse_args()
    with fleet(1) as server:
        met = asyncio.run(measure(server, options.requests))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
