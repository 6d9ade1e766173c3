"""Axis transport: what data movement makes of a type per axis or per block.

A transpose moves the axis, a reshape keeps it where it stays whole, a concat along it joins the vectors,
split and slice take their part, a pad repeats the outermost slice. Where an op mixes slices there is no
answer, and the class is per tensor. Source: tests/cases, case 37; docs/specification.md, section 2
(sub-channel types).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Dim, Graph, Op, Shape
from planner.ir.types.qtypes import Uniform

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


Mover = Callable[[Op, Sequence[Slicing], Graph], Sequence[Slicing] | None]


def moved_types(op: Op, types: Mapping[str, Uniform], graph: Graph) -> dict[str, Uniform] | None:
    """The types of an op's results, given those of its operands; None where it mixes slices or storages."""
    move = MOVES.get(op.type)
    read = [types[name] for name in op.inputs if name in types]
    if move is None or not read:
        return None
    slicings = [slicing_of(types[name], graph.values[name].shape) for name in op.inputs if name in types]
    known = [slicing for slicing in slicings if slicing is not None]
    made = move(op, known, graph) if len(known) == len(slicings) else None
    if made is None or not all(_is_held(read[0], one) for one in made):
        return None
    return {name: _type(read[0], one) for name, one in zip(op.outputs, made, strict=True) if name}


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


def _transpose(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    del graph
    rank = len(read[0].blocks)
    perm = tuple(op.attributes.get("perm", range(rank)[::-1]))
    return [Slicing(tuple(read[0].blocks[i] for i in perm), read[0].params.transpose(*perm, rank))]


def _same(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    del graph
    return [read[0]] * len(op.outputs)


def _reshape(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    before, after = graph.values[op.inputs[0]].shape, graph.values[op.outputs[0]].shape
    if before is None or after is None:
        return None
    blocks, grid = [WHOLE] * len(after), [1] * len(after)
    pairs = _kept_dimensions(before, after)
    for axis, block in enumerate(read[0].blocks):
        if block == WHOLE:
            continue
        if axis not in pairs:
            return None
        blocks[pairs[axis]], grid[pairs[axis]] = block, read[0].params.shape[axis]
    return [Slicing(tuple(blocks), read[0].params.reshape(*grid, 2))]


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


def _concat(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    if len(read) != len(op.inputs) or "axis" not in op.attributes:
        return None
    axis = int(op.attributes["axis"]) % len(read[0].blocks)
    cut = {one.blocks[axis] for one in read} - {WHOLE}
    if not cut:
        alike = all(
            one.blocks == read[0].blocks and np.array_equal(one.params, read[0].params) for one in read
        )
        return read[:1] if alike else None
    block = cut.pop()
    sizes = [_size(graph, name, axis) for name in op.inputs]
    parts = [_cut_along(one, axis, block, size) for one, size in zip(read, sizes, strict=True)]
    known = [part for part in parts if part is not None]
    # A short block may come last, not in between.
    cut |= {size for size in sizes[:-1] if size % block}
    if cut or len(known) < len(parts) or len({part.blocks for part in known}) > 1:
        return None
    return [Slicing(known[0].blocks, np.concatenate([part.params for part in known], axis=axis))]


def _size(graph: Graph, name: str, axis: int) -> int:
    size = (graph.values[name].shape or ())[axis]
    return size if isinstance(size, int) else 0


def _cut_along(slicing: Slicing, axis: int, block: int, size: int) -> Slicing | None:
    """The same with slices of `block` along an axis that was one slice."""
    if slicing.blocks[axis] == block:
        return slicing
    if not size or size % block:
        return None
    blocks = (*slicing.blocks[:axis], block, *slicing.blocks[axis + 1 :])
    return Slicing(blocks, np.repeat(slicing.params, size // block, axis=axis))


def _split(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    axis = int(op.attributes.get("axis", 0)) % len(read[0].blocks)
    block, begin = read[0].blocks[axis], 0
    if block == WHOLE:
        return [read[0]] * len(op.outputs)
    made = []
    for name in op.outputs:
        size = _size(graph, name, axis) if name else 0
        part = _part(read[0], axis, range(begin, begin + size))
        if not size or part is None:
            return None
        made.append(part)
        begin += size
    return made


def _part(slicing: Slicing, axis: int, kept: range) -> Slicing | None:
    """The slices of some elements along an axis; None where a block would be cut through."""
    block = slicing.blocks[axis]
    if len(kept) and not 0 <= min(kept) <= max(kept) < block * slicing.params.shape[axis]:
        return None
    if block == 1:
        return Slicing(slicing.blocks, slicing.params.take(list(kept), axis=axis))
    if kept.step != 1 or kept.start % block or len(kept) % block:
        return None
    slices = range(kept.start // block, kept.start // block + len(kept) // block)
    return Slicing(slicing.blocks, slicing.params.take(list(slices), axis=axis))


def _slice(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    shape = graph.values[op.inputs[0]].shape or ()
    given = [_integers(graph, op, i, name) for i, name in enumerate(("", "starts", "ends", "axes", "steps"))]
    starts, ends = given[1], given[2]
    if starts is None or ends is None:
        return None
    axes = given[3] if given[3] is not None else list(range(len(starts)))
    steps = given[4] if given[4] is not None else [1] * len(starts)
    result = read[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = axis % len(shape)
        size = shape[place]
        if result.blocks[place] == WHOLE:
            continue
        part = _part(result, place, range(size)[start:end:step]) if isinstance(size, int) else None
        if part is None:
            return None
        result = part
    return [result]


def _pad(op: Op, read: Sequence[Slicing], graph: Graph) -> Sequence[Slicing] | None:
    rank = len(read[0].blocks)
    pads, axes = _integers(graph, op, 1, "pads"), _integers(graph, op, 3, "axes")
    # A pad writes the zero point, and writes one number everywhere.
    if pads is None or np.unique(read[0].params[..., 1]).size > 1:
        return None
    axes = list(range(rank)) if axes is None else [axis % rank for axis in axes]
    params = read[0].params
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        block = read[0].blocks[axis]
        if block == WHOLE:
            continue
        if op.attributes.get("mode", "constant") != "constant" or min(before, after) < 0:
            return None
        if before % block or after % block or (after and _size(graph, op.inputs[0], axis) % block):
            return None
        widths = [(0, 0)] * params.ndim
        widths[axis] = (before // block, after // block)
        params = np.pad(params, widths, mode="edge")
    return [Slicing(read[0].blocks, params)]


def _integers(graph: Graph, op: Op, index: int, name: str) -> list[int] | None:
    """A list of integers that is an operand or an attribute; None where it is neither or computed."""
    operand = op.inputs[index] if index < len(op.inputs) else ""
    if not operand:
        found: Iterable[int] | None = op.attributes.get(name)
        return None if found is None else [int(item) for item in found]
    constant = graph.constants.get(operand)
    if constant is None or constant.array is None:
        return None
    return [int(item) for item in constant.array.reshape(-1).tolist()]


MOVES: Final[Mapping[str, Mover]] = {
    "Concat": _concat,
    "Flatten": _reshape,
    "Identity": _same,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
"""What becomes of slices in each op that moves data; ops that are not here mix them."""
