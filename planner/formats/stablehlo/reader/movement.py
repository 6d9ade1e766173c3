"""StableHLO ops that move data as ONNX's: reshape, transpose, slice, concatenate, pad, broadcast.

Source: StableHLO specification; ONNX operators, opset 21.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, Operation

from planner.formats.mlir.stablehlo_ops import items_of
from planner.formats.stablehlo.reader.elementwise import Reader
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder

_DYNAMIC: Final = "its shape is not known"


def sizes_of(kind: Attribute) -> tuple[int, ...] | None:
    """The shape of a tensor type; None where a size is unknown."""
    shape: tuple[int, ...] = tuple(kind.get_shape())  # type: ignore[attr-defined]
    return None if min(shape, default=0) < 0 else shape


def numbers(op: Operation, name: str) -> tuple[int, ...]:
    """An attribute of several integers; () where it is not there."""
    found: Any = items_of(op).get(name)
    if isinstance(found, DenseArrayBase):
        return tuple([int(item) for item in found.get_values()])
    return () if found is None else tuple([int(item) for item in found.get_values()])


def number(op: Operation, name: str) -> int:
    """An attribute of one integer; 0 where it is not there."""
    found = items_of(op).get(name)
    return found.value.data if isinstance(found, IntegerAttr) else 0


def broadcast(draft: GraphBuilder, op: Operation) -> str:
    """Line axes up now, and expand where a consumer needs it."""
    result, shape = op.results[0], sizes_of(op.results[0].type)
    source = draft.loose(op.operands[0])
    known = draft.shape(source)
    if shape is None or known is None:
        return _DYNAMIC
    dims = numbers(op, "broadcast_dimensions")
    if len(dims) != len(known):
        source, known = draft.name(op.operands[0]), sizes_of(op.operands[0].type) or known
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    aligned = [1] * len(shape)
    for axis in dims:
        aligned[axis] = known[dims.index(axis)]
    name = draft.reshaped(draft.transposed(source, order), aligned)
    if tuple(aligned) == shape:
        draft.alias(result, name)
    else:
        draft.aligned[result] = name
    return ""


def reshape(draft: GraphBuilder, op: Operation) -> str:
    """Read a reshape; one of a constant happens now."""
    shape = sizes_of(op.results[0].type)
    if shape is None:
        return _DYNAMIC
    name = draft.name(op.operands[0])
    if draft.array(name) is not None:
        draft.alias(op.results[0], draft.reshaped(name, shape))
    else:
        draft.result("Reshape", [name, draft.integers(shape)], op.results[0])
    return ""


def transpose(draft: GraphBuilder, op: Operation) -> str:
    """Read a transpose; one of a constant happens now."""
    order, name = numbers(op, "permutation"), draft.name(op.operands[0])
    if draft.array(name) is not None:
        draft.alias(op.results[0], draft.transposed(name, order))
    else:
        draft.result("Transpose", [name], op.results[0], {"perm": order})
    return ""


def slices(draft: GraphBuilder, op: Operation) -> str:
    """Read a slice."""
    starts, ends = numbers(op, "start_indices"), numbers(op, "limit_indices")
    parts = [starts, ends, tuple(range(len(starts))), numbers(op, "strides") or (1,) * len(starts)]
    draft.result("Slice", [draft.name(op.operands[0]), *map(draft.integers, parts)], op.results[0])
    return ""


def reverse(draft: GraphBuilder, op: Operation) -> str:
    """Read a reverse as a slice with steps of -1."""
    axes = numbers(op, "dimensions")
    ends = [-(1 << 31)] * len(axes)
    parts = [[-1] * len(axes), ends, axes, [-1] * len(axes)]
    draft.result("Slice", [draft.name(op.operands[0]), *map(draft.integers, parts)], op.results[0])
    return ""


def concatenate(draft: GraphBuilder, op: Operation) -> str:
    """Read a concatenation."""
    names = [draft.name(value) for value in op.operands]
    draft.result("Concat", names, op.results[0], {"axis": number(op, "dimension")})
    return ""


def pad(draft: GraphBuilder, op: Operation) -> str:
    """Read a pad around the edges; one between elements stays opaque."""
    low, high = numbers(op, "edge_padding_low"), numbers(op, "edge_padding_high")
    if any(numbers(op, "interior_padding")):
        return "ONNX pads edges only"
    value, fill = (draft.name(operand) for operand in op.operands)
    draft.result("Pad", [value, draft.integers((*low, *high)), fill], op.results[0], {"mode": "constant"})
    return ""


def same(draft: GraphBuilder, op: Operation) -> str:
    """Give operands on as they are: an optimization barrier."""
    for value, result in zip(op.operands, op.results, strict=True):
        draft.alias(result, draft.name(value))
    return ""


def iota(draft: GraphBuilder, op: Operation) -> str:
    """Make the numbers now."""
    shape = sizes_of(op.results[0].type)
    dtype = {"f32": np.float32, "i32": np.int32, "i64": np.int64}.get(str(op.results[0].type.element_type))  # type: ignore[attr-defined]
    if shape is None or dtype is None:
        return "its shape or element type is not one that is made here"
    axis = number(op, "iota_dimension")
    row = np.arange(shape[axis], dtype=dtype).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    draft.alias(op.results[0], draft.constant(np.broadcast_to(row, shape).copy()))
    return ""


MOVEMENT: Final[Mapping[str, Reader]] = {
    "stablehlo.broadcast_in_dim": broadcast,
    "stablehlo.concatenate": concatenate,
    "stablehlo.iota": iota,
    "stablehlo.optimization_barrier": same,
    "stablehlo.pad": pad,
    "stablehlo.reshape": reshape,
    "stablehlo.reverse": reverse,
    "stablehlo.slice": slices,
    "stablehlo.transpose": transpose,
}
