"""Replan: plan again what an edit of the constraints can reach, and keep the rest.

Equal to planning from scratch: the part is planned twice, before and after the edit; the first must repeat
what the plan says of it (else the whole is planned), and the difference of their prices is the difference
of the wholes'. Source: design 01, section 6, `replan`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.checker.origins import check_model, check_target
from planner.errors import InputError
from planner.fusion.fuse import fuse
from planner.ir.expand import expand
from planner.ir.graph import Graph, model_digest, with_facts
from planner.plans.incremental import Patch, PatchedPlan, merged_warnings
from planner.plans.plan import Origin, Plan, for_model, require_plan
from planner.plans.records import KernelPlan
from planner.propagation.propagate import propagate
from planner.propagation.result.plan_warnings import unranged
from planner.target.load import TargetSource, as_target
from planner.target.records import Target
from planner.what_if.edits import Edits, changed_facts, edited
from planner.what_if.vicinity import Vicinity, cut_out, vicinity

ROUNDS: Final = 4
WHOLE: Final = 0.5
"""Share of the kernels from which on planning everything is no more work."""


def replan(
    plan: Plan, edits: Edits, *, model: Graph | None = None, target: TargetSource | None = None
) -> Plan:
    """Plan again with changed constraints; the same plan as from scratch.

    Args:
      plan: from `plan` or `replan`; one read from a file needs `model` and `target` too.
      edits: see `Edits`.

    Raises:
      AnnotationError: an edit of a value or port that is not there.
      Conflict: the constraints cannot all hold now.
      InputError: the plan was read from a file and no model or target was given.
    """
    origin = origin_of(plan, model, target)
    graph = edited(origin.graph, edits)
    seeds = changed_facts(origin.graph, graph)
    after = replace(origin, graph=graph, model=_edited_model(origin, graph))
    if not seeds:
        return plan
    if not _can_be_cut(plan, origin.target, seeds):
        return _from_scratch(plan, after)
    for _ in range(ROUNDS):
        near = vicinity(plan, graph, seeds)
        if len(near.around) > WHOLE * len(plan.kernels_in_order):
            break
        before_part = _part(plan, origin, near)
        after_part = _part(plan, after, near)
        if not _repeats(plan, before_part, near):
            break
        moved = _rows_moved(plan, after_part, near, seeds)
        if not moved:
            return _patched(plan, after, near, before_part, after_part)
        seeds |= moved
    return _from_scratch(plan, after)


def with_origin(plan: Plan, model: Graph | None, target: TargetSource | None) -> Plan:
    """The plan with what it was made from; one read from a file is made again, once.

    Raises:
      InputError, PlanInvalid: as `origin_of`.
    """
    return plan if plan.origin is not None else _from_scratch(plan, origin_of(plan, model, target))


def _can_be_cut(plan: Plan, target: Target, seeds: frozenset[str]) -> bool:
    """Whether parts can be planned alone: nothing is decided for the whole, and live kernels are touched."""
    return (
        plan.origin is not None
        and "best_effort" not in plan.options
        and target.duplicate_constants
        and all(name in plan.kernels_at for name in seeds)
    )


def origin_of(plan: Plan, model: Graph | None = None, target: TargetSource | None = None) -> Origin:
    """What a plan can be made again from.

    Raises:
      InputError: it was read from a file, and model or target is missing.
      PlanInvalid: it was made from another model or target.
    """
    require_plan(plan)
    if model is None and target is None and plan.origin is not None:
        return plan.origin
    known = plan.origin
    source = model if model is not None else known.model if known else None
    device = as_target(target) if target is not None else known.target if known else None
    if source is None or device is None:
        raise InputError(
            "this plan was read from a file, without its model and target",
            hint="give model=load_model(...) and target=load_target(...)",
        )
    source = expand(source)
    check_target(plan, device)
    check_model(plan, source)
    annotated = with_facts(source, plan.graph)
    graph = replace(fuse(annotated, device), regions=plan.graph.regions)
    return Origin(annotated, graph, device, {})


def _edited_model(origin: Origin, graph: Graph) -> Graph:
    """The model before its ops became regions, with the facts of its values now."""
    return graph if origin.model is origin.graph else with_facts(origin.model, graph)


def _from_scratch(plan: Plan, origin: Origin) -> Plan:
    digest = model_digest(origin.model)
    found = propagate(origin.graph, origin.target, model=digest, **plan.options)
    return for_model(found, origin.model)


def _part(plan: Plan, origin: Origin, near: Vicinity) -> Plan:
    graph = cut_out(plan, origin.graph, near.around)
    return propagate(graph, origin.target, depths=plan.depths, **plan.options)


def _repeats(plan: Plan, part: Plan, near: Vicinity) -> bool:
    """Whether planning the part alone finds what the plan has there."""
    return all(
        _same(plan.kernels_in_order[at], part.kernels.get(plan.kernels_in_order[at].name))
        for at in near.kernels
    )


def _same(a: KernelPlan, b: KernelPlan | None) -> bool:
    return b is not None and (a.row, a.reason, a.inputs, a.outputs) == (b.row, b.reason, b.inputs, b.outputs)


def _rows_moved(plan: Plan, part: Plan, near: Vicinity, seeds: frozenset[str]) -> frozenset[str]:
    """Values at kernels that changed their row although no fact at them changed."""
    at_seeds = {at for name in seeds for at in plan.kernels_at.get(name, ())}
    found: set[str] = set()
    for at in near.around:
        kernel = plan.kernels_in_order[at]
        if at not in at_seeds and part.kernels[kernel.name].row != kernel.row:
            found.update(port.value for port in (*kernel.inputs, *kernel.outputs) if port.value)
    return frozenset(found)


def _patched(plan: Plan, origin: Origin, near: Vicinity, before: Plan, after: Plan) -> Plan:
    touched = frozenset(plan.kernels_in_order[at].name for at in near.kernels)
    warned = merged_warnings(plan.kernels_in_order, _warned(plan.origin), _warned(after.origin), touched)
    patch = Patch(plan, after, near.kernels, near.values)
    cost, bound = plan.cost + after.cost - before.cost, plan.bound + after.bound - before.bound
    found = PatchedPlan.of(patch, replace(origin, warned=warned), cost, bound)
    whole = unranged(origin.graph, found.kernels_in_order)
    if whole is None:
        return found
    return PatchedPlan.of(patch, replace(origin, warned={"": (whole,)} | warned), cost, bound)


def _warned(origin: Origin | None) -> Mapping[str, tuple[str, ...]]:
    return origin.warned if origin is not None else {}
