"""Shapes: what a program of fixed sizes knows before it runs: sizes, and what follows from constants alone.

For formats that have no shapes at run time. Source: ONNX Shape, Size.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from planner.exporters.blocks import Block
from planner.interpreter.programs import program_of
from planner.ir.graph import Graph, Op

Array = npt.NDArray[Any]


class Known(Protocol):
    """What is being written, as far as it is known."""

    graph: Graph

    def known(self, value: str) -> Array | None:
        """Numbers of a value, None where they come at run time."""

    def define_known(self, value: str, array: Array) -> None:
        """Say what a value always is."""

    def shape(self, value: str) -> tuple[int, ...]:
        """Sizes of a value that is there."""


def fold(sheet: Known, block: Block) -> bool:
    """Compute what is known before running; False where some of it is not."""
    if block.is_integer:
        return False
    for op in block.region.ops:
        if not _is_foldable(sheet, op):
            return False
        arrays = {name: sheet.known(name) for name in op.inputs if name}
        for name, array in _folded(sheet, op, arrays).items():
            sheet.define_known(name, array)
    return True


def _is_foldable(sheet: Known, op: Op) -> bool:
    if op.type in ("Shape", "Size"):
        return True
    is_integer = all(not sheet.graph.values[name].is_float for name in op.outputs if name)
    return is_integer and not op.captures and all(sheet.known(name) is not None for name in op.inputs if name)


def _folded(sheet: Known, op: Op, arrays: dict[str, Array | None]) -> dict[str, Array]:
    if op.type == "Size":
        return {op.outputs[0]: np.asarray(int(np.prod(sheet.shape(op.inputs[0]))), np.int64)}
    if op.type == "Shape":
        shape = sheet.shape(op.inputs[0])
        kept = shape[op.attributes.get("start", 0) : op.attributes.get("end", len(shape))]
        return {op.outputs[0]: np.asarray(kept, np.int64)}
    outputs = tuple(name for name in op.outputs if name)
    program = program_of(sheet.graph, [op], outputs, {})
    return dict(program.run(lambda read: np.asarray(arrays[read.value])))
