"""Ours beside onnxruntime's `quantize_static`: time, memory, integer ops, SQNR, latency, in one run.

Same samples, same machine, the two sides in turn; ratios are what counts. Usage, from the repository
root: `python -m benchmarks.main_job [--only NAME ...] [--chain BLOCKS ...] [--growth REGIONS ...]
[--repeat 3] [--json FILE] [--read FILE] [--write]`. Without `--only` everything runs; `--read` takes the
records of an earlier `--json` in place of a run; `--write` puts the tables into docs/results/benchmarks.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
import onnxruntime

from benchmarks import growth
from benchmarks.bench_page import (
    PHASE_HEAD,
    QUALITY_HEAD,
    SPEED_HEAD,
    figures_table,
    page,
    phase_row,
    quality_row,
    speed_row,
)
from benchmarks.chain import chain_samples, write_chain
from benchmarks.comparison import OPTIMIZED, Record, latencies_ms, measure, open_session
from benchmarks.formats import HEADING
from benchmarks.light import light_names, light_samples, write_light
from benchmarks.onnxruntime_baseline import Case, PhaseFailed, cases, quantize
from benchmarks.samples import models, write_samples

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "benchmarks.md"
TIMES: Final = (
    *("read_s", "calibrate_s", "target_s", "annotate_s", "plan_s", "export_s", "write_s", "total_s"),
    *("plan_first_s", "export_first_s"),
)
CHAINS: Final = (364, 729, 1458)  # blocks of three nodes
LIGHT_SAMPLES: Final = 8
LATENCY_RUNS: Final = 30
STARTS: Final = {
    "import planner": ["-c", "import planner"],
    "qplan --help": ["-c", "from planner.cli.app import main; main()", "--help"],
}


@dataclass(frozen=True, slots=True)
class Task:
    """A case, its kind (`real`, `light`, `chain`), its number of nodes, how often to run it."""

    case: Case
    kind: str
    nodes: int
    repeat: int


def our_side(case: Case, work: Path, repeat: int) -> Record:
    """Run our job `repeat` times in processes of its own; median times, largest memory.

    Raises:
      PhaseFailed: with the last line of the error.
    """
    runs = [_our_job(case, work, "minmax") for _ in range(repeat)]
    record = dict(runs[-1])
    record |= {key: statistics.median(run[key] for run in runs) for key in TIMES}
    record["rss_mb"] = max(run["rss_mb"] for run in runs)
    return record


def _our_job(case: Case, work: Path, method: str) -> Record:
    command = [
        sys.executable,
        "-m",
        "benchmarks.our_quantize",
        case.model.path,
        work / "samples",
        work,
        method,
    ]
    done = subprocess.run(
        [str(item) for item in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PhaseFailed(f"ours: exit code {done.returncode}: {last}")
    record: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def both_sides(task: Task, limit: int) -> Record:
    """Measure one model on both sides; the other side's failure is a result, too.

    Args:
      task: what to run.
      limit: the other side does not run on more nodes than that.
    """
    case = task.case
    record: Record = {"model": case.model.name, "kind": task.kind, "nodes": task.nodes}
    with tempfile.TemporaryDirectory(prefix="main_job.") as scratch:
        work = Path(scratch)
        write_samples(work / "samples", case.calibration)
        if task.nodes > limit:
            record["theirs_error"] = f"not run, as it has more than {limit} nodes"
        else:
            try:
                record["theirs"] = quantize(
                    case.model, case.calibration, work, task.repeat, ("pieces", "static")
                )
                record["theirs"] |= measure(case.model.path, work / "static.onnx", case.held_out, work)
            except Exception as error:  # noqa: BLE001 - recorded, and shown in the table
                record["theirs_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        percentile = _our_job(case, work, "percentile") if task.kind != "chain" else {}
        record["ours"] = our_side(case, work, task.repeat)
        if percentile:
            record["ours"]["percentile_rss_mb"] = percentile["rss_mb"]
            record["ours"]["percentile_total_s"] = percentile["total_s"]
        record["ours"] |= measure(case.model.path, work / "ours.onnx", case.held_out, work)
        files = [work / "ours.onnx", work / "static.onnx"]
        if "theirs_error" not in record:
            sessions = [open_session(path, OPTIMIZED) for path in files]
            record["ours_ms"], record["theirs_ms"] = latencies_ms(
                sessions, case.held_out[0], runs=LATENCY_RUNS
            )
    return record


def tasks(options: argparse.Namespace, folder: Path) -> Iterator[Task]:
    """Yield what was asked for, one at a time: written files are removed when the next is asked for."""
    everything = not (options.only or options.chain or options.growth)
    real = [model.name for model in models() if everything or model.name in options.only]
    for case in cases(real, (), options.samples, folder) if real else ():
        yield Task(case, "real", len(onnx.load(case.model.path).graph.node), options.repeat)
    for name in (name for name in light_names() if everything or name in options.only):
        model = write_light(folder, name)
        calibration, held_out = (light_samples(model, LIGHT_SAMPLES, held_out=held) for held in (False, True))
        nodes = len(onnx.load(model.path).graph.node)
        yield Task(Case(model, calibration, held_out), "light", nodes, options.repeat)
        model.path.unlink()
    for blocks in CHAINS if everything else options.chain:
        model = write_chain(folder, blocks)
        calibration, held_out = (chain_samples(LIGHT_SAMPLES, held_out=held) for held in (False, True))
        yield Task(Case(model, calibration, held_out), "chain", 3 * blocks + 1, 1)


def starts(repeat: int) -> dict[str, float]:
    """Return the shortest seconds of a few cold starts, the interpreter's own included."""
    found = {}
    for what, arguments in STARTS.items():
        taken = []
        for _ in range(repeat):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
            taken.append(time.perf_counter() - start)
        found[what] = min(taken)
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; print each row as it comes."""
    records: list[Record] = []
    print(SPEED_HEAD, PHASE_HEAD, QUALITY_HEAD, sep="\n")
    with tempfile.TemporaryDirectory(prefix="written.") as folder:
        for task in tasks(options, Path(folder)):
            records.append(both_sides(task, options.no_theirs_above))
            rows = (speed_row(records[-1], records), phase_row(records[-1]), quality_row(records[-1]))
            print(*rows, sep="\n", flush=True)
    everything = not (options.only or options.chain)
    sizes: Sequence[int] = options.growth or (growth.SIZES if everything else ())
    return {
        "versions": {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__},
        "models": records,
        "growth": growth.measure(sizes, options.repeat),
        "starts": starts(max(options.repeat, 3)),
    }


def main() -> None:
    """Measure, print the tables, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--chain", nargs="*", type=int, default=[], metavar="BLOCKS")
    parser.add_argument("--growth", nargs="*", type=int, default=[], metavar="REGIONS")
    parser.add_argument("--no-theirs-above", type=int, default=3000, metavar="NODES")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path, help="records of an earlier --json instead of a run")
    parser.add_argument("--write", action="store_true", help="write docs/results/benchmarks.md")
    options = parser.parse_args()
    report = json.loads(options.read.read_text("utf-8")) if options.read else run(options)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1), "utf-8")
    print(figures_table(report))
    if options.write:
        # What `benchmarks.formats` measured stays.
        _, heading, rest = PAGE.read_text("utf-8").partition(HEADING)
        PAGE.write_text(page(report) + (f"\n{heading}{rest}" if heading else ""), "utf-8")


if __name__ == "__main__":
    main()
