"""Accuracy beside the other quantizers: onnxruntime's methods on trained models, and NNCF beside a search.

Same samples on all sides, SQNR of held-out samples in onnxruntime, optimisations off; multiply-adds whose two
operands are stored integers, whatever becomes of the result. A search on `onnxruntime-cpu` is asked for what
NNCF's file has. Usage, from the repository root: `python -m benchmarks.quantizers [--samples 8] [--only NAME
...] [--nncf PYTHON] [--write]`, with the models of QPLAN_MODELS; `--nncf` is the Python of NNCF's
environment (`make .oracles/nncf/.made`); `--write` writes its page.
"""

import argparse
import json
import math
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx

import planner
from benchmarks.comparison import AS_WRITTEN, OPTIMIZED, latencies_ms, open_session, sqnr
from benchmarks.counting import macs_by_op
from benchmarks.losses import yolox
from benchmarks.needed_ranges import texts
from benchmarks.onnxruntime_baseline import PhaseFailed, prepare, run_phase
from benchmarks.samples import Sample, evaluation, model_folder, models, samples, write_samples
from planner.ir.graph import Graph

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "quantizers.md"
TARGET: Final = "onnxruntime-cpu"
METHODS: Final = {
    "MinMax": "static",
    "Entropy": "entropy",
    "Percentile": "percentile",
    "Distribution": "distribution",
}
TRAINED: Final = (
    "ad01_fp32",
    "pretrainedResnet",
    "vww_96_float",
    "mnist",
    "squeezenet_real_fp32",
    "superres_real",
    "ultraface_slim320_op13",
    "silero_vad_16k_op15",
    "stories260k",
    "yolox_nano",
)
BESIDE_NNCF: Final = ("silero_vad_16k_op15", "stories260k")
SLACK: Final = 0.5
LEAST: Final = 10.0
HEAD: Final = (
    *("model", "output", "ours, dB"),
    *METHODS,
    *("ours less the best, dB", "ours, MACs in integers", "theirs", "holds"),
)
NNCF_HEAD: Final = (
    *("model", "side", "SQNR of the worst output, dB", "on the calibration samples, dB"),
    *("MACs in integers", "latency, ms", "float, ms"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A trained model with the samples of both sides."""

    name: str
    path: Path
    calibration: list[Sample]
    held_out: list[Sample]


def case(name: str, count: int) -> Case:
    """A model with as many calibration and held-out samples."""
    if name == "stories260k":
        path = model_folder() / "language" / f"{name}.onnx"
        model = planner.load_model(path)
        return Case(name, path, texts(model, "calibration", count), texts(model, "held_out", count))
    if name == "yolox_nano":
        path = model_folder() / "vision" / f"{name}.onnx"
        feeds = yolox(planner.load_model(path), 2 * count)
        return Case(name, path, list(feeds[:count]), list(feeds[count:]))
    (found,) = [one for one in models() if one.name == name]
    return Case(name, found.path, samples(name, found.path, count), evaluation(name, found.path, count))


def ours(one: Case, out: Path) -> Graph:
    """Write our file, default settings, and return the annotated model."""
    model = planner.load_model(one.path)
    stats = planner.calibrate(model, one.calibration)
    ready = planner.correct_biases(planner.annotate(model, stats=stats), TARGET, stats)
    out.write_bytes(planner.export(ready, planner.plan(ready, TARGET), "onnx-qdq"))
    return ready


def decibels(one: Case, file: Path, batch: Sequence[Sample]) -> Mapping[str, float]:
    """SQNR by output."""
    return sqnr(open_session(one.path, AS_WRITTEN), open_session(file, AS_WRITTEN), batch)


def integer_macs(file: Path, sample: Sample) -> tuple[int, int]:
    """Multiply-adds of stored integers, and all."""
    counts = macs_by_op(onnx.load(file), sample, stored_results=False).values()
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def beside_methods(one: Case) -> list[tuple[str, ...]]:
    """A row for each output."""
    with tempfile.TemporaryDirectory(prefix="quantizers.") as scratch:
        work = Path(scratch)
        folder = work / "samples"
        write_samples(folder, one.calibration)
        ours(one, work / "ours.onnx")
        files = {"ours": work / "ours.onnx"}
        prepare(one.path, folder, work)
        for method, phase in METHODS.items():
            try:
                run_phase(phase, work / "preprocessed.onnx", folder, work)
                files[method] = work / f"{phase}.onnx"
            except PhaseFailed as error:
                print(f"  {one.name}, {method}: {error}"[:200], flush=True)
        found = {key: decibels(one, file, one.held_out) for key, file in files.items()}
        macs = {key: integer_macs(file, one.held_out[0]) for key, file in files.items()}
    return [_row(one.name, output, found, macs) for output in found["ours"]]


def _row(
    name: str, output: str, found: Mapping[str, Mapping[str, float]], macs: Mapping[str, tuple[int, int]]
) -> tuple[str, ...]:
    mine = found["ours"][output]
    theirs = {method: found[method][output] for method in METHODS if method in found}
    best = max(theirs, key=lambda method: theirs[method], default="")
    less = mine - theirs[best] if best and mine != theirs[best] else 0.0
    own, other = macs["ours"], macs.get(best, (0, 1))
    is_poor = max(mine, theirs.get(best, -math.inf)) < LEAST
    holds = less >= -SLACK and own[0] >= other[0]
    return (
        name,
        f"`{output}`",
        f"{mine:.1f}",
        *(f"{theirs[method]:.1f}" if method in theirs else "-" for method in METHODS),
        f"{less:+.1f}",
        _share(own),
        _share(other) if best else "-",
        "left out" if is_poor else "yes" if holds else "no",
    )


def _share(macs: tuple[int, int]) -> str:
    return f"{100 * macs[0] / macs[1]:.1f} %" if macs[1] else "-"


def beside_nncf(one: Case, python: str, trials: int) -> list[tuple[str, ...]]:
    """NNCF's file, ours by default, and what a search finds that is asked for NNCF's dB."""
    with tempfile.TemporaryDirectory(prefix="quantizers.") as scratch:
        work = Path(scratch)
        folder = work / "samples"
        write_samples(folder, one.calibration)
        command = [
            python,
            "-P",
            "benchmarks/nncf_quantize.py",
            str(one.path),
            str(folder),
            str(work / "nncf.onnx"),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        version = json.loads(done.stdout.strip().splitlines()[-1])["nncf"]
        ready = ours(one, work / "ours.onnx")
        goal = min(decibels(one, work / "nncf.onnx", one.calibration).values())
        found = planner.search(ready, TARGET, one.calibration, goal=f"sqnr={goal}", trials=trials)
        plan = planner.plan(planner.annotate(ready, annotations=found.annotations), TARGET)
        (work / "search.onnx").write_bytes(planner.export(plan.annotated, plan, "onnx-qdq"))
        sides = {
            f"NNCF {version}": work / "nncf.onnx",
            "ours, default": work / "ours.onnx",
            f"ours, search for {goal:.1f} dB, {'met' if found.met else 'not met'}": work / "search.onnx",
        }
        return [_nncf_row(one, side, file) for side, file in sides.items()]


def _nncf_row(one: Case, side: str, file: Path) -> tuple[str, ...]:
    own, float_ms = latencies_ms(
        [open_session(path, OPTIMIZED) for path in (file, one.path)], one.held_out[0], runs=30
    )
    return (
        one.name,
        side,
        f"{min(decibels(one, file, one.held_out).values()):.1f}",
        f"{min(decibels(one, file, one.calibration).values()):.1f}",
        _share(integer_macs(file, one.held_out[0])),
        f"{own:.2f}",
        f"{float_ms:.2f}",
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def page(rows: Sequence[Sequence[str]], nncf: Sequence[Sequence[str]], count: int) -> str:
    """The page."""
    judged = [row for row in rows if row[-1] != "left out"]
    held = sum(row[-1] == "yes" for row in judged)
    return f"""# Accuracy beside other quantizers

Made by `python -m benchmarks.quantizers --samples {count} --write`: trained models, {count} calibration and
{count} held-out samples, the same on all sides; target `{TARGET}`, format `onnx-qdq`, default settings. SQNR
is of the held-out samples in onnxruntime, optimisations off. MACs in integers: multiply-adds of Conv, Gemm
and MatMul whose two operands are stored integers; of recurrent ops, and inside of branches, none are counted
on any side.

## onnxruntime's methods
`quantize_static`, QDQ, u8/s8, per channel, after its preprocessing, by each method of calibration. Wanted: no
output below the best of them by more than {SLACK} dB, at no fewer MACs in integers; outputs under
{LEAST:g} dB on both sides are left out. It holds for {held} of {len(judged)} outputs.

{table(HEAD, rows)}

## NNCF
`nncf.quantize` by its defaults, beside our default and a search that is asked for the SQNR of NNCF's file on
the calibration samples.
Latency: defaults of onnxruntime, one thread, runs of the file and of the float model in turn, medians.

{table(NNCF_HEAD, nncf)}
"""


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--only", nargs="*", default=list(TRAINED))
    parser.add_argument("--nncf", default=str(ROOT / ".oracles" / "nncf" / "bin" / "python"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    nncf: list[tuple[str, ...]] = []
    for name in given.only:
        one = case(name, given.samples)
        rows += beside_methods(one)
        if name in BESIDE_NNCF:
            nncf += beside_nncf(one, given.nncf, given.trials)
        print(table(HEAD, rows[-4:]), table(NNCF_HEAD, nncf[-3:]), sep="\n", flush=True)
        if given.write:
            PAGE.write_text(page(rows, nncf, given.samples), encoding="utf-8")


if __name__ == "__main__":
    main()
