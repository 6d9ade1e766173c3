"""Requantize: integer accumulators and real values onto a storage, as ONNX Runtime's CPU kernels do it.

In: arrays, float32 scales, integer zero points, storage bounds. Out: arrays in the smallest numpy integer
type that holds [qmin, qmax]. No graph, no ONNX. This is `float32_even`: one float32 multiply, clamp, round
half to even, then the zero point. The same on every x86 CPU (SSE2 and AVX512F kernels agree), bit for bit.
Source: ONNX QuantizeLinear; MLAS's requantize and quantize kernels, read for their order of operations.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float32Array = npt.NDArray[np.float32]
Scale = float | np.float32 | Float32Array
ZeroPoint = int | Array

_STORAGES: Final = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.int64)


@dataclass(frozen=True, slots=True)
class Grid:
    """Stored values of a per-tensor port: `real = (stored - zero_point) * scale`, stored in [qmin, qmax]."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int

    @property
    def scale32(self) -> np.float32:
        """The scale as the kernels hold it."""
        return np.float32(self.scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of stored values."""
        return storage_dtype(self.qmin, self.qmax)

    def stored(self) -> npt.NDArray[np.int64]:
        """Every stored value, ascending: the rows of a lookup table."""
        return np.arange(self.qmin, self.qmax + 1)


def storage_dtype(qmin: int, qmax: int) -> np.dtype[Any]:
    """The smallest numpy integer type that holds [qmin, qmax], unsigned first."""
    for candidate in _STORAGES:
        bounds = np.iinfo(candidate)
        if bounds.min <= qmin and qmax <= bounds.max:
            return np.dtype(candidate)
    return np.dtype(np.uint64)


def output_multiplier(x_scale: Scale, w_scale: Scale, y_scale: Scale, *, alpha: float = 1.0) -> Float32Array:
    """The factor from an accumulator to the output: `alpha * x_scale * w_scale / y_scale`.

    Each step is rounded to float32, in this order, as QLinearConv, QLinearMatMul and QGemm (the only one
    with an alpha) do; `x_scale / y_scale * w_scale` would differ in the last bit.

    Args:
      x_scale: scale of the activation, one number.
      w_scale: scale of the weight, one number or (C_out,).
      y_scale: scale of the output, one number.
      alpha: QGemm's factor.

    Returns:
      float32, with the shape of `w_scale`.
    """
    product = np.float32(alpha) * np.asarray(x_scale, np.float32) * np.asarray(w_scale, np.float32)
    return np.asarray(product / np.asarray(y_scale, np.float32), np.float32)


def wrap_int32(acc: Array) -> npt.NDArray[np.int32]:
    """An exact accumulator as a 32-bit register holds it: modulo 2^32."""
    return acc.astype(np.int32)


def held(acc: Array, bounds: tuple[int, int], overflow: str) -> npt.NDArray[np.int64]:
    """An exact accumulator as a register of a device holds it.

    Args:
      acc: exact sums.
      bounds: the least and greatest integer of the register.
      overflow: `saturate` cuts the whole sum there, `wrap` takes it modulo the register's size.
    """
    low, high = bounds
    if overflow == "saturate":
        return np.clip(acc.astype(np.int64), low, high)
    return (acc.astype(np.int64) - low) % (high - low + 1) + low


def requantize_float32(acc: Array, multiplier: Scale, zero_point: int, qmin: int, qmax: int) -> Array:
    """Scale accumulators onto a storage: `clamp, round half to even, add the zero point`.

    Args:
      acc: integers, any type and shape; converted to float32 first (that rounds above 2^24).
      multiplier: float32, broadcastable against `acc` (per channel: shape it yourself).
      zero_point: of the output, stored.
      qmin: storage minimum.
      qmax: storage maximum.

    Returns:
      Stored integers of `acc`'s shape, `storage_dtype(qmin, qmax)`.
    """
    scaled = acc.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = scaled * np.asarray(multiplier, np.float32)
    return _round_onto(scaled, zero_point, qmin, qmax)


def scaled_float32(acc: Array, multiplier: Scale) -> Float32Array:
    """Accumulators as reals: in float32, which rounds above 2^24, times the factor, which rounds once more.

    As MatMulIntegerToFloat, and QGemm without a scale of its result.
    """
    with np.errstate(over="ignore"):
        return np.asarray(acc.astype(np.float32) * np.asarray(multiplier, np.float32), np.float32)


def quantize_linear(
    x: Array, scale: Scale, zero_point: ZeroPoint, qmin: int, qmax: int, *, axis: int | None = None
) -> Array:
    """ONNX QuantizeLinear in float32: `saturate(rint(x / scale) + zero_point)`.

    NaN becomes qmin, an infinity the bound on its side.

    Args:
      x: reals, computed in float32.
      scale: one number, or (x.shape[axis],) with `axis`.
      zero_point: stored, one number or like `scale`.
      qmin: storage minimum.
      qmax: storage maximum.
      axis: of the per-axis parameters; None: per tensor.

    Returns:
      Stored integers of `x`'s shape, `storage_dtype(qmin, qmax)`.
    """
    real = np.asarray(x, np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        quotient = real / along_axis(np.asarray(scale, np.float32), axis, real.ndim)
    return _round_onto(quotient, along_axis(np.asarray(zero_point), axis, real.ndim), qmin, qmax)


def dequantize_linear(
    q: Array, scale: Scale, zero_point: ZeroPoint = 0, *, axis: int | None = None
) -> Float32Array:
    """ONNX DequantizeLinear in float32: `float32(q - zero_point) * scale`.

    Args:
      q: stored integers of up to 32 bits.
      scale: one number, or (q.shape[axis],) with `axis`.
      zero_point: stored, one number or like `scale`.
      axis: of the per-axis parameters; None: per tensor.

    Returns:
      Reals of `q`'s shape.
    """
    shifted = q.astype(np.int64) - along_axis(np.asarray(zero_point, np.int64), axis, q.ndim)
    with np.errstate(over="ignore"):  # the ends of a range next to float32's own are infinite, as in engines
        return shifted.astype(np.float32) * along_axis(np.asarray(scale, np.float32), axis, q.ndim)


def rescale(q: Array, source: Grid, target: Grid) -> Array:
    """Stored integers of one grid as those of another: DequantizeLinear, then QuantizeLinear.

    QLinearConcat and QLinearWhere rescale their inputs by a table of exactly these values.
    """
    table = quantize_linear(
        dequantize_linear(source.stored(), source.scale32, source.zero_point),
        target.scale32,
        target.zero_point,
        target.qmin,
        target.qmax,
    )
    return look_up(q, table, source.qmin)


def look_up(q: Array, table: Array, qmin: int) -> Array:
    """`table[q - qmin]`, for tables over every stored value of a storage of at most 16 bits."""
    return np.asarray(np.take(table, q if qmin == 0 else q.astype(np.int32) - qmin))


def along_axis(parameters: Array, axis: int | None, ndim: int) -> Array:
    """Shape (n,) parameters so that they broadcast along `axis` of an array of `ndim` dimensions."""
    if axis is None or parameters.ndim == 0:
        return parameters
    shape = [1] * ndim
    shape[axis] = parameters.size
    return parameters.reshape(shape)


def to_int32(x: Float32Array) -> npt.NDArray[np.int64]:
    """Round half to even into 32 bits as CVTPS2DQ does: NaN and reals that do not fit become -2^31.

    Returned as int64, so that a zero point can be added without a wrap.
    """
    rounded = np.rint(x)
    fits = (rounded >= np.float32(-(2**31))) & (rounded < np.float32(2**31))
    return np.where(fits, rounded, np.float32(-(2**31))).astype(np.int64)


def _round_onto(scaled: Array, zero_point: ZeroPoint, qmin: int, qmax: int) -> Array:
    zero = np.asarray(zero_point, np.int64)
    low, high = (qmin - zero).astype(np.float32), (qmax - zero).astype(np.float32)
    # fmax, not maximum: the CPU's MAXPS returns the bound when the value is NaN.
    clamped = np.fmin(np.fmax(scaled, low), high)
    np.rint(clamped, out=clamped)
    return (clamped.astype(np.int32) + zero.astype(np.int32)).astype(storage_dtype(qmin, qmax))
