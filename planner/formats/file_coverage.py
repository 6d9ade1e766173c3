"""File coverage: the coverage of a plan with the size of its file beside that of the float model.

Sizes decide only where a plan is predicted to be slower than float, so only there the float model is written
to be measured. Texts (`.mlir`) say nothing about the bytes that a device holds.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.accuracy.coverage import Coverage, Fallback, coverage_of
from planner.costs import Layer, cost_of
from planner.errors import InputError, PlannerError
from planner.formats.litert.identifier import is_litert
from planner.formats.onnx.quantized.dynamic import multiplies_at_run_time
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import write_graph
from planner.formats.table import file_name
from planner.formats.to_file import has_large_weights
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.plans.work import run_time_work_of

FLOAT_BITS: Final = 32
BINARY: Final = frozenset({".onnx", ".tflite"})


def coverage_of_file(plan: Plan, model: Graph, name: str, size: int) -> Coverage:
    """Return the coverage of a plan that was written in a format.

    Args:
      model: the float model.
      name: of the format.
      size: bytes of the file, with its weights.
    """
    covered, given = coverage_of(plan), model
    if plan.target.files.runtime is not None and model.written and multiplies_at_run_time(model.written):
        # The engine runs the model's own file in integers, too: floats are nothing to compare with.
        covered, given = replace(covered, float_work=run_time_work_of(plan)), model.written
    if not covered.is_slower or Path(file_name(name)).suffix not in BINARY:
        return covered
    return replace(covered, size=size, float_size=float_size(given))


def coverage_in_file(source: str | Path | bytes, sample: Mapping[str, np.ndarray]) -> Coverage:
    """Return the coverage of a quantized ONNX file without its plan: of the ops that multiply alone.

    A product counts as quantized where its weights, or the second of its operands, have a quantizer.

    Args:
      source: the file, quantized in any dialect; operators for weights alone (MatMulNBits) are not counted.
      sample: whose sizes open dimensions have.

    Raises:
      InputError: a .tflite file.
      ModelError: no ONNX file.
    """
    if is_litert(source if isinstance(source, bytes) else _begin(Path(source))):
        raise InputError(
            "a least coverage is for ONNX files: a .tflite file does not say it",
            hint="qplan quantize or plan, with --min-coverage",
        )
    graph = read_written(source)
    open_ones = {
        f"{name}[{axis}]": size
        for name in graph.inputs
        if name in sample
        for axis, (dim, size) in enumerate(
            zip(graph.values[name].shape or (), sample[name].shape, strict=False)
        )
        if not isinstance(dim, int)
    }
    layers = [layer for layer in cost_of(read_written(source, dims=open_ones)).layers if layer.macs]
    on_device = [layer for layer in layers if layer.bits_w < FLOAT_BITS]
    floats: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.bits_w >= FLOAT_BITS:
            floats.setdefault(layer.type, []).append(layer)
    fallbacks = [
        Fallback(
            "float in the file",
            sum(layer.macs for layer in members),
            {kind: len(members)},
            max(members, key=lambda layer: layer.macs).name,
            max(layer.macs for layer in members),
        )
        for kind, members in floats.items()
    ]
    return Coverage(
        len(layers),
        len(on_device),
        sum(layer.macs for layer in layers),
        sum(layer.macs for layer in on_device),
        tuple(sorted(fallbacks, key=lambda one: -one.macs)),
    )


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def float_size(model: Graph) -> int:
    """Return the bytes of a float model as an ONNX file; of its constants where these alone are large."""
    if not has_large_weights(model):
        try:
            return len(write_graph(model))
        except PlannerError:
            pass  # ops that ONNX has no words for
    return sum(constant.array.nbytes for constant in model.constants.values() if constant.array is not None)
