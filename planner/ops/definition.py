"""Definition of an operator: what the planner has to know of it, said once.

A field is here as soon as two parts of the planner would write it down otherwise. How a format writes an
operator is the format's. Source: ONNX operator schemas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from planner.ir.graph import Graph, Op
from planner.ops.axes import AxesRule, together
from planner.ops.forms import Factors, Form
from planner.ops.limits import Limit
from planner.ops.macs import Counted
from planner.ops.needs import Curve, NeededRule
from planner.ops.operands import Operands
from planner.ops.steps import Movement
from planner.ops.sums import TermRule

IndexRule: TypeAlias = Callable[[Operands], tuple[Movement, ...] | None]
Signs: TypeAlias = Callable[[Op], str]
Condition: TypeAlias = Callable[[Op, Graph | None], bool]


@dataclass(frozen=True, slots=True)
class OpDef:
    """The definition of one operator, for every part of the planner.

    Attributes:
      name: as `Op.type` has it.
      attributes: those that it may carry, with their defaults: `axis=-1 keepdims=1 axes`. Of opset 21 to 28;
        defaults that schemas leave out (windows, states) are those of the operator pages.
      form: the family that it belongs to.
      indices: of an op that moves data: for each result, where its elements come from. None where that is
        decided at run time. Shapes may be open; then so are the steps that need them.
      moves: when every element of the results is one of the operands', or one cut to a bound.
      parameters: operands that are no data: a clip's bounds, a resize's scales. Operands that their element
        type identifies (shapes, indices, masks) may be left out.
      factors: of the first operand, those that the only result has too.
      monotone: a sign for each data operand: `+` where the results rise with it, `-` where they fall; the
        last sign is that of all further operands. None where it was never stated; "" where an attribute says
        otherwise.
      bounds: the least and the greatest number of any result.
      commutes: whether operands may change places.
      is_pointwise: whether each real of the result depends on the operands' reals at its place alone.
        Comparisons do as well, and have truth values.
      is_singular: whether it is undefined at 0 or below: relative differences of small numbers count, and its
        test models have operands above 0.
      evaluate: the same function in numpy; comparisons have it.
      needed: what is needed of an operand where less than everything is.
      gate: its curve, where `x * f(x)` is x behind a gate.
      macs: multiply-accumulates.
      terms: what it adds up, where it is a sum of products of numbers.
      axes: what the axes of a result are.
      limits: what makes its operands ones that no device can compute with.
    """

    name: str
    attributes: str = ""
    form: Form = Form.OTHER
    indices: IndexRule | None = None
    moves: Condition | None = None
    parameters: frozenset[int] = frozenset()
    factors: Factors = Factors.NONE
    monotone: Signs | None = None
    bounds: tuple[float, float] | None = None
    commutes: bool = False
    is_pointwise: bool = False
    is_singular: bool = False
    evaluate: Callable[..., Any] | None = None
    needed: NeededRule | None = None
    gate: Curve | None = None
    macs: Counted | None = None
    terms: TermRule | None = None
    axes: AxesRule = together
    limits: tuple[Limit, ...] = ()


def always(_op: Op, _graph: Graph | None) -> bool:
    """An operator that moves whatever its attributes are."""
    return True


def rising(_op: Op) -> str:
    """An operator whose results rise with each operand."""
    return "+"
