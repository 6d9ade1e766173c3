"""Seconds to write programs for compilers: a chain of 1,001 regions in each format that is MLIR.

CPU seconds of this process, the median of five after one that is not counted. Run as
`python -m benchmarks.programs`.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import planner
from benchmarks.chain import chain_samples, write_chain
from planner.formats.table import EXPORTERS

BLOCKS: Final = 500
ROUNDS: Final = 5
# A target whose rows a format takes, by format.
TARGETS: Final[Mapping[str, str]] = {
    "stablehlo": "stablehlo",
    "stablehlo-int": "stablehlo",
    "tosa": "tosa-int8",
}


def main() -> None:
    """Print a line for each format: regions, seconds, bytes."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_chain(Path(folder), BLOCKS)
        graph = planner.load_model(model.path)
    stats = planner.calibrate(graph, chain_samples(2, held_out=False))
    ready = planner.annotate(graph, stats=stats)
    for name, target in TARGETS.items():
        plan = planner.plan(ready, target)
        spent: list[float] = []
        for _ in range(ROUNDS + 1):
            start = time.process_time()
            data = EXPORTERS[name](ready, plan)
            spent.append(time.process_time() - start)
        seconds = statistics.median(spent[1:])
        print(f"{name}: {len(plan.kernels)} regions, {seconds:.2f} s, {len(data):,} bytes")


if __name__ == "__main__":
    main()
