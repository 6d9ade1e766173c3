"""Linear: Conv, Gemm and MatMul as ConvInteger and MatMulInteger, an int32 bias, and one requantize.

Each says False where its operands are not bytes per tensor times bytes per tensor or output channel.
Source: ONNX operator pages ConvInteger and MatMulInteger, as onnxruntime's CPU provider runs them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.exporters.blocks import Block
from planner.exporters.qlinear import Operand, is_accumulator, is_row, operand_of
from planner.exporters.rescaling import bounds_of, settle_steps
from planner.exporters.roundings import Rounding
from planner.exporters.sheet import Array, Sheet, held_dtype
from planner.exporters.steps import cast
from planner.interpreter.requantize import output_multiplier
from planner.ir.graph import Op
from planner.ir.qtypes import Uniform

_INT32: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Product:
    """A linear op on stored integers.

    Attributes:
      w_axis: of the output channels in the weight.
      trailing: axes behind the channels of the result.
      bias: stored on the accumulator's grid.
      real_bias: reals of a bias that stays float, exact arithmetic only.
    """

    op: Op
    x: Operand
    w: Operand
    w_axis: int
    trailing: int = 0
    bias: Operand | None = None
    real_bias: tuple[float, ...] | None = None
    alpha: float = 1.0


def conv(sheet: Sheet, block: Block, y: Uniform) -> bool:
    """Conv: x, w, bias?"""
    op = block.core[0]
    product = _product(sheet, block, op, 0)
    if product is None or (any(product.w.kind.zero_points) and not product.w.kind.is_per_tensor):
        return False
    trailing = len(sheet.array(product.w.value).shape) - 2
    product = _with_bias(sheet, block, product, op, 2, trailing=trailing)
    return product is not None and _write(sheet, block, y, product)


def gemm(sheet: Sheet, block: Block, y: Uniform) -> bool:
    """Gemm: a, b, c?; any alpha and transposition of b, beta 1, c one number per column."""
    op = block.core[0]
    if op.attributes.get("transA") or (len(op.inputs) > 2 and op.attributes.get("beta", 1.0) != 1.0):
        return False
    product = _product(sheet, block, op, 0 if op.attributes.get("transB") else 1)
    product = product and _with_bias(sheet, block, product, op, 2)
    return product is not None and _write(sheet, block, y, product)


def matmul(sheet: Sheet, block: Block, y: Uniform) -> bool:
    """MatMul of an activation and a weight, or of two activations."""
    op = block.core[0]
    product = _product(sheet, block, op, 1)
    if product is None:
        return _write_stack(sheet, block, y)
    return _write(sheet, block, y, product)


def matmul_add(sheet: Sheet, block: Block, y: Uniform) -> bool:
    """MatMul with a matrix of weights, then Add of one number per column."""
    op, add = block.core
    product = _product(sheet, block, op, 1)
    side = 1 if add.inputs[0] == op.outputs[0] else 0
    product = product and _with_bias(sheet, block, product, add, side)
    return product is not None and _write(sheet, block, y, product)


def _product(sheet: Sheet, block: Block, op: Op, w_axis: int) -> Product | None:
    """Operands of an op with a constant weight, both in bytes."""
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    if x is None or w is None or w.value not in sheet.graph.constants:
        return None
    if not x.kind.is_per_tensor or max(x.kind.storage.bits, w.kind.storage.bits) > 8:
        return None
    shape = sheet.array(w.value).shape
    if w.kind.blocks or w.kind.grid or w.kind.axis not in (None, w_axis):
        return None
    if op.type != "Conv" and len(shape) != 2:
        return None
    alpha = float(op.attributes.get("alpha", 1.0)) if op.type == "Gemm" else 1.0
    return Product(op, x, w, w_axis, alpha=alpha)


def _with_bias(
    sheet: Sheet, block: Block, product: Product, op: Op, index: int, *, trailing: int = 0
) -> Product | None:
    """The product with the bias at an operand; None where the accumulator cannot take it."""
    head = (product.op, product.x, product.w, product.w_axis, trailing)
    name = op.inputs[index] if len(op.inputs) > index else ""
    if not name:
        return Product(*head, alpha=product.alpha)
    channels = sheet.array(product.w.value).shape[product.w_axis]
    if not is_row(sheet, name, channels):
        return None
    bias = operand_of(block, op, index)
    if bias is not None:
        fits = is_accumulator(bias.kind, product.x.kind, product.w.kind, product.alpha)
        return Product(*head, bias=bias, alpha=product.alpha) if fits else None
    if sheet.arithmetic != "exact_even":
        return None
    reals = tuple(sheet.array(name).astype(np.float32).astype(np.float64).reshape(-1).tolist())
    return Product(*head, real_bias=reals, alpha=product.alpha)


def _write(sheet: Sheet, block: Block, y: Uniform, product: Product) -> bool:
    clamp = bounds_of(sheet, block, y)
    ends = None if clamp is None else range_of(sheet, product)
    if clamp is None or ends is None:
        return False
    rounding = rounding_of(sheet, product, y, clamp.low, clamp.high)
    low, high = ends if len(rounding.numerators) > 1 else (ends[0].min()[None], ends[1].max()[None])
    steps = rounding.steps(low, high)
    if steps is None:
        return False
    acc = _accumulate(sheet, block, product)
    settle_steps(sheet, block, acc, steps, low=clamp.low, trailing=product.trailing)
    return True


def rounding_of(sheet: Sheet, product: Product, y: Uniform, low: int, high: int) -> Rounding:
    """What the row makes of the product's accumulator."""
    x, w = product.x.kind, product.w.kind
    scales = np.asarray(w.scales, np.float32)
    multiplier = output_multiplier(x.scale, scales, y.scale, alpha=product.alpha)
    numerators = w.scales
    if product.real_bias is not None and len(numerators) == 1:
        numerators, multiplier = w.scales * len(product.real_bias), multiplier.repeat(len(product.real_bias))
    factor = x.scale * product.alpha
    return Rounding(y, sheet.arithmetic, numerators, factor, multiplier, low, high, product.real_bias)


