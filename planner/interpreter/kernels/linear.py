"""Linear: Conv, ConvTranspose, Gemm and MatMul of stored integers: accumulate exactly, requantize once.

Each returns None where its types have no integer kernel: then the region computes in float. In
`float32_even` those of onnxruntime's QLinearConv, QLinearMatMul and QGemm are needed; elsewhere activations
per tensor, weights per tensor or per output channel, a bias on the accumulator's grid, or in `exact_even` on
any other or a float one. `float32_spec` dequantizes the exact sum and quantizes it, each step in float32. A
float result is the exact sum dequantized, whatever the arithmetic: nothing is requantized. `htp` is
Qualcomm's (`kernels.htp`).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.constants.quantize import ARITHMETICS, dequantize_array, quantize_array
from planner.interpreter.calls import (
    FLOAT32_SPEC,
    HTP,
    Call,
    Operand,
    grid_of,
    is_accumulator,
    is_byte,
    is_like,
    onto,
)
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.conv import conv_accumulate, conv_transpose_accumulate
from planner.interpreter.kernels.htp import (
    Sums,
    is_strided_depthwise,
    onto_grid,
    steps_of,
    strided_onto_grid,
)
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.requantize import (
    Array,
    held,
    output_multiplier,
    requantize_float32,
    scaled_float32,
    wrap_int32,
)
from planner.ir.types.qtypes import Uniform
from planner.ops.geometry.windows import conv_geometry


@dataclass(frozen=True, slots=True, eq=False)
class _Sides:
    """Operands of a linear op: the activation, the weight, and the bias if it has one.

    Attributes:
      real_bias: (C_out,) float32, of a bias that is float or has a grid of its own.
    """

    x: Operand
    w: Operand
    bias: Operand | None
    real_bias: Array | None = None


def conv(call: Call) -> Array | None:
    """Conv: x, w, bias?"""
    # onnxruntime has no integer convolution with a float result.
    sides = None if call.is_onnxruntime and call.kind is None else _sides(call, 0)
    if sides is None:
        return None
    x, w = sides.x.stored, sides.w.stored
    geometry = conv_geometry(call.op.attributes, x.shape[2:], w.shape[2:])
    acc = conv_accumulate(x, sides.x.kind.zero_point, w, _zeros(sides.w), _bias(sides), geometry=geometry)
    return _requantize(call, acc, sides, trailing=x.ndim - 2, taps=_channel_taps(call, w, 0))


def conv_transpose(call: Call) -> Array | None:
    """ConvTranspose: x, w, bias?; onnxruntime has no integer kernel for it."""
    attributes = call.op.attributes
    is_explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes
    sides = None if call.is_onnxruntime or not is_explicit else _sides(call, 1)
    if sides is None or not (sides.w.kind.is_per_tensor or attributes.get("group", 1) == 1):
        return None
    x, w = sides.x.stored, sides.w.stored
    geometry = conv_geometry(attributes, x.shape[2:], w.shape[2:])
    zero_point = sides.x.kind.zero_point
    acc = conv_transpose_accumulate(x, zero_point, w, _zeros(sides.w), _bias(sides), geometry=geometry)
    return _requantize(call, acc, sides, trailing=x.ndim - 2, taps=_channel_taps(call, w, 1))


def gemm(call: Call) -> Array | None:
    """Gemm: a, b, c?; any alpha and transposition, beta 1, c one number per column."""
    attributes = call.op.attributes
    has_bias = len(call.op.inputs) > 2 and bool(call.op.inputs[2])
    if has_bias and attributes.get("beta", 1.0) != 1.0:
        return None
    alpha = float(attributes.get("alpha", 1.0))
    sides = _sides(call, 0 if attributes.get("transB") else 1, alpha=alpha)
    if sides is None:
        return None
    a = sides.x.stored.T if attributes.get("transA") else sides.x.stored
    b = sides.w.stored.T if attributes.get("transB") else sides.w.stored
    return _product(call, a, b, sides, alpha=alpha)


def matmul(call: Call) -> Array | None:
    """MatMul of two matrices or stacks of them."""
    sides = _sides(call, 1)
    if sides is None or not (sides.w.kind.is_per_tensor or sides.w.stored.ndim == 2):
        return None
    return _product(call, sides.x.stored, sides.w.stored, sides)


def matmul_add(call: Call) -> Array | None:
    """MatMul with a matrix of weights, then Add of one number per column."""
    product, add = call.ops
    side = 1 if add.inputs[0] == product.outputs[0] else 0
    bias = call.operand(side, add)
    if bias is None and not _takes_real_bias(call):
        return None
    sides = _with_bias(call, call.operand(0), call.operand(1), bias, axis=1)
    if sides is not None and bias is None:
        sides = _with_real_bias(sides, call.other(add.inputs[side]), 1)
    if sides is None or sides.w.stored.ndim != 2 or sides.x.stored.ndim < 2:
        return None
    unknown = [dim for dim in (sides.x.shape or ())[:-1] if not isinstance(dim, int)]
    if call.is_onnxruntime and (sides.x.shape is None or len(unknown) > 1):
        return None if call.kind is not None else _added_apart(call, sides)
    return _product(call, sides.x.stored, sides.w.stored, sides)


def _added_apart(call: Call, sides: _Sides) -> Array | None:
    """A float result of which onnxruntime, which can't fold x into a matrix, adds the bias in float32."""
    product = _product(call, sides.x.stored, sides.w.stored, replace(sides, bias=None))
    bias = sides.bias
    return product if product is None or bias is None else product + dequantize_array(bias.stored, bias.kind)


