"""Seconds to export a chain of 1,001 regions as MLIR: StableHLO in both forms, TOSA.

Plans are checked before; the least of some rounds, in process time, which other jobs on the machine disturb
least.
Run as `python -m benchmarks.exporting [--blocks N] [--rounds N]`.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import planner
from benchmarks.chain import chain_samples, write_chain
from planner.formats.table import EXPORTERS
from planner.ir.graph import Graph
from planner.plans.plan import Plan

TARGETS: Final[Mapping[str, str]] = {
    "stablehlo": "stablehlo",
    "stablehlo-int": "stablehlo",
    "tosa": "tosa-int8",
}


def seconds(model: Graph, plan: Plan, form: str, rounds: int) -> tuple[float, int]:
    """Least process time of an export, and how many bytes it writes."""
    best, size = float("inf"), 0
    for _ in range(rounds):
        start = time.process_time()
        size = len(EXPORTERS[form](model, plan))
        best = min(best, time.process_time() - start)
    return best, size


def main() -> None:
    """Print a line a format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--blocks", type=int, default=500, help="residual blocks of the chain, two regions each"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write_chain(Path(folder), options.blocks).path
        model = planner.load_model(path)
        stats = planner.calibrate(model, chain_samples(2, held_out=False))
        ready = planner.annotate(model, stats=stats)
        plans = {target: planner.plan(ready, target) for target in dict.fromkeys(TARGETS.values())}
        print("| format | target | regions | seconds | MB |\n|---|---|---|---|---|")
        for form, target in TARGETS.items():
            took, size = seconds(ready, plans[target], form, options.rounds)
            cells = form, target, len(plans[target].kernels_in_order), f"{took:.2f}", f"{size / 1e6:.1f}"
            print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
