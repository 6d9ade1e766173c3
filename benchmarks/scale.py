"""How planning grows on generated graphs: seconds, memory, the exponent and the growth of each shape.

Graphs like networks and graphs made to be hard (`topologies`) for `litert-int8`, each size in a process of
its own; seconds of the process, so that a busy machine counts little. The phases are told on the page.
Usage, from the repository root: `python -m benchmarks.scale [--regions N ...] [--shapes NAME ...]
[--repeat 3] [--limit 60] [--nncf] [--write]`; a run over the limit is an X, and its shape grows no further;
`--write` puts the table into docs/results/scale-of-planning.md. `--nncf` measures residual graphs beside
NNCF's solver (`nncf_side`, after `make .oracles/nncf/.made`), and nothing else; the page keeps what was not
measured.
"""

import argparse
import gc
import json
import math
import resource
import signal
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
from benchmarks.topologies import SHAPES
from planner.ir.graph import model_digest
from planner.ir.topology import live, topological
from planner.plans.records import step_rows
from planner.propagation.decide import type_ports
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.chosen import Chosen, Request
from planner.propagation.selection.rows import choose_rows

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "scale-of-planning.md"
TARGET: Final = "litert-int8"
SIZES: Final = (2_000, 20_000, 100_000)
LIMIT: Final = 60
EACH: Final = ("µs a region", "of it check", "growth", "peak MB", "rescales", "gap")
PHASES: Final = ("rows_s", "propagate_s", "records_s", "log_s", "check_s")
NNCF: Final = ROOT / ".oracles" / "nncf" / "bin" / "python"
NNCF_SIZES: Final = (1_000, 2_000, 4_000)
BESIDE: Final = "\n## Beside NNCF\n"


def measure(shapes: Sequence[str], sizes: Sequence[int], repeat: int, limit: int = LIMIT) -> list[Record]:
    """Return a record for each shape and size: median seconds, largest memory.

    The last record of a shape that is over the limit at a size has that size and no more.
    """
    records = []
    for shape in shapes:
        for size in sorted(sizes):
            runs: list[Record] = []
            while len(runs) < repeat and (run := _run(shape, size, limit)):
                runs.append(run)
            if len(runs) < repeat:
                records.append({"shape": shape, "regions": size})
                break
            middle = {key: statistics.median(run[key] for run in runs) for key in PHASES}
            records.append(runs[0] | middle | {"rss_mb": max(run["rss_mb"] for run in runs)})
    return records


def _run(shape: str, size: int, limit: int) -> Record | None:
    """One record of a process of its own; None where planning and checking took more than the limit."""
    command = [sys.executable, "-m", "benchmarks.scale", "--limit", str(limit), "--one", shape, str(size)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return None
    done.check_returncode()
    record: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def one(shape: str, regions: int, limit: int) -> Record:
    """Plan and check one graph in this process, which is killed where that takes more seconds of it."""
    target = planner.load_target(TARGET)
    graph = SHAPES[shape](regions)
    digest = model_digest(graph)
    check = planner.check  # names load on first use, which is no part of checking
    gc.collect()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + limit, hard))
    clock = [time.process_time()]
    alive = live(graph)
    kernels = topological([region for region in graph.regions if region.name in alive])
    choices = choose_rows(graph, kernels, target)
    clock.append(time.process_time())
    request = Request("minimal", target.costs, digest, best_effort=False, bias_pins="error", depths={})
    outcome = type_ports(Chosen(graph, target, choices, request))
    clock.append(time.process_time())
    plan = assemble(outcome)
    clock.append(time.process_time())
    step_rows(plan.steps)
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


def each(record: Record) -> float:
    """Microseconds of all phases, a region."""
    return 1e6 * total(record) / float(record["regions"])


def exponent(records: Sequence[Record]) -> float:
    """Return the slope of log(seconds) over log(regions), by least squares."""
    seconds = [total(record) for record in records]
    return float(np.polyfit(np.log([record["regions"] for record in records]), np.log(seconds), 1)[0])


