"""Steps: rounding written as integer ONNX ops: multiply, add, divide by a power of two, clip, cast.

All on int64 tensors, so the sum before the division is lifted above zero first, where ONNX's Div floors. A
channel that no multiplication serves adds one where it reaches a threshold of a table. Source: ONNX operator
pages Div, Gather; `thresholds` for what is written.
"""

import numpy as np

from planner.exporters.holding import Array, held_dtype
from planner.exporters.sheet import Sheet
from planner.exporters.thresholds import PAIR_REACH, Pairs, Steps
from planner.ir.qtypes import Uniform

_ONNX_TYPES = {"int8": 3, "uint8": 2, "int16": 5, "uint16": 4, "int32": 6, "int64": 7}


def cast(sheet: Sheet, tensor: str, dtype: str, result: str = "") -> str:
    """Append a Cast to an integer type."""
    name = result or sheet.fresh(f"{tensor}_{dtype}")
    sheet.emit("Cast", [tensor], [name], attributes={"to": _ONNX_TYPES[dtype]})
    return name


def apply(sheet: Sheet, kind: str, tensor: str, other: Array | int, stem: str) -> str:
    """Append a binary op with a constant."""
    result = sheet.fresh(f"{stem}_{kind.lower()}")
    array = np.asarray(other, np.int64)
    operand = sheet.number("int64", int(array)) if array.ndim == 0 else sheet.constant(f"{result}_by", array)
    sheet.emit(kind, [tensor, operand], [result])
    return result


def write_steps(
    sheet: Sheet, tensor: str, steps: Steps, *, low: int, kind: Uniform, result: str, trailing: int = 0
) -> None:
    """Write stored integers for an integer tensor.

    Args:
      tensor: int32 or int64, channels before `trailing` axes; one row of parameters serves any shape.
      low: the stored value of level 0.
      kind: the type of the result.
    """
    v = cast(sheet, tensor, "int64")
    lift = _lift(steps)
    product = apply(sheet, "Mul", v, _along(steps.multiplier, trailing), result)
    if steps.sign.any():
        product = _signed(sheet, v, product, _along(steps.sign, trailing), result)
    total = apply(sheet, "Add", product, _along(steps.offset + (lift << steps.shift), trailing), result)
    whole = apply(sheet, "Div", total, _along(np.left_shift(1, steps.shift), trailing), result)
    if steps.table is None:
        moved = apply(sheet, "Sub", whole, _along(lift - low, trailing), result)
        _finish(sheet, moved, (low, low + steps.levels), kind, result)
        return
    q = _clipped(sheet, apply(sheet, "Sub", whole, _along(lift, trailing), result), 0, steps.levels, result)
    at = apply(sheet, "Add", q, _along(steps.rows * (steps.levels + 1), trailing), result)
    least, reached = sheet.fresh(f"{result}_least"), sheet.fresh(f"{result}_reached")
    largest = np.minimum(steps.table, np.iinfo(np.int32).max).astype(np.int32)
    table = sheet.constant(f"{result}_thresholds", largest.reshape(-1))
    sheet.emit("Gather", [table, at], [least])
    sheet.emit("GreaterOrEqual", [v, cast(sheet, least, "int64")], [reached])
    raised = sheet.fresh(f"{result}_raised")
    sheet.emit("Add", [q, cast(sheet, reached, "int64")], [raised])
    moved = apply(sheet, "Add", raised, low, result) if low else raised
    cast(sheet, moved, held_dtype(kind).name, result)


def write_pairs(
    sheet: Sheet, sides: tuple[str, str], pairs: Pairs, *, low: int, levels: int, kind: Uniform, result: str
) -> None:
    """Write stored integers for the sum of two scaled int64 tensors."""
    one, two = (
        apply(sheet, "Mul", side, factor, result)
        for side, factor in zip(sides, pairs.multipliers, strict=True)
    )
    total = sheet.fresh(f"{result}_sum")
    sheet.emit("Add", [one, two], [total])
    reach = PAIR_REACH * (abs(pairs.multipliers[0]) + abs(pairs.multipliers[1])) + abs(pairs.offset)
    lift = (reach >> pairs.shift) + 1
    moved = apply(sheet, "Add", total, pairs.offset + (lift << pairs.shift), result)
    whole = apply(sheet, "Div", moved, 1 << pairs.shift, result)
    stored = apply(sheet, "Sub", whole, lift - low, result)
    _finish(sheet, stored, (low, low + levels), kind, result)


def _signed(sheet: Sheet, v: str, product: str, sign: Array, stem: str) -> str:
    """Add the sign's share to a product."""
    is_up, share, total = (sheet.fresh(f"{stem}_{part}") for part in ("is_up", "share", "signed"))
    sheet.emit("GreaterOrEqual", [v, sheet.number("int64", 0)], [is_up])
    both = [sheet.constant(f"{share}_{part}", array) for part, array in (("up", sign), ("down", -sign))]
    sheet.emit("Where", [is_up, *both], [share])
    sheet.emit("Add", [product, share], [total])
    return total


def _lift(steps: Steps) -> Array:
    """What makes every sum before the division positive, in units of its quotient."""
    reach = steps.reach * steps.multiplier + np.abs(steps.offset) + steps.sign
    return np.asarray((reach >> steps.shift) + 1)


def _along(array: Array, trailing: int) -> Array:
    if array.size == 1:
        return array.reshape(())
    return array.reshape(-1, *[1] * trailing)


def _finish(sheet: Sheet, tensor: str, ends: tuple[int, int], kind: Uniform, result: str) -> None:
    cast(sheet, _clipped(sheet, tensor, *ends, result), held_dtype(kind).name, result)


def _clipped(sheet: Sheet, tensor: str, low: int, high: int, stem: str) -> str:
    name = sheet.fresh(f"{stem}_clip")
    sheet.emit("Clip", [tensor, sheet.number("int64", low), sheet.number("int64", high)], [name])
    return name
