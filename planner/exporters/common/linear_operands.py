"""Linear operands: Conv, Gemm and MatMul taken apart: operands, bias, accumulator range, rounding.

For every format that multiplies integers; nothing here writes. A kernel has an integer accumulator here if it
has one in the reference interpreter. Source: docs/specification.md, sections 3, 7 and 8.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.exporters.common.roundings import Rounding
from planner.exporters.common.values import Array, Values
from planner.interpreter.calls import is_accumulator
from planner.interpreter.requantize import output_multiplier
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of

INT32: Final = (1 << 31) - 1
PRODUCTS: Final = frozenset({("Conv",), ("ConvTranspose",), ("Gemm",), ("MatMul",), ("MatMul", "Add")})
"""Types of the ops of a product; the last adds one number per column."""
_BYTE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A linear op on stored integers.

    Attributes:
      w_axis: of the output channels in the weight.
      weight: its reals, as the model has them; None of an activation.
      bias: stored on the accumulator's grid.
      real_bias: reals of a bias that is float or has a grid of its own, exact arithmetic only.
    """

    op: Op
    x: Operand
    w: Operand
    w_axis: int
    weight: Array | None
    alpha: float = 1.0
    bias: Operand | None = None
    real_bias: tuple[float, ...] | None = None

    @property
    def is_conv(self) -> bool:
        """Whether channels come before spatial axes."""
        return self.op.type in ("Conv", "ConvTranspose")

    @property
    def trailing(self) -> int:
        """Axes behind the channels of the result, of a constant weight."""
        return self.weight.ndim - 2 if self.is_conv and self.weight is not None else 0

    @property
    def bits(self) -> int:
        """Bits of the wider operand."""
        return max(self.x.kind.storage.bits, self.w.kind.storage.bits)


def product_of(values: Values[Any], block: Block) -> Product | None:
    """The linear op of a block; None where its operands have no common integer accumulator."""
    op = block.core[0]
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    if tuple(one.type for one in block.core) not in PRODUCTS or x is None or w is None:
        return None
    axis = 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    if (
        not x.kind.is_per_tensor
        or w.kind.grid
        or w.kind.axis not in (None, axis)
        or not _is_plain(op, w.kind)
    ):
        return None
    weight = values.known(w.value)
    if not w.kind.is_per_tensor and (weight is None or (op.type == "MatMul" and weight.ndim != 2)):
        return None
    alpha = float(op.attributes.get("alpha", 1.0)) if op.type == "Gemm" else 1.0
    product = Product(op, x, w, axis, weight, alpha)
    if len(block.core) == 1:
        return _with_bias(values, block, product, op, 2)
    add = block.core[1]
    return _with_bias(values, block, product, add, 1 if add.inputs[0] == op.outputs[0] else 0)


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


def _is_plain(op: Op, w: Uniform) -> bool:
    """Whether the interpreter has an integer kernel for the op's attributes."""
    attributes = op.attributes
    if op.type == "ConvTranspose":
        is_explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes
        return is_explicit and (w.is_per_tensor or attributes.get("group", 1) == 1)
    has_bias = len(op.inputs) > 2 and bool(op.inputs[2])
    return op.type != "Gemm" or not has_bias or attributes.get("beta", 1.0) == 1.0


def _with_bias(values: Values[Any], block: Block, product: Product, op: Op, index: int) -> Product | None:
    """The product with the bias at an operand; None where the accumulator cannot take it."""
    name = op.inputs[index] if len(op.inputs) > index else ""
    if not name:
        return product
    channels = _channels(values, product)
    if channels is None or not is_row(values, name, channels):
        return None
    bias, reals = operand_of(block, op, index), values.array(name).astype(np.float32)
    if bias is not None and is_accumulator(bias.kind, product.x.kind, product.w.kind, product.alpha):
        return replace(product, bias=bias)
    if values.arithmetic != "exact_even":
        return None
    if bias is not None:
        reals = dequantize_array(quantize_array(reals, bias.kind), bias.kind)
    return replace(product, real_bias=tuple(reals.astype(np.float64).reshape(-1).tolist()))


def _channels(values: Values[Any], product: Product) -> int | None:
    """Channels of the result; None where they are known only at run time."""
    shape = values.graph.values[product.w.value].shape if product.weight is None else product.weight.shape
    size = shape[product.w_axis if len(shape) > 1 else 0] if shape else None
    groups = int(product.op.attributes.get("group", 1)) if product.op.type == "ConvTranspose" else 1
    return size * groups if isinstance(size, int) else None


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


def is_row(values: Values[Any], bias: str, columns: int) -> bool:
    """Whether a bias is a constant of one number per column."""
    array = values.known(bias)
    return array is not None and array.shape[-1:] == (columns,) == (array.size,)
