"""The form of a model that a plan is made of: flat, sizes fixed where the plan fixes them, factors absorbed.

A plan is made of a model in this form, and everything that meets it again (check, export, evaluation, losses)
brings the model into the same form first. Knows no kernel and no type.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.factors.absorb import absorbed_like
from planner.factors.facts import is_observed
from planner.ir.dims import TAKEN, fixed_as_seen, open_dims
from planner.ir.expand import expand
from planner.ir.graph import Graph, Value, with_facts, with_sizes
from planner.onnx.folding import fold_constants
from planner.onnx.normalise import drop_dead
from planner.onnx.shapes import infer
from planner.target.records import Target

FIXED_SIZES: Final = frozenset({"litert", "stablehlo", "stablehlo-int", "tosa"})
"""Formats that are written with fixed sizes."""


def has_fixed_sizes(device: Target, formats: Sequence[str]) -> bool:
    """Whether files for a device, or in one of the formats, are written with fixed sizes."""
    return device.files.sizes == "fixed" or not FIXED_SIZES.isdisjoint(formats)


def with_sizes_fixed(model: Graph) -> Graph:
    """A flat model with the sizes that all samples agree in, and without the ops that compute them."""
    fixed = fixed_as_seen(model)
    return model if fixed is model else _without_shape_arithmetic(fixed)


def form_of_plan(model: Graph, planned: Graph) -> Graph:
    """A model, with facts of its own or none, in the form of a plan's graph."""
    flat = expand(model)
    if _is_fixed(planned) and any(True for _ in open_dims(flat)):
        fixed = fixed_as_seen(flat)
        # Without statistics the plan tells the sizes of what it has, and the rest follows from them.
        flat = _without_shape_arithmetic(infer(with_sizes(flat, planned)) if fixed is flat else fixed)
    return absorbed_like(flat, planned)


def in_form_of_plan(model: Graph, planned: Graph) -> Graph:
    """A model in the form of a plan's graph, with the facts that the plan was made with."""
    return with_facts(form_of_plan(model, planned), planned)


def _is_fixed(planned: Graph) -> bool:
    return any(note.startswith(TAKEN) for note in planned.notes)


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


def _without_shape_arithmetic(graph: Graph) -> Graph:
    """A flat model without the ops whose results follow from sizes alone.

    Of a model with loops or branches, or one whose text is edited in place, all ops stay: exporters compute
    there what they can.
    """
    if graph.module or graph.scopes or graph.regions:
        return graph
    folded = fold_constants(_unobserved(graph))
    return folded if folded is graph else replace(drop_dead(folded), notes=graph.notes)
