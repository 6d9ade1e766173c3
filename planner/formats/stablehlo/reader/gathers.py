"""StableHLO's gather as ONNX's: of whole slices along one axis, or of any windows from the flat operand.

Windows become positions in the flat operand: what the indices choose, clamped so that a window stays inside,
plus where each of its elements lies. Both ways move stored integers. Source: StableHLO specification,
`gather`; ONNX operators, opset 21.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.mlir.stablehlo_ops import items_of
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.reader.movement import numbers, sizes_of

_LISTS: Final = re.compile(r"(\w+)\s*=\s*\[([0-9, ]*)\]")
_VECTOR: Final = re.compile(r"index_vector_dim\s*=\s*(\d+)")


@dataclass(frozen=True, slots=True)
class _Gather:
    """One gather: the sizes of its operand, indices and windows, and its lists of dimensions."""

    shape: tuple[int, ...]
    indices: tuple[int, ...]
    window: tuple[int, ...]
    lists: Mapping[str, tuple[int, ...]]
    vector: int

    def list(self, name: str) -> tuple[int, ...]:
        return self.lists.get(name, ())

    @property
    def batch(self) -> tuple[int, ...]:
        """Sizes of the indices, without the dimension along which an index lies."""
        return tuple([size for axis, size in enumerate(self.indices) if axis != self.vector])

    @property
    def kept(self) -> tuple[int, ...]:
        """Dimensions of the operand that a window keeps."""
        gone = {*self.list("collapsed_slice_dims"), *self.list("operand_batching_dims")}
        return tuple([axis for axis in range(len(self.shape)) if axis not in gone])

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension lie in the flat operand."""
        return tuple([math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))])


def gather(draft: GraphBuilder, op: Operation) -> str:
    """Read a gather; indices out of range are clamped first."""
    text = str(items_of(op).get("dimension_numbers"))
    shape, indices = sizes_of(op.operands[0].type), sizes_of(op.operands[1].type)
    if shape is None or indices is None:
        return "its shape is not known"
    lists = {name: tuple(map(int, found.split(","))) for name, found in _LISTS.findall(text) if found.strip()}
    vector = _VECTOR.search(text)
    read = _Gather(shape, indices, numbers(op, "slice_sizes"), lists, int(vector[1]) if vector else 0)
    if _is_whole(read):
        _along_one_axis(draft, op, read)
    else:
        _from_the_flat_operand(draft, op, read)
    return ""


def _is_whole(read: _Gather) -> bool:
    """Whether it takes whole slices along one axis, which take the place of the axis in the result."""
    axes = read.list("start_index_map")
    if len(axes) != 1 or read.list("collapsed_slice_dims") != axes or read.list("operand_batching_dims"):
        return False
    if read.vector < len(read.indices) - 1:
        return False
    (axis,) = axes
    whole = tuple([1 if place == axis else size for place, size in enumerate(read.shape)])
    rank = len(read.batch)
    beside = (*range(axis), *range(axis + rank, rank + len(read.shape) - 1))
    return read.window == whole and read.list("offset_dims") == beside


def _along_one_axis(draft: GraphBuilder, op: Operation, read: _Gather) -> None:
    (axis,) = read.list("start_index_map")
    name = draft.reshaped(draft.name(op.operands[1]), read.batch)
    dtype = np.int64 if draft.read.values[name].dtype == "i64" else np.int32
    ends = [draft.constant(np.array(end, dtype)) for end in (0, read.shape[axis] - 1)]
    safe = draft.between("Clip", [name, *ends], read.batch)
    draft.result("Gather", [draft.name(op.operands[0]), safe], op.results[0], {"axis": axis})


def _from_the_flat_operand(draft: GraphBuilder, op: Operation, read: _Gather) -> None:
    flat = draft.reshaped(draft.name(op.operands[0]), [math.prod(read.shape)])
    places = _places(draft, draft.name(op.operands[1]), read)
    made = (*read.batch, *(read.window[axis] for axis in read.kept))
    offsets = read.list("offset_dims")
    rest = iter(range(len(read.batch)))
    order = [
        len(read.batch) + offsets.index(axis) if axis in offsets else next(rest) for axis in range(len(made))
    ]
    if order == sorted(order):
        draft.result("Gather", [flat, places], op.results[0], {"axis": 0})
        return
    found = draft.between("Gather", [flat, places], made, {"axis": 0})
    draft.result("Transpose", [found], op.results[0], {"perm": tuple(order)})


def _places(draft: GraphBuilder, name: str, read: _Gather) -> str:
    """The place of each element of the result in the flat operand."""
    starts = read.list("start_index_map")
    most = np.array([read.shape[axis] - read.window[axis] for axis in starts], np.int64)
    steps = np.array([read.strides[axis] for axis in starts], np.int64)
    inside = _grid([read.window[axis] for axis in read.kept], [read.strides[axis] for axis in read.kept])
    own = np.zeros(read.batch, np.int64)
    for axis, place in zip(
        read.list("operand_batching_dims"), read.list("start_indices_batching_dims"), strict=True
    ):
        among = place - (place > read.vector)
        row = np.arange(read.batch[among], dtype=np.int64) * read.strides[axis]
        own += row.reshape([-1 if i == among else 1 for i in range(len(read.batch))])
    given = own.reshape((*read.batch, *(1,) * inside.ndim)) + inside
    vectors = (*read.batch, len(starts))
    order = [axis for axis in range(len(read.indices)) if axis != read.vector]
    known = draft.array(name)
    if known is not None:
        if read.vector < len(read.indices):
            known = known.transpose([*order, read.vector])
        first = np.clip(known.reshape(vectors).astype(np.int64), 0, most) @ steps
        return draft.constant(first.reshape((*read.batch, *(1,) * inside.ndim)) + given, "places")
    if read.vector < len(read.indices):
        name = draft.transposed(name, [*order, read.vector])
    name = draft.reshaped(draft.cast(name, "i64"), vectors)
    name = draft.between("Max", [name, draft.constant(np.zeros_like(most), "least")], vectors)
    name = draft.between("Min", [name, draft.constant(most, "most")], vectors)
    name = draft.between("Mul", [name, draft.constant(steps, "steps")], vectors)
    name = draft.between("ReduceSum", [name, draft.integers([len(vectors) - 1])], read.batch, {"keepdims": 0})
    name = draft.reshaped(name, (*read.batch, *(1,) * inside.ndim))
    return draft.between("Add", [name, draft.constant(given, "places")], given.shape)


def _grid(sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """The place of each element of a window from its first one on."""
    found = np.zeros(tuple(sizes), np.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        found += (np.arange(size, dtype=np.int64) * stride).reshape(
            [-1 if i == axis else 1 for i in range(len(sizes))]
        )
    return found
