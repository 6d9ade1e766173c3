"""StableHLO's reduce and reduce_window as ONNX's reductions and pools.

Their bodies are read where they are one add, multiply, maximum or minimum of the two arguments, starting
from what that op leaves alone. A window that sums is an average of all its places, padding too, times
their number. Source: StableHLO specification; ONNX operators, opset 21.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.mlir.stablehlo_ops import name_of
from planner.formats.stablehlo.reader.elementwise import Reader
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.reader.linear import pads_of
from planner.formats.stablehlo.reader.movement import numbers, sizes_of
from planner.ir.types.qtypes import Uniform

_REDUCED: Final[Mapping[str, tuple[str, float]]] = {
    "stablehlo.add": ("ReduceSum", 0.0),
    "stablehlo.maximum": ("ReduceMax", -math.inf),
    "stablehlo.minimum": ("ReduceMin", math.inf),
    "stablehlo.multiply": ("ReduceProd", 1.0),
}
"""Body -> ONNX op, and its neutral start."""
_SLACK: Final = 1e-6
_BODY: Final = "its body is no add, multiply, maximum or minimum from the number that leaves it alone"


def reduce(draft: GraphBuilder, op: Operation) -> str:
    """Read a reduction over axes."""
    found = _body(draft, op)
    if found is None:
        return _BODY
    axes = draft.integers(numbers(op, "dimensions"))
    draft.result(_REDUCED[found][0], [draft.name(op.operands[0]), axes], op.results[0], {"keepdims": 0})
    return ""


def _body(draft: GraphBuilder, op: Operation) -> str | None:
    """The op that a body is; None where it is more, or starts from something else."""
    block = op.regions[0].blocks.first if op.regions else None
    if len(op.operands) != 2 or block is None:
        return None
    ops = list(block.ops)
    if (
        len(ops) != 2
        or set(ops[0].operands) != set(block.args)
        or list(ops[1].operands) != list(ops[0].results)
    ):
        return None
    known = _REDUCED.get(name_of(ops[0]))
    start = draft.number(draft.loose(op.operands[1]))
    if known is None or start is None:
        return None
    return name_of(ops[0]) if start == known[1] or _is_end(draft, op, start, known[1]) else None


def _is_end(draft: GraphBuilder, op: Operation, start: float, end: float) -> bool:
    """Whether a start is the least, or greatest, real that the quantized type of the operand holds."""
    facts = draft.read.stated.get(draft.loose(op.operands[0]), ())
    uniform = next((fact for fact in facts if isinstance(fact, Uniform)), None)
    if uniform is None or not math.isinf(end):
        return False
    # A quantized program cannot write infinity: it starts from the end of its type, which is as neutral.
    return start <= uniform.lo * (1 - _SLACK) if end < 0 else start >= uniform.hi * (1 - _SLACK)


def reduce_window(draft: GraphBuilder, op: Operation) -> str:
    """Read a window's maximum or sum over the spatial axes as a pool, channels first."""
    found, shape = _body(draft, op), sizes_of(op.operands[0].type)
    result = sizes_of(op.results[0].type)
    if found not in ("stablehlo.add", "stablehlo.maximum") or shape is None or result is None:
        return _BODY
    rank = len(shape)
    window, strides = numbers(op, "window_dimensions"), numbers(op, "window_strides") or (1,) * rank
    dilations = numbers(op, "window_dilations") or (1,) * rank
    edges = pads_of(op, rank)
    moving = [
        axis
        for axis in range(rank)
        if window[axis] != 1 or strides[axis] != 1 or edges[axis] or edges[rank + axis]
    ]
    if any(step != 1 for step in numbers(op, "base_dilations")) or rank < 3 or len(moving) > rank - 2:
        return "its windows move along more than the spatial axes, or over a dilated input"
    spatial = _spatial(rank, moving)
    order = [axis for axis in range(rank) if axis not in spatial] + spatial
    pads = tuple([edges[side * rank + axis] for side in (0, 1) for axis in spatial])
    attributes: dict[str, Any] = {
        "dilations": tuple([dilations[axis] for axis in spatial]),
        "kernel_shape": tuple([window[axis] for axis in spatial]),
        "pads": pads,
        "strides": tuple([strides[axis] for axis in spatial]),
    }
    x = draft.transposed(draft.name(op.operands[0]), order)
    sizes = [result[axis] for axis in order]
    back = [order.index(axis) for axis in range(rank)]
    if found == "stablehlo.maximum":
        _place(draft, op, draft.between("MaxPool", [x], sizes, attributes), back)
        return ""
    # ONNX has no SumPool: an average over all places, padding included, times their number.
    attributes["count_include_pad"] = 1
    pool = _back(draft, draft.between("AveragePool", [x], sizes, attributes), back)
    count = draft.constant(np.array(math.prod(attributes["kernel_shape"]), np.float32))
    draft.result("Mul", [pool, count], op.results[0])
    return ""


def _spatial(rank: int, moving: Sequence[int]) -> list[int]:
    """All axes but two, those that move among them: behind two, else between the first and the last."""
    last = list(range(2, rank))
    return last if set(moving) <= set(last) and rank - 1 in moving else list(range(1, rank - 1))


def _back(draft: GraphBuilder, name: str, order: Sequence[int]) -> str:
    return draft.transposed(name, order)


def _place(draft: GraphBuilder, op: Operation, name: str, order: Sequence[int]) -> None:
    if list(order) == sorted(order):
        draft.alias(op.results[0], name)
    else:
        draft.result("Transpose", [name], op.results[0], {"perm": tuple(order)})


REDUCTIONS: Final[Mapping[str, Reader]] = {
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": reduce_window,
}
