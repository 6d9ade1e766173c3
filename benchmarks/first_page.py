"""The table of the README: four trained models on four devices, beside onnxruntime's own quantizer.

All sides get the same calibration samples, and the same functions measure every file. Usage, from the
repository root, with the models of QPLAN_MODELS: `python -m benchmarks.first_page [--samples 32] [--write]`.
`--write` writes docs/results/first-page.json and the table in README.md; `--page` writes the table from the
JSON alone.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper

import planner
from benchmarks.comparison import AS_WRITTEN, open_session, sqnr
from benchmarks.counting import DEQUANTIZE, QUANTIZE, TYPE_KEEPING
from benchmarks.onnxruntime_baseline import PhaseFailed, prepare, run_phase
from benchmarks.quantizers import ROOT, Case, case
from benchmarks.samples import write_samples
from planner.accuracy.verdict import share_text
from planner.formats.file_coverage import coverage_in_file

Record = Mapping[str, Any]
README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "docs" / "results" / "first-page.json"
BEGIN: Final = "<!-- python -m benchmarks.first_page --write -->"
END: Final = "<!-- end -->"
MODELS: Final[Mapping[str, str]] = {
    "pretrainedResnet": "ResNet-8, CIFAR-10",
    "vww_96_float": "MobileNetV1, visual wake words",
    "squeezenet_real_fp32": "SqueezeNet 1.1, ImageNet",
    "stories260k": "Llama decoder, TinyStories",
}
TARGETS: Final = ("onnxruntime-cpu", "litert-int8", "ethos-u55", "tensorrt-int8")
OTHER: Final = "onnxruntime's quantizer"
MOVEMENT: Final = TYPE_KEEPING - {"Clip", "Max", "Min", "Relu", "Resize"}
"""Operators whose results have the numbers of their operands."""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.write and set(given.only) != set(MODELS):
        parser.error("--write takes all models: leave out --only")
    if not given.page:
        rows = []
        for name in given.only:
            rows.append({"model": name, "files": measure(case(name, given.samples))})
            print(json.dumps(rows[-1]), flush=True)
        results = {"onnxruntime": version("onnxruntime"), "samples": given.samples, "models": rows}
        if not given.write:
            return
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    README.write_text(quoted(text, json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


def measure(one: Case) -> dict[str, Record]:
    """Return the figures of each file of a model, by target; onnxruntime's quantizer is the last."""
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory(prefix="first.") as scratch:
        work = Path(scratch)
        for target in TARGETS:
            file = work / f"{target}.onnx"
            planner.quantize(str(one.path), one.calibration, target=target).save(file)
            found[target] = figures(one, file)
        try:
            write_samples(work / "samples", one.calibration)
            prepare(one.path, work / "samples", work)
            run_phase("static", work / "preprocessed.onnx", work / "samples", work)
            found[OTHER] = figures(one, work / "static.onnx")
        except PhaseFailed as error:
            found[OTHER] = {"said": str(error)}
    return found


def figures(one: Case, file: Path) -> Record:
    """Return coverage, dB of the worst output on held-out samples, bytes and rescales of a file."""
    model = onnx.load(file)
    pair = [open_session(path, AS_WRITTEN) for path in (one.path, file)]
    return {
        "coverage": round(coverage_in_file(file, one.held_out[0]).mac_share, 4),
        "sqnr": round(min(sqnr(pair[0], pair[1], one.held_out).values()), 2),
        "size": file.stat().st_size,
        "rescales": rescales(model),
    }


def rescales(model: ModelProto) -> int:
    """Count the conversions from one integer grid to another, those in front of a Concat included.

    Each is a QuantizeLinear whose numbers come from a DequantizeLinear of another scale or zero point with
    nothing but data movement between them.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    stored = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    return sum(
        not _same_grid(node, source, stored)
        for node in model.graph.node
        if node.op_type == QUANTIZE
        for source in _sources(node.input[0], makers)
        if source.input[0] not in stored
    )


def _sources(name: str, makers: Mapping[str, NodeProto]) -> Iterator[NodeProto]:
    """Yield the DequantizeLinear nodes whose numbers a value has."""
    node = makers.get(name)
    if node is None:
        return
    if node.op_type == DEQUANTIZE:
        yield node
    elif node.op_type in MOVEMENT:
        data = node.input if node.op_type == "Concat" else node.input[:1]
        for operand in data:
            yield from _sources(operand, makers)


def _same_grid(left: NodeProto, right: NodeProto, stored: Mapping[str, np.ndarray]) -> bool:
    def grid(node: NodeProto) -> list[Any]:
        return [stored[name].ravel().tolist() for name in node.input[1:3]]

    return grid(left) == grid(right)


def quoted(text: str, results: Record) -> str:
    """Return the README with the table of these results."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{tail}"


def table(results: Record) -> str:
    """Return the table: a row for each model, a column for each device, and one for the other quantizer."""
    columns = (*TARGETS, OTHER)
    rows = [
        [MODELS[record["model"]], *(cell(record["files"][column]) for column in columns)]
        for record in results["models"]
    ]
    return "\n".join(map(_line, (["model", *columns], ["---"] * (1 + len(columns)), *rows)))


def cell(found: Record) -> str:
    """Return `91 %, 30.3 dB, 0.40 MB, 2`; "fails" where there is no file."""
    if "said" in found:
        return "fails"
    size, share = f"{found['size'] / 1e6:.2f} MB", share_text(found["coverage"])
    return f"{share}, {found['sqnr']:.1f} dB, {size}, {found['rescales']}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
