"""Integer RESCALE, shifts, TABLE and CLZ, in 64 bits, bit for bit as TOSA defines them.

Source: TOSA 1.0, RESCALE, apply_scale_32, apply_scale_16, ARITHMETIC_RIGHT_SHIFT, TABLE, CLZ.
"""

from typing import Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.onnx.dtypes import enum_of
from planner.formats.tosa.reader.builder import LIMITS, Builder, Unread, flag, word

_DOUBLE_FROM: Final = 31
_DOUBLE: Final = 1 << 30
_BYTE_TABLE: Final = 256
_WORD_TABLE: Final = 513
_STEP: Final = 128


def rescale(draft: Builder, op: Operation) -> None:
    """RESCALE; between quantized element types, the types say what happens."""
    name, result = draft.operand(op, 0), op.results[0]
    if draft.is_real(name):
        draft.result("Identity", [name], result)
        return
    shape = draft.shape_of(name)
    multipliers, shifts = (np.asarray(draft.numbers(op, i), np.int64) for i in (1, 2))
    zeros = draft.zero(op, 3), draft.zero(op, 4)
    kind = draft.element(result)
    if flag(op, "output_unsigned") and kind[0] == "i":
        kind = f"u{kind[1:]}"
    if flag(op, "input_unsigned"):
        name = draft.unsigned(name)
        if draft.dtype(name) == "u16":
            zeros = zeros[0] & 0xFFFF, zeros[1]
        elif draft.dtype(name) == "u8":
            zeros = zeros[0] & 0xFF, zeros[1]
    if kind[0] == "u":
        zeros = zeros[0], zeros[1] & LIMITS[kind][1]
    is_double = word(op, "rounding_mode") == "DOUBLE_ROUND" and flag(op, "scale32")
    scaled = apply_scale(draft, draft.wide(name, "i64"), zeros[0], (multipliers, shifts), is_double=is_double)
    _store(draft, op, scaled, zeros[1], kind, shape)


def apply_scale(
    draft: Builder, name: str, zero: int, factor: tuple[np.ndarray, np.ndarray], *, is_double: bool
) -> str:
    """`((value - zero) * multiplier + round) >> shift`, in 64 bits."""
    multipliers, shifts = factor
    shape = draft.shape_of(name)
    if zero:
        name = draft.between("Sub", [name, draft.fixed(zero)], shape)
    halves = np.left_shift(np.int64(1), np.maximum(shifts, 1) - 1) * (shifts > 0)
    more = np.where(shifts > _DOUBLE_FROM, _DOUBLE, 0) if is_double else np.zeros_like(shifts)
    rounding = draft.fixed(halves + more)
    if np.any(more):
        sign = draft.between("GreaterOrEqual", [name, draft.fixed(0)], shape, dtype="bool")
        rounding = draft.between("Where", [sign, rounding, draft.fixed(halves - more)], shape, dtype="i64")
    product = draft.between("Mul", [name, draft.fixed(multipliers)], shape)
    return draft.shifted(draft.between("Add", [product, rounding], shape), shifts)


def _store(  # noqa: PLR0917
    draft: Builder, op: Operation, name: str, zero: int, kind: str, shape: tuple[int, ...]
) -> None:
    """Put a zero point on 64-bit integers, and saturate them to an element type."""
    if zero:
        name = draft.between("Add", [name, draft.fixed(zero)], shape)
    name = draft.saturated(name, *LIMITS[kind])
    result = op.results[0]
    wanted = draft.element(result)
    if wanted != kind:
        name = draft.cast(name, kind)
    draft.result("Cast", [name], result, {"to": enum_of(wanted)})


def negate(draft: Builder, op: Operation) -> None:
    """NEGATE; of integers between zero points, saturated."""
    name = draft.operand(op, 0)
    if draft.is_real(name):
        draft.result("Neg", [name], op.results[0])
        return
    shape, zeros = draft.shape_of(name), (draft.zero(op, 1), draft.zero(op, 2))
    turned = draft.between("Sub", [draft.fixed(zeros[0]), draft.wide(name, "i64")], shape)
    _store(draft, op, turned, zeros[1], draft.element(op.results[0]), shape)


def multiply(draft: Builder, op: Operation) -> None:
    """MUL; of integers shifted right, rounded half up."""
    names = [draft.operand(op, i) for i in (0, 1)]
    if draft.is_real(names[0]):
        draft.result("Mul", names, op.results[0])
        return
    shift = draft.zero(op, 2)
    shape = draft.made(op)
    product = draft.between("Mul", [draft.wide(name, "i64") for name in names], shape)
    if shift:
        half = draft.fixed(1 << (shift - 1))
        product = draft.shifted(draft.between("Add", [product, half], shape), shift)
    draft.result("Cast", [product], op.results[0], {"to": enum_of(draft.element(op.results[0]))})


