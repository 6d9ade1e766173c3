"""The form of a model that a plan is made of: flat, sizes fixed where the plan fixes them, factors absorbed.

A plan is made of a model in this form, and everything that meets it again (check, export, evaluation, losses)
brings the model into the same form first. Knows no kernel and no type.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from planner.factors.absorb import absorbed_like
from planner.ir.dims import TAKEN, fixed_as_seen, open_dims
from planner.ir.expand import expand
from planner.ir.graph import Graph, with_facts, with_sizes
from planner.target.records import Target

FIXED_SIZES: Final = frozenset({"litert", "stablehlo", "stablehlo-int", "tosa"})
"""Formats that are written with fixed sizes."""


def has_fixed_sizes(device: Target, formats: Sequence[str]) -> bool:
    """Whether files for a device, or in one of the formats, are written with fixed sizes."""
    return device.files.sizes == "fixed" or not FIXED_SIZES.isdisjoint(formats)


def with_sizes_fixed(model: Graph) -> Graph:
    """A flat model with the sizes that all samples agree in, and without the ops that compute them."""
    fixed = fixed_as_seen(model)
    return model if fixed is model else _sized().without_shape_arithmetic(fixed)


def form_of_plan(model: Graph, planned: Graph) -> Graph:
    """A model, with facts of its own or none, in the form of a plan's graph."""
    flat = expand(model)
    if not _is_fixed(planned) or not any(True for _ in open_dims(flat)):
        return absorbed_like(flat, planned)
    kept = {op.name for op in planned.all_ops()}
    # A model that has lost nothing takes samples of other sizes, too.
    if any(op.name not in kept for op in flat.ops):
        fixed = fixed_as_seen(flat)
        # Without statistics the plan tells the sizes of what it has, and the rest follows from them.
        sized = _sized()
        known = sized.infer(with_sizes(flat, planned)) if fixed is flat else fixed
        flat = sized.without_shape_arithmetic(known, kept)
    return absorbed_like(flat, planned)


def in_form_of_plan(model: Graph, planned: Graph) -> Graph:
    """A model in the form of a plan's graph, with the facts that the plan was made with."""
    return with_facts(form_of_plan(model, planned), planned)


def _is_fixed(planned: Graph) -> bool:
    return any(note.startswith(TAKEN) for note in planned.notes)


def _sized() -> Any:
    # onnx and its runtime, which a server that hands its work to others does not load.
    return import_module("planner.formats.onnx.structure.sized")
