"""Every export of every real model beside the float model, and beside onnxruntime's own quantizer.

SQNR (dB) of the worst output on held-out samples, each file run in onnxruntime as it is written (QONNX as the
plain ops it means, FINN by our runner on few samples). Also seconds to convert a file of 100 MB and more into
each dialect, beside reading and writing it. Run as
`python -m benchmarks.formats [--samples N] [--write] [MODEL ...]`; `--write` puts the tables into the page.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime

import planner
from benchmarks.comparison import AS_WRITTEN, decibel, open_session, sqnr
from benchmarks.onnxruntime_baseline import PhaseFailed, prepare, run_phase
from benchmarks.samples import BenchModel, Sample, evaluation, models, samples, write_samples
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.formats.onnx.sessions import FAILURES, one_line
from planner.formats.onnx.write import Node, write_graph, write_model
from planner.formats.runnable import runnable
from planner.interpreter.models import ModelRunner
from planner.ir.graph import Graph

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "benchmarks.md"
HEADING: Final = "## Formats\n"
# A target whose rows a format takes, by format.
TARGETS: Final[Mapping[str, str]] = {
    "onnx-qdq": "onnxruntime-cpu",
    "onnx-qoperator": "onnxruntime-cpu",
    "onnx-qoperator-clip": "onnxruntime-cpu",
    "onnx-integer": "onnxruntime-cpu",
    "onnx-qcdq": "onnxruntime-cpu",
    "qonnx": "onnxruntime-cpu",
    "hls4ml": "hls4ml-fpga",
    "finn": "finn-fpga",
    "onnx-matmulnbits": "llm-w4",
}
FINN_SAMPLES: Final = 2
DIALECTS: Final = ("cleaned", "qonnx", "onnx-qcdq", "onnx-qdq", "onnx")
ROUNDS: Final = 5


def theirs(model: BenchModel, batch: list[Sample], held_out: list[Sample], work: Path) -> float | str:
    """The worst output (dB) of onnxruntime's quantize_static: QDQ, u8/s8, per channel, MinMax."""
    folder = work / "samples"
    write_samples(folder, batch)
    try:
        prepare(model.path, folder, work)
        run_phase("static", work / "preprocessed.onnx", folder, work)
    except PhaseFailed as error:
        return str(error)
    sessions = [open_session(path, AS_WRITTEN) for path in (model.path, work / "static.onnx")]
    return min(sqnr(sessions[0], sessions[1], held_out).values())


def ours(ready: Mapping[str, Graph], name: str, held_out: list[Sample], work: Path) -> float | str:
    """The worst output (dB) of one format, or why it refuses.

    Args:
      ready: the annotated model by target, biases corrected.
    """
    graph = ready[TARGETS[name]]
    try:
        plan = planner.plan(graph, TARGETS[name])
        data = planner.export(graph, plan, name)
    except UnsupportedExport as error:
        return str(error)
    if all(kernel.row is None for kernel in plan.kernels_in_order):
        return f"{TARGETS[name]} has no kernel for this model: all of it is float"
    reference = work / "float.onnx"
    reference.write_bytes(write_graph(graph))
    plain = runnable(name, data)
    if plain is None:
        return _run_by_us(data, reference, held_out[:FINN_SAMPLES])
    path = work / "quantized.onnx"
    path.write_bytes(plain)
    try:
        session = open_session(path, AS_WRITTEN)
    except FAILURES as error:
        return f"onnxruntime does not run the file: {one_line(error)}"
    return min(sqnr(open_session(reference, AS_WRITTEN), session, held_out).values())


def _run_by_us(data: bytes, reference: Path, held_out: list[Sample]) -> float:
    session, runner = open_session(reference, AS_WRITTEN), ModelRunner(read_written(data))
    names = [output.name for output in session.get_outputs()]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for sample in held_out:
        got = runner.run(sample)
        for name, wanted in zip(names, session.run(names, dict(sample)), strict=True):
            signal[name] += float(np.square(wanted.astype(np.float64)).sum())
            noise[name] += float(np.square(wanted - got[name].astype(np.float64)).sum())
    return min(decibel(signal[name], noise[name]) for name in names)


