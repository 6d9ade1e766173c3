"""Types: a quantizer as a type of our own language, or the reason why there is none.

Scales that broadcast become per tensor, per axis or per block, whatever shape the file writes them in; a
width per channel becomes the widest range. Source: docs/specification.md, section 2; docs/qonnx.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.errors import ModelError, QTypeError
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.quantized.quantizers import Quantizer
from planner.ir.types.qtypes import FLOAT_STORAGE, Bipolar, Storage, Uniform, full_range, storage

MOST_BITS: Final = 32


def type_of(quantizer: Quantizer, shape: Sequence[int | str | None] | None) -> Uniform | Bipolar:
    """The type of a quantizer's result.

    Args:
      shape: of the tensor; only needed where there is more than one scale.

    Raises:
      ModelError: no type says it; the message is the reason alone.
    """
    scale = np.broadcast_to(
        quantizer.scale, np.broadcast_shapes(quantizer.scale.shape, quantizer.zero_point.shape)
    )
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ModelError("its scale is not positive and finite")
    if quantizer.is_bipolar:
        if scale.size > 1 and not np.all(scale == scale.reshape(-1)[0]):
            raise ModelError("one bit with a scale per channel has no type")
        if quantizer.zero_point.any():
            raise ModelError("one signed bit with a zero point has no type")
        return Bipolar("f32", float(scale.reshape(-1)[0]))
    store = storage_of(quantizer)
    parts = (scale, quantizer.zero_point, quantizer.low, quantizer.high)
    scale, zero, low, high = np.broadcast_arrays(*(part.astype(np.float64) for part in parts))
    if not np.array_equal(zero, np.rint(zero)):
        raise ModelError("its zero point is no integer")
    try:
        return _granular(store, (scale, zero, low, high), shape)
    except QTypeError as error:
        raise ModelError(str(error)) from error


def storage_of(quantizer: Quantizer) -> Storage:
    """The file's own storage with the range in use; of QONNX the least one that holds every range.

    Raises:
      ModelError: an empty range, or more bits than a value has.
    """
    if quantizer.stored in FLOAT_STORAGE:
        return storage(quantizer.stored)
    low, high = int(quantizer.low.min()), int(quantizer.high.max())
    signed = quantizer.stored.startswith("i") if quantizer.stored else quantizer.signed
    widest = int(quantizer.stored[1:]) if quantizer.stored else math.ceil(float(np.max(quantizer.bits)))
    whole = full_range(max(widest, 1), signed=signed)
    if low < whole[0] or high > whole[1]:
        widest = max(high.bit_length() + signed, (-low - 1).bit_length() + 1 if low < 0 else 0)
    if widest > MOST_BITS:
        raise ModelError(f"{widest} bits are more than a value is stored in")
    try:
        return Storage(max(widest, 1), signed, low, high)
    except QTypeError as error:
        raise ModelError(str(error)) from error


def _granular(store: Storage, parts: Sequence[Array], shape: Sequence[int | str | None] | None) -> Uniform:
    """The type of parameters (scale, zero point, ends) that broadcast together."""
    if all(np.all(part == part.reshape(-1)[0]) for part in parts):
        scale, zero = (part.reshape(-1)[0] for part in parts[:2])
        return Uniform(store, (float(scale),), (int(zero),))
    rank = parts[0].ndim
    if shape is None or rank > len(shape):
        raise ModelError("many scales for a tensor of unknown shape")
    whole = [part.reshape((1,) * (len(shape) - rank) + part.shape) for part in parts]
    parts = whole
    for axis in range(len(shape)):
        parts = _compressed(parts, axis)
    grid = parts[0].shape
    wide = [axis for axis, size in enumerate(grid) if size > 1]
    is_sliced = len(wide) == 1 and grid[wide[0]] == shape[wide[0]]
    sizes = {} if is_sliced else {axis: _run(whole, axis) for axis in wide}
    parts = [_cut(part, sizes) for part in whole] if sizes else parts
    grid = parts[0].shape
    scales, zeros, lows, highs = (part.reshape(-1).tolist() for part in parts)
    ends = tuple((int(low), int(high)) for low, high in zip(lows, highs, strict=True))
    ranges = () if store.float_name or len(set(ends)) == 1 else ends
    zero_points = tuple(map(int, zeros))
    if is_sliced:
        return Uniform(store, tuple(scales), zero_points, axis=wide[0], ranges=ranges)
    blocks = []
    for axis in wide:
        dim, count = shape[axis], grid[axis]
        if not isinstance(dim, int) or -(-dim // sizes[axis]) != count:
            raise ModelError(f"{count} scales along axis {axis} of {dim}")
        blocks.append((axis, sizes[axis]))
    return Uniform(store, tuple(scales), zero_points, blocks=tuple(blocks), grid=grid, ranges=ranges)


def _compressed(parts: Sequence[Array], axis: int) -> list[Array]:
    """Parameters with one per run of equal ones along an axis, all runs of one length."""
    size = parts[0].shape[axis]
    for count in (count for count in range(1, size) if size % count == 0):
        starts = np.arange(0, size, size // count)
        short = [np.take(part, starts, axis=axis) for part in parts]
        wide = [np.repeat(part, size // count, axis=axis) for part in short]
        if all(np.array_equal(a, b) for a, b in zip(wide, parts, strict=True)):
            return short
    return list(parts)


def _run(parts: Sequence[Array], axis: int) -> int:
    """The longest length of runs of equal parameters along an axis; the last run may be shorter."""
    changes: set[int] = set()
    for part in parts:
        moved = np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1)
        changes.update((np.flatnonzero((moved[1:] != moved[:-1]).any(axis=1)) + 1).tolist())
    return math.gcd(*changes) or parts[0].shape[axis]


def _cut(part: Array, sizes: Mapping[int, int]) -> Array:
    """One parameter a run along the axes with sizes, one in all along the others."""
    for axis, count in enumerate(part.shape):
        part = part.take(range(0, count, sizes.get(axis, count)), axis=axis)
    return part
