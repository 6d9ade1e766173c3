"""Our plans beside onnxruntime's own quantizer and NNCF: accuracy, work, size, latency, seconds.

All sides get the same samples, and NNCF and onnxruntime their defaults (onnxruntime per channel, by each of
its methods of calibration). A search on `onnxruntime-cpu` is asked for what NNCF's file has. Usage, from the
repository root: `python -m benchmarks.quantizers [--samples 32] [--trials 8] [--only NAME ...] [--write]`,
with the models of QPLAN_MODELS and NNCF in an environment of its own (`make .oracles/nncf/.made`); `--write`
writes its page.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from sklearn.datasets import load_digits

import planner
from benchmarks.comparison import AS_WRITTEN, OPTIMIZED, Record, latencies_ms, open_session, sqnr
from benchmarks.counting import macs_by_op
from benchmarks.needed_ranges import cross_entropy, texts
from benchmarks.onnxruntime_baseline import PhaseFailed, prepare, run_phase
from benchmarks.samples import Sample, evaluation, model_folder, models, samples, write_samples

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "quantizers.md"
NNCF: Final = ROOT / ".oracles" / "nncf" / "bin" / "python"
TARGET: Final = "onnxruntime-cpu"
OURS: Final = "ours"
METHODS: Final = {
    "onnxruntime, MinMax": "static",
    "onnxruntime, Entropy": "entropy",
    "onnxruntime, Percentile": "percentile",
    "onnxruntime, Distribution": "distribution",
}
DECODER: Final = "stories260k"
DIGITS: Final = "mnist"
MODELS: Final = (
    "ad01_fp32",
    DIGITS,
    "pretrainedResnet",
    "vww_96_float",
    "squeezenet_real_fp32",
    "silero_vad_16k_op15",
    DECODER,
)
SEARCHED: Final = ("silero_vad_16k_op15", DECODER)
HELD_OUT: Final = 32
LABELLED: Final = 400
SLACK: Final = 0.5
LEAST: Final = 10.0
HEAD: Final = (
    *("file of", "SQNR, dB", "task", "MACs in integers"),
    *("size, KB", "latency / float", "seconds to make it"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A trained model with the samples of all sides."""

    name: str
    path: Path
    calibration: list[Sample]
    held_out: list[Sample]


@dataclass(frozen=True, slots=True)
class Side:
    """A file that a tool wrote, and the seconds that took."""

    name: str
    file: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of a side: dB by output, its task's figure, multiply-adds of integers and of all."""

    side: str
    decibels: Mapping[str, float]
    task: str
    macs: tuple[int, int]
    size: int
    latency: float
    seconds: float


@dataclass(slots=True)
class Section:
    """A model's part of the page: rows, what tools said instead of a file."""

    one: Case
    float_ms: float
    float_task: str
    rows: list[Figures]
    said: list[str]


def case(name: str, count: int) -> Case:
    """A model with so many calibration samples."""
    if name == DECODER:
        path = model_folder() / "language" / f"{name}.onnx"
        model = planner.load_model(path)
        return Case(
            name,
            path,
            *(
                [dict(text) for text in texts(model, part, number)]
                for part, number in (("calibration", count), ("held_out", HELD_OUT))
            ),
        )
    (found,) = [one for one in models() if one.name == name]
    return Case(name, found.path, samples(name, found.path, count), evaluation(name, found.path, HELD_OUT))


def task(one: Case, file: Path) -> str:
    """The figure that users look at, where samples have labels or their own next tokens."""
    session = open_session(file, AS_WRITTEN)
    if one.name == DECODER:
        return f"cross entropy {cross_entropy(session, list(one.held_out)):.4f}"
    if one.name != DIGITS:
        return "-"
    labels = load_digits().target[1000 : 1000 + LABELLED]
    batch = evaluation(one.name, one.path, LABELLED)
    hits = [
        np.argmax(session.run(None, sample)[0]) == label for sample, label in zip(batch, labels, strict=True)
    ]
    return f"top-1 {100 * sum(hits) / LABELLED:.2f} %"


def make_ours(one: Case, work: Path) -> Side:
    """Our file, by default settings, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.our_quantize", one.path, work / "samples", work, "minmax"]
    return Side(OURS, work / "ours.onnx", _answer(command)["total_s"])


def make_nncf(source: Path, work: Path) -> Side:
    """NNCF's file, by its defaults, in its own environment."""
    script = ROOT / "benchmarks" / "nncf_quantize.py"
    said = _answer([NNCF, "-P", script, source, work / "samples", work / "nncf.onnx"])
    return Side(f"NNCF {said['nncf']}", work / "nncf.onnx", said["seconds"])


