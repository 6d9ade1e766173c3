"""Axis transport: what data movement makes of a type per axis or per block.

A turn moves the axis, a view keeps it where it stays whole, joining along it joins the vectors, a pick takes
the slices of its places, and what is filled in belongs to the slice beside it. If slices mix there is no
answer, and the class is per tensor. Source: `ops.steps`; tests/cases, case 37; docs/specification.md, section
2 (sub-channel types).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Dim, Graph, Op, Shape
from planner.ir.types.qtypes import Uniform
from planner.ops import find_movements
from planner.ops.operands import operands_of
from planner.ops.steps import FILLED, Movement, Pick, PickOfAll, Places, Step, Turn, View, is_filled

Params = npt.NDArray[np.float64]
WHOLE: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class Slicing:
    """Scales and zero points over a grid of slices.

    Attributes:
      blocks: elements of one slice along each dimension; `WHOLE` where the dimension is one slice.
      params: (scale, zero point) of each slice, shape (*grid, 2).
    """

    blocks: tuple[int, ...]
    params: Params


def moved_types(op: Op, types: Mapping[str, Uniform], graph: Graph) -> dict[str, Uniform] | None:
    """The types of an op's results, given those of its operands; None where it mixes slices or storages."""
    made: dict[str, Uniform] = {}
    for name, movement in zip(op.outputs, find_movements(operands_of(op, graph)) or (), strict=False):
        read = [op.inputs[i] for i in movement.operands]
        shapes = [graph.values[operand].shape for operand in read]
        if not all(operand in types for operand in read):
            return None
        slicings = [slicing_of(types[operand], shape) for operand, shape in zip(read, shapes, strict=True)]
        slicing = _moved(movement, slicings, shapes)
        if slicing is None or not _is_held(types[read[0]], slicing):
            return None
        if name:
            made[name] = _type(types[read[0]], slicing)
    return made or None


def _is_held(kind: Uniform, slicing: Slicing) -> bool:
    """Whether a storage holds the zero points of slices, which another operand's may not."""
    zeros = slicing.params[..., 1]
    return not zeros.size or bool(kind.storage.qmin <= zeros.min() and zeros.max() <= kind.storage.qmax)


def slicing_of(kind: Uniform, shape: Shape | None) -> Slicing | None:
    """A type laid over a tensor; None where its rank is unknown, or where slices have ranges of their own."""
    if shape is None or kind.ranges:
        return None
    params = np.array([kind.scales, kind.zero_points], dtype=np.float64).T
    grid = [1] * len(shape)
    blocks = [WHOLE] * len(shape)
    if kind.axis is not None:
        blocks[kind.axis], grid[kind.axis] = 1, len(kind.scales)
    for axis, size in kind.blocks:
        if kind.grid[axis] > 1:
            blocks[axis], grid[axis] = size, kind.grid[axis]
    return Slicing(tuple(blocks), params.reshape(*grid, 2))


def _type(like: Uniform, slicing: Slicing) -> Uniform:
    cut = [axis for axis, block in enumerate(slicing.blocks) if block != WHOLE]
    flat = slicing.params.reshape(-1, 2)
    scales, zeros = tuple(flat[:, 0].tolist()), tuple(int(zero) for zero in flat[:, 1].tolist())
    if not cut:
        return Uniform(like.storage, scales, zeros, like.expressed)
    if len(cut) == 1 and slicing.blocks[cut[0]] == 1 and not like.blocks:
        return Uniform(like.storage, scales, zeros, like.expressed, cut[0])
    blocks = tuple((axis, slicing.blocks[axis]) for axis in cut)
    return Uniform(like.storage, scales, zeros, like.expressed, None, blocks, slicing.params.shape[:-1])


def _moved(
    movement: Movement, read: Sequence[Slicing | None], shapes: Sequence[Shape | None]
) -> Slicing | None:
    """The slices of one result; None where they mix."""
    known = [slicing for slicing in read if slicing is not None]
    whole = [shape for shape in shapes if shape is not None]
    if len(known) < len(read) or len(whole) < len(shapes):
        return None
    slicing: Slicing | None = known[0]
    shape: Shape | None = whole[0]
    if movement.joined is not None:
        slicing, shape = _joined(known, whole, movement.joined), None
    if is_filled(movement) and np.unique(known[0].params[..., 1]).size > 1:
        # What fills is stored as the zero point, one number everywhere.
        return None
    for step in movement.steps:
        slicing = None if slicing is None else _stepped(step, slicing, shape)
        shape = step.shape if isinstance(step, View) else _shape_after(step, shape)
    return slicing


