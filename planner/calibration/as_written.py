"""As written: float values at the ends of a quantized model, which calibration data alone do not quantize.

A model from quantization-aware training says where its quantizers are. Behind the last product there is none,
and often none before the first. Without calibration data such a value has no range, so it is float. A range
would store it in 8 bits without a request. Source: docs/qonnx.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from planner.ir.graph import Graph, Op
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.ops import of_form
from planner.ops.forms import Form

PRODUCTS: Final = of_form(Form.LINEAR, Form.RECURRENT)


def left_float(graph: Graph) -> tuple[frozenset[str], ...]:
    """Return the inputs and outputs that the model's own quantizers leave float, each with what lies between.

    Such an output is computed from values with a fixed type by one product at most, of a quantized weight; of
    such an input values with a fixed type are, by an op that computes. If there is a second product the model
    is quantized in part, and calibration is to do the rest.
    """
    makers = {name: op for op in graph.ops for name in op.outputs if name}
    found = [_between(graph, makers, output) for output in graph.outputs]
    found += _behind_inputs(graph)
    return tuple([frozenset(between) for between in found if between])


def _behind_inputs(graph: Graph) -> Iterator[set[str]]:
    """Of each input, the values up to the first quantizers; nothing where it reaches an output without."""
    readers: dict[str, list[Op]] = {}
    for op in graph.ops:
        for name in {*op.inputs, *op.captures}:
            readers.setdefault(name, []).append(op)
    for name in graph.inputs:
        if graph.values[name].is_float and not _is_fixed(graph, name):
            behind = _behind(graph, readers, name)
            if behind is not None:
                yield behind


def _behind(graph: Graph, readers: Mapping[str, Sequence[Op]], start: str) -> set[str] | None:
    """Values from an input to the first quantizers; None where quantizers leave more of it, or only moves."""
    met, waiting, computes = set[str](), [(start, 0)], False
    while waiting:
        name, products = waiting.pop()
        if name in graph.outputs:
            return None
        met.add(name)
        for op in readers.get(name, ()):
            is_product = op.type in PRODUCTS
            many = products + is_product
            if many > 1 or name in op.captures or (is_product and _has_float_weight(graph, op)):
                return None
            computes |= not is_movement(op, graph)
            free = [out for out in op.outputs if out and graph.values[out].is_float]
            waiting += [(out, many) for out in free if out not in met and not _is_fixed(graph, out)]
    return met if computes else None


def _between(graph: Graph, makers: Mapping[str, Op], output: str) -> set[str] | None:
    """Values from the last quantizers to an output; None where an operand of it lies behind none."""
    met, waiting = set[str](), [(output, 0)]
    while waiting:
        name, products = waiting.pop()
        value = graph.values[name]
        if name in met or name in graph.constants or not value.is_float or _is_fixed(graph, name):
            continue
        op = makers.get(name)
        is_product = op is not None and op.type in PRODUCTS
        products += is_product
        if op is None or products > 1 or (is_product and _has_float_weight(graph, op)):
            return None
        met.add(name)
        waiting += [(source, products) for source in (*op.inputs, *op.captures) if source]
    return met


def _has_float_weight(graph: Graph, op: Op) -> bool:
    return any(name in graph.constants and not graph.values[name].facts for name in op.inputs[:2])


def _is_fixed(graph: Graph, name: str) -> bool:
    return any(isinstance(fact, Uniform | Bipolar) for fact in graph.values[name].facts)
