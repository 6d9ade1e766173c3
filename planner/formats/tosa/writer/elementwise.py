"""Elementwise: ADD, SUB, MUL, CONCAT, SELECT, MAXIMUM and MINIMUM of stored integers, operands rescaled.

Source: TOSA 1.0, elementwise operators, which take i32; interpreter `kernels`, which says what they give.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import Order, plain
from planner.formats.common.linear_operands import INT32
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, element_of, held
from planner.formats.tosa.writer.scaling import UNIT, Factor, factor_of, rescale, sum_of, widened
from planner.interpreter.fixed_point import ratios
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, stored_operands

_SIGNS: Final = {"Add": 1, "Sub": -1}


def plus(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Add and Sub."""
    sides = stored_operands(block, block.core[0], (0, 1))
    if sides is None:
        return False
    sign = _SIGNS[block.core[0].type]
    rational = [ratios((side.kind.scale,), 1.0, y.scale) for side in sides]
    how = sum_of(rational, builder.checked_arithmetic(), is_byte=y.storage.bits <= 8)
    tensors = aligned(builder, sides)
    terms = [
        _term(builder, tensor, side, factor, how.left, sign if i else 1)
        for i, (tensor, side, factor) in enumerate(zip(tensors, sides, how.terms, strict=True))
    ]
    kind = "sub" if sign < 0 and terms[1][1] else "add"
    total = joined(builder, kind, [tensor for tensor, _ in terms], block.result)
    reach = sum(
        int(np.abs(factor.apply(ends_of(side) << how.left)).max()) + 1
        for side, factor in zip(sides, how.terms, strict=True)
    )
    if reach > INT32:
        raise builder.refuse(f"sums of {reach} do not fit 32 bits; tosa accepts scales nearer to each other")
    how.total.check(-reach, reach)
    stored = rescale(builder.program, total, how.total, (0, held(y).zero_point), element_of(y), block.result)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def concat(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Concat, each operand brought onto the result's grid."""
    op = block.core[0]
    sides = stored_operands(block, op, range(len(op.inputs)))
    if sides is None:
        return False
    tensors = [
        onto(builder, tensor, side, y) for tensor, side in zip(aligned(builder, sides), sides, strict=True)
    ]
    stored = concatenated(builder, tensors, op.attributes["axis"], block.result)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def where(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Write a Where, both branches rescaled to the result's grid."""
    op = block.core[0]
    sides = stored_operands(block, op, (1, 2))
    if sides is None:
        return False
    tensors = [
        onto(builder, tensor, side, y) for tensor, side in zip(aligned(builder, sides), sides, strict=True)
    ]
    stored = selected(builder, builder.real(op.inputs[0]), tensors, block.result)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def selected(builder: ProgramBuilder, condition: Tensor, sides: Sequence[Tensor], stem: str) -> Tensor:
    """SELECT by a condition, all of one rank."""
    rank = max(len(item.shape) for item in (condition, *sides))
    order = next((item.order for item in sides if len(item.shape) == rank), plain(rank))
    found = [builder.program.raised(item, rank) for item in (condition, *sides)]
    found = [builder.program.ordered(item, order) for item in found]
    shape = np.broadcast_shapes(*(item.shape for item in found))
    return builder.program.emit("select", found, replace(found[1], shape=shape), stem)


def concatenated(builder: ProgramBuilder, tensors: Sequence[Tensor], axis: int, stem: str) -> Tensor:
    """CONCAT along an axis of the model."""
    rank = len(tensors[0].shape)
    first = tensors[0]
    at = first.at(axis % rank)
    shape = list(first.shape)
    shape[at] = sum(tensor.shape[at] for tensor in tensors)
    attributes = {"axis": f"{at} : i32"}
    return builder.program.emit(
        "concat", tensors, replace(first, shape=tuple(shape)), stem, attributes=attributes
    )


def extreme(
    builder: ProgramBuilder, tensors: Sequence[Tensor], kind: Uniform, name: str, stem: str
) -> Tensor:
    """MAXIMUM or MINIMUM of tensors of one type, there and back through i32."""
    zero = held(kind).zero_point
    wide = [widened(builder.program, tensor, zero) for tensor in tensors]
    total = wide[0]
    attributes = {"nan_mode": "#tosa.nan_mode<PROPAGATE>"}
    for tensor in wide[1:]:
        total = joined(builder, name, [total, tensor], f"{stem}_i32", attributes=attributes)
    return rescale(builder.program, total, UNIT, (0, zero), element_of(kind), stem)


def joined(
    builder: ProgramBuilder,
    kind: str,
    pair: Sequence[Tensor],
    stem: str,
    *more: str,
    attributes: dict[str, str] | None = None,
) -> Tensor:
    """An operator of two tensors of one order that broadcast."""
    shape = np.broadcast_shapes(*(tensor.shape for tensor in pair))
    like = replace(pair[0], shape=tuple(shape))
    return builder.program.emit(kind, [*pair, *more], like, f"{stem}_{kind}", attributes=attributes)


def aligned(builder: ProgramBuilder, sides: Sequence[Operand]) -> list[Tensor]:
    """Operands of one rank and order: that of the first one of full rank that is no constant."""
    ranks = [len(builder.sizes(side.value)) for side in sides]
    rank = max(ranks)
    known = [
        builder.values.integers(side.value, side.kind)
        for side, own in zip(sides, ranks, strict=True)
        if own == rank and not builder.values.is_constant(side.value)
    ]
    order = known[0].order if known else plain(rank)
    return [_brought(builder, side, order) for side in sides]


def _brought(builder: ProgramBuilder, side: Operand, order: Order) -> Tensor:
    tensor = builder.operand(
        side.value, side.kind, order if len(builder.sizes(side.value)) == len(order) else None
    )
    return builder.program.ordered(builder.program.raised(tensor, len(order)), order)


def onto(builder: ProgramBuilder, tensor: Tensor, side: Operand, y: Uniform) -> Tensor:
    """An operand on the result's grid; itself where it is there."""
    a, b = held(side.kind), held(y)
    if builder.values.is_same(a, b):
        return tensor
    factor = factor_of(ratios((a.scale,), 1.0, b.scale), builder.checked_arithmetic())
    factor.check(*ends_of(side))
    zeros = a.zero_point, b.zero_point
    return rescale(builder.program, tensor, factor, zeros, element_of(y), f"{side.value}_rescaled")


def ends_of(side: Operand) -> np.ndarray:
    """The least and the greatest stored integer, less the zero point."""
    kind = held(side.kind)
    return np.asarray([kind.storage.qmin, kind.storage.qmax], np.int64) - kind.zero_point


def _term(  # noqa: PLR0917
    builder: ProgramBuilder, tensor: Tensor, side: Operand, factor: Factor, left: int, sign: int
) -> tuple[Tensor, bool]:
    """A term of an addition in i32, and whether it is still to be subtracted.

    The sign is turned before rounding; afterwards where that is the same for every value there is.
    """
    program, zero = builder.program, held(side.kind).zero_point
    low, high = (int(end) for end in ends_of(side))
    # Rounding half away from zero commutes with the sign, rounding half up does not: every value is tried.
    values = np.arange(low, high + 1) << left
    later = sign < 0 and bool((factor.apply(-values) == -factor.apply(values)).all())
    stem = f"{side.value}_term"
    if not left and (sign > 0 or later):
        factor.check(low, high)
        return rescale(program, tensor, factor, (zero, 0), "i32", stem), later
    whole = widened(program, tensor, zero)
    if left:
        shift = program.constant(np.full((1,) * len(whole.shape), left), "i32")
        whole = program.emit("logical_left_shift", [whole, shift], whole, f"{stem}_left")
    if sign < 0 and not later:
        none = program.constant(np.zeros((1,) * len(whole.shape), np.int64), "i32")
        whole = program.emit("sub", [none, whole], whole, f"{stem}_minus")
    ends = (-high << left, -low << left) if sign < 0 and not later else (low << left, high << left)
    factor.check(*ends)
    return rescale(program, whole, factor, (0, 0), "i32", stem), later
