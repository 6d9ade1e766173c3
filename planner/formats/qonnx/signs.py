"""Signs: `Where(x >= 0, s, -s)`, which a BipolarQuant reads as, is found again, to be written as one.

Source: QONNX operator pages, BipolarQuant.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.ir.graph import Graph, Op


class Sign(NamedTuple):
    """The value whose sign is taken, the comparison that takes it, and the result's magnitude."""

    source: str
    question: str
    scale: float


def signs_of(graph: Graph, ops: Sequence[Op]) -> Mapping[str, Sign]:
    """Signs by the values that they are."""
    asked = {op.outputs[0]: op for op in ops if op.type == "GreaterOrEqual"}
    found = ((op.outputs[0], _sign_of(graph, op, asked)) for op in ops if op.type == "Where")
    return {name: sign for name, sign in found if sign is not None}


def only_of_signs(graph: Graph, ops: Sequence[Op], signs: Mapping[str, Sign]) -> frozenset[str]:
    """Questions that nothing but signs reads."""
    others = {name for op in ops if op.outputs[0] not in signs for name in (*op.inputs, *op.captures)}
    return frozenset(sign.question for sign in signs.values()) - others - {*graph.outputs}


def _sign_of(graph: Graph, op: Op, asked: Mapping[str, Op]) -> Sign | None:
    question = asked.get(op.inputs[0])
    if question is None:
        return None
    numbers = [_number(graph, name) for name in (*op.inputs[1:], question.inputs[1])]
    if None in numbers:
        return None
    plus, minus, threshold = numbers
    if plus is None or minus is None or plus <= 0 or minus != -plus or threshold != 0:
        return None
    return Sign(question.inputs[0], question.outputs[0], plus)


def _number(graph: Graph, name: str) -> float | None:
    """A constant of one number."""
    array = graph.constants[name].array if name in graph.constants else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None