def _shape_after(step: Step, shape: Shape | None) -> Shape | None:
    if isinstance(step, PickOfAll):
        return step.places.shape
    if shape is None or isinstance(step, View):
        return None
    if isinstance(step, Turn):
        return tuple(shape[axis] for axis in step.order)
    size = None if step.places is None else len(step.places)
    return (*shape[: step.axis], size, *shape[step.axis + 1 :])


def _stepped(step: Step, slicing: Slicing, shape: Shape | None) -> Slicing | None:
    if isinstance(step, Turn):
        rank = len(step.order)
        blocks = tuple(slicing.blocks[axis] for axis in step.order)
        return Slicing(blocks, slicing.params.transpose(*step.order, rank))
    if isinstance(step, Pick):
        return _picked(slicing, step.axis, step.places)
    after = step.shape if isinstance(step, View) else step.places.shape
    if after is None:
        return None
    if set(slicing.blocks) <= {WHOLE}:
        return Slicing((WHOLE,) * len(after), slicing.params.reshape(*(1,) * len(after), 2))
    return _viewed(slicing, shape, after) if isinstance(step, View) else None


def _viewed(slicing: Slicing, before: Shape | None, after: Shape) -> Slicing | None:
    blocks, grid = [WHOLE] * len(after), [1] * len(after)
    pairs = {} if before is None else _kept_dimensions(before, after)
    for axis, block in enumerate(slicing.blocks):
        if block == WHOLE:
            continue
        if axis not in pairs:
            return None
        blocks[pairs[axis]], grid[pairs[axis]] = block, slicing.params.shape[axis]
    return Slicing(tuple(blocks), slicing.params.reshape(*grid, 2))


def _kept_dimensions(before: Sequence[Dim], after: Sequence[Dim]) -> dict[int, int]:
    """Dimensions that a reshape leaves whole, by their place before: place after."""
    kept: dict[int, int] = {}
    i = j = 0
    while i < len(before) and j < len(after) and before[i] is not None and before[i] == after[j]:
        kept[i] = j
        i, j = i + 1, j + 1
    sizes, wanted = before[i:], after[j:]
    if not all(isinstance(size, int) for size in (*sizes, *wanted)):
        return kept
    left = right = 1
    starts: dict[tuple[int, int], int] = {}
    for k, size in enumerate(sizes):
        if isinstance(size, int) and size != 1:
            starts[left, size] = i + k
            left *= size
    for k, size in enumerate(wanted):
        if isinstance(size, int) and size != 1:
            if (right, size) in starts:
                kept[starts[right, size]] = j + k
            right *= size
    return kept if left == right else {}


def _joined(read: Sequence[Slicing], shapes: Sequence[Shape], axis: int) -> Slicing | None:
    cut = {one.blocks[axis] for one in read} - {WHOLE}
    if not cut:
        alike = all(
            one.blocks == read[0].blocks and np.array_equal(one.params, read[0].params) for one in read
        )
        return read[0] if alike else None
    block = cut.pop()
    sizes = [size if isinstance(size := shape[axis], int) else 0 for shape in shapes]
    parts = [_cut_along(one, axis, block, size) for one, size in zip(read, sizes, strict=True)]
    known = [part for part in parts if part is not None]
    # A short block may come last, not in between.
    cut |= {size for size in sizes[:-1] if size % block}
    if cut or len(known) < len(parts) or len({part.blocks for part in known}) > 1:
        return None
    return Slicing(known[0].blocks, np.concatenate([part.params for part in known], axis=axis))


def _cut_along(slicing: Slicing, axis: int, block: int, size: int) -> Slicing | None:
    """The same with slices of `block` along an axis that was one slice."""
    if slicing.blocks[axis] == block:
        return slicing
    if not size or size % block:
        return None
    blocks = (*slicing.blocks[:axis], block, *slicing.blocks[axis + 1 :])
    return Slicing(blocks, np.repeat(slicing.params, size // block, axis=axis))


def _picked(slicing: Slicing, axis: int, places: Places | None) -> Slicing | None:
    """The slices of some places along an axis; None where one of the result would mix several."""
    block, count = slicing.blocks[axis], slicing.params.shape[axis]
    if block == WHOLE:
        return slicing
    at = np.asarray(() if places is None else places, np.int64)
    # Copies and jumps are followed nowhere: formats write no slices in an order of their own.
    if not isinstance(places, range) and FILLED not in at:
        return None
    if not at.size or at.size % block or at.max() >= block * count:
        return None
    owners = np.where(at == FILLED, FILLED, at // block).reshape(-1, block)
    held = np.flatnonzero(owners[:, 0] != FILLED)
    if (owners != owners[:, :1]).any() or not held.size:
        return None
    beside = held[np.minimum(np.searchsorted(held, np.arange(len(owners))), held.size - 1)]
    return Slicing(slicing.blocks, slicing.params.take(owners[beside, 0], axis=axis))
