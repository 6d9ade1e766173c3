"""Elementwise: sums, Mul, comparisons, Concat and Where of stored integers, each rounded as its row does.

A sum of two scaled integers is written as one, when trying every pair of stored values shows it equal; else
as a table of all pairs. Source: docs/specification.md, sections 7 and 8.
"""

from collections.abc import Iterable

import numpy as np

from planner.formats.common.linear_operands import largest
from planner.formats.common.thresholds import Integers, fit, fit_pairs, least_arguments
from planner.formats.onnx.writer.float_blocks import write_clamped
from planner.formats.onnx.writer.integers.linear import is_byte, widened
from planner.formats.onnx.writer.integers.rescaling import bounds_of, rescale_steps, settle_steps
from planner.formats.onnx.writer.integers.rounding_steps import cast, write_pairs, write_steps
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.storage_types import Array, held_dtype
from planner.interpreter.calls import FLOAT32_EVEN, grid_of, onto
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.elementwise import has_scalar_rows, product_onto, qlinear_add
from planner.interpreter.kernels.litert import COMPARISONS, LITERT, in_256ths
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of


def plus(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """Add and Sub."""
    op, clamp = block.core[0], bounds_of(builder, block, y)
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if clamp is None or a is None or b is None or not (is_byte(a) and is_byte(b)):
        return False
    sign = -1 if op.type == "Sub" else 1
    if builder.values.arithmetic == FLOAT32_EVEN and (sign < 0 or not _is_like(a, b, y)):
        return False
    stored = _sums(builder, a, b, y, sign)
    levels = np.clip(stored, clamp.low, clamp.high) - clamp.low
    slopes = a.kind.scale / y.scale, sign * b.kind.scale / y.scale
    shifted = [_stored_values(side.kind) - side.kind.zero_point for side in (a, b)]
    top = clamp.high - clamp.low
    pairs = fit_pairs(levels, shifted[0], shifted[1], slopes, top)
    value = block.kernel.outputs[0].value
    result = builder.stored_name(value, y)
    if pairs is not None:
        sides = widened(builder, a), widened(builder, b)
        write_pairs(builder, sides, pairs, low=clamp.low, levels=top, kind=y, result=result)
    else:
        _look_up(builder, (a, b), (levels + clamp.low).astype(held_dtype(y)), result)
    builder.define_stored(value, y, result)
    return True


def times(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """Mul: one product, rescaled once."""
    op, clamp = block.core[0], bounds_of(builder, block, y)
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if clamp is None or a is None or b is None or not (is_byte(a) and is_byte(b)):
        return False
    if builder.values.arithmetic == FLOAT32_EVEN and not _is_like(a, b, y):
        return False
    low = clamp.low

    def levels_of(v: Integers) -> Integers:
        return np.clip(_product(v, a.kind, b.kind, y, builder.values.arithmetic), low, clamp.high) - low

    reach = np.asarray([largest(a.kind) * largest(b.kind)])
    slope = np.asarray([a.kind.scale * b.kind.scale / y.scale])
    steps = fit(least_arguments(levels_of, -reach, reach, clamp.high - low), slope)
    if steps is None:
        return False
    product = builder.file.fresh(f"{block.result}_product")
    builder.file.emit("Mul", [widened(builder, a), widened(builder, b)], [product])
    settle_steps(builder, block, product, steps, low=low)
    return True


def compare(builder: ModelBuilder, block: Block) -> bool:
    """Less, Equal and their like in LiteRT's arithmetic: each side is a table of multiples of 1/256."""
    op = block.core[0]
    sides = operand_of(block, op, 0), operand_of(block, op, 1)
    found = [side for side in sides if side is not None and is_byte(side)]
    is_ours = len(block.core) == 1 and op.type in COMPARISONS and builder.values.arithmetic == LITERT
    if not is_ours or len(found) != len(sides):
        return False
    tensors = []
    for side in found:
        table = in_256ths(_stored_values(side.kind) - side.kind.zero_point, side.kind)
        result = builder.file.fresh(f"{side.value}_256ths")
        data = builder.file.constant(f"{result}_table", table)
        builder.file.emit("Gather", [data, _from_zero(builder, side)], [result])
        tensors.append(result)
    builder.file.emit_op(op, tensors, list(op.outputs))
    return True


def concat(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """Concat: every input rescaled onto the result's grid."""
    op = block.core[0]
    parts = _rescaled_parts(builder, block, y, range(len(op.inputs)))
    if parts is None:
        return False
    _settle(builder, block, y, parts)
    return True


def where(builder: ModelBuilder, block: Block, y: Uniform) -> bool:
    """Where: both branches rescaled onto the result's grid."""
    parts = _rescaled_parts(builder, block, y, (1, 2))
    if parts is None:
        return False
    _settle(builder, block, y, [builder.operand(block.core[0].inputs[0]), *parts])
    return True


def _rescaled_parts(
    builder: ModelBuilder, block: Block, y: Uniform, indices: Iterable[int]
) -> list[str] | None:
    op = block.core[0]
    operands = [operand_of(block, op, i) for i in indices]
    found = [x for x in operands if x is not None and is_byte(x)]
    if len(found) != len(operands) or y.storage.bits > 8:
        return None
    if builder.values.arithmetic == FLOAT32_EVEN and not all(_is_like(x, x, y) for x in found):
        return None
    steps = [rescale_steps(x.kind, y, builder.values.arithmetic) for x in found]
    if any(item is None for item in steps):
        return None
    tensors = []
    for x, item in zip(found, steps, strict=True):
        tensor = builder.stored(x.value, x.kind)
        if item is not None and x.kind != y:
            result = builder.file.fresh(f"{tensor}_rescaled")
            write_steps(builder, tensor, item, low=y.storage.qmin, kind=y, result=result)
            tensor = result
        tensors.append(tensor)
    return tensors


def _settle(builder: ModelBuilder, block: Block, y: Uniform, operands: list[str]) -> None:
    op, value = block.core[0], block.kernel.outputs[0].value
    if block.activation is None:
        result = builder.stored_name(value, y)
        builder.file.emit_op(op, operands, [result])
        builder.define_stored(value, y, result)
        return
    whole = builder.file.fresh(f"{value}_unclamped")
    builder.file.emit_op(op, operands, [whole])
    write_clamped(builder, value, whole, y, block.activation)


def _look_up(builder: ModelBuilder, sides: tuple[Operand, Operand], table: Array, result: str) -> None:
    """Gather the result from a table of all pairs of stored values."""
    columns = table.shape[1]
    one, two = (_from_zero(builder, side) for side in sides)
    row, place = builder.file.fresh(f"{result}_row"), builder.file.fresh(f"{result}_place")
    builder.file.emit("Mul", [one, builder.file.number("int64", columns)], [row])
    builder.file.emit("Add", [row, two], [place])
    data = builder.file.constant(f"{result}_table", table.reshape(-1))
    builder.file.emit("Gather", [data, place], [result])


def _from_zero(builder: ModelBuilder, operand: Operand) -> str:
    """A stored tensor as indices of its type's values."""
    tensor = cast(builder, builder.stored(operand.value, operand.kind), "int64")
    low = operand.kind.storage.qmin
    if not low:
        return tensor
    result = builder.file.fresh(f"{tensor}_index")
    builder.file.emit("Sub", [tensor, builder.file.number("int64", low)], [result])
    return result


def _sums(builder: ModelBuilder, a: Operand, b: Operand, y: Uniform, sign: int) -> Array:
    """The stored sum of every pair of stored values, (A, B)."""
    one, two = np.broadcast_arrays(_stored_values(a.kind)[:, None], _stored_values(b.kind)[None, :])
    if builder.values.arithmetic != FLOAT32_EVEN:
        ratio = [ratios((kind.scale,), 1.0, y.scale) for kind in (a.kind, b.kind)]
        terms = [(one - a.kind.zero_point, ratio[0]), (sign * (two - b.kind.zero_point), ratio[1])]
        return onto(terms, y, builder.values.arithmetic).astype(np.int64)
    shapes = [tuple(builder.graph.values[side.value].shape or ()) for side in (a, b)]
    grids = grid_of(a.kind), grid_of(b.kind), grid_of(y)
    known = [[dim if isinstance(dim, int) else 2 for dim in shape] for shape in shapes]
    if has_scalar_rows(known[0], known[1]):
        return qlinear_add(two, grids[1], one, grids[0], grids[2]).astype(np.int64)
    return qlinear_add(one, grids[0], two, grids[1], grids[2]).astype(np.int64)


def _product(v: Integers, a: Uniform, b: Uniform, y: Uniform, arithmetic: str) -> Integers:
    if arithmetic != FLOAT32_EVEN:
        return onto([(v, ratios((a.scale,), b.scale, y.scale))], y, arithmetic).astype(np.int64)
    scales = np.float32(a.scale), np.float32(b.scale)
    return product_onto(v, scales, grid_of(y)).astype(np.int64)


def _stored_values(kind: Uniform) -> Integers:
    return np.arange(kind.storage.qmin, kind.storage.qmax + 1)


def _is_like(a: Operand, b: Operand, y: Uniform) -> bool:
    """Whether onnxruntime has an integer kernel, so that the plan uses integer arithmetic there."""
    kinds = (a.kind, b.kind, y)
    return all(kind.storage.bits <= 8 for kind in kinds) and len({kind.storage.signed for kind in kinds}) == 1
