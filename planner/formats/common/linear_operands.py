"""Linear operands: Conv, Gemm and MatMul taken apart: operands, bias, accumulator range, rounding.

For every format that multiplies integers; nothing here writes. A kernel has an integer accumulator here if it
has one in the reference interpreter. Source: docs/specification.md, sections 3, 7 and 8.
"""

from typing import Any, Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.roundings import Rounding
from planner.formats.common.values import Array, Values
from planner.interpreter.requantize import output_multiplier
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.products import Product, product_in

INT32: Final = (1 << 31) - 1
_BYTE: Final = 8


def product_of(values: Values[Any], block: Block) -> Product | None:
    """The linear op of a block as files have it: parameters by channel, and the bias, are constant."""
    found = product_in(values.graph, block.core, block.kinds, values.known, values.arithmetic)
    if found is None or (found.weight is None and not found.w.kind.is_per_tensor):
        return None
    return found if found.bias is None or values.is_constant(found.bias.value) else None


def weighted_product_of(values: Values[Any], block: Block, *, max_bits: int = _BYTE) -> Product | None:
    """The same of a Conv, Gemm or MatMul as plain operators of integers have it; None for others.

    Its weight is constant and of a Gemm or MatMul a matrix, which comes second as it is or transposed.
    """
    product = product_of(values, block)
    if product is None or product.weight is None or product.op.type == "ConvTranspose":
        return None
    is_matrix = product.weight.ndim == 2 and not product.op.attributes.get("transA")
    return product if product.bits <= max_bits and (product.is_conv or is_matrix) else None


def is_plain_transpose(op: Op) -> bool:
    """Whether a ConvTranspose has one group, no dilations, and its padding in numbers."""
    attributes = op.attributes
    is_plain = attributes.get("group", 1) == 1 and set(attributes.get("dilations", (1,))) == {1}
    return is_plain and attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes


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
    stored = shifted_weight(np.asarray(product.weight), w)
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
