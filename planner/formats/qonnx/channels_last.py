"""Channels last: where FINN's layers take them alone.

FINN has a layer for a Concat along the last axis and for a Resize of a picture with channels last, and moves
no transpose past either; the transposes written around them end in the layers of their neighbours. A file
whose pictures have channels last says so in its thresholds. Source: `InferConcatLayer`, `InferUpsample` and
`InferThresholdingLayer` of FINN (`convert_to_hw_layers.py`), which go by the layout of a MultiThreshold.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.formats.onnx.writer.onnx_file import OnnxFile
from planner.ir.graph import Graph, Op
from planner.ops import CONCATS, LINEAR, defined, find_movements, of_form
from planner.ops.forms import Form
from planner.ops.operands import operands_of
from planner.ops.steps import Pick

TO_LAST: Final = (0, 2, 3, 1)
TO_FIRST: Final = (0, 3, 1, 2)
PICTURE: Final = 4
_FIRST: Final = (LINEAR - {"Gemm", "MatMul"}) | of_form(Form.POOL) | {"BatchNormalization"}
"""Ops whose pictures have their channels on axis 1."""
SIDES: Final = (2, 3)
COPIES: Final[Mapping[str, Any]] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


def moved_with_channels_last(
    file: OnnxFile, graph: Graph, op: Op, inputs: Sequence[str], outputs: Sequence[str]
) -> bool:
    """Append a Concat of channels, or a Resize that copies, between transposes; nothing for other ops.

    Args:
      op: that moves data, channels first.
      inputs: tensors that it reads.
      outputs: tensors that it makes.
    """
    if len(graph.values[op.inputs[0]].shape or ()) != PICTURE:
        return False
    if op.type in CONCATS and op.attributes.get("axis") in (1, 1 - PICTURE):
        read, attributes = list(inputs), {"axis": PICTURE - 1}
    elif op.type == "Resize" and (times := copies(graph, op)) is not None:
        factors = np.asarray([1, *times, 1], np.float32)
        read, attributes = [inputs[0], "", file.constant(f"{op.outputs[0]}_scales", factors)], {**COPIES}
    else:
        return False
    turned = len(read) if op.type in CONCATS else 1
    read[:turned] = [_turned(file, tensor, TO_LAST) for tensor in read[:turned]]
    made = file.fresh(f"{outputs[0]}_last")
    file.emit(op.type, read, [made], attributes=attributes)
    file.emit("Transpose", [made], outputs, attributes={"perm": list(TO_FIRST)})
    return True


def _turned(file: OnnxFile, tensor: str, perm: Sequence[int]) -> str:
    made = file.fresh(f"{tensor}_last")
    file.emit("Transpose", [tensor], [made], attributes={"perm": list(perm)})
    return made


def copies(graph: Graph, op: Op, sides: tuple[int, int] = SIDES) -> tuple[int, int] | None:
    """How often a Resize repeats each row and column of a picture; None where it does anything else.

    Args:
      sides: the axes of rows and columns.
    """
    shape = graph.values[op.inputs[0]].shape or ()
    movements = find_movements(operands_of(op, graph))
    if movements is None or len(movements) != 1:
        return None
    times = dict.fromkeys(sides, 1)
    for step in movements[0].steps:
        size = shape[step.axis] if isinstance(step, Pick) and step.axis in sides else None
        if not isinstance(step, Pick) or step.places is None or not isinstance(size, int):
            return None
        times[step.axis] = max(1, len(step.places) // size)
        if not np.array_equal(step.places, np.repeat(np.arange(size), times[step.axis])):
            return None
    first, second = sides
    return times[first], times[second]


def values_with_channels_last(graph: Graph, ops: Iterable[Op]) -> frozenset[str]:
    """Values of pictures whose channels are last: what transposes from and to channels first tell.

    So do constants along the last axis alone, of values that no convolution or pool has with channels first.
    It goes on through ops that keep the places of data, to either side.
    """
    ops = [op for op in ops if op.inputs and len(graph.values[op.inputs[0]].shape or ()) == PICTURE]
    kept = [_pictures(graph, op) for op in ops if _keeps_places(op)]
    first = _spread({name for op in ops if _has_channels_first(op) for name in _pictures(graph, op)}, kept)
    found: set[str] = set()
    for op in ops:
        perm = tuple(op.attributes.get("perm", ())) if op.type == "Transpose" else ()
        found |= {op.outputs[0]} if perm == TO_LAST else {op.inputs[0]} if perm == TO_FIRST else set()
        found |= _pictures(graph, op) - first if _varies_along_last(graph, op) else set()
    return _spread(found, kept)


def _pictures(graph: Graph, op: Op) -> frozenset[str]:
    """Operands and results that are no constants."""
    return frozenset(name for name in (*op.inputs, *op.outputs) if name and name not in graph.constants)


def _spread(names: set[str], kept: Sequence[frozenset[str]]) -> frozenset[str]:
    """Names with all that share one of these sets, one by one."""
    found, before = set(names), -1
    while before < len(found):
        before = len(found)
        found.update(*(group for group in kept if group & found))
    return frozenset(found)


def _has_channels_first(op: Op) -> bool:
    """Whether ONNX has the channels of its pictures on axis 1."""
    return op.type in _FIRST


def _varies_along_last(graph: Graph, op: Op) -> bool:
    """Whether a function of each element has constants that vary along the last of four axes alone."""
    if not defined(op.type).is_pointwise:
        return False
    shapes = [graph.values[name].shape or () for name in op.inputs if name in graph.constants]
    return any(shape and shape[-1] != 1 and set(shape[:-1]) <= {1} for shape in shapes)


def _keeps_places(op: Op) -> bool:
    last = op.attributes.get("axis") in (-1, PICTURE - 1)
    return defined(op.type).is_pointwise or op.type == "Resize" or (op.type in CONCATS and last)
