"""Formulas of quantization operators on numpy arrays, in the order of their definitions.

Element types promote as numpy's do, and results are float32 at the end: so an int64 zero point makes the
steps behind it float64. Nothing here knows graphs. Source: QONNX operator pages; ONNX Q/DQ; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Rounding: TypeAlias = Callable[[Array], Array]


def to_zero(x: Array) -> Array:
    """Round towards zero."""
    return np.trunc(x)


def from_zero(x: Array) -> Array:
    """Round away from zero."""
    return np.sign(x) * np.ceil(np.abs(x))


def half_from_zero(x: Array) -> Array:
    """Round to nearest, ties away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def half_to_zero(x: Array) -> Array:
    """Round to nearest, ties towards zero."""
    return np.sign(x) * np.ceil(np.abs(x) - 0.5)


ROUNDINGS: Final[Mapping[str, Rounding]] = {
    "CEIL": np.ceil,
    "DOWN": to_zero,
    "FLOOR": np.floor,
    "HALF_DOWN": half_to_zero,
    "HALF_EVEN": np.rint,
    "HALF_UP": half_from_zero,
    "ROUND": np.rint,
    "ROUND_TO_ZERO": to_zero,
    "UP": from_zero,
}

BEYOND: Final = np.errstate(over="ignore")
"""Quotients of scales next to 0, and numbers of scales next to the end of float32, are infinite."""


def bounds(bits: Array, *, signed: bool, narrow: bool) -> tuple[Array, Array]:
    """Ends of the clip in stored units, unrounded; `bits` may be fractional, and one per channel."""
    if signed:
        half = 2 ** (bits - 1)
        return np.asarray(-half + int(narrow)), np.asarray(half - 1)
    return np.asarray(0 * bits), np.asarray(2**bits - 1 - int(narrow))


@BEYOND
def quant(
    x: Array,
    scale: Array,
    zero_point: Array,
    bits: Array,
    *,
    signed: bool = True,
    narrow: bool = False,
    rounding: str = "ROUND",
) -> Array:
    """QONNX Quant: offset, clip, round, then back to reals; signed one-bit slices are -1 or 1."""
    v = x / scale + zero_point
    low, high = bounds(bits, signed=signed, narrow=narrow)
    clipped = np.where(v > high, high.astype(v.dtype), v)
    clipped = np.where(clipped < low, low.astype(v.dtype), clipped)
    q = ROUNDINGS[rounding](clipped)
    if signed and np.any(bits == 1):
        q = np.where(bits == 1, np.where(v >= 0, v.dtype.type(1), v.dtype.type(-1)), q)
    return as_f32((q - zero_point) * scale)


@BEYOND
def bipolar(x: Array, scale: Array) -> Array:
    """QONNX BipolarQuant: the scale, with the sign of x; zero counts as positive."""
    one = x.dtype.type(1)
    return as_f32(np.where(x >= 0, one, -one) * scale)


@BEYOND
def trunc(
    x: Array, scale: Array, zero_point: Array, bits_in: Array, bits_out: Array, *, rounding: str = "FLOOR"
) -> Array:
    """QONNX Trunc of five operands: drop low bits of the stored number; the scale stays."""
    q = np.rint(x / scale + zero_point) / 2.0 ** (bits_in - bits_out)
    return as_f32((ROUNDINGS[rounding](q) - zero_point) * scale)


@BEYOND
def trunc_scaled(
    x: Array,
    scale: Array,
    zero_point: Array,
    scale_out: Array,
    bits_out: Array,
    *,
    signed: bool = True,
    narrow: bool = False,
    rounding: str = "FLOOR",
) -> Array:
    """QONNX Trunc of six operands: divide the stored number by a power of two, clip, round."""
    ratio = 2 ** np.rint(np.log2(scale_out / scale))
    v = np.rint(x / scale + zero_point) / ratio
    low, high = bounds(bits_out, signed=signed, narrow=narrow)
    v = np.where(v > high, high.astype(v.dtype), v)
    v = np.where(v < low, low.astype(v.dtype), v)
    return as_f32((ROUNDINGS[rounding](v) - zero_point / ratio) * scale_out)


@BEYOND
def float_quant(
    x: Array,
    scale: Array,
    exponent_bits: Array,
    mantissa_bits: Array,
    *rest: Array,
    rounding: str = "ROUND",
    has_inf: bool = False,
    has_nan: bool = False,
    saturation: bool = True,
) -> Array:
    """QONNX FloatQuant: round to a float of the given exponent and mantissa bits, subnormals included.

    Args:
      rest: exponent bias and largest value.

    Raises:
      ValueError: neither saturation nor a value for reals beyond the format.
    """
    exponent_bias, max_value = rest
    v = x / scale
    # Far beyond every such float, and so that steps stay finite: what scales near 0 make of numbers.
    most = np.finfo(v.dtype).max / 4
    v = np.clip(v, -most, most)
    tiny = np.finfo(v.dtype).tiny
    step = np.floor(np.log2(np.abs(v) + tiny)) - mantissa_bits
    step = np.exp2(np.maximum(step, 1.0 - exponent_bias - mantissa_bits))
    q = step * ROUNDINGS[rounding](v / step)
    mantissa = np.sum(2.0 ** np.arange(0, -1.0 * mantissa_bits.item() - 1.0, -1.0))
    largest = np.minimum(mantissa * 2 ** (2.0**exponent_bits - 1.0 - exponent_bias), max_value)
    clipped = np.clip(q, -largest, largest)
    if not saturation:
        clipped = _unsaturated(clipped, q, largest, has_inf=has_inf, has_nan=has_nan)
    return as_f32(clipped * scale)


def _unsaturated(clipped: Array, q: Array, largest: Array, *, has_inf: bool, has_nan: bool) -> Array:
    if has_inf:
        return np.where(q > largest, np.inf, np.where(q < -largest, -np.inf, clipped))
    if has_nan:
        return np.where(np.abs(q) > largest, np.nan, clipped)
    raise ValueError("FloatQuant without saturation needs has_inf or has_nan")


def multi_threshold(
    x: Array, thresholds: Array, *, scale: float = 1.0, bias: float = 0.0, axis: int = 1
) -> Array:
    """FINN MultiThreshold: number of thresholds of its channel that an element reaches, scaled and shifted.

    Args:
      thresholds: (C or 1, steps).
      axis: the channel axis of x.
    """
    shape = [1] * x.ndim
    if thresholds.shape[0] != 1:
        shape[axis] = -1
    count = np.zeros(x.shape, np.int32)
    for k in range(thresholds.shape[1]):
        count += x >= thresholds[:, k].reshape(shape)
    return scale * count.astype(x.dtype) + bias


def as_f32(x: Array) -> Array:
    """The array in float32, a scalar as an array without dimensions."""
    return np.asarray(x, dtype=np.float32)
