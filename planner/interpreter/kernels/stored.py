"""Stored: ONNX's own quantization operators on numpy arrays, every element type and granularity.

QuantizeLinear and DequantizeLinear with integers of 2 to 32 bits and floats of 4 and 8, per tensor, axis and
block; the integer products with any operands. Source: ONNX operator pages, opset 10 to 25.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NAMES, NUMPY
from planner.interpreter.kernels.conv import conv_accumulate
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.requantize import Array, wrap_int32
from planner.ir.graph import Op
from planner.ops.geometry.windows import conv_geometry

StoredKernel: TypeAlias = Callable[[Op, Sequence[Array | None]], tuple[Array, ...]]


def quantize(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """QuantizeLinear: `saturate(rint(x / scale) + zero_point)`; floats by their own rounding."""
    x, scale = _array(operands, 0, op), _array(operands, 1, op)
    zero = operands[2] if len(operands) > 2 else None
    dtype = _result_type(op, zero)
    precision = NAMES.get(op.attributes.get("precision", 0))
    work = _working(x.dtype if precision is None else NUMPY[precision], scale.dtype)
    s = spread(scale.astype(work), x.shape, op)
    with np.errstate(all="ignore"):
        v = x.astype(work) / s
    if not is_integer(dtype):
        return (_to_float(v, dtype, saturate=bool(op.attributes.get("saturate", 1))),)
    low, high = (int(end) for end in _ends(dtype))
    shifted = np.rint(v) if zero is None else np.rint(v) + spread(zero.astype(work), x.shape, op)
    return (np.clip(np.where(np.isnan(shifted), low, shifted), low, high).astype(dtype),)


def dequantize(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """DequantizeLinear: `(x - zero_point) * scale` in the scale's element type."""
    x, scale = _array(operands, 0, op), _array(operands, 1, op)
    zero = operands[2] if len(operands) > 2 else None
    wanted = NAMES.get(op.attributes.get("output_dtype", 0))
    wide = np.int64 if is_integer(x.dtype) else np.float32
    shifted = x.astype(wide) if zero is None else x.astype(wide) - spread(zero.astype(wide), x.shape, op)
    work = _working(scale.dtype, scale.dtype)
    real = shifted.astype(work) * spread(scale.astype(work), x.shape, op)
    return (real.astype(scale.dtype if wanted is None else NUMPY[wanted]),)


