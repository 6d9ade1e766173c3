"""How planning grows with the size of a graph: seconds and memory of plan + check, and the exponent.

Chains of residual blocks (two regions a block for `onnxruntime-cpu`) with seeded ranges that differ from
value to value, each size in processes of its own. Usage, from the repository root:
`python -m benchmarks.growth [--regions N ...] [--repeat 3]`; `main_job` puts the table on its page.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

import planner
from benchmarks.chain import write_chain
from benchmarks.comparison import Record
from benchmarks.memory import peak_rss_mb
from benchmarks.samples import SEED
from planner.calibration.annotate import annotate
from planner.calibration.statistics import Statistics, ValueStats, calibration_digest
from planner.ir.graph import Graph

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = "onnxruntime-cpu"
SIZES: Final = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
REGIONS_A_BLOCK: Final = 2


def measure(sizes: Sequence[int], repeat: int) -> list[Record]:
    """Return a record for each number of regions: median seconds, largest memory."""
    records = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.growth", "--one", str(size)]
        runs: list[Record] = []
        for _ in range(repeat):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
        middle = {key: statistics.median(run[key] for run in runs) for key in ("plan_s", "check_s", "read_s")}
        records.append(runs[0] | middle | {"rss_mb": max(run["rss_mb"] for run in runs)})
    return records


def exponent(records: Sequence[Record]) -> float:
    """Return the slope of log(plan + check seconds) over log(regions), by least squares."""
    sizes = [record["regions"] for record in records]
    seconds = [record["plan_s"] + record["check_s"] for record in records]
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def with_ranges(model: Graph) -> Graph:
    """Give every value a range of its own."""
    rng = np.random.default_rng(SEED)
    names = [
        name for name, value in model.values.items() if name not in model.constants and value.dtype == "f32"
    ]
    ends = rng.uniform(2.0, 6.0, (len(names), 2))
    seen = {
        name: ValueStats(los=(-float(low),), his=(float(high),))
        for name, (low, high) in zip(names, ends, strict=True)
    }
    stats = Statistics(model=calibration_digest(model), method="minmax", samples=1, values=seen)
    return annotate(model, stats=stats)


def one(regions: int) -> Record:
    """Plan and check one chain in this process."""
    target = planner.load_target(TARGET)
    with tempfile.TemporaryDirectory(prefix="growth.") as folder:
        start = time.perf_counter()
        source = write_chain(Path(folder), regions // REGIONS_A_BLOCK).path
        written = time.perf_counter()
        model = with_ranges(planner.load_model(source))
        read = time.perf_counter()
    before = peak_rss_mb()
    begun = time.perf_counter()
    plan = planner.plan(model, target)
    planned = time.perf_counter()
    planner.check(plan, model)
    checked = time.perf_counter()
    return {
        "regions": len(plan.kernels_in_order),
        "write_s": written - start,
        "read_s": read - written,
        "plan_s": planned - begun,
        "check_s": checked - planned,
        "rss_mb": peak_rss_mb(),
        "read_rss_mb": before,
        "optimal": plan.optimal,
        "rescales": sum(item.kind not in ("quantize", "dequantize") for item in plan.rescales),
    }


def table(records: Sequence[Record]) -> str:
    """Return the Markdown table and the exponent below it."""
    rows = []
    for r in records:
        microseconds = 1e6 * (r["plan_s"] + r["check_s"]) / r["regions"]
        rows.append(
            f"| {r['regions']} | {r['read_s']:.2f} | {r['plan_s']:.3f} | {r['check_s']:.3f} "
            f"| {microseconds:.0f} | {r['rss_mb']:.0f} | {r['read_rss_mb']:.0f} |"
        )
    head = (
        "| regions | read, annotate s | plan s | check s | µs a region | peak MB | MB once read |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    last = f"\n\nExponent of plan + check by regression: {exponent(records):.2f}." if len(records) > 1 else ""
    return head + "\n".join(rows) + last


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", nargs="*", type=int, default=SIZES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one)))
        return
    print(table(measure(options.regions, options.repeat)))


if __name__ == "__main__":
    main()
