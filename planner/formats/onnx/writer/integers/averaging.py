"""Averaging: GlobalAveragePool and AveragePool as integer sums, each rounded once.

Sums come from ReduceSum, or ConvInteger with weights of one. Source: docs/specification.md, sections 7 and 8;
interpreter `pooling`, which says what they become.
"""

from dataclasses import replace
from math import prod

import numpy as np

from planner.formats.common.linear_operands import largest
from planner.formats.onnx.writer.integers.linear import is_byte
from planner.formats.onnx.writer.integers.rescaling import bounds_of, settle_steps, single
from planner.formats.onnx.writer.integers.rounding_steps import apply, cast
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.interpreter.calls import FLOAT32_EVEN
from planner.interpreter.kernels.table import is_tosa_pool
from planner.ir.graph import Op, Shape
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of
from planner.ops.geometry.windows import PoolGeometry


def global_average_pool(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """GlobalAveragePool: one integer sum per channel."""
    op = block.core[0]
    x = operand_of(block, op, 0)
    shape = None if x is None else builder.graph.values[x.value].shape
    count = None if shape is None else average_of(op, shape)
    return x is not None and count is not None and _write(builder, block, y, x, count, is_global=True)


def average_pool(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """AveragePool over the whole input; others where no window has padding in it."""
    op = block.core[0]
    x = operand_of(block, op, 0)
    shape = None if x is None else builder.graph.values[x.value].shape
    count = None if shape is None else average_of(op, shape)
    if x is None or shape is None or count is None:
        return False
    kernel = tuple(op.attributes["kernel_shape"])
    if tuple(shape[2:]) == kernel and not any(op.attributes.get("pads", ())):
        return _write(builder, block, y, x, count, is_global=True)
    if builder.values.arithmetic == FLOAT32_EVEN or not isinstance(shape[1], int):
        return False
    return _write(builder, block, y, x, count, is_global=False)


def average_of(op: Op, shape: Shape) -> int | None:
    """How many elements each average of a pool has; None where that differs, or is not known."""
    if op.type == "GlobalAveragePool":
        sizes = [dim for dim in shape[2:] if isinstance(dim, int)]
        return prod(sizes) if len(sizes) == len(shape) - 2 else None
    attributes = op.attributes
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attributes.get("ceil_mode"):
        return None
    if any(step != 1 for step in attributes.get("dilations", ())):
        return None
    if any(attributes.get("pads", ())) and not attributes.get("count_include_pad"):
        return None
    return int(prod(attributes["kernel_shape"]))


def divides(op: Op, arithmetic: str, x: Operand, y: Uniform) -> bool:
    """Whether a pool of windows that all have as many elements is TOSA's AVG_POOL2D."""
    if op.type != "AveragePool":
        return False
    attributes = op.attributes
    kernel = tuple(attributes["kernel_shape"])
    geometry = PoolGeometry(kernel, pads=tuple(attributes.get("pads", ())))
    includes = bool(attributes.get("count_include_pad"))
    return is_tosa_pool(arithmetic, x.kind, y, geometry, includes_padding=includes)


def _write(
    builder: ModelBuilder, block: Block, y: Uniform, x: Operand, count: int, *, is_global: bool
) -> bool:
    clamp = bounds_of(builder, block, y)
    is_like = x.kind.storage.signed == y.storage.signed
    if clamp is None or not is_byte(x) or (builder.values.arithmetic == FLOAT32_EVEN and not is_like):
        return False
    multiplier = np.float32(x.kind.scale) / (np.float32(y.scale) * np.float32(count))
    rounding = single(y, builder.values.arithmetic, x.kind.scale, float(multiplier), clamp, count)
    rounding = replace(rounding, divides=divides(block.core[0], builder.values.arithmetic, x, y))
    reach = np.asarray([count * largest(x.kind)])
    steps = rounding.steps(-reach, reach)
    if steps is None:
        return False
    total = _sum(builder, block, x, count) if is_global else _windows(builder, block, x)
    settle_steps(builder, block, total, steps, low=clamp.low)
    return True


def _sum(builder: ModelBuilder, block: Block, x: Operand, count: int) -> str:
    wide = cast(builder, builder.stored(x.value, x.kind), "int64")
    rank = len(builder.graph.values[x.value].shape or ())
    axes = builder.file.constant(f"{block.result}_axes", np.arange(2, rank))
    total = builder.file.fresh(f"{block.result}_total")
    builder.file.emit("ReduceSum", [wide, axes], [total], attributes={"keepdims": 1})
    return (
        apply(builder, "Sub", total, x.kind.zero_point * count, block.result) if x.kind.zero_point else total
    )


def _windows(builder: ModelBuilder, block: Block, x: Operand) -> str:
    op, triple = block.core[0], builder.triple(x)
    shape = builder.graph.values[x.value].shape or ()
    channels = next(dim for dim in shape[1:2] if isinstance(dim, int))
    ones = np.ones((channels, 1, *op.attributes["kernel_shape"]), np.int8)
    weight = builder.file.constant(f"{block.result}_ones", ones)
    kept = {key: op.attributes[key] for key in ("pads", "strides") if key in op.attributes}
    total = builder.file.fresh(f"{block.result}_total")
    inputs = [triple[0], weight, triple[2]]
    builder.file.emit("ConvInteger", inputs, [total], name=op.name, attributes={**kept, "group": channels})
    return total
