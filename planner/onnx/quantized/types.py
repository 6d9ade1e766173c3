"""Types: a quantizer as a type of our own language, or the reason why there is none.

Scales that broadcast become per tensor, per axis or per block, whatever shape the file writes them in; a
width per channel becomes the widest range. Source: design 01, section 2; design 05, "In".
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.errors import ModelError, QTypeError
from planner.ir.qtypes import FLOAT_STORAGE, Bipolar, Storage, Uniform, full_range, storage
from planner.onnx.quantized.formulas import Array
from planner.onnx.quantized.quantizers import Quantizer

MOST_BITS: Final = 32


def type_of(quantizer: Quantizer, shape: Sequence[int | str | None] | None) -> Uniform | Bipolar:
    """The type of what a quantizer gives.

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
    zero = np.broadcast_to(quantizer.zero_point, scale.shape)
    if not np.array_equal(zero, np.rint(zero)):
        raise ModelError("its zero point is no integer")
    try:
        return _granular(store, scale.astype(np.float64), zero.astype(np.int64), shape)
    except QTypeError as error:
        raise ModelError(str(error)) from error


def storage_of(quantizer: Quantizer) -> Storage:
    """The least storage of the quantizer's sign that holds its range; of a width per channel the widest.

    Raises:
      ModelError: an empty range, or more bits than a value has.
    """
    if quantizer.stored in FLOAT_STORAGE:
        return storage(quantizer.stored)
    low, high = int(quantizer.low.min()), int(quantizer.high.max())
    widest = math.ceil(float(np.max(quantizer.bits)))
    if quantizer.stored:
        widest = min(int(quantizer.stored[1:]), widest or int(quantizer.stored[1:]))
    signed = quantizer.signed if not quantizer.stored else quantizer.stored.startswith("i")
    whole = full_range(max(widest, 1), signed=signed)
    if low < whole[0] or high > whole[1]:
        widest = max(1, high.bit_length() + signed, (-low - 1).bit_length() + 1 if low < 0 else 0)
    if widest > MOST_BITS:
        raise ModelError(f"{widest} bits are more than a value is stored in")
    try:
        return Storage(max(widest, 1), signed, low, high)
    except QTypeError as error:
        raise ModelError(str(error)) from error


def _granular(store: Storage, scale: Array, zero: Array, shape: Sequence[int | str | None] | None) -> Uniform:
    if scale.size == 1 or (np.all(scale == scale.reshape(-1)[0]) and np.all(zero == zero.reshape(-1)[0])):
        return Uniform(store, (float(scale.reshape(-1)[0]),), (int(zero.reshape(-1)[0]),))
    if shape is None or scale.ndim > len(shape):
        raise ModelError("many scales for a tensor of unknown shape")
    pad = (1,) * (len(shape) - scale.ndim)
    scale, zero = scale.reshape(pad + scale.shape), zero.reshape(pad + zero.shape)
    for axis in range(len(shape)):
        scale, zero = _compressed(scale, zero, axis)
    wide = [axis for axis, size in enumerate(scale.shape) if size > 1]
    scales, zeros = tuple(scale.reshape(-1).tolist()), tuple(zero.reshape(-1).tolist())
    if len(wide) == 1 and scale.shape[wide[0]] == shape[wide[0]]:
        return Uniform(store, scales, zeros, axis=wide[0])
    blocks = []
    for axis in wide:
        dim, count = shape[axis], scale.shape[axis]
        if not isinstance(dim, int) or dim % count:
            raise ModelError(f"{count} scales along axis {axis} of {dim}")
        blocks.append((axis, dim // count))
    return Uniform(store, scales, zeros, blocks=tuple(blocks), grid=scale.shape)


def _compressed(scale: Array, zero: Array, axis: int) -> tuple[Array, Array]:
    """The same parameters with one per run of equal ones along an axis, runs of one length."""
    size = scale.shape[axis]
    if size == 1:
        return scale, zero
    for count in (count for count in range(1, size) if size % count == 0):
        starts = np.arange(0, size, size // count)
        parts = [np.take(array, starts, axis=axis) for array in (scale, zero)]
        wide = [np.repeat(part, size // count, axis=axis) for part in parts]
        if np.array_equal(wide[0], scale) and np.array_equal(wide[1], zero):
            return parts[0], parts[1]
    return scale, zero
