"""File coverage: the coverage of a plan with the size of its file beside that of the float model.

Sizes decide only where a plan is predicted to be slower than float, so only there the float model is written
to be measured. Texts (`.mlir`) say nothing about the bytes that a device holds.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from planner.accuracy.coverage import Coverage, coverage_of
from planner.errors import PlannerError
from planner.exporters.table import file_name
from planner.exporters.to_file import has_large_weights
from planner.ir.graph import Graph
from planner.onnx.write import write_graph
from planner.plans.plan import Plan

BINARY: Final = frozenset({".onnx", ".tflite"})


def coverage_of_file(plan: Plan, model: Graph, name: str, size: int) -> Coverage:
    """Return the coverage of a plan that was written in a format.

    Args:
      model: the float model.
      name: of the format.
      size: bytes of the file, with its weights.
    """
    covered = coverage_of(plan)
    if not covered.is_slower or Path(file_name(name)).suffix not in BINARY:
        return covered
    return replace(covered, size=size, float_size=float_size(model))


def float_size(model: Graph) -> int:
    """Return the bytes of a float model as an ONNX file; of its constants where these alone are large."""
    if not has_large_weights(model):
        try:
            return len(write_graph(model))
        except PlannerError:
            pass  # ops that ONNX has no words for
    return sum(constant.array.nbytes for constant in model.constants.values() if constant.array is not None)
