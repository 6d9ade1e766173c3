"""Integrity rules of the dialect: a uniform type fits the scalar or tensor that carries it.

One sentence naming axis, sizes and type where it does not. Unknown dimensions fit everything. Types are taken
as written, so those we cannot hold ourselves are verified too. Source: MLIR quant dialect, "Per-axis
quantization integrity" and "Sub-channel quantization integrity"; docs/specification.md, section 9 (zero
points).
"""

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from planner.formats.mlir.verbatim_types import WrittenUniform, shape_text

_MOST: Final = 100


def misfit(kind: WrittenUniform, carrier: Attribute, *, short_block: bool = False) -> str:
    """Say why `carrier`, a type whose elements are `kind`, breaks a rule; "" where it breaks none.

    Args:
      short_block: whether the last block may be shorter than the others, as in specs of ours; not in MLIR.
    """
    if kind.axis is None and kind.blocks is None:
        return ""
    what = "per-axis" if kind.blocks is None else "sub-channel"
    if not isinstance(carrier, TensorType | UnrankedTensorType):
        return f"a scalar cannot have the {what} type {_short(kind)}; it needs a tensor"
    if isinstance(carrier, UnrankedTensorType):
        return "" if kind.blocks is None else f"the sub-channel type {_short(kind)} needs a ranked tensor"
    shape = carrier.get_shape()
    problem = _axis(kind, shape) if kind.blocks is None else _blocks(kind, shape, short_block)
    return f"type {_short(kind)} does not fit shape {shape_text(shape)}: {problem}" if problem else ""


def bad_zero_point(kind: WrittenUniform) -> str:
    """Say which zero point lies outside the storage range; "" where none does."""
    store = kind.storage
    for zero_point in kind.zero_points:
        if not store.qmin <= zero_point <= store.qmax:
            return (
                f"zero point {zero_point} of {_short(kind)} lies outside its storage range "
                f"{store.qmin}:{store.qmax}"
            )
    return ""


def _axis(kind: WrittenUniform, shape: Sequence[int]) -> str:
    axis = kind.axis or 0
    if axis >= len(shape):
        return f"there is no axis {axis}, the quantized dimension must be less than the rank {len(shape)}"
    if shape[axis] >= 0 and shape[axis] != len(kind.scales):
        return f"{len(kind.scales)} scales for axis {axis} of size {shape[axis]}"
    return ""


def _blocks(kind: WrittenUniform, shape: Sequence[int], short_block: bool) -> str:  # noqa: FBT001
    blocks = dict(kind.blocks or ())
    for axis in blocks:
        if axis >= len(shape):
            return f"there is no axis {axis} to have a block size, the rank is {len(shape)}"
    if len(kind.grid) != len(shape):
        return f"scales nest {len(kind.grid)} deep, the rank is {len(shape)}"
    for axis, (size, count) in enumerate(zip(shape, kind.grid, strict=True)):
        block = blocks.get(axis)
        if block is None:
            if count != 1:
                return (
                    f"axis {axis} is one block, having no block size, but there are {count} scales along it"
                )
        elif size >= 0 and short_block:
            needed = -(-size // block)
            if needed != count:
                return f"axis {axis} of size {size} in blocks of {block} needs {needed} scales, not {count}"
        elif size >= 0 and block > size:
            return f"the block size {block} of axis {axis} is greater than its size {size}"
        elif size >= 0 and size % block:
            return f"axis {axis} of size {size} is no multiple of its block size {block}"
        elif size >= 0 and size // block != count:
            return (
                f"axis {axis} of size {size} in blocks of {block} needs {size // block} scales, not {count}"
            )
    return ""


def _short(kind: WrittenUniform) -> str:
    text = str(kind)
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