def matmul_integer(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """MatMulInteger: int32 sums of products of shifted integers."""
    a, b = _array(operands, 0, op), _array(operands, 1, op)
    zeros = [_optional(operands, i) for i in (2, 3)]
    if zeros[0].size > 1:
        a, zeros[0] = a.astype(np.int32) - zeros[0].astype(np.int32)[..., :, None], np.asarray(0)
    return (wrap_int32(matmul_accumulate(a, int(_scalar(zeros[0])), b, zeros[1])),)


def conv_integer(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """ConvInteger: the same for a convolution."""
    x, w = _array(operands, 0, op), _array(operands, 1, op)
    x_zero, w_zero = _optional(operands, 2), _optional(operands, 3)
    geometry = conv_geometry(op.attributes, x.shape[2:], w.shape[2:])
    acc = conv_accumulate(x, int(_scalar(x_zero)), w, w_zero, geometry=geometry)
    return (wrap_int32(acc),)


def qlinear_matmul(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """QLinearMatMul with scales of any float type."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (_array(operands, i, op) for i in range(8))
    acc = matmul_accumulate(a, int(_scalar(a_zero)), b, b_zero if b_zero.size > 1 else int(_scalar(b_zero)))
    factor = np.float32(_scalar(a_scale)) * b_scale.astype(np.float32) / np.float32(_scalar(y_scale))
    return (_requantized(acc, factor, y_zero),)


def qlinear_conv(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    """QLinearConv with any integer operands."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (_array(operands, i, op) for i in range(8))
    bias = operands[8] if len(operands) > 8 else None
    zero = w_zero if w_zero.size > 1 else int(_scalar(w_zero))
    geometry = conv_geometry(op.attributes, x.shape[2:], w.shape[2:])
    acc = conv_accumulate(x, int(_scalar(x_zero)), w, zero, bias, geometry=geometry)
    factor = np.float32(_scalar(x_scale)) * w_scale.astype(np.float32) / np.float32(_scalar(y_scale))
    return (_requantized(acc, factor.reshape(-1, *[1] * (acc.ndim - 2)), y_zero),)


def spread(parameters: Array, shape: Sequence[int], op: Op) -> Array:
    """Scales or zero points so that they broadcast: per tensor, per slice of the axis, or per block."""
    if parameters.size == 1:
        return parameters.reshape(())
    axis = op.attributes.get("axis", 1) % len(shape)
    block = op.attributes.get("block_size", 0)
    if block and parameters.ndim == len(shape):
        wide = np.repeat(parameters, block, axis=axis)
        return wide[tuple(slice(0, size) for size in shape)]
    if parameters.ndim != 1 or parameters.shape[0] != shape[axis]:
        raise ModelError(
            f"{op.type} at {op.name!r}: {parameters.shape} parameters for axis {axis} of {tuple(shape)}"
        )
    return parameters.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether elements are integers, those of numpy's own kinds and the narrow ones."""
    return dtype.kind in "iu" or dtype in _NARROW


def _scalar(parameter: Array) -> Any:
    return parameter.reshape(-1)[0]


def _requantized(acc: Array, factor: Array, zero: Array) -> Array:
    low, high = (int(end) for end in _ends(zero.dtype))
    scaled = np.rint(acc.astype(np.float32) * factor) + zero.astype(np.float32)
    return np.asarray(np.clip(scaled, low, high).astype(zero.dtype))


def _to_float(v: Array, dtype: np.dtype[Any], *, saturate: bool) -> Array:
    if not saturate and dtype != ml_dtypes.float4_e2m1fn:
        return v.astype(dtype)
    limit = v.dtype.type(_LARGEST[dtype])
    return np.asarray(np.clip(v, -limit, limit).astype(dtype))


def _result_type(op: Op, zero: Array | None) -> np.dtype[Any]:
    wanted = NAMES.get(op.attributes.get("output_dtype", 0))
    if wanted is not None:
        return NUMPY[wanted]
    return np.dtype(np.uint8) if zero is None else zero.dtype


def _working(x: np.dtype[Any], scale: np.dtype[Any]) -> np.dtype[Any]:
    """Halves compute in themselves, everything else in float32."""
    return np.dtype(np.float16) if x == scale == np.float16 else np.dtype(np.float32)


def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype in _NARROW:
        return _NARROW[dtype]
    info = np.iinfo(dtype)
    return info.min, info.max


def _array(operands: Sequence[Array | None], index: int, op: Op) -> Array:
    array = operands[index] if index < len(operands) else None
    if array is None:
        raise ModelError(f"{op.type} at {op.name!r} lacks operand {index}")
    return array


def _optional(operands: Sequence[Array | None], index: int) -> Array:
    array = operands[index] if index < len(operands) else None
    return np.asarray(0) if array is None else array


_NARROW: Final[Mapping[np.dtype[Any], tuple[int, int]]] = {
    np.dtype(ml_dtypes.int2): (-2, 1),
    np.dtype(ml_dtypes.int4): (-8, 7),
    np.dtype(ml_dtypes.uint2): (0, 3),
    np.dtype(ml_dtypes.uint4): (0, 15),
}
_LARGEST: Final[Mapping[np.dtype[Any], float]] = {
    np.dtype(ml_dtypes.float4_e2m1fn): 6.0,
    np.dtype(ml_dtypes.float8_e4m3fn): 448.0,
    np.dtype(ml_dtypes.float8_e4m3fnuz): 240.0,
    np.dtype(ml_dtypes.float8_e5m2): 57344.0,
    np.dtype(ml_dtypes.float8_e5m2fnuz): 57344.0,
}

STORED_KERNELS: Final[Mapping[str, StoredKernel]] = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize,
}
