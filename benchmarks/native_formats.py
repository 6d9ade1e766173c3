"""Run models of one operator in the engines of native formats for a time, and compare with `evaluate`.

Usage: `python -m benchmarks.native_formats [--minutes 30] [--seed 0] [--engine litert-reference]
[--operator Greater]`. Needs the oracles litert, tosa and jax. Prints how many models each engine ran, and
every difference and refusal with what makes the model again (`tests/native`).
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.native.campaign import drawn
from tests.native.engines import ENGINES, Findings, compare


def main() -> int:
    """Run until the time is over; 1 where a result is off by more than its engine may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", action="append", choices=sorted(ENGINES))
    parser.add_argument("--operator", action="append")
    parser.add_argument("--batch", type=int, default=60)
    given = parser.parse_args()
    findings, end, number = Findings(), time.monotonic() + given.minutes * 60, 0
    while time.monotonic() < end:
        for engine in given.engine or sorted(ENGINES):
            with tempfile.TemporaryDirectory() as folder:
                cases = [drawn((given.seed, number, i), engine, given.operator) for i in range(given.batch)]
                compare(engine, Path(folder), cases, findings)
        number += 1
    for name, count in sorted(findings.counts.items()):
        print(f"{count:7} {name}")
    for case, engine, value, most in findings.differing:
        print(f"{engine}: {case}: {value} is {most:g} off")
    for case, engine, why in findings.refused:
        print(f"{engine}: {case}: {why[:300]}")
    return int(any(findings.beyond(engine) for engine in given.engine or ENGINES))


if __name__ == "__main__":
    raise SystemExit(main())
