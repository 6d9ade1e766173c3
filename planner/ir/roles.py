"""Roles of operands: the values of an op that are ports, and the ops that only move data.

A port is a float value that carries data. Shapes, indices and masks are recognised by their element type;
float operands that parametrise an op (a clip's bounds, a resize's scales) are `parameters` of its definition.
Weights and normalisation statistics are data. Source: docs/specification.md, sections 3 and 4.
"""

from collections.abc import Iterable, Sequence

from planner.ir.graph import FLOAT_DTYPES, Graph, Op, Region
from planner.ops import defined


def function_of_one(ops: Iterable[Op], graph: Graph) -> str:
    """The value that ops compute a function of, number by number; "" where they are none.

    Their other operands are constants of one number.
    """
    made: set[str] = set()
    found: set[str] = set()
    for op in ops:
        if not defined(op.type).is_pointwise or op.captures:
            return ""
        made.update(op.outputs)
        others = {name for name in op.inputs if name and name not in made}
        found |= {name for name in others if name not in graph.constants or graph.values[name].elements != 1}
    return found.pop() if len(found) == 1 and not found & graph.constants.keys() else ""


def is_product_of_rows(ops: Sequence[Op], graph: Graph, *, per_token: bool) -> bool:
    """Whether ops begin with a product of an activation and a constant weight.

    Args:
      per_token: whether it has to sum along the activation's last axis: a matrix product, no convolution.
    """
    op = ops[0] if ops else None
    if op is None or op.type not in ("Conv", "Gemm", "MatMul") or op.captures:
        return False
    if op.attributes.get("transA") or op.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    x, weight = op.inputs[:2]
    rank = len(graph.values[weight].shape or ())
    is_known = weight in graph.constants and x not in graph.constants
    return is_known and (rank == 2 if op.type != "Conv" else not per_token)


def port_inputs(op: Op, graph: Graph) -> tuple[str, ...]:
    """Name the float data operands of an op in order, then the float values its bodies capture.

    An absent optional operand before a present one is "".
    """
    excluded = defined(op.type).parameters
    operands = op.inputs
    if excluded:
        operands = tuple(name for i, name in enumerate(operands) if i not in excluded)
    ports = _floats(operands, graph)
    if not op.captures:
        return ports
    return ports + _floats((name for name in op.captures if name and name not in op.inputs), graph)


def port_outputs(op: Op, graph: Graph) -> tuple[str, ...]:
    """Name the float results of an op in order; an absent optional result before a present one is ""."""
    return _floats(op.outputs, graph)


def is_of_other_dialect(op: Op) -> bool:
    """Whether nothing here knows what an op computes: `stablehlo::add`, `com.acme::Turn`.

    A row that joins all of its ports by `same_scale` says that it moves data, unless it says `computes`.
    """
    return "::" in op.type


def is_movement(op: Op, graph: Graph | None = None) -> bool:
    """Whether every element of the results is an element of the operands, or one cut to a bound.

    Interpolating resizes, adding scatters and pads with another value than 0 compute. Without a graph
    a pad value that is an operand counts as unknown.
    """
    moves = defined(op.type).moves
    return moves is not None and moves(op, graph)


def moves_data(graph: Graph, region: Region, *, joins_all: bool) -> bool:
    """Whether data passes a kernel unchanged, from inputs to outputs.

    Args:
      joins_all: whether its row joins all of its ports by `same_scale`.
    """
    if region.ops and not any(map(is_of_other_dialect, region.ops)):
        return moves_alone(graph, region)
    return joins_all and all(is_of_other_dialect(op) or is_movement(op, graph) for op in region.ops)


def moves_alone(graph: Graph, region: Region) -> bool:
    """Whether a kernel moves data whatever row it has: in float too."""
    return bool(region.ops) and all(is_movement(op, graph) for op in region.ops)


def _floats(names: Iterable[str], graph: Graph) -> tuple[str, ...]:
    values = graph.values
    kept = [name for name in names if not name or values[name].dtype in FLOAT_DTYPES]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)
