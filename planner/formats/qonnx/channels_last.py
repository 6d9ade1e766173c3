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
from planner.ops import CONCATS, defined, find_movements
from planner.ops.operands import operands_of
from planner.ops.steps import Pick

TO_LAST: Final = (0, 2, 3, 1)
TO_FIRST: Final = (0, 3, 1, 2)
_PICTURE: Final = 4
_SIDES: Final = (2, 3)
_COPIES: Final[Mapping[str, Any]] = {
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
    if len(graph.values[op.inputs[0]].shape or ()) != _PICTURE:
        return False
    if op.type in CONCATS and op.attributes.get("axis") in (1, 1 - _PICTURE):
        read, attributes = list(inputs), {"axis": _PICTURE - 1}
    elif op.type == "Resize" and (copies := _copies(graph, op)) is not None:
        factors = np.asarray([1, *copies, 1], np.float32)
        read, attributes = [inputs[0], "", file.constant(f"{op.outputs[0]}_scales", factors)], {**_COPIES}
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


def _copies(graph: Graph, op: Op) -> tuple[int, int] | None:
    """How often a Resize repeats each row and column of a picture; None where it does anything else."""
    shape = graph.values[op.inputs[0]].shape or ()
    movements = find_movements(operands_of(op, graph))
    if movements is None or len(movements) != 1:
        return None
    times = dict.fromkeys(_SIDES, 1)
    for step in movements[0].steps:
        size = shape[step.axis] if isinstance(step, Pick) and step.axis in _SIDES else None
        if not isinstance(step, Pick) or step.places is None or not isinstance(size, int):
            return None
        times[step.axis] = max(1, len(step.places) // size)
        if not np.array_equal(step.places, np.repeat(np.arange(size), times[step.axis])):
            return None
    return times[2], times[3]


def values_with_channels_last(graph: Graph, ops: Iterable[Op]) -> frozenset[str]:
    """Values of pictures whose channels are last: what transposes from and to channels first tell.

    It goes on through ops that keep the places of data, to either side.
    """
    ops = [op for op in ops if op.inputs and len(graph.values[op.inputs[0]].shape or ()) == _PICTURE]
    found: set[str] = set()
    for op in ops:
        perm = tuple(op.attributes.get("perm", ())) if op.type == "Transpose" else ()
        found |= {op.outputs[0]} if perm == TO_LAST else {op.inputs[0]} if perm == TO_FIRST else set()
    kept = [{*op.inputs, *op.outputs} - {"", *graph.constants} for op in ops if _keeps_places(op)]
    before = -1
    while before < len(found):
        before = len(found)
        found.update(*(names for names in kept if names & found))
    return frozenset(found)


def _keeps_places(op: Op) -> bool:
    last = op.attributes.get("axis") in (-1, _PICTURE - 1)
    return defined(op.type).is_pointwise or op.type == "Resize" or (op.type in CONCATS and last)
