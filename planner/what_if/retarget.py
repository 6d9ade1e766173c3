"""Retarget: a planned model for another target, whose kernels may have other names and other sizes.

Each region is unfused into the model's ops, which the other target's patterns fuse anew. A kernel
that the other target's `legalize` table lists keeps the types of its ports as wishes, where no kernel falls
back to float for them. The kernels of an annotated model are its own, and stay. Source:
docs/specification.md, section 6.
"""

from dataclasses import replace
from typing import Any, Final

from planner.errors import Conflict
from planner.factors.form import has_fixed_sizes, with_sizes_fixed
from planner.formats.writable import unwritten
from planner.fusion.fuse import fuse, regions_of
from planner.fusion.legalize import legalize_planned
from planner.ir.graph import Graph, model_digest
from planner.plans.plan import Plan, Planned, for_model
from planner.propagation.propagate import propagate
from planner.propagation.result.repeated_warnings import UNKNOWN
from planner.target.load import TargetSource, as_target
from planner.target.records import Target
from planner.what_if.replan import as_planned

MOST_NAMED: Final = 8
OPTIONS: Final = ("strategy", "best_effort", "bias_pins")
"""Options of a plan that hold on any target; prices are those of the target."""


def retarget(
    plan: Plan,
    target: TargetSource,
    *,
    model: Graph | None = None,
    source: TargetSource | None = None,
    best_effort: bool = False,
) -> Planned:
    """Plan a planned model again for another target.

    Args:
      target: the other target; its patterns fuse the model's ops anew.
      model, source: the model, and the target the plan was made for; needed for a plan read from a file.
      best_effort: where fixed types of ports and rows cannot all hold, give some up, each with a warning; a
        plan that was made so stays so.

    Returns:
      A plan of the same model and its constraints, with at least as many quantized kernels as planning from
      scratch. A warning names the kernels of an annotated model that the other target does not have.

    Raises:
      Conflict: the constraints and the target's rows cannot all hold.
      InputError: the plan was read from a file and no model or source was given.
    """
    known, device = as_planned(plan, model, source), as_target(target)
    options = {name: plan.options[name] for name in OPTIONS if name in plan.options}
    if best_effort:
        options["best_effort"] = True
    if "formats" in plan.options and not device.files.formats:  # else those of its own tools
        options["formats"] = plan.options["formats"]
    if has_fixed_sizes(device, options.get("formats", ())):
        known = replace(known, annotated=with_sizes_fixed(known.annotated))
    graph = fuse(known.annotated, device)
    found = _planned(graph, known, device, options)
    if not known.annotated.regions:
        whole = replace(graph, regions=regions_of(known.annotated, device))
        wished = legalize_planned(plan, whole, device, regions_of)
        found = _better(found, wished, known, device, options)
    unknown = _unknown_kernels(found)
    return replace(found, warnings=(*unknown, *found.warnings)) if unknown else found


def _planned(graph: Graph, known: Planned, device: Target, options: dict[str, Any]) -> Planned:
    fuses = not known.annotated.regions
    digest = model_digest(known.annotated)
    found = propagate(graph, device, model=digest, fuses=fuses, unwritten=unwritten, **options)
    return for_model(found, known.annotated)


def _better(plan: Planned, graph: Graph, known: Planned, device: Target, options: dict[str, Any]) -> Planned:
    """The plan of a graph, where no kernel falls back to float for it; else the plan there is."""
    if graph.regions == plan.fused.regions:
        return plan
    try:
        found = _planned(graph, known, device, options)
    except Conflict:
        return plan
    return found if _quantized(found) >= _quantized(plan) else plan


def _quantized(plan: Plan) -> int:
    return sum(kernel.row is not None for kernel in plan.kernels_in_order)


def _unknown_kernels(plan: Planned) -> tuple[str, ...]:
    """Say which kernels of an annotated model the target does not have."""
    device = plan.whole_target
    own = plan.fused.regions if plan.annotated.regions else ()
    names = [f"{region.name} ({region.kernel})" for region in own if region.kernel not in device.rows]
    if not names:
        return ()
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    told = f"{len(names)}{UNKNOWN}{device.id} and fall back to float"
    listed = ", ".join(names[:MOST_NAMED])
    return (f"{told}: {listed}{more}; plan the model that they were made of for {device.id}",)
