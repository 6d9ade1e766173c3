"""How planning grows on generated graphs of four shapes: seconds, memory and the exponent of each.

Residual, dense, transformer-like and random graphs (`topologies`) for `litert-int8`, each size in a process
of its own; seconds of the process, so that a busy machine counts little. The phases are told on the page.
Usage, from the repository root: `python -m benchmarks.scale [--regions N ...] [--shapes NAME ...]
[--repeat 3] [--nncf] [--write]`; `--write` puts the table into docs/results/scale-of-planning.md. `--nncf`
measures residual graphs beside NNCF's solver (`nncf_side`, after `make .oracles/nncf/.made`), and nothing
else; the page keeps what was not measured.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

import planner
from benchmarks.comparison import Record
from benchmarks.memory import peak_rss_mb
from benchmarks.topologies import TOPOLOGIES
from planner.ir.graph import model_digest
from planner.ir.topology import live, topological
from planner.propagation.propagate import decide
from planner.propagation.result.outcome import Request
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.rows import choose_rows

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "scale-of-planning.md"
TARGET: Final = "litert-int8"
SIZES: Final = (1_000, 10_000, 100_000)
PHASES: Final = ("rows_s", "propagate_s", "records_s", "log_s", "check_s")
NNCF: Final = ROOT / ".oracles" / "nncf" / "bin" / "python"
NNCF_SIZES: Final = (1_000, 2_000, 4_000)
BESIDE: Final = "\n## Beside NNCF\n"


def measure(shapes: Sequence[str], sizes: Sequence[int], repeat: int) -> list[Record]:
    """Return a record for each shape and size: median seconds, largest memory."""
    records = []
    for shape in shapes:
        for size in sizes:
            command = [sys.executable, "-m", "benchmarks.scale", "--one", shape, str(size)]
            runs: list[Record] = []
            for _ in range(repeat):
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
                runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
            middle = {key: statistics.median(run[key] for run in runs) for key in PHASES}
            records.append(runs[0] | middle | {"rss_mb": max(run["rss_mb"] for run in runs)})
    return records


def one(shape: str, regions: int) -> Record:
    """Plan and check one graph in this process."""
    target = planner.load_target(TARGET)
    graph = TOPOLOGIES[shape](regions)
    digest = model_digest(graph)
    check = planner.check  # names load on first use, which is no part of checking
    gc.collect()
    gc.disable()  # as `planner.plan` does
    clock = [time.process_time()]
    alive = live(graph)
    kernels = topological([region for region in graph.regions if region.name in alive])
    choices = choose_rows(graph, kernels, target)
    clock.append(time.process_time())
    request = Request("minimal", target.costs, digest, best_effort=False, bias_pins="error", depths={})
    outcome = decide(graph, target, choices, request)
    clock.append(time.process_time())
    plan = assemble(outcome)
    clock.append(time.process_time())
    tuple(plan.steps)
    clock.append(time.process_time())
    check(plan, graph)
    clock.append(time.process_time())
    spent = [after - before for before, after in pairwise(clock)]
    return {
        "shape": shape,
        "regions": len(plan.kernels_in_order),
        **dict(zip(PHASES, spent, strict=True)),
        "rss_mb": peak_rss_mb(),
        "gap": 0.0 if not plan.cost else 1.0 - plan.bound / plan.cost,
        "rescales": sum(item.kind not in ("quantize", "dequantize") for item in plan.rescales),
    }


def total(record: Record) -> float:
    """Seconds of all phases."""
    return float(sum(record[phase] for phase in PHASES))


def exponent(records: Sequence[Record]) -> float:
    """Return the slope of log(seconds) over log(regions), by least squares."""
    seconds = [total(record) for record in records]
    return float(np.polyfit(np.log([record["regions"] for record in records]), np.log(seconds), 1)[0])


def table(records: Sequence[Record]) -> str:
    """Return the Markdown table, and the exponent of each shape below it."""
    names = [phase.removesuffix("_s") for phase in PHASES]
    lines = [
        f"| shape | regions | {' s | '.join(names)} s | all s | µs a region | peak MB | rescales | gap |",
        "|" + "---|" * (len(PHASES) + 7),
    ]
    for r in records:
        spent = " | ".join(f"{r[phase]:.2f}" for phase in PHASES)
        each = 1e6 * total(r) / r["regions"]
        lines.append(
            f"| {r['shape']} | {r['regions']} | {spent} | {total(r):.2f} | {each:.0f} "
            f"| {r['rss_mb']:.0f} | {r['rescales']} | {r['gap']:.1%} |"
        )
    lines.append("")
    for shape in dict.fromkeys(record["shape"] for record in records):
        mine = [record for record in records if record["shape"] == shape]
        if len(mine) > 1:
            lines.append(f"- {shape}: exponent {exponent(mine):.2f}")
    return "\n".join(lines)


def beside_nncf(sizes: Sequence[int]) -> str:
    """Measure residual graphs with NNCF's quantizer propagation solver and with ours; return the table.

    Raises:
      FileNotFoundError: NNCF has no environment yet.
    """
    lines = ["| regions | NNCF's solver s | MB | ours s | MB | times faster |", "|---|---|---|---|---|---|"]
    for mine in measure(["residual"], sizes, 1):
        command = [str(NNCF), "-P", "benchmarks/nncf_side.py", str(mine["regions"])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout.strip().splitlines()[-1])
        ours = total(mine) - mine["check_s"]
        lines.append(
            f"| {mine['regions']} | {theirs['solver_s']:.1f} | {theirs['rss_mb']:.0f} "
            f"| {ours:.3f} | {mine['rss_mb']:.0f} | {theirs['solver_s'] / ours:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and with `--write` keep the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", nargs="*", type=int, default=SIZES)
    parser.add_argument("--shapes", nargs="*", choices=list(TOPOLOGIES), default=list(TOPOLOGIES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--nncf", action="store_true", help="beside NNCF's solver, and nothing else")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one[0], int(options.one[1]))))
        return
    command = "python -m benchmarks.scale " + " ".join(sys.argv[1:])
    made = f"\n\nMade by `{command.strip()}`.\n"
    if options.nncf:
        found = f"{BESIDE}{ABOUT_NNCF}\n{beside_nncf(NNCF_SIZES)}"
    else:
        found = f"{HEAD}\n{table(measure(options.shapes, options.regions, options.repeat))}"
    print(found)
    if options.write:
        growth, mark, beside = PAGE.read_text("utf-8").partition(BESIDE)
        kept = (growth, found + made) if options.nncf else (found + made, mark + beside)
        PAGE.write_text("".join(kept), encoding="utf-8")


HEAD: Final = """# How planning grows

Generated graphs for `litert-int8`: residual blocks, dense blocks, transformer layers with float layer norms,
and kernels that read values at random. Every value has a range of its own; nothing is inside the regions,
so nothing but planning costs time. Seconds are of the process, one thread. `rows`: the order of kernels and
the choice of rows; `propagate`: from rows to a type for every port, the log's steps numbered; `records`: the
plan's kernels and values, and its key; `log`: its steps written out, at first sight; `check`: the checker.
`gap` is what is left between the price and the proven bound.
Wanted: exponents of at most 1.1, 100,000 regions planned and checked within 12 s, `propagate` within 1.5 s,
and 1.5 GB. Where nothing ties values (residual), and where one label serves all that movers tie and nothing
can be cheaper (transformer, nine tenths of dense), propagation is columns of numbers; elsewhere an object for
each kernel and the search for labels take the time, in random graphs most of it the linear programs.
"""

ABOUT_NNCF: Final = """
The quantizer propagation solver of NNCF 3.4.0 on the same residual blocks (one kind of quantizer, no hardware
config, no scales unified), as its post-training quantization calls it, in a process of its own. It says where
quantizers stand; ours also finds every scale, the rescales, their price and a bound, and writes down why.
"""


if __name__ == "__main__":
    main()
