"""Linear: Conv, Gemm and MatMul as ConvInteger and MatMulInteger, an int32 bias, and one requantize.

Each says False where its operands are not bytes per tensor times bytes per tensor or output channel.
Source: ONNX operator pages ConvInteger and MatMulInteger, as onnxruntime's CPU provider runs them.
"""

from functools import partial

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.linear_operands import (
    INT32,
    largest,
    product_of,
    range_of,
    rounding_of,
    stored_bias,
    weighted_product_of,
)
from planner.formats.onnx.writer.float_blocks import hand_on, products
from planner.formats.onnx.writer.integers.rescaling import bounds_of, settle_steps
from planner.formats.onnx.writer.integers.rounding_steps import cast
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.storage_types import ONNX_FLOATS, Array, held_dtype
from planner.interpreter.calls import FLOAT32_EVEN
from planner.interpreter.kernels.linear import folds
from planner.interpreter.requantize import output_multiplier
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand
from planner.lowering.products import Product


def linear(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """Conv, Gemm, MatMul, and MatMul with an Add of one number per column."""
    product, clamp = _product(builder, block), bounds_of(builder, block, y)
    if product is None or clamp is None:
        return False
    if product.is_conv and any(product.w.kind.zero_points) and not product.w.kind.is_per_tensor:
        return False
    low, high = _ends(builder, product)
    if max(-low.min(initial=0), high.max(initial=0)) > INT32:
        return False
    rounding = rounding_of(builder.values, product, y, clamp.low, clamp.high)
    if len(rounding.numerators) == 1:
        low, high = low.min()[None], high.max()[None]
    steps = rounding.steps(low, high)
    if steps is None:
        return False
    acc = _accumulate(builder, block, product)
    settle_steps(builder, block, acc, steps, low=clamp.low, trailing=product.trailing)
    return True


def linear_to_float(builder: ModelBuilder, block: Block) -> bool:
    """A product whose result is float: the sum in float32 times the product of the scales; or say False."""
    for part in products(block):
        found = _product(builder, part)
        if found is None or found.real_bias or not _computes(builder, part):
            continue
        if _reach(builder, found) <= INT32:
            hand_on(builder, block, part, partial(_write_reals, builder, part, found))
            return True
    return False


def _product(builder: ModelBuilder, part: Block) -> Product | None:
    """A product with a constant weight, or MatMul of two tensors with one scale each: stacks of matrices."""
    found = weighted_product_of(builder.values, part)
    if found is not None:
        return found
    found = product_of(builder.values, part) if [op.type for op in part.core] == ["MatMul"] else None
    is_stack = found is not None and found.bits <= 8 and _depth(builder, found) is not None
    return found if is_stack else None


def _write_reals(builder: ModelBuilder, part: Block, product: Product, result: str) -> None:
    w, acc = product.w.kind, _accumulate(builder, part, product)
    scales = np.asarray(w.scales, np.float32)
    factors = output_multiplier(product.x.kind.scale, scales, 1.0, alpha=product.alpha)
    factors = factors.reshape(() if w.is_per_tensor else (-1, *[1] * product.trailing))
    reals = builder.file.fresh(f"{result}_sum")
    builder.file.emit("Cast", [acc], [reals], attributes={"to": ONNX_FLOATS["f32"]})
    builder.file.emit("Mul", [reals, builder.file.constant(f"{result}_scale", factors)], [result])


def _computes(builder: ModelBuilder, part: Block) -> bool:
    """Whether a part of a block is an integer kernel of the row's arithmetic: onnxruntime has not all."""
    if builder.values.arithmetic != FLOAT32_EVEN:
        return True
    shape = builder.graph.values[part.core[0].inputs[0]].shape
    return part.core[0].type != "Conv" and (len(part.core) == 1 or folds(shape))


def _reach(builder: ModelBuilder, product: Product) -> int:
    """The largest magnitude of a sum."""
    low, high = _ends(builder, product)
    return int(max(-low.min(initial=0), high.max(initial=0)))


def _accumulate(builder: ModelBuilder, block: Block, product: Product) -> str:
    """The int32 accumulator's tensor."""
    is_conv = product.op.type == "Conv"
    kind, attributes = ("ConvInteger", product.op.attributes) if is_conv else ("MatMulInteger", {})
    x, w = builder.triple(product.x), builder.triple(product.w)
    weight = w[0]
    if product.op.attributes.get("transB"):
        stored = quantize_array(builder.values.array(product.w.value), product.w.kind)
        weight = builder.file.constant(f"{w[0]}_turned", np.ascontiguousarray(stored.T))
    acc = builder.file.fresh(f"{block.result}_acc")
    zeros = [x[2], w[2]] if product.w.kind.is_per_tensor or not is_conv else [x[2]]
    builder.file.emit(kind, [x[0], weight, *zeros], [acc], name=product.op.name, attributes=attributes)
    bias = stored_bias(builder.values, product)
    if bias is None or product.bias is None:
        return acc
    shaped = bias.astype(np.int32).reshape(-1, *[1] * product.trailing)
    total = builder.file.fresh(f"{block.result}_sum")
    builder.file.emit("Add", [acc, builder.file.constant(f"{product.bias.value}_quantized", shaped)], [total])
    return total


def _depth(builder: ModelBuilder, product: Product) -> int | None:
    """How many products each sum of a stack of matrices has."""
    depth = (builder.graph.values[product.x.value].shape or (None,))[-1]
    return depth if isinstance(depth, int) else None


def _ends(builder: ModelBuilder, product: Product) -> tuple[Array, Array]:
    """Least and greatest sum of each channel; of a stack of matrices of all."""
    if product.is_conv or (product.weight is not None and product.weight.ndim == 2):
        return range_of(builder.values, product)
    reach = np.asarray([(_depth(builder, product) or 0) * largest(product.x.kind) * largest(product.w.kind)])
    return -reach, reach


def widened(builder: ModelBuilder, operand: Operand) -> str:
    """A stored tensor less its zero point, int64."""
    tensor = cast(builder, builder.stored(operand.value, operand.kind), "int64")
    if not operand.kind.zero_point:
        return tensor
    result = builder.file.fresh(f"{tensor}_shifted")
    builder.file.emit("Sub", [tensor, builder.file.number("int64", operand.kind.zero_point)], [result])
    return result


def is_byte(operand: Operand | None) -> bool:
    """Whether an operand is held in bytes, per tensor."""
    return operand is not None and operand.kind.is_per_tensor and held_dtype(operand.kind).itemsize == 1