def _answer(command: Sequence[object]) -> Record:
    """The JSON that a process prints last.

    Raises:
      PhaseFailed: with the last line of its error.
    """
    done = subprocess.run(
        [str(item) for item in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PhaseFailed((done.stderr.strip().splitlines() or ["no message"])[-1])
    found: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def make_all(one: Case, work: Path, said: list[str]) -> list[Side]:
    """Every side's file; what a tool says instead of one is kept."""
    write_samples(work / "samples", one.calibration)
    found = [make_ours(one, work)]
    prepared = prepare(one.path, work / "samples", work)
    ready = work / "preprocessed.onnx"
    for name, phase in METHODS.items():
        try:
            seconds = prepared["preprocess_s"] + run_phase(phase, ready, work / "samples", work)[f"{phase}_s"]
            found.append(Side(name, work / f"{phase}.onnx", seconds))
        except PhaseFailed as error:
            said.append(f"{name}: `{error}`.")
    try:
        found.append(make_nncf(one.path, work))
    except PhaseFailed as error:
        said.append(f"NNCF: `{error}`. It got the file that onnxruntime's preprocessing wrote instead.")
        found.append(make_nncf(ready, work))
    return found


def measure(one: Case, sides: Sequence[Side]) -> tuple[float, list[Figures]]:
    """Milliseconds of the float model, and the figures of every side, all timed in turn."""
    sessions = [open_session(path, OPTIMIZED) for path in (one.path, *(side.file for side in sides))]
    float_ms, *own_ms = latencies_ms(sessions, one.held_out[0], runs=30)
    reference = open_session(one.path, AS_WRITTEN)
    found = []
    for side, spent in zip(sides, own_ms, strict=True):
        counts = macs_by_op(onnx.load(side.file), one.held_out[0], stored_results=False).values()
        found.append(
            Figures(
                side.name,
                sqnr(reference, open_session(side.file, AS_WRITTEN), one.held_out),
                task(one, side.file),
                (sum(count[0] for count in counts), sum(count[1] for count in counts)),
                side.file.stat().st_size,
                spent / float_ms,
                side.seconds,
            )
        )
    return float_ms, found


def search(one: Case, work: Path, trials: int) -> Side:
    """Our file of least work that has, on the calibration samples, what NNCF's has."""
    pair = [open_session(path, AS_WRITTEN) for path in (one.path, work / "nncf.onnx")]
    goal = min(sqnr(pair[0], pair[1], one.calibration).values())
    if not math.isfinite(goal):
        raise PhaseFailed(f"no goal: NNCF's file has {goal} dB on the calibration samples")
    start = time.perf_counter()
    model = planner.load_model(one.path)
    stats = planner.calibrate(model, one.calibration)
    ready = planner.correct_biases(planner.annotate(model, stats=stats), TARGET, stats)
    found = planner.search(ready, TARGET, one.calibration, goal=f"sqnr={goal}", trials=trials)
    plan = planner.plan(planner.annotate(ready, annotations=found.annotations), TARGET)
    (work / "search.onnx").write_bytes(planner.export(plan.annotated, plan, "onnx-qdq"))
    seconds = time.perf_counter() - start
    name = f"ours, search for {goal:.1f} dB, {'met' if found.met else 'not met'}"
    return Side(name, work / "search.onnx", seconds)


def row(figures: Figures) -> tuple[str, ...]:
    """A row of the table."""
    done, every = figures.macs
    return (
        figures.side,
        " / ".join(f"{decibel:.1f}" for decibel in figures.decibels.values()),
        figures.task,
        f"{100 * done / every:.1f} %" if every else "none to count",
        f"{figures.size / 1000:.0f}",
        f"{figures.latency:.2f}",
        f"{figures.seconds:.1f}",
    )


def verdicts(found: Sequence[Figures]) -> list[str]:
    """What to say of each output: ours beside the best of the others."""
    mine, *others = [one for one in found if "search" not in one.side]
    return [_verdict(mine, others, output) for output in mine.decibels]


def _verdict(mine: Figures, others: Sequence[Figures], output: str) -> str:
    def less(other: Figures) -> float:
        return mine.decibels[output] - other.decibels[output]

    rivals = [other for other in others if other.macs[0] >= mine.macs[0]]
    said = f"`{output}`: no other file has as many MACs in integers."
    if rivals:
        best = min(rivals, key=less)
        judged = "worse" if less(best) < -SLACK else "better" if less(best) > SLACK else "equal"
        said = (
            f"`{output}`: ours {less(best):+.1f} dB, {judged}, beside {best.side}, the best at no fewer MACs."
        )
        if max(mine.decibels[output], best.decibels[output]) < LEAST:
            said += f" Both are under {LEAST:g} dB."
    floats = [other for other in others if other not in rivals and less(other) < -SLACK]
    for other in floats:
        share = 100 * other.macs[0] / other.macs[1]
        said += (
            f" Worse than {other.side} by {-less(other):.1f} dB, which has {share:.1f} % of MACs in integers."
        )
    return said


def section(found: Section) -> str:
    """A model's section."""
    outputs = " / ".join(f"`{name}`" for name in found.rows[0].decibels)
    size = found.one.path.stat().st_size / 1000
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, *map(row, found.rows))]
    said = "".join(f"\n- {line}" for line in [*verdicts(found.rows), *found.said])
    return f"""## {found.one.name}
Outputs {outputs}; float: {size:.0f} KB, {found.float_ms:.2f} ms, task {found.float_task}.

{lines[0]}
|{"---|" * len(HEAD)}
{chr(10).join(lines[1:])}
{said}
"""


