"""Rounding steps: a rounding as integer ONNX ops: multiply, add, divide by a power of two, clip, cast.

All on int64 tensors, so the sum before the division is lifted above zero first, where ONNX's Div floors. A
channel that no multiplication serves adds one where it reaches a threshold of a table. Source: ONNX operator
pages Div, Gather; `thresholds` for what is written.
"""

import numpy as np

from planner.formats.common.thresholds import PAIR_REACH, Pairs, Steps
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.storage_types import Array, held_dtype
from planner.ir.types.qtypes import Uniform

_ONNX_TYPES = {"int8": 3, "uint8": 2, "int16": 5, "uint16": 4, "int32": 6, "int64": 7}


def cast(builder: ModelBuilder, tensor: str, dtype: str, result: str = "") -> str:
    """Append a Cast to an integer type."""
    name = result or builder.file.fresh(f"{tensor}_{dtype}")
    builder.file.emit("Cast", [tensor], [name], attributes={"to": _ONNX_TYPES[dtype]})
    return name


def apply(builder: ModelBuilder, kind: str, tensor: str, other: Array | int, stem: str) -> str:
    """Append a binary op with a constant."""
    result = builder.file.fresh(f"{stem}_{kind.lower()}")
    array = np.asarray(other, np.int64)
    operand = (
        builder.file.number("int64", int(array))
        if array.ndim == 0
        else builder.file.constant(f"{result}_by", array)
    )
    builder.file.emit(kind, [tensor, operand], [result])
    return result


def write_steps(
    builder: ModelBuilder,
    tensor: str,
    steps: Steps,
    *,
    low: int,
    kind: Uniform,
    result: str,
    trailing: int = 0,
) -> None:
    """Write stored integers for an integer tensor.

    Args:
      tensor: int32 or int64, channels before `trailing` axes; one row of parameters serves any shape.
      low: the stored value of level 0.
      kind: the type of the result.
    """
    v = cast(builder, tensor, "int64")
    lift = _lift(steps)
    product = apply(builder, "Mul", v, _along(steps.multiplier, trailing), result)
    if steps.sign.any():
        product = _signed(builder, v, product, _along(steps.sign, trailing), result)
    total = apply(builder, "Add", product, _along(steps.offset + (lift << steps.shift), trailing), result)
    whole = apply(builder, "Div", total, _along(np.left_shift(1, steps.shift), trailing), result)
    if steps.table is None:
        moved = apply(builder, "Sub", whole, _along(lift - low, trailing), result)
        _finish(builder, moved, (low, low + steps.levels), kind, result)
        return
    q = _clipped(
        builder, apply(builder, "Sub", whole, _along(lift, trailing), result), 0, steps.levels, result
    )
    at = apply(builder, "Add", q, _along(steps.rows * (steps.levels + 1), trailing), result)
    least, reached = builder.file.fresh(f"{result}_least"), builder.file.fresh(f"{result}_reached")
    largest = np.minimum(steps.table, np.iinfo(np.int32).max).astype(np.int32)
    table = builder.file.constant(f"{result}_thresholds", largest.reshape(-1))
    builder.file.emit("Gather", [table, at], [least])
    builder.file.emit("GreaterOrEqual", [v, cast(builder, least, "int64")], [reached])
    raised = builder.file.fresh(f"{result}_raised")
    builder.file.emit("Add", [q, cast(builder, reached, "int64")], [raised])
    moved = apply(builder, "Add", raised, low, result) if low else raised
    cast(builder, moved, held_dtype(kind).name, result)


def write_pairs(
    builder: ModelBuilder,
    sides: tuple[str, str],
    pairs: Pairs,
    *,
    low: int,
    levels: int,
    kind: Uniform,
    result: str,
) -> None:
    """Write stored integers for the sum of two scaled int64 tensors."""
    one, two = (
        apply(builder, "Mul", side, factor, result)
        for side, factor in zip(sides, pairs.multipliers, strict=True)
    )
    total = builder.file.fresh(f"{result}_sum")
    builder.file.emit("Add", [one, two], [total])
    reach = PAIR_REACH * (abs(pairs.multipliers[0]) + abs(pairs.multipliers[1])) + abs(pairs.offset)
    lift = (reach >> pairs.shift) + 1
    moved = apply(builder, "Add", total, pairs.offset + (lift << pairs.shift), result)
    whole = apply(builder, "Div", moved, 1 << pairs.shift, result)
    stored = apply(builder, "Sub", whole, lift - low, result)
    _finish(builder, stored, (low, low + levels), kind, result)


def _signed(builder: ModelBuilder, v: str, product: str, sign: Array, stem: str) -> str:
    """Add the sign's share to a product."""
    is_up, share, total = (builder.file.fresh(f"{stem}_{part}") for part in ("is_up", "share", "signed"))
    builder.file.emit("GreaterOrEqual", [v, builder.file.number("int64", 0)], [is_up])
    both = [
        builder.file.constant(f"{share}_{part}", array) for part, array in (("up", sign), ("down", -sign))
    ]
    builder.file.emit("Where", [is_up, *both], [share])
    builder.file.emit("Add", [product, share], [total])
    return total


def _lift(steps: Steps) -> Array:
    """The number that makes every sum before the division positive, in units of its quotient."""
    reach = steps.reach * steps.multiplier + np.abs(steps.offset) + steps.sign
    return np.asarray((reach >> steps.shift) + 1)


def _along(array: Array, trailing: int) -> Array:
    if array.size == 1:
        return array.reshape(())
    return array.reshape(-1, *[1] * trailing)


def _finish(builder: ModelBuilder, tensor: str, ends: tuple[int, int], kind: Uniform, result: str) -> None:
    cast(builder, _clipped(builder, tensor, *ends, result), held_dtype(kind).name, result)


def _clipped(builder: ModelBuilder, tensor: str, low: int, high: int, stem: str) -> str:
    name = builder.file.fresh(f"{stem}_clip")
    builder.file.emit(
        "Clip", [tensor, builder.file.number("int64", low), builder.file.number("int64", high)], [name]
    )
    return name
