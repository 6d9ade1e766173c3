"""Operators, one definition each. Frozen data and pure functions of one op; no format is known here."""

from collections.abc import Mapping
from typing import Final

from planner.ops.definition import OpDef
from planner.ops.linear import LINEAR
from planner.ops.movement import MOVEMENT
from planner.ops.others import OTHERS
from planner.ops.pointwise import POINTWISE
from planner.ops.reductions import REDUCTIONS

OPERATORS: Final[Mapping[str, OpDef]] = {
    one.name: one for one in (*LINEAR, *MOVEMENT, *OTHERS, *POINTWISE, *REDUCTIONS)
}
_UNKNOWN: Final = OpDef("")


def defined(kind: str) -> OpDef:
    """The definition of an operator; an empty one where there is none."""
    return OPERATORS.get(kind, _UNKNOWN)
