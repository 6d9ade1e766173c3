"""Element-wise ops of TOSA as ONNX's, which broadcast axes of size 1 as TOSA does.

Integers are computed in 32 bits or more and cast back. Source: TOSA 1.0, element-wise operators, activation
functions, type conversion; ONNX operators, opset 21.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation

from planner.formats.mlir.stablehlo_ops import items_of, name_of
from planner.formats.onnx.dtypes import NUMPY, enum_of
from planner.formats.tosa.reader.builder import LIMITS, Builder, Unread
from planner.formats.tosa.vocabulary import OPERATORS
from planner.ops import of_form
from planner.ops.forms import Form

Reader = Callable[[Builder, Operation], None]
"""Adds ops to a draft, or raises `Unread`."""

_DIRECT: Final[Mapping[str, str]] = {
    **{theirs: ours for ours, theirs in OPERATORS.items()},
    "intdiv": "Div",
}
_TRUTHS: Final = of_form(Form.COMPARISON, Form.LOGICAL) | {"Not"}
_OF_REALS: Final = frozenset({"sigmoid", "tanh"})


def direct(draft: Builder, op: Operation) -> None:
    """An op that has a namesake in ONNX."""
    plain = name_of(op).removeprefix("tosa.")
    kind = _DIRECT[plain]
    names = [draft.operand(op, i) for i in range(len(op.operands))]
    if plain in _OF_REALS and not draft.is_real(names[0]):
        raise Unread(f"it is of {draft.dtype(names[0])}, not of reals")
    is_bits = kind.startswith("Bitwise") or draft.dtype(names[0]) == "bool"
    names = names if is_bits else [draft.wide(name) for name in names]
    draft.through(op.results[0], kind, names, draft.made(op), dtype="bool" if kind in _TRUTHS else "")


def rsqrt(draft: Builder, op: Operation) -> None:
    """RSQRT as two ops."""
    name = draft.operand(op, 0)
    root = draft.between("Sqrt", [name], draft.made(op))
    draft.result("Reciprocal", [root], op.results[0])


def select(draft: Builder, op: Operation) -> None:
    """SELECT."""
    flag = draft.operand(op, 0)
    names = [draft.operand(op, i) for i in (1, 2)]
    if draft.dtype(names[0]) == "bool":
        numbers = [draft.cast(name, "i32") for name in names]
    else:
        numbers = [draft.wide(name) for name in names]
    draft.through(op.results[0], "Where", [flag, *numbers], draft.made(op), dtype=draft.dtype(numbers[0]))


def clamp(draft: Builder, op: Operation) -> None:
    """CLAMP: from 0 on it is Relu, where nothing of the type is above; else Clip."""
    name, result = draft.operand(op, 0), op.results[0]
    low, high = _bound(op, "min"), _bound(op, "max")
    if draft.is_real(name):
        dtype = draft.dtype(name)
        greatest = float(_greatest(dtype))
        if low == 0 and high >= greatest:
            draft.result("Relu", [name], result)
            return
        ends = [draft.constant(np.array(end, NUMPY[dtype]), "bound") for end in (low, high)]
        draft.result("Clip", [name, *ends], result)
        return
    wide = draft.wide(name)
    limits = LIMITS[draft.dtype(wide)]
    ends = [draft.fixed(int(np.clip(end, *limits)), draft.dtype(wide)) for end in (low, high)]
    draft.through(result, "Clip", [wide, *ends], draft.made(op))


def _greatest(dtype: str) -> Any:
    return np.finfo(NUMPY[dtype]).max if dtype in ("f16", "f32", "f64") else 3.3895313892515355e38


def _bound(op: Operation, side: str) -> float:
    """An end of a clamp: `min_val`, or `min_fp` and `min_int` before TOSA 1.0."""
    items = items_of(op)
    for key in (f"{side}_val", f"{side}_fp", f"{side}_int"):
        found = items.get(key)
        if isinstance(found, FloatAttr | IntegerAttr):
            return found.value.data
    raise Unread(f"it has no attribute '{side}_val'")


def cast(draft: Builder, op: Operation) -> None:
    """CAST: from reals to the nearest integer, ties to even, saturated; integers keep their last bits."""
    name, result = draft.operand(op, 0), op.results[0]
    _source, target = draft.dtype(name), draft.element(result)
    if draft.has_type(name) or str(getattr(result.type, "element_type", "")).startswith("!quant"):
        draft.result("Identity", [name], result)
        return
    if draft.is_real(name) and target in LIMITS:
        shape = draft.made(op)
        even = draft.between("Round", [draft.cast(name, "f64")], shape)
        ends = [draft.constant(np.array(end, np.float64), "bound") for end in LIMITS[target]]
        draft.result("Cast", [draft.between("Clip", [even, *ends], shape)], result, {"to": enum_of(target)})
        return
    draft.result("Cast", [name], result, {"to": enum_of(target)})


def hand_on(draft: Builder, op: Operation) -> None:
    """IDENTITY."""
    draft.result("Identity", [draft.operand(op, 0)], op.results[0])


ELEMENTWISE: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(_DIRECT, direct),
    "cast": cast,
    "clamp": clamp,
    "identity": hand_on,
    "rsqrt": rsqrt,
    "select": select,
}
