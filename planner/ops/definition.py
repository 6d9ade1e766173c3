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
      factors: those of the first operand that the only result has: f(a x) is a f(x).
      monotone: by operand that is data, whether the results rise (`+`) or fall (`-`) with it; the last sign
        is that of further ones. None, or "" for some attributes, where they do neither, or it was never
        stated.
      bounds: what every result lies between.
      commutes: whether two operands may change places.
      is_pointwise: whether a result at an element depends on the operands at that element.
      is_singular: whether it is not defined at 0, or at less: its models are for numbers above, where
        relative differences count.
      evaluate: the function of the operands in numpy, where it is one there.
      needed: what is needed of an operand where less than everything is.
      gate: the function that makes `x * gate(x)` a gated x.
      macs: multiply-accumulates.
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
    axes: AxesRule = together
    limits: tuple[Limit, ...] = ()


def always(_op: Op, _graph: Graph | None) -> bool:
    """An operator that moves whatever its attributes are."""
    return True


def rising(_op: Op) -> str:
    """An operator whose results rise with each operand."""
    return "+"