def _sides(call: Call, axis: int, *, alpha: float = 1.0) -> _Sides | None:
    """Operands 0, 1 and 2 of the main op, if an integer kernel takes them; `axis` is the weight's."""
    has_bias = len(call.op.inputs) > 2 and bool(call.op.inputs[2])
    bias = call.operand(2) if has_bias else None
    is_real = has_bias and bias is None
    if is_real and not _takes_real_bias(call):
        return None
    sides = _with_bias(call, call.operand(0), call.operand(1), bias, axis=axis, alpha=alpha)
    return (
        sides if sides is None or not is_real else _with_real_bias(sides, call.other(call.op.inputs[2]), axis)
    )


def _takes_real_bias(call: Call) -> bool:
    """Whether a bias off the sum's grid is part of it; elsewhere such a kernel computes in float."""
    return call.arithmetic == "exact_even"


def _with_real_bias(sides: _Sides, bias: Array, axis: int) -> _Sides | None:
    channels = sides.w.stored.shape[axis]
    if bias.size != channels or bias.shape[-1:] != (channels,):
        return None
    return replace(sides, real_bias=bias.reshape(-1))


def _with_bias(
    call: Call, x: Operand | None, w: Operand | None, bias: Operand | None, *, axis: int, alpha: float = 1.0
) -> _Sides | None:
    y = call.kind
    if x is None or w is None or not x.kind.is_per_tensor or not (y is None or y.is_per_tensor):
        return None
    if w.kind.blocks or w.kind.axis not in (None, axis):
        return None
    if call.is_onnxruntime and not _is_known(x.kind, w.kind, y):
        return None
    if bias is not None and not is_accumulator(bias.kind, x.kind, w.kind, alpha):
        is_taken = _takes_real_bias(call) and bias.is_constant
        reals = dequantize_array(bias.stored, bias.kind) if is_taken else None
        return None if reals is None else _with_real_bias(_Sides(x, w, None), reals, axis)
    return _Sides(x, w, bias)


def _is_known(x: Uniform, w: Uniform, y: Uniform | None) -> bool:
    """Whether onnxruntime has a kernel for the types, with a float result without `y`."""
    return (is_byte(x) if y is None else is_like(x, y)) and _is_weight(w, x)


def _is_weight(kind: Uniform, x: Uniform) -> bool:
    return kind.storage.bits <= 8 and (kind.storage.signed or not x.storage.signed)


def _product(call: Call, a: Array, b: Array, sides: _Sides, *, alpha: float = 1.0) -> Array | None:
    bias = _bias(sides)
    if sides.bias is not None and bias is not None:
        is_row = sides.bias.is_constant and bias.ndim > 0 and bias.shape[-1] == b.shape[-1] == bias.size
        if not is_row:
            return None
        bias = bias.reshape(-1)
    acc = matmul_accumulate(a, sides.x.kind.zero_point, b, _zeros(sides.w), bias)
    taps = (
        (b.astype(np.int64) - _zeros(sides.w)).sum(axis=-2, keepdims=True) if call.arithmetic == HTP else None
    )
    return _requantize(call, acc, sides, alpha=alpha, taps=taps)