def quality_rows(chosen: Iterable[BenchModel], count: int, reasons: dict[str, str]) -> Iterable[str]:
    """A line per model; what was refused is numbered, its reason goes to `reasons`."""
    for model in chosen:
        print(model.name, file=sys.stderr, flush=True)
        graph = planner.load_model(model.path)
        batch, held_out = (draw(model.name, model.path, count) for draw in (samples, evaluation))
        stats = planner.calibrate(graph, batch)
        annotated = planner.annotate(graph, stats=stats)
        ready = {target: planner.correct_biases(annotated, target, stats) for target in set(TARGETS.values())}
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            cells = [theirs(model, batch, held_out, work)]
            cells += [ours(ready, name, held_out, work) for name in TARGETS]
        yield f"| {model.name} | {' | '.join(_cell(cell, reasons) for cell in cells)} |"


def _cell(found: float | str, reasons: dict[str, str]) -> str:
    if isinstance(found, float):
        return f"{found:.1f}"
    return reasons.setdefault(found, f"({len(reasons) + 1})")


def big_file(layers: int = 26, width: int = 1024) -> bytes:
    """A QONNX file of `layers` quantized matrices of `width` x `width` floats, per channel, 4 bits."""
    rng = np.random.default_rng(0)
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {
        "bits": np.asarray(4, np.float32),
        "zero": np.asarray(0, np.float32),
        "step": np.asarray(0.1, np.float32),
    }
    said = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    domain, x = "qonnx.custom_op.general", "x"
    for i in range(layers):
        constants[f"w{i}"] = rng.normal(size=(width, width)).astype(np.float32)
        constants[f"s{i}"] = rng.uniform(0.1, 0.5, (1, width)).astype(np.float32)
        nodes += [
            Node("Quant", (f"w{i}", f"s{i}", "zero", "bits"), (f"wq{i}",), f"weight{i}", domain, said),
            Node("MatMul", (x, f"wq{i}"), (f"m{i}",), f"product{i}"),
            Node("Quant", (f"m{i}", "step", "zero", "bits"), (f"y{i}",), f"result{i}", domain, said),
        ]
        x = f"y{i}"
    return write_model(
        name="big",
        nodes=nodes,
        inputs=[("x", "f32", (1, width))],
        outputs=[(x, "f32", (1, width))],
        constants=constants,
    )


def speed_rows() -> Iterable[str]:
    """Seconds of each conversion, beside reading the file and writing it as it is."""
    with tempfile.TemporaryDirectory() as folder:
        source, done = Path(folder) / "big.onnx", Path(folder) / "done.onnx"
        source.write_bytes(big_file())
        size = source.stat().st_size / 1e6
        taken = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            done.write_bytes(write_graph(read_written(source)))
            taken.append(time.perf_counter() - begin)
        plain = statistics.median(taken)
        yield f"| {size:.0f} MB, read and written as it is | {plain:.2f} | |"
        for to in DIALECTS:
            taken = []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                done.write_bytes(planner.convert(source, to))
                taken.append(time.perf_counter() - begin)
            seconds = statistics.median(taken)
            yield f"| to `{to}` | {seconds:.2f} | {seconds - plain:+.2f} |"


INTRODUCTION: Final = """
Made by `python -m benchmarks.formats --write`: SQNR (dB) of the worst output beside the float model, {count}
calibration and {count} held-out samples, default settings; each file runs in onnxruntime {version} as it is
written (QONNX as the plain ops it means, `finn` in our runner on {few} samples). Targets: `onnxruntime-cpu`;
for `hls4ml` `hls4ml-fpga` (16 bits), for `finn` `finn-fpga`, for `onnx-matmulnbits` `llm-w4` (weights alone).
Theirs: `quantize_static`, QDQ, u8/s8, per channel, MinMax.
"""
CONVERSION: Final = f"""
Converting a file of 26 quantized matrices (`planner.convert`), medians of {ROUNDS}; wanted: at most 2 s
beyond reading and writing.

| | seconds | beyond |
|---|---|---|"""


def report(count: int, only: list[str]) -> str:
    """Return the section of the page."""
    reasons: dict[str, str] = {}
    chosen = [model for model in models() if not only or model.name in only]
    heads = [f"`{name}`" for name in TARGETS]
    lines = [
        INTRODUCTION.format(count=count, version=onnxruntime.__version__, few=FINN_SAMPLES),
        f"| model | theirs | {' | '.join(heads)} |",
        f"|---{'|---' * (len(heads) + 1)}|",
        *quality_rows(chosen, count, reasons),
        "",
        *(f"- {number} {reason}" for reason, number in reasons.items()),
        CONVERSION,
        *speed_rows(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the section, and put it into the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    parser.add_argument("only", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    text = report(options.samples, options.only)
    print(text)
    if options.write:
        before = PAGE.read_text(encoding="utf-8").partition(HEADING)[0].rstrip("\n")
        PAGE.write_text(f"{before}\n\n{HEADING}{text}", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
