"""Linear: Conv, ConvTranspose, Gemm and MatMul of stored integers: accumulate exactly, requantize once.

None where its types have no integer kernel: then the region computes in float. In `float32_even` those of
onnxruntime's QLinearConv, QLinearMatMul and QGemm are needed; elsewhere it is a `Product`. `float32_spec`
dequantizes the exact sum and quantizes it, each step in float32. A float result is the exact sum dequantized,
whatever the arithmetic: nothing is requantized. `htp` is Qualcomm's (`kernels.htp`).
"""

import math
from dataclasses import replace

import numpy as np

from planner.constants.quantize import ARITHMETICS, dequantize_array, quantize_array
from planner.interpreter.calls import (
    FLOAT32_EVEN,
    FLOAT32_SPEC,
    HTP,
    Call,
    Operand,
    grid_of,
    is_byte,
    is_like,
    onto,
)
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.conv import conv_accumulate, conv_transpose_accumulate
from planner.interpreter.kernels.htp import (
    Sums,
    is_strided_depthwise,
    misread_padding,
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
from planner.ir.graph import Shape
from planner.ir.types.qtypes import Uniform
from planner.lowering.products import Product
from planner.ops.geometry.windows import conv_geometry


def linear(call: Call) -> Array | None:
    """Conv, ConvTranspose, Gemm, MatMul, and MatMul with an Add of one number per column."""
    found, y = call.product, call.kind
    if found is None or not (y is None or y.is_per_tensor):
        return None
    x, w = (call.operands[found.op.name, i] for i in (0, 1))
    bias = None if found.bias is None else call.operands[found.bias_at]
    is_gemm, is_matrix = len(call.ops) > 1, w.stored.ndim == 2 and x.stored.ndim > 1
    # QGemm takes matrices, and of other products with a bias HTP was not measured.
    if is_gemm and not is_matrix and call.arithmetic in (FLOAT32_EVEN, HTP):
        return None
    if call.is_onnxruntime and not is_known(found, y):
        return None
    if call.is_onnxruntime and is_gemm and not folds(x.shape):
        # onnxruntime, which can't fold x into a matrix, adds the bias in float32.
        if y is not None or bias is None:
            return None
        return _onto_grid(call, found, x, w, None) + dequantize_array(bias.stored, bias.kind)
    return _onto_grid(call, found, x, w, bias)


def is_known(found: Product, y: Uniform | None) -> bool:
    """Whether onnxruntime has an integer kernel for a product's types, with a float result without `y`."""
    x, w, kind = found.x.kind, found.w.kind, found.op.type
    if kind == "ConvTranspose" or (kind == "Conv" and y is None):
        return False
    is_taken = is_byte(x) if y is None else is_like(x, y)
    return is_taken and w.storage.bits <= 8 and (w.storage.signed or not x.storage.signed)


def folds(shape: Shape | None) -> bool:
    """Whether onnxruntime folds the rows of a MatMul with a bias into a matrix: one size may be open."""
    return shape is not None and sum(not isinstance(dim, int) for dim in shape[:-1]) < 2


def _onto_grid(call: Call, found: Product, x: Operand, w: Operand, bias: Operand | None) -> Array:
    """The exact sums, requantized."""
    attributes, stored = found.op.attributes, None if bias is None else bias.stored
    places, taps = (x.stored, x.kind.zero_point, w.stored, _zeros(w)), None
    if found.is_conv:
        add_up = conv_accumulate if found.op.type == "Conv" else conv_transpose_accumulate
        geometry = conv_geometry(attributes, x.stored.shape[2:], w.stored.shape[2:])
        acc, trailing = add_up(*places, stored, geometry=geometry), x.stored.ndim - 2
        if call.arithmetic == HTP:
            taps = _channel_taps(w.stored, found.w_axis)
    else:
        a = x.stored.T if attributes.get("transA") else x.stored
        b = w.stored.T if attributes.get("transB") else w.stored
        row, trailing = None if stored is None else stored.reshape(-1), 0
        acc = matmul_accumulate(a, x.kind.zero_point, b, _zeros(w), row)
        if call.arithmetic == HTP:
            taps = (b.astype(np.int64) - _zeros(w)).sum(axis=max(-2, -b.ndim), keepdims=b.ndim > 1)
    done = _requantize(call, acc, found, bias, trailing=trailing, taps=taps)
    # A product of two vectors has no axis, and a scale of its weights has one.
    return done if acc.ndim or found.bias is not None else done.reshape(())


def _zeros(w: Operand) -> int | Array:
    return w.kind.zero_point if w.kind.is_per_tensor else np.asarray(w.kind.zero_points, np.int64)


def _handed_on(call: Call, acc: Array, found: Product, shape: tuple[int, ...]) -> Array:
    """A float32 result: the sum times the product of the scales, each rounded to float32 once.

    That is MatMulIntegerToFloat of onnxruntime, and its QGemm without a scale of the result.
    """
    scales = np.asarray(found.w.kind.scales, np.float32)
    scales = output_multiplier(found.x.kind.scale, scales, 1.0, alpha=found.alpha)
    reals = scaled_float32(wrap_int32(acc) if call.is_onnxruntime else acc, scales.reshape(shape))
    bias = found.real_bias
    if bias is None:
        return reals
    return np.asarray(reals + np.asarray(bias, np.float32).reshape(-1, *shape[1:]))


def _held(call: Call, acc: Array) -> Array:
    """The sums as the row's accumulator holds them; exact where it has none, or leaves longer ones alone."""
    row = call.row
    if row is None or row.accumulator is None or row.overflow == "refuse":
        return acc
    return held(acc, (row.accumulator.qmin, row.accumulator.qmax), row.overflow)


def _channel_taps(w: Array, axis: int) -> Array:
    """The sum of the weights of each output channel of a convolution, before its places."""
    others = tuple(i for i in range(w.ndim) if i != axis)
    return np.asarray(w.astype(np.int64).sum(axis=others)).reshape(-1, *(1 for _ in others[1:]))


def _requantize(
    call: Call, acc: Array, found: Product, bias: Operand | None, *, trailing: int, taps: Array | None
) -> Array:
    """Onto the result's grid; the channels of `acc` have `trailing` axes behind them.

    Args:
      taps: the sum of the weights that each sum multiplies; only `htp` asks for it.
    """
    x, w, alpha = found.x.kind, found.w.kind, found.alpha
    acc = _held(call, acc)
    shape = (len(w.scales), *(1 for _ in range(trailing)))
    if call.kind is None:
        return _handed_on(call, acc, found, shape)
    y = call.kind
    if call.arithmetic == FLOAT32_SPEC:
        scales = np.float32(alpha) * np.float32(x.scale) * np.asarray(w.scales, np.float32)
        return quantize_array(acc.astype(np.float32) * scales.reshape(shape), y, ARITHMETICS[FLOAT32_SPEC])
    if call.arithmetic == HTP and taps is not None:
        step = steps_of(x.scale * alpha, np.asarray(w.scales).reshape(shape), y.scale)
        added = np.zeros((), np.int64) if bias is None else bias.stored.astype(np.int64)
        sums = Sums(acc, added.reshape(-1, *shape[1:]), taps)
        least = float(step.ratio.min())
        if found.weight is not None and is_strided_depthwise(found.op, found.weight.shape, least):
            data, weight = (call.operands[found.op.name, i] for i in (0, 1))
            edge = misread_padding(found.op, data, weight, acc.shape[2:])
            return strided_onto_grid(replace(sums, total=acc + edge), step, y)
        return onto_grid(sums, step, x, y)
    if not call.is_onnxruntime:
        ratio = ratios(w.scales, math.prod((x.scale, alpha)), y.scale)
        terms = [(acc, ratio.reshape(shape))]
        if found.real_bias is not None:
            added = ratios(found.real_bias, 1.0, y.scale)
            terms.append((np.ones((), np.int64), added.reshape(-1, *shape[1:])))
        return onto(terms, y, call.arithmetic)
    scales = np.asarray(w.scales, np.float32)
    multiplier = output_multiplier(x.scale, scales, y.scale, alpha=alpha).reshape(shape)
    grid = grid_of(y)
    return requantize_float32(wrap_int32(acc), multiplier, grid.zero_point, grid.qmin, grid.qmax)