def shift_left(draft: Builder, op: Operation) -> None:
    """LOGICAL_LEFT_SHIFT, modulo the width."""
    shape = draft.made(op)
    value, count = (draft.wide(draft.operand(op, i), "i64") for i in (0, 1))
    product = draft.between("Mul", [value, _power(draft, count)], shape)
    draft.result("Cast", [product], op.results[0], {"to": enum_of(draft.element(op.results[0]))})


def _power(draft: Builder, count: str) -> str:
    """Powers of two of counts in 64 bits."""
    shape = draft.shape_of(count)
    known = draft.array(count)
    if known is not None:
        return draft.fixed(np.left_shift(np.int64(1), known))
    base = draft.constant(np.ones((), np.uint64))
    bits = draft.between("BitShift", [base, draft.cast(count, "u64")], shape, {"direction": "LEFT"}, "u64")
    return draft.cast(bits, "i64")


def shift_right_logical(draft: Builder, op: Operation) -> None:
    """LOGICAL_RIGHT_SHIFT, of the bits."""
    shape, wanted = draft.made(op), draft.element(op.results[0])
    value = draft.cast(draft.unsigned(draft.operand(op, 0)), "u64")
    count = draft.cast(draft.wide(draft.operand(op, 1), "i64"), "u64")
    bits = draft.between("BitShift", [value, count], shape, {"direction": "RIGHT"})
    draft.result("Cast", [draft.cast(bits, "i64")], op.results[0], {"to": enum_of(wanted)})


def shift_right(draft: Builder, op: Operation) -> None:
    """ARITHMETIC_RIGHT_SHIFT; rounded where it says so: the last bit that goes is added."""
    shape, wanted = draft.made(op), draft.element(op.results[0])
    value, count = (draft.wide(draft.operand(op, i), "i64") for i in (0, 1))
    power = _power(draft, count)
    found = _floor(draft, value, power, shape)
    if flag(op, "round"):
        # The last bit that goes: floor(2 v / 2^s) - 2 floor(v / 2^s), which is 0 for a shift by none.
        twice = draft.between("Mul", [value, draft.fixed(2)], draft.shape_of(value))
        bit = draft.between("Mod", [_floor(draft, twice, power, shape), draft.fixed(2)], shape)
        found = draft.between("Add", [found, bit], shape)
    draft.result("Cast", [found], op.results[0], {"to": enum_of(wanted)})


def _floor(draft: Builder, value: str, power: str, shape: tuple[int, ...]) -> str:
    rest = draft.between("Mod", [value, power], shape)
    return draft.between("Div", [draft.between("Sub", [value, rest], shape), power], shape)


def table(draft: Builder, op: Operation) -> None:
    """TABLE: of a byte an entry, of 16 bits between two entries."""
    name, numbers = draft.operand(op, 0), draft.operand(op, 1)
    if draft.is_real(name):
        raise Unread("a table is of stored integers, its operand stands for reals")
    shape, (entries,) = draft.shape_of(name), draft.shape_of(numbers)
    places = draft.wide(name, "i64")
    if entries == _BYTE_TABLE:
        at = draft.between("Add", [places, draft.fixed(_BYTE_TABLE // 2)], shape)
        draft.result("Gather", [numbers, at], op.results[0], {"axis": 0})
        return
    if entries != _WORD_TABLE:
        raise Unread(f"its table has {entries} entries")
    part = draft.between("Mod", [places, draft.fixed(_STEP)], shape)
    whole = draft.between("Div", [draft.between("Sub", [places, part], shape), draft.fixed(_STEP)], shape)
    at = draft.between("Add", [whole, draft.fixed(_WORD_TABLE // 2)], shape)
    numbers = draft.wide(numbers, "i64")
    low = draft.between("Gather", [numbers, at], shape, {"axis": 0})
    above = draft.between("Add", [at, draft.fixed(1)], shape)
    high = draft.between("Gather", [numbers, above], shape, {"axis": 0})
    slope = draft.saturated(draft.between("Sub", [high, low], shape), *LIMITS["i16"])
    more = draft.between("Mul", [slope, part], shape)
    base = draft.between("Mul", [low, draft.fixed(_STEP)], shape)
    draft.result("Cast", [draft.between("Add", [base, more], shape)], op.results[0], {"to": enum_of("i32")})


def leading_zeros(draft: Builder, op: Operation) -> None:
    """CLZ of 32 bits: the powers of two that exceed the bits."""
    name, shape = draft.operand(op, 0), draft.made(op)
    bits = draft.cast(draft.unsigned(draft.wide(name)), "i64")
    tall = draft.reshaped(bits, (*shape, 1))
    powers = draft.fixed(np.left_shift(np.int64(1), np.arange(32)))
    larger = draft.between("Less", [tall, powers], (*shape, 32), dtype="bool")
    counts = draft.cast(larger, "i32")
    axes = draft.fixed([len(shape)])
    draft.result("ReduceSum", [counts, axes], op.results[0], {"keepdims": 0})
