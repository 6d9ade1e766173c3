"""Multiply-accumulates of ops, by their shapes; an open dimension counts as samples showed it, else 1.

Source: ONNX operator schemas; QONNX paper, section on inference cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planner.ir.graph import Graph, Op


@dataclass(frozen=True, slots=True)
class Count:
    """Multiply-accumulates of an op, how many go into one result, and its two operands."""

    macs: int
    depth: int
    a: str
    w: str


def _shape(name: str, graph: Graph) -> tuple[int, ...]:
    return graph.values[name].sizes


def conv(op: Op, graph: Graph) -> Count:
    """Each result sums over the weights of its channel."""
    depth = math.prod(_shape(op.inputs[1], graph)[1:])
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def conv_transpose(op: Op, graph: Graph) -> Count:
    """Scattering: every input element meets each weight of its channel."""
    weight = _shape(op.inputs[1], graph)
    depth = math.prod(weight[1:])
    return Count(graph.values[op.inputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def matmul(op: Op, graph: Graph) -> Count:
    """Each result sums along the first operand's last axis."""
    depth = (_shape(op.inputs[0], graph) or (1,))[-1]
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def gemm(op: Op, graph: Graph) -> Count:
    """The same, along its first axis where that is turned."""
    shape = _shape(op.inputs[0], graph) or (1, 1)
    depth = shape[0] if op.attributes.get("transA", 0) else shape[-1]
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def einsum(op: Op, graph: Graph) -> Count:
    """All letters once; those that the result lacks are summed over."""
    letters: dict[str, int] = {}
    terms = op.attributes["equation"].replace(" ", "").split("->")[0].split(",")
    for term, name in zip(terms, op.inputs, strict=True):
        letters |= zip(term, _shape(name, graph), strict=False)
    total = math.prod(letters.values())
    depth = max(1, total // max(1, graph.values[op.outputs[0]].elements))
    return Count(total, depth, op.inputs[0], op.inputs[-1])


def recurrent(op: Op, graph: Graph) -> Count:
    """Every gate of every step multiplies the input and the state by its weights."""
    length, batch = (*_shape(op.inputs[0], graph), 1, 1)[:2]
    sizes = [math.prod(_shape(name, graph)) for name in op.inputs[1:3]]
    depth = sum(_shape(name, graph)[-1] for name in op.inputs[1:3])
    return Count(length * batch * sum(sizes), depth, op.inputs[0], op.inputs[1])


Counted: TypeAlias = Callable[[Op, Graph], Count]
