"""Replanning after an edit beside planning from scratch, on a model of many components.

Usage, from the repository root: `python -m benchmarks.replanning [--regions 10000] [--edits 40]`. Both sides
run in one process, in turns; the ratio is of medians. After each edit the two plans are compared by their
ports and prices, once in a while by their whole text.
"""

import argparse
import statistics
import time
from random import Random
from typing import Final

import planner
from benchmarks.topologies import SEED, residual
from planner.plans.incremental import PatchedPlan
from planner.what_if.edits import edited

TARGET: Final = "litert-int8"
TYPES: Final = (
    "!quant.any<i8>",
    "!quant.none",
    "!quant.calibrated<f32<-3.0:2.0>>",
    "!quant.uniform<i8:f32, 0.03125:3>",
)


def main() -> None:
    """Measure and print one Markdown row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=40)
    options = parser.parse_args()
    random = Random(SEED)  # noqa: S311 - a choice of edits, not a secret
    graph, target = residual(options.regions), planner.load_target(TARGET)
    plan = planner.plan(graph, target)
    names = [name for name in graph.values if name not in graph.constants]
    again_s, scratch_s, patched = [], [], 0
    for k in range(options.edits):
        edits = {"values": {random.choice(names): random.choice(TYPES)}}
        start = time.perf_counter()
        again = planner.replan(plan, edits)
        middle = time.perf_counter()
        graph = edited(graph, edits)
        scratch = planner.plan(graph, target)
        end = time.perf_counter()
        again_s.append(middle - start)
        scratch_s.append(end - middle)
        patched += isinstance(again, PatchedPlan)
        same = again.kernels_in_order == scratch.kernels_in_order and again.cost == scratch.cost
        if not same or (k % 10 == 0 and again.to_json() != scratch.to_json()):
            raise SystemExit(f"edit {edits} gives another plan than planning from scratch")
        plan = again
    ratio = statistics.median(scratch_s) / statistics.median(again_s)
    print("| regions | edits | planned in part | replan ms (median) | from scratch ms | times faster |")
    print("|---|---|---|---|---|---|")
    ours, theirs = 1e3 * statistics.median(again_s), 1e3 * statistics.median(scratch_s)
    counts = f"| {len(plan.kernels_in_order)} | {options.edits} | {patched} "
    print(f"{counts}| {ours:.1f} | {theirs:.0f} | {ratio:.0f} |")


if __name__ == "__main__":
    main()
