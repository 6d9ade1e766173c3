"""As written: results that a quantized model leaves float, which calibration data alone do not quantize.

A model from quantization-aware training says where its quantizers are. Behind the last product there is none.
Without calibration data it has no range, so it hands on floats. A range would store it in 8 bits that nobody
asked for. Source: design 15, section 2.
"""

from collections.abc import Mapping
from typing import Final

from planner.ir.graph import LINEAR, Graph, Op
from planner.ir.types.qtypes import Bipolar, Uniform

PRODUCTS: Final = frozenset({*LINEAR, "GRU", "LSTM", "RNN"})


def left_float(graph: Graph) -> frozenset[str]:
    """Return the outputs that the model's own quantizers leave float, and the values between.

    Such an output is computed from values with a fixed type by one product at most, of a quantized weight.
    Where there is a second product the model is quantized in part, and calibration is to do the rest.
    """
    makers = {name: op for op in graph.ops for name in op.outputs if name}
    found: set[str] = set()
    for output in graph.outputs:
        between = _between(graph, makers, output)
        if between is not None:
            found |= between
    return frozenset(found)


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
