"""Linear operands: Conv, Gemm and MatMul taken apart: operands, bias, accumulator range, rounding.

For onnx-integer, finn and tosa; nothing here writes. Source: docs/specification.md, sections 3, 7 and 8.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.exporters.common.blocks import Block, Operand, operand_of
from planner.exporters.common.roundings import Rounding
from planner.exporters.common.values import Array, Values
from planner.interpreter.requantize import output_multiplier
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import SAME_SCALE

INT32: Final = (1 << 31) - 1
_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Product:
    """A linear op on stored integers.

    Attributes:
      w_axis: of the output channels in the weight.
      trailing: axes behind the channels of the result.
      bias: stored on the accumulator's grid.
      real_bias: reals of a bias that is float or has a grid of its own, exact arithmetic only.
    """

    op: Op
    x: Operand
    w: Operand
    w_axis: int
    trailing: int = 0
    bias: Operand | None = None
    real_bias: tuple[float, ...] | None = None
    alpha: float = 1.0


def product_of(values: Values[Any], block: Block, *, max_bits: int = _BYTE) -> Product | None:
    """The linear op of a block with constant weights; None for other operands.

    Any alpha and transposition of b, beta 1, a bias of one number per column.
    """
    op = block.core[0]
    if op.attributes.get("transA") or (len(op.inputs) > 2 and op.attributes.get("beta", 1.0) != 1.0):
        return None
    axis = 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    product = _bare(values, block, op, axis, max_bits)
    if product is None:
        return None
    if len(block.core) == 1:
        return _with_bias(values, block, product, op, 2)
    add = block.core[1]
    return _with_bias(values, block, product, add, 1 if add.inputs[0] == op.outputs[0] else 0)


def _bare(values: Values[Any], block: Block, op: Op, w_axis: int, max_bits: int) -> Product | None:
    """Operands of an op with a constant weight."""
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    if x is None or w is None or w.value not in values.graph.constants:
        return None
    if not x.kind.is_per_tensor or max(x.kind.storage.bits, w.kind.storage.bits) > max_bits:
        return None
    rank = values.array(w.value).ndim
    if w.kind.grid or w.kind.axis not in (None, w_axis) or (op.type != "Conv" and rank != 2):
        return None
    alpha = float(op.attributes.get("alpha", 1.0)) if op.type == "Gemm" else 1.0
    return Product(op, x, w, w_axis, trailing=rank - 2, alpha=alpha)


def _with_bias(values: Values[Any], block: Block, product: Product, op: Op, index: int) -> Product | None:
    """The product with the bias at an operand; None where the accumulator cannot take it."""
    name = op.inputs[index] if len(op.inputs) > index else ""
    if not name:
        return product
    if not is_row(values, name, values.array(product.w.value).shape[product.w_axis]):
        return None
    bias, array = operand_of(block, op, index), values.array(name).astype(np.float32)
    if bias is not None and is_accumulator(bias.kind, product.x.kind, product.w.kind, product.alpha):
        return replace(product, bias=bias)
    if values.arithmetic != "exact_even":
        return None
    if bias is not None:
        array = dequantize_array(quantize_array(array, bias.kind), bias.kind)
    reals = array.astype(np.float64).reshape(-1)
    return replace(product, real_bias=tuple(reals.tolist()))


def rounding_of(values: Values[Any], product: Product, y: Uniform, low: int, high: int) -> Rounding:
    """The rounding that the row's arithmetic applies to the product's accumulator."""
    x, w = product.x.kind, product.w.kind
    scales = np.asarray(w.scales, np.float32)
    multiplier = output_multiplier(x.scale, scales, y.scale, alpha=product.alpha)
    factor = x.scale * product.alpha
    rounding = Rounding(y, values.arithmetic, w.scales, factor, multiplier, low, high, product.real_bias)
    return rounding if product.real_bias is None else rounding.spread(len(product.real_bias))


def stored_bias(values: Values[Any], product: Product) -> Array | None:
    """The bias on the accumulator's grid, (C,) int64; None where it has none there."""
    if product.bias is None:
        return None
    stored = quantize_array(values.array(product.bias.value), product.bias.kind)
    return stored.astype(np.int64).reshape(-1)


def range_of(values: Values[Any], product: Product) -> tuple[Array, Array]:
    """Least and greatest accumulator of each channel, bias included, (C,) int64."""
    x, w = product.x.kind, product.w.kind
    stored = shifted_weight(values.array(product.w.value), w)
    others = tuple(i for i in range(stored.ndim) if i != product.w_axis)
    ends = [stored * (end - x.zero_point) for end in (x.storage.qmin, x.storage.qmax)]
    low, high = np.minimum(*ends).sum(others), np.maximum(*ends).sum(others)
    bias = stored_bias(values, product)
    return (low, high) if bias is None else (low + bias, high + bias)


def shifted_weight(array: Array, kind: Uniform) -> Array:
    """Stored integers of a weight less its zero points, int64."""
    shape = [-1 if i == kind.axis else 1 for i in range(array.ndim)]
    zeros = np.asarray(kind.zero_points, np.int64).reshape(shape)
    return quantize_array(array, kind).astype(np.int64) - zeros


def largest(kind: Uniform) -> int:
    """The largest magnitude of a stored value less its zero point."""
    return max(abs(end - kind.zero_point) for end in (kind.storage.qmin, kind.storage.qmax))


def is_accumulator(kind: Uniform, x: Uniform, w: Uniform, alpha: float = 1.0) -> bool:
    """Whether a bias type is the accumulator's: the product of the scales, zero point 0."""
    if kind.storage.bits < 32 or any(kind.zero_points) or len(kind.scales) not in (1, len(w.scales)):
        return False
    wanted = alpha * x.scale * np.asarray(w.scales)
    return bool(np.allclose(np.asarray(kind.scales), wanted, rtol=SAME_SCALE, atol=0.0))


def is_row(values: Values[Any], bias: str, columns: int) -> bool:
    """Whether a bias is a constant of one number per column."""
    value = values.graph.values[bias]
    is_last = bool(value.shape) and (value.shape or ())[-1] == columns == value.elements
    return bias in values.graph.constants and is_last
