"""Dynamic: products whose activation is quantized while the kernel runs, by the range of what it reads.

One scale for the tensor, for each token (the numbers along the last axis) or each entry of the batch; then
exact sums of integers, times the product of the two scales in float32, per token times one scale after the
other. With u8 per tensor that is ONNX DynamicQuantizeLinear and MatMulInteger, and onnxruntime's
DynamicQuantizeMatMul; in the arithmetic `litert` it is what LiteRT's hybrid kernels compute. Source: ONNX
operator page DynamicQuantizeLinear; TensorFlow Lite, portable_tensor_utils and the hybrid kernels.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.calls import Operand
from planner.interpreter.kernels.conv import conv_accumulate
from planner.interpreter.kernels.litert import LITERT
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.requantize import Array
from planner.ir.graph import Op
from planner.ir.types.qtypes import Storage
from planner.ops.geometry.windows import conv_geometry
from planner.target.records import DynamicRange


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """Integers, and the parameters found for them.

    Attributes:
      stored: shape of the reals.
      scale: float32, one number or (..., 1).
    """

    stored: Array
    scale: Array
    zero_point: int


def quantized(x: Array, by: DynamicRange) -> Quantized:
    """Quantize reals by their own range, each step in float32, half to even; a range of zeros has scale 1."""
    store = by.storage
    axes, keeps = (-1, True) if by.per_token else (None, False)
    low = np.minimum(x.min(axis=axes, keepdims=keeps, initial=0.0), np.float32(0))
    high = np.maximum(x.max(axis=axes, keepdims=keeps, initial=0.0), np.float32(0))
    if by.symmetric:
        scale = np.asarray(np.maximum(high, -low) / np.float32(store.qmax), np.float32)
    else:
        scale = np.asarray((high - low) / np.float32(store.steps), np.float32)
    scale = np.where(scale == 0, np.float32(1), scale)
    zero = np.float32(0)
    if not by.symmetric:
        zero = np.rint(np.clip(np.float32(store.qmin) - low / scale, store.qmin, store.qmax))
    least = -store.qmax if by.symmetric else store.qmin
    steps = np.clip(np.rint(x / scale) + zero, least, store.qmax)
    # NaN becomes the least integer, as in `constants.quantize`; the scale is NaN, and so are the results.
    stored = np.nan_to_num(steps, nan=least).astype(stored_dtype(store))
    return Quantized(stored, scale, int(np.nan_to_num(zero, nan=store.qmin)))


def quantized_in_litert(x: Array, by: DynamicRange) -> Quantized:
    """Quantize reals as LiteRT's hybrid kernels do: times the scale's reciprocal, half away from zero."""
    store = by.storage
    axes, keeps = (-1, True) if by.per_token else (None, False)
    low = np.minimum(x.min(axis=axes, keepdims=keeps, initial=0.0), np.float32(0))
    high = np.maximum(x.max(axis=axes, keepdims=keeps, initial=0.0), np.float32(0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if by.symmetric:
            width, least, zero = np.maximum(high, -low), -store.qmax, 0
            scale = np.asarray(width / np.float32(store.qmax), np.float32)
            inverse = np.asarray(np.float32(store.qmax) / width, np.float32)
        else:
            width, least = high - low, store.qmin
            step, zero = _nudged(float(low), float(high), store)
            scale = np.asarray(step, np.float32)
            inverse = np.asarray(np.float32(1) / scale, np.float32)
        steps = np.where(width == 0, np.float64(zero), _away(np.float32(zero) + x * inverse))
    stored = np.clip(np.nan_to_num(steps, nan=least), least, store.qmax).astype(stored_dtype(store))
    return Quantized(stored, np.where(width == 0, np.float32(1), scale), zero)


def _nudged(low: float, high: float, store: Storage) -> tuple[float, int]:
    """The scale of a range in float64, and its zero point, reckoned from the end that is nearer to it."""
    step = (high - low) / store.steps
    if not (np.isfinite(step) and step > 0):
        return 1.0, 0
    ends = [
        (abs(end) + abs(real / step), end - real / step)
        for end, real in ((store.qmin, low), (store.qmax, high))
    ]
    point = ends[0][1] if ends[0][0] < ends[1][0] else ends[1][1]
    return step, int(_away(np.asarray(np.clip(point, store.qmin, store.qmax))))


def _away(numbers: Array) -> Array:
    """Numbers rounded half away from zero."""
    wide = np.asarray(numbers, np.float64)
    return np.asarray(np.copysign(np.floor(np.abs(wide) + 0.5), wide))


def product(
    op: Op, x: Array, weight: Operand, bias: Array | None, by: DynamicRange, *, arithmetic: str = ""
) -> Array:
    """Conv, Gemm or MatMul of float32 reals and stored weights: float32.

    Args:
      weight: per tensor or per output channel.
      bias: added in float32, as the op takes it; None: none.
      arithmetic: `litert`, that of LiteRT's hybrid kernels; any other: ONNX's.
    """
    if by.per_batch:
        one = replace(by, per_batch=False)
        parts = [
            product(op, x[i : i + 1], weight, bias, one, arithmetic=arithmetic) for i in range(max(1, len(x)))
        ]
        return np.concatenate(parts)
    is_litert = arithmetic == LITERT
    found, kind, attributes = (
        (quantized_in_litert if is_litert else quantized)(x, by),
        weight.kind,
        op.attributes,
    )
    zero = kind.zero_point if kind.is_per_tensor else np.asarray(kind.zero_points, np.int64)
    scales = np.asarray(kind.scales, np.float32) * np.float32(attributes.get("alpha", 1.0))
    scales = scales.reshape(()) if kind.is_per_tensor else scales
    if op.type == "Conv":
        geometry = conv_geometry(attributes, x.shape[2:], weight.stored.shape[2:])
        acc = conv_accumulate(found.stored, found.zero_point, weight.stored, zero, None, geometry=geometry)
        behind = (1,) * (x.ndim - 2)
        scales = scales if kind.is_per_tensor else scales.reshape(-1, *behind)
        shaped = None if bias is None else bias.reshape(-1, *behind)
    else:
        matrix = weight.stored.T if attributes.get("transB") else weight.stored
        acc = matmul_accumulate(found.stored, found.zero_point, matrix, zero)
        shaped = None if bias is None else bias * np.float32(attributes.get("beta", 1.0))
    sums = acc.astype(np.float32)
    in_turn = op.type == "Conv" and not kind.is_per_tensor if is_litert else by.per_token
    reals = sums * scales * found.scale if in_turn else sums * (scales * found.scale)
    return np.asarray(reals if shaped is None else reals + shaped, np.float32)
