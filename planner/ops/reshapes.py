"""Reshapes: operators whose result has its operand's elements in their order, and turns of axes.

Source: ONNX Reshape, Flatten, Squeeze, Unsqueeze, Transpose, DepthToSpace, SpaceToDepth.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from planner.ir.graph import Dim, Shape
from planner.ops.operands import Operands
from planner.ops.steps import Movement, Step, Turn, View


def same(known: Operands) -> tuple[Movement, ...] | None:
    """The operand itself."""
    del known
    return (Movement(),)


def kept(known: Operands) -> tuple[Movement, ...] | None:
    """The same but for training, which drops some; the mask behind it is none of its elements."""
    training = known.array(2) if known.is_given(2) else np.zeros(1)
    return None if training is None or np.any(training) else (Movement(),)


def reshaped(known: Operands) -> tuple[Movement, ...] | None:
    """A view of the result's shape: as it was inferred, else by the op's own numbers."""
    shape = known.result()
    if shape is None or not all(isinstance(size, int) for size in shape):
        before = known.shape()
        own = None if before is None else shape_after(known, before)
        shape = shape if own is None else own
    return (Movement((View(shape),)),)


def shape_after(known: Operands, shape: Shape) -> Shape | None:
    """The shape of a reshape's result by the op's own numbers; None where they come at run time.

    Args:
      shape: of its operand.
    """
    op, rank = known.op, len(shape)
    if op.type == "Flatten":
        axis = int(op.attributes.get("axis", 1))
        axis += rank if axis < 0 else 0
        return _product(shape[:axis]), _product(shape[axis:])
    given = known.integers(1, "shape" if op.type == "Reshape" else "axes")
    if op.type == "Squeeze" and given is None and not known.is_given(1):
        return tuple(size for size in shape if size != 1) if _is_whole(shape) else None
    if given is None:
        return None
    if op.type == "Squeeze":
        gone = {axis % rank for axis in given}
        return tuple(size for i, size in enumerate(shape) if i not in gone)
    if op.type == "Unsqueeze":
        rest = iter(shape)
        new = {axis % (rank + len(given)) for axis in given}
        return tuple(1 if i in new else next(rest) for i in range(rank + len(given)))
    keeps = not op.attributes.get("allowzero")
    sizes: list[Dim] = [shape[i] if keeps and size == 0 else size for i, size in enumerate(given)]
    if -1 in sizes:
        others, elements = _product([size for size in sizes if size != -1]), _product(shape)
        is_known = others is not None and elements is not None
        sizes[sizes.index(-1)] = (elements or 0) // max(1, others or 0) if is_known else None
    return tuple(sizes)


def _is_whole(shape: Sequence[Dim]) -> bool:
    return all(isinstance(size, int) for size in shape)


def _product(shape: Sequence[Dim]) -> int | None:
    return prod(size for size in shape if isinstance(size, int)) if _is_whole(shape) else None


def transposed(known: Operands) -> tuple[Movement, ...] | None:
    """Axes in the order that is given, else turned around."""
    order = known.op.attributes.get("perm")
    shape = known.shape()
    if order is None and shape is None:
        return None
    return (Movement((Turn(tuple(order or range(len(shape or ()))[::-1])),)),)


def depth_to_space(known: Operands) -> tuple[Movement, ...] | None:
    """Blocks out of the channels into rows and columns; depth comes last of them, or first (CRD)."""
    block, shape = known.op.attributes.get("blocksize"), known.shape() or ()
    if block is None or len(shape) != 4:
        return None
    n, c, h, w = shape
    depth = c // block**2 if isinstance(c, int) else None
    if known.op.attributes.get("mode", "DCR") == "DCR":
        parts: Shape = (n, block, block, depth, h, w)
        order = (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    return _by_blocks(parts, order, (n, depth, _times(h, block), _times(w, block)))


def space_to_depth(known: Operands) -> tuple[Movement, ...] | None:
    """Blocks of rows and columns into the channels, in front of what was there, or behind (CRD)."""
    block, shape = known.op.attributes.get("blocksize"), known.shape() or ()
    if block is None or len(shape) != 4:
        return None
    n, c, h, w = shape
    rows, columns = (size // block if isinstance(size, int) else None for size in (h, w))
    parts: Shape = (n, c, rows, block, columns, block)
    is_dcr = known.op.attributes.get("mode", "DCR") == "DCR"
    order = (0, 3, 5, 1, 2, 4) if is_dcr else (0, 1, 3, 5, 2, 4)
    return _by_blocks(parts, order, (n, _times(c, block**2), rows, columns))


def _by_blocks(parts: Shape, order: tuple[int, ...], shape: Shape) -> tuple[Movement, ...]:
    steps: tuple[Step, ...] = View(parts), Turn(order), View(shape)
    return (Movement(steps),)


def _times(size: Dim, factor: int) -> Dim:
    return size * factor if isinstance(size, int) else None