def page(found: Sequence[Section], given: argparse.Namespace) -> str:
    """The page."""
    command = f"python -m benchmarks.quantizers --samples {given.samples} --trials {given.trials} --write"
    return f"""# Our plans beside onnxruntime's quantizer and NNCF

Made by `{command}`
(NNCF in an environment of its own: `make .oracles/nncf/.made`), onnxruntime {version("onnxruntime")}. Trained
models; {given.samples} calibration and {HELD_OUT} held-out samples, the same on all sides. Ours: target
`{TARGET}`, format `onnx-qdq`, default settings. onnxruntime: `quantize_static`, QDQ, u8/s8, per channel,
after its preprocessing, by each method of calibration. NNCF: `nncf.quantize`, its defaults.

- SQNR: of the held-out samples by output, in onnxruntime, optimisations off.
- Task: cross entropy of the held-out texts' next tokens in nats; top-1 of {LABELLED} held-out digits with
  their labels, scans of another set than the model was trained on. The other models' samples have no labels.
- MACs in integers: multiply-adds of Conv, Gemm and MatMul whose two operands are stored integers; of
  recurrent ops, and inside of branches, none are counted on any side.
  NNCF's files have no quantizer between a pool or a concat and the convolution behind it, which therefore
  reads floats and is not counted.
- Latency: onnxruntime's defaults, one thread; the float model and all files in turn, medians, as a ratio to
  float in the same run (below 1: faster than float). The searched file was timed in turn with float alone.
- Seconds to make it: of the clock, from the model's file to the written one, imports left out; the machine
  was busy with other work.

Below each table, output by output: ours by default beside the best other file that has no fewer MACs in
integers; up to {SLACK} dB count as equal. Files with fewer are named where they are better.

{chr(10).join(map(section, found))}"""


def _each(given: argparse.Namespace, scratch: Path, write: Callable[[Sequence[Section]], None]) -> None:
    """All models first, then the searches, which take longest."""
    found: list[Section] = []
    for name in given.only:
        one, work, said = case(name, given.samples), scratch / name, list[str]()
        work.mkdir()
        float_ms, rows = measure(one, make_all(one, work, said))
        found.append(Section(one, float_ms, task(one, one.path), rows, said))
        write(found)
    for part in found:
        if part.one.name in SEARCHED:
            try:
                part.rows += measure(part.one, [search(part.one, scratch / part.one.name, given.trials)])[1]
            except PhaseFailed as error:
                part.said.append(f"Search: {error}.")
            write(found)


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()

    def write(found: Sequence[Section]) -> None:
        print(section(found[-1]), flush=True)
        if given.write:
            PAGE.write_text(page(found, given), encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="quantizers.") as scratch:
        _each(given, Path(scratch), write)


if __name__ == "__main__":
    main()
