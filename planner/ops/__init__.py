"""Operators, one definition each. Frozen data and pure functions of one op; no format is known here."""

from collections.abc import Mapping
from typing import Final, TypeVar

from planner.ops.definition import OpDef
from planner.ops.forms import Form
from planner.ops.linear import PRODUCTS
from planner.ops.movement import MOVEMENT
from planner.ops.operands import Operands
from planner.ops.others import OTHERS
from planner.ops.pointwise import POINTWISE
from planner.ops.reductions import REDUCTIONS
from planner.ops.steps import Movement

T = TypeVar("T")

OPERATORS: Final[Mapping[str, OpDef]] = {
    one.name: one for one in (*MOVEMENT, *OTHERS, *POINTWISE, *PRODUCTS, *REDUCTIONS)
}
_UNKNOWN: Final = OpDef("")


def of_form(*forms: Form) -> frozenset[str]:
    """Names of the operators of some families."""
    return frozenset(name for name, one in OPERATORS.items() if one.form in forms)


def among(table: Mapping[str, T], *forms: Form) -> dict[str, T]:
    """The entries of a format's table for the operators of some families, in the order of names."""
    return {kind: table[kind] for kind in sorted(of_form(*forms) & table.keys())}


CONCATS: Final = of_form(Form.CONCAT)
LINEAR: Final = of_form(Form.LINEAR)


def defined(kind: str) -> OpDef:
    """The definition of an operator; an empty one where there is none."""
    return OPERATORS.get(kind, _UNKNOWN)


def find_movements(known: Operands) -> tuple[Movement, ...] | None:
    """Return where the elements of an op's results come from; None where it computes, or that is not known.

    It is not known where it is decided at run time, and where operands do not fit each other, which engines
    refuse and onnx's inference lets through.
    """
    rule = defined(known.op.type).indices
    try:
        return None if rule is None else rule(known)
    except (IndexError, KeyError, ValueError, ZeroDivisionError):
        return None