def table(records: Sequence[Record]) -> str:
    """Return the Markdown table, and the exponent of each shape below it."""
    names = [phase.removesuffix("_s") for phase in PHASES]
    heads = ("shape", "regions", *(f"{name} s" for name in names), "all s", *EACH)
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    exponents = [""]
    for shape in dict.fromkeys(record["shape"] for record in records):
        mine = [record for record in records if record["shape"] == shape]
        for record in mine:
            cells = _cells(record, mine[0]) if "gap" in record else ["X"] * (len(heads) - 2)
            lines.append(f"| {shape} | {record['regions']} | {' | '.join(cells)} |")
        measured = [record for record in mine if "gap" in record]
        if len(measured) > 1:
            exponents.append(f"- {shape}: exponent {exponent(measured):.2f}")
    return "\n".join(lines + exponents)


def _cells(record: Record, smallest: Record) -> list[str]:
    """All columns but the shape and the size."""
    spent = [f"{record[phase]:.2f}" for phase in PHASES]
    check = 1e6 * record["check_s"] / record["regions"]
    return [
        *spent,
        f"{total(record):.2f}",
        f"{each(record):.0f}",
        f"{check:.0f}",
        f"{each(record) / each(smallest):.2f}",
        f"{record['rss_mb']:.0f}",
        str(record["rescales"]),
        f"{record['gap']:.1%}",
    ]


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
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of the process a run may take")
    parser.add_argument("--nncf", action="store_true", help="beside NNCF's solver, and nothing else")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one[0], int(options.one[1]), options.limit)))
        return
    command = "python -m benchmarks.scale " + " ".join(sys.argv[1:])
    made = f"\n\nMade by `{command.strip()}`.\n"
    if options.nncf:
        found = f"{BESIDE}{ABOUT_NNCF}\n{beside_nncf(NNCF_SIZES)}"
    else:
        records = measure(options.shapes, options.regions, options.repeat, options.limit)
        found = f"{HEAD}\n{table(records)}"
    print(found)
    if options.write:
        growth, mark, beside = PAGE.read_text("utf-8").partition(BESIDE)
        kept = (growth, found + made) if options.nncf else (found + made, mark + beside)
        PAGE.write_text("".join(kept), encoding="utf-8")


HEAD: Final = """# How planning grows

Made by `python -m benchmarks.scale --write`: generated graphs for `litert-int8`; nothing is inside the
regions, so nothing but planning costs time.

The first four shapes are like networks: residual blocks, dense blocks, transformer layers with float layer
norms, and kernels that read values at random. The others are made to be hard: between relays, kernels whose
result has a range of its own, stand movers, which tie what they read and write to one label, so that one
choice bears on others far away. Chains of relays with a concat every third or fifth kernel (`skips`: eight
numbers for a range to end at; `apart`: no two ranges alike; `over-views`: with views between), binary trees
of concats, grids with and without relays, hubs that concats or kernels read, chains of views, one concat of
all values, a forest of small ones, a fan-out, a split, rungs of movers between two hubs (`ladder`). Some are
like networks again: U-Nets with nested skips, a detector's heads, additions that want one scale, loops whose
carried value is tied to what their body computes.

Seconds are of the process, one thread. `rows`: the order of kernels and the choice of rows; `propagate`: from
rows to a type for every port, the log's steps numbered; `records`: the plan's kernels and values, and its
key; `log`: its steps written out, at first sight; `check`: the checker. `growth` is what a region takes over
what it takes at the smallest size; X is more than the limit (60 s, unless the command says otherwise), and
larger graphs are then left out. `gap` is what is left between the price and the proven bound.

Gaps above 5% are mostly a weak bound. A component with more than 400 candidate labels is offered
some of them, and its bound counts unavoidable casts alone. In nets of 60 to 200 kernels, solved exactly, the
same limit raises the price by 0 to 5%, and around hubs by up to 25%. Units of more than 480 classes that few
edges cut are bounded in blocks. Of the solver's time on recurrent cells a third is HiGHS's and a quarter goes
into changing labels of 60 classes at once: 4 to 5 times a residual chain in all; channel shuffles 5 to 6.

Wanted, in microseconds a region at 20,000 regions: residual 80, transformer 120, dense 160, skips 120, every
other shape 300; of it `check` 50; growth from 2,000 to 20,000 at most 1.35; 100,000 regions of residual,
dense and transformer graphs within 12 s, of random ones within 35 s, and in 1.5 GB.
"""

ABOUT_NNCF: Final = """
The quantizer propagation solver of NNCF 3.4.0 on the same residual blocks (one kind of quantizer, no hardware
config, no scales unified), as its post-training quantization calls it, in a process of its own. It says where
quantizers stand; ours also finds every scale, the rescales, their price and a bound, and writes down why.
"""


if __name__ == "__main__":
    main()
