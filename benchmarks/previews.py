"""What an edit costs over HTTP: a preview by a plan in memory, a preview without one, and the whole new plan.

Usage, from the repository root: `python -m benchmarks.previews [--regions 10000] [--edits 20] [--write]`. Two
servers of their own, one that holds plans and one that holds none; edits are those of `replanning`. The first
preview, which makes the plan, is told apart. `--write` puts the table into docs/results/previews.md.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.replanning import TYPES
from benchmarks.service import server
from benchmarks.topologies import SEED, residual
from planner.client import Client
from planner.formats.annotated.document import write_annotated

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "previews.md"
TARGET: Final = "litert-int8"
PLANS: Final = 3
"""Whole plans that are asked for: each takes seconds."""
HEAD: Final = (
    "| asked | times | median ms | slowest ms |",
    "|---|---|---|---|",
)


def taken(work: Callable[[], Any]) -> float:
    """Milliseconds that a request takes."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def measure(regions: int, edits: int) -> list[str]:
    """Rows of the table."""
    graph = residual(regions)
    random = Random(SEED)  # noqa: S311 - a choice of edits, not a secret
    names = [name for name in graph.values if name not in graph.constants]
    asked = [{random.choice(names): random.choice(TYPES)} for _ in range(edits)]
    model = write_annotated(graph).encode()
    rows = []
    for residents, told in ((2, "a plan in memory"), (0, "no plan in memory")):
        given = {"QPLAN_RESIDENTS": str(residents), "QPLAN_ACCESS_LOG": "off"}
        with server(**given) as (url, _), Client(url, timeout=300) as client:
            key = client.plan(client.model(model)["digest"], TARGET)["key"]
            first = taken(partial(client.preview, key))
            some = asked if residents else asked[:PLANS]
            times = [taken(partial(client.preview, key, values=edit)) for edit in some]
            if residents:
                rows.append(row("the first preview, which makes the plan", [first]))
            rows.append(row(f"a preview, {told}", times))
            if not residents:
                whole = [taken(partial(client.replan, key, values=edit)) for edit in some]
                rows.append(row("the whole new plan (`:replan`)", whole))
    return rows


def row(told: str, times: list[float]) -> str:
    """One row: what was asked, how often, and how long it took."""
    return f"| {told} | {len(times)} | {statistics.median(times):,.0f} | {max(times):,.0f} |"


def main() -> None:
    """Measure, and print the table or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table = "\n".join((*HEAD, *measure(options.regions, options.edits)))
    print(table)
    if options.write:
        text = PAGE.read_text("utf-8")
        before, _, rest = text.partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end -->\n")
        machine = f"{platform.machine()}, {os.cpu_count()} cores shared with other work"
        told = f"{machine}, Python {platform.python_version()}; {options.regions:,} kernels.\n\n"
        PAGE.write_text(f"{before}<!-- table -->\n{told}{table}\n<!-- end -->\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
