"""Sized: a model whose sizes became known after it was read, without the ops that sizes alone decide."""

from collections.abc import Collection
from dataclasses import replace

from planner.factors.facts import is_observed
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.normalise import drop_dead
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Graph, Value

__all__ = ["infer", "without_shape_arithmetic"]


def without_shape_arithmetic(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Return a flat model without the ops whose results follow from sizes alone.

    Of a model with loops or branches, or one whose text is edited in place, all ops stay: exporters compute
    there what they can.

    Args:
      kept: names of ops that stay.
    """
    if graph.module or graph.scopes or graph.regions:
        return graph
    folded = fold_constants(_unobserved(graph), kept)
    return folded if folded is graph else replace(drop_dead(folded), notes=graph.notes)


def _unobserved(graph: Graph) -> Graph:
    """The model without ranges that samples showed of values that follow from sizes: each is one number."""
    known = set(graph.constants)
    found: dict[str, Value] = {}
    for op in graph.ops:
        is_known = bool(op.inputs) and known.issuperset(filter(None, op.inputs))
        if op.type not in ("Shape", "Size") and not is_known:
            continue
        known.update(op.outputs)
        for name in op.outputs:
            value = graph.values.get(name)
            if value is not None and value.facts and is_observed(value):
                found[name] = replace(value, facts=())
    return replace(graph, values={**graph.values, **found}) if found else graph