def range_of(sheet: Sheet, product: Product) -> tuple[Array, Array] | None:
    """Least and greatest accumulator of each channel, (C,) int64; None beyond 32 bits."""
    x, w = product.x.kind, product.w.kind
    stored = shifted_weight(sheet.array(product.w.value), w)
    others = tuple(i for i in range(stored.ndim) if i != product.w_axis)
    ends = [stored * (end - x.zero_point) for end in (x.storage.qmin, x.storage.qmax)]
    low, high = np.minimum(*ends).sum(others), np.maximum(*ends).sum(others)
    if product.bias is not None:
        bias = quantize_array(sheet.array(product.bias.value), product.bias.kind).astype(np.int64).reshape(-1)
        low, high = low + bias, high + bias
    return None if max(-low.min(initial=0), high.max(initial=0)) > _INT32 else (low, high)


def shifted_weight(array: Array, kind: Uniform) -> Array:
    """Stored integers of a weight less its zero points, int64."""
    zeros = np.asarray(kind.zero_points, np.int64)
    if kind.axis is not None:
        zeros = zeros.reshape([-1 if i == kind.axis else 1 for i in range(array.ndim)])
    return quantize_array(array, kind).astype(np.int64) - zeros


def _accumulate(sheet: Sheet, block: Block, product: Product) -> str:
    """The int32 accumulator's tensor."""
    is_conv = product.op.type == "Conv"
    kind, attributes = ("ConvInteger", product.op.attributes) if is_conv else ("MatMulInteger", {})
    x, w = product.x.triple(sheet), product.w.triple(sheet)
    weight = w[0]
    if product.op.attributes.get("transB"):
        stored = quantize_array(sheet.array(product.w.value), product.w.kind)
        weight = sheet.constant(f"{w[0]}_turned", np.ascontiguousarray(stored.T))
    acc = sheet.fresh(f"{block.result}_acc")
    zeros = [x[2], w[2]] if product.w.kind.is_per_tensor or not is_conv else [x[2]]
    sheet.emit(kind, [x[0], weight, *zeros], [acc], name=product.op.name, attributes=attributes)
    if product.bias is None:
        return acc
    stored = quantize_array(sheet.array(product.bias.value), product.bias.kind).astype(np.int32)
    bias = sheet.constant(f"{product.bias.value}_quantized", stored.reshape(-1, *[1] * product.trailing))
    total = sheet.fresh(f"{block.result}_sum")
    sheet.emit("Add", [acc, bias], [total])
    return total


def _write_stack(sheet: Sheet, block: Block, y: Uniform) -> bool:
    """MatMul of two tensors with one scale each: stacks of matrices, activations on both sides."""
    op, clamp = block.core[0], bounds_of(sheet, block, y)
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if clamp is None or a is None or b is None or not (a.kind.is_per_tensor and b.kind.is_per_tensor):
        return False
    depth = (sheet.graph.values[a.value].shape or (None,))[-1]
    if max(a.kind.storage.bits, b.kind.storage.bits) > 8 or not isinstance(depth, int):
        return False
    ends = [max(abs(e - k.zero_point) for e in (k.storage.qmin, k.storage.qmax)) for k in (a.kind, b.kind)]
    reach = depth * ends[0] * ends[1]
    if reach > _INT32:
        return False
    product = Product(op, a, b, 1)
    limit = np.asarray([reach])
    steps = rounding_of(sheet, product, y, clamp.low, clamp.high).steps(-limit, limit)
    if steps is None:
        return False
    settle_steps(sheet, block, _accumulate(sheet, block, product), steps, low=clamp.low)
    return True


def widened(sheet: Sheet, operand: Operand) -> str:
    """A stored tensor less its zero point, int64."""
    tensor = cast(sheet, sheet.stored(operand.value, operand.kind), "int64")
    if not operand.kind.zero_point:
        return tensor
    result = sheet.fresh(f"{tensor}_shifted")
    sheet.emit("Sub", [tensor, sheet.number("int64", operand.kind.zero_point)], [result])
    return result


def is_byte(operand: Operand | None) -> bool:
    """Whether an operand is held in bytes, per tensor."""
    return operand is not None and operand.kind.is_per_tensor and held_dtype(operand.kind).itemsize == 1