def _zeros(w: Operand) -> int | Array:
    return w.kind.zero_point if w.kind.is_per_tensor else np.asarray(w.kind.zero_points, np.int64)


def _bias(sides: _Sides) -> Array | None:
    return None if sides.bias is None else sides.bias.stored


def _handed_on(call: Call, acc: Array, sides: _Sides, shape: tuple[int, ...], alpha: float) -> Array:
    """A float32 result: the sum times the product of the scales, each rounded to float32 once.

    That is MatMulIntegerToFloat of onnxruntime, and its QGemm without a scale of the result.
    """
    scales = output_multiplier(
        sides.x.kind.scale, np.asarray(sides.w.kind.scales, np.float32), 1.0, alpha=alpha
    )
    reals = scaled_float32(wrap_int32(acc) if call.is_onnxruntime else acc, scales.reshape(shape))
    bias = sides.real_bias
    return np.asarray(reals if bias is None else reals + bias.astype(np.float32).reshape(-1, *shape[1:]))


def _held(call: Call, acc: Array) -> Array:
    """The sums as the row's accumulator holds them; exact where it has none, or leaves longer ones alone."""
    row = call.row
    if row is None or row.accumulator is None or row.overflow == "refuse":
        return acc
    return held(acc, (row.accumulator.qmin, row.accumulator.qmax), row.overflow)


def _channel_taps(call: Call, w: Array, axis: int) -> Array | None:
    """The sum of the weights of each output channel of a convolution, before its places; for `htp` alone."""
    if call.arithmetic != HTP:
        return None
    others = tuple(i for i in range(w.ndim) if i != axis)
    return np.asarray(w.astype(np.int64).sum(axis=others)).reshape(-1, *(1 for _ in others[1:]))


def _requantize(
    call: Call,
    acc: Array,
    sides: _Sides,
    *,
    trailing: int = 0,
    alpha: float = 1.0,
    taps: Array | None = None,
) -> Array:
    """Onto the result's grid; the channels of `acc` have `trailing` axes behind them.

    Args:
      taps: the sum of the weights that each sum multiplies; only `htp` asks for it.
    """
    x, w = sides.x.kind, sides.w.kind
    acc = _held(call, acc)
    shape = (len(w.scales), *(1 for _ in range(trailing)))
    if call.kind is None:
        return _handed_on(call, acc, sides, shape, alpha)
    y = call.kind
    if call.arithmetic == FLOAT32_SPEC:
        scales = np.float32(alpha) * np.float32(x.scale) * np.asarray(w.scales, np.float32)
        return quantize_array(acc.astype(np.float32) * scales.reshape(shape), y, ARITHMETICS[FLOAT32_SPEC])
    if call.arithmetic == HTP and taps is not None:
        step = steps_of(x.scale * alpha, np.asarray(w.scales).reshape(shape), y.scale)
        bias = np.zeros((), np.int64) if sides.bias is None else sides.bias.stored.astype(np.int64)
        found = Sums(acc, bias.reshape(-1, *shape[1:]), taps)
        if is_strided_depthwise(call.op, sides.w.stored.shape, float(step.ratio.min())):
            return strided_onto_grid(found, step, y)
        return onto_grid(found, step, x, y)
    if not call.is_onnxruntime:
        ratio = ratios(w.scales, math.prod((x.scale, alpha)), y.scale)
        terms = [(acc, ratio.reshape(shape))]
        if sides.real_bias is not None:
            added = ratios(sides.real_bias.astype(np.float64).tolist(), 1.0, y.scale)
            terms.append((np.ones((), np.int64), added.reshape(-1, *shape[1:])))
        return onto(terms, y, call.arithmetic)
    scales = np.asarray(w.scales, np.float32)
    multiplier = output_multiplier(x.scale, scales, y.scale, alpha=alpha).reshape(shape)
    grid = grid_of(y)
    return requantize_float32(wrap_int32(acc), multiplier, grid.zero_point, grid.qmin, grid.qmax)
