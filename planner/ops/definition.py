"""Definition of an operator: what the planner has to know of it, said once.

A field is here as soon as two parts of the planner would write it down otherwise. How a format writes an
operator is the format's. Source: ONNX operator schemas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planner.ops.operands import Operands
from planner.ops.steps import Movement

IndexRule: TypeAlias = Callable[[Operands], tuple[Movement, ...] | None]


@dataclass(frozen=True, slots=True)
class OpDef:
    """What every part of the planner has to know of one operator.

    Attributes:
      name: as `Op.type` has it.
      indices: of an op that moves data: for each result, where its elements come from. None where that is
        decided at run time. Shapes may be open; then so are the steps that need them.
    """

    name: str
    indices: IndexRule | None = None
