"""Multiply-accumulates of ops, by their shapes; an open dimension counts as samples showed it, else 1.

Source: ONNX operator schemas; QONNX paper, section on inference cost.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.ir.graph import Graph, Op, Region


@dataclass(frozen=True, slots=True)
class Count:
    """Multiply-accumulates of an op, how many go into one result, and its two operands."""

    macs: int
    depth: int
    a: str
    w: str


def _shape(name: str, graph: Graph) -> tuple[int, ...]:
    return graph.values[name].sizes


def _conv(op: Op, graph: Graph) -> Count:
    depth = math.prod(_shape(op.inputs[1], graph)[1:])
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def _conv_transpose(op: Op, graph: Graph) -> Count:
    weight = _shape(op.inputs[1], graph)
    depth = math.prod(weight[1:])
    # Scattering: every input element meets each weight of its channel.
    return Count(graph.values[op.inputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def _matmul(op: Op, graph: Graph) -> Count:
    depth = (_shape(op.inputs[0], graph) or (1,))[-1]
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def _gemm(op: Op, graph: Graph) -> Count:
    shape = _shape(op.inputs[0], graph) or (1, 1)
    depth = shape[0] if op.attributes.get("transA", 0) else shape[-1]
    return Count(graph.values[op.outputs[0]].elements * depth, depth, op.inputs[0], op.inputs[1])


def _einsum(op: Op, graph: Graph) -> Count:
    letters: dict[str, int] = {}
    terms = op.attributes["equation"].replace(" ", "").split("->")[0].split(",")
    for term, name in zip(terms, op.inputs, strict=True):
        letters |= zip(term, _shape(name, graph), strict=False)
    total = math.prod(letters.values())
    depth = max(1, total // max(1, graph.values[op.outputs[0]].elements))
    return Count(total, depth, op.inputs[0], op.inputs[-1])


def _recurrent(op: Op, graph: Graph) -> Count:
    """Every gate of every step multiplies the input and the state by its weights."""
    length, batch = (*_shape(op.inputs[0], graph), 1, 1)[:2]
    sizes = [math.prod(_shape(name, graph)) for name in op.inputs[1:3]]
    depth = sum(_shape(name, graph)[-1] for name in op.inputs[1:3])
    return Count(length * batch * sum(sizes), depth, op.inputs[0], op.inputs[1])


Counted: TypeAlias = Callable[[Op, Graph], Count]

COUNTS: Final[Mapping[str, Counted]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _matmul,
    "RNN": _recurrent,
}


def macs_of(region: Region, graph: Graph) -> int:
    """Multiply-accumulates of all ops of a region, in one run of it."""
    return sum(COUNTS[op.type](op, graph).macs for op in region.ops if op.type in COUNTS)
