"""Axes of all values of a graph, as the definitions of operators have them. Source: docs/accuracy.md."""

from planner.ir.graph import Graph
from planner.ops import defined
from planner.ops.axes import UNKNOWN, Axes, Made


def axes_of(graph: Graph) -> dict[str, Axes]:
    """The axes of every value that an op outside of bodies computes."""
    known: dict[str, Axes] = {}
    for op in graph.ops:
        for at, name in enumerate(op.outputs):
            if name and graph.values[name].shape is None:
                known[name] = UNKNOWN
            elif name:
                known[name] = defined(op.type).axes(Made(op, at, graph, known))
    return known
