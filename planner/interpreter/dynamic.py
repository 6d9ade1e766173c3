"""Dynamic: products whose activation is quantized while the kernel runs, by the range of what it reads.

One scale for the tensor, or one for each token, the numbers along the last axis; then exact sums of integers,
times the product of the two scales in float32, per token times one scale after the other. With u8 per tensor
that is ONNX DynamicQuantizeLinear and MatMulInteger, and onnxruntime's DynamicQuantizeMatMul. Source: ONNX
operator page DynamicQuantizeLinear.
"""

from dataclasses import dataclass

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.calls import Operand
from planner.interpreter.kernels.conv import conv_accumulate
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.requantize import Array
from planner.ir.graph import Op
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


def product(op: Op, x: Array, weight: Operand, bias: Array | None, by: DynamicRange) -> Array:
    """Conv, Gemm or MatMul of float32 reals and stored weights: float32.

    Args:
      weight: per tensor or per output channel.
      bias: added in float32, as the op takes it; None: none.
    """
    found, kind, attributes = quantized(x, by), weight.kind, op.attributes
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
    reals = sums * scales * found.scale if by.per_token else sums * (scales * found.scale)
    return np.asarray(reals if shaped is None else reals + shaped, np.float32)
