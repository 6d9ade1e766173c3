"""Replan: plan again what an edit of the constraints can reach, and keep the rest.

Equal to planning from scratch: the part is planned twice, before and after the edit; the first must repeat
what the plan says of it (else the whole is planned), and the difference of their prices is the difference
of the wholes'. Source: docs/specification.md, section 6, `replan`.
"""

from dataclasses import fields, replace
from itertools import takewhile
from typing import Final

from planner.checker.origins import check_model, check_target
from planner.errors import InputError
from planner.factors.form import form_of_plan
from planner.formats.writable import unwritten
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest, with_facts
from planner.plans.incremental import HEADS, Patch, merged_warnings, patched
from planner.plans.plan import Plan, Planned, for_model, require_plan
from planner.plans.records import KernelPlan, step_rows
from planner.propagation.propagate import propagate
from planner.propagation.result.plan_warnings import warnings_of_all
from planner.target.load import TargetSource, as_target
from planner.what_if.edits import Edits, changed_facts, edited
from planner.what_if.vicinity import Vicinity, cut_out, needing, stands_alone, vicinity

ROUNDS: Final = 4
WHOLE: Final = 0.5
"""Share of the kernels from which on planning everything is no more work."""


def replan(
    plan: Plan, edits: Edits, *, model: Graph | None = None, target: TargetSource | None = None
) -> Planned:
    """Plan again with changed constraints; the same plan as from scratch.

    Args:
      plan: one read from a file needs `model` and `target`, and is planned as a whole.
      edits: a mapping or a file of `values`, `ports`, `kernels` and `remove`, as annotations have them.

    Raises:
      AnnotationError: an edit of a value or port that is not there.
      Conflict: the constraints cannot all hold now.
      InputError: the plan was read from a file and no model or target was given.
    """
    known = as_planned(plan, model, target)
    fused = edited(known.fused, edits)
    seeds = changed_facts(known.fused, fused)
    annotated = _edited_model(known, fused)
    # What is asked of kernels decides rows, by names that only the whole model has.
    if not isinstance(plan, Planned) or fused.wanted != known.fused.wanted:
        return _from_scratch(known, annotated, fused)
    if not seeds:
        return plan
    if not _can_be_cut(known, seeds):
        return _from_scratch(known, annotated, fused)
    needs = needing(known, fused)
    for _ in range(ROUNDS):
        near = vicinity(known, fused, seeds)
        if len(near.around) > WHOLE * len(known.kernels_in_order) or _is_apart(known, near):
            break
        # What is needed of a value is a matter of all its readers, and of theirs.
        if not needs.isdisjoint(near.around):
            break
        part = cut_out(known, fused, near.around)
        if not stands_alone(known, part):
            break
        before = _planned(known, cut_out(known, known.fused, near.around))
        after = _planned(known, part)
        if after.apart or after.turns or not _repeats(known, before, near):
            break
        if _reaches_on(known, before, after, near):
            break
        # What turns to float may make an island of a kernel outside of the part.
        if known.whole_target.islands == "float" and _floats(before) != _floats(after):
            break
        moved = _rows_moved(known, after, near, seeds)
        if not moved:
            patch = Patch(known, after, near.kernels, near.values, annotated, fused)
            return _in_part(patch, before)
        seeds |= moved
    return _from_scratch(known, annotated, fused)


def made_again(plan: Plan, model: Graph | None, target: TargetSource | None) -> Planned:
    """The plan with what it was made from; one read from a file is made again, once.

    Raises:
      InputError, PlanInvalid: as `as_planned`.
    """
    if isinstance(plan, Planned):
        return plan
    known = as_planned(plan, model, target)
    return _from_scratch(known, known.annotated, known.fused)


def as_planned(plan: Plan, model: Graph | None = None, target: TargetSource | None = None) -> Planned:
    """The plan with its model and its target: its own, or those given.

    Raises:
      InputError: it was read from a file, and model or target is missing.
      PlanInvalid: it was made from another model or target.
    """
    require_plan(plan)
    own = plan if isinstance(plan, Planned) else None
    if own is not None and model is None and target is None:
        return own
    source = model if model is not None else own.annotated if own else None
    device = as_target(target) if target is not None else own.whole_target if own else None
    if source is None or device is None:
        raise InputError(
            "this plan was read from a file, without its model and target",
            hint="give model=load_model(...) and target=load_target(...), to retarget as source=",
        )
    source = form_of_plan(source, plan.graph)
    check_target(plan, device)
    check_model(plan, source)
    annotated = with_facts(source, plan.graph)
    fused = replace(fuse(annotated, device), regions=plan.graph.regions)
    if own is not None:
        return replace(own, annotated=annotated, fused=fused, whole_target=device)
    told = {field.name: getattr(plan, field.name) for field in fields(plan)}
    warned = {"": plan.warnings}
    return Planned(**told, annotated=annotated, fused=fused, whole_target=device, warned=warned)


def _can_be_cut(plan: Planned, seeds: frozenset[str]) -> bool:
    """Whether parts can be planned alone: nothing is decided for the whole, and live kernels are touched."""
    return (
        "best_effort" not in plan.options
        and plan.whole_target.duplicate_constants
        and not plan.turns
        and all(name in plan.kernels_at for name in seeds)
    )


def _edited_model(plan: Planned, fused: Graph) -> Graph:
    """The model before its ops became regions, with the facts of its values now."""
    return fused if plan.annotated is plan.fused else with_facts(plan.annotated, fused)


def _is_apart(plan: Planned, near: Vicinity) -> bool:
    """Whether a part of an unfused kernel is near, which may be fused again now."""
    return any(plan.kernels_in_order[at].name in plan.apart for at in near.around if plan.apart)


def _from_scratch(plan: Planned, annotated: Graph, fused: Graph) -> Planned:
    graph, fuses = _whole(plan, annotated, fused), not annotated.regions
    found = propagate(
        graph,
        plan.whole_target,
        model=model_digest(annotated),
        fuses=fuses,
        unwritten=unwritten,
        **plan.options,
    )
    return for_model(found, annotated)


def _whole(plan: Planned, annotated: Graph, fused: Graph) -> Graph:
    """The model fused as a whole, with the constraints of its ports.

    Unfused kernels stay unfused where constraints are on ports of their parts.
    """
    if annotated.regions:
        return fused
    whole, own = fuse(annotated, plan.whole_target), {region.name: region for region in fused.regions}
    regions = []
    for region in whole.regions:
        known = own.pop(region.name, region)
        if (known.inputs, known.outputs) == (region.inputs, region.outputs):
            regions.append(replace(region, input_facts=known.input_facts, output_facts=known.output_facts))
        elif known.input_facts or known.output_facts:
            return fused
        else:
            regions.append(region)
    if any(region.input_facts or region.output_facts for region in own.values()):
        return fused
    return replace(whole, regions=tuple(regions))


def _planned(plan: Planned, part: Graph) -> Planned:
    fuses = not plan.annotated.regions
    return propagate(
        part, plan.whole_target, depths=plan.wiring.depths, fuses=fuses, unwritten=unwritten, **plan.options
    )


def _repeats(plan: Plan, part: Plan, near: Vicinity) -> bool:
    """Whether planning the part alone finds what the plan has there."""
    return all(
        _same(plan.kernels_in_order[at], part.kernels.get(plan.kernels_in_order[at].name))
        for at in near.kernels
    )


def _reaches_on(known: Planned, before: Planned, after: Planned, near: Vicinity) -> bool:
    """Whether the edit changes what is said of the ring around the part, which keeps what the plan says.

    A sum of a narrower range needs less of its operands, and hands that on.
    """
    if _facts_outside(after, near) != _facts_outside(before, near):
        return True
    inner = {known.kernels_in_order[at].name for at in near.kernels}
    ring = (kernel for kernel in after.kernels_in_order if kernel.name not in inner)
    return not all(_same(kernel, before.kernels.get(kernel.name)) for kernel in ring)


def _facts_outside(part: Planned, near: Vicinity) -> list[tuple[str, str, str, str]]:
    """The steps of the log that say what is known or needed of values that an edit should not reach."""
    steps = takewhile(lambda step: step[3] not in HEADS, step_rows(part.steps))
    return [step[1:5] for step in steps if step[1] not in near.values]


def _same(a: KernelPlan, b: KernelPlan | None) -> bool:
    return b is not None and (a.row, a.reason, a.inputs, a.outputs) == (b.row, b.reason, b.inputs, b.outputs)


def _floats(part: Plan) -> set[str]:
    return {kernel.name for kernel in part.kernels_in_order if kernel.row is None}


def _rows_moved(plan: Plan, part: Plan, near: Vicinity, seeds: frozenset[str]) -> frozenset[str]:
    """Values at kernels that changed their row although no fact at them changed."""
    at_seeds = {at for name in seeds for at in plan.kernels_at.get(name, ())}
    found: set[str] = set()
    for at in near.around:
        kernel = plan.kernels_in_order[at]
        if at not in at_seeds and part.kernels[kernel.name].row != kernel.row:
            found.update(port.value for port in (*kernel.inputs, *kernel.outputs) if port.value)
    return frozenset(found)


def _in_part(patch: Patch, before: Planned) -> Planned:
    """The plan with a part planned again; `before`: the part as it was."""
    base, kernels = patch.base, patch.kernels_in_order()
    touched = frozenset(kernels[at].name for at in patch.kernels)
    warned = merged_warnings(kernels, base.warned, patch.part.warned, touched)
    whole = warnings_of_all(
        patch.fused,
        kernels,
        {**base.target.rows, **patch.part.target.rows},
        base.target.costs,
        base.target,
    )
    if whole:
        warned = {"": whole} | warned
    after = patch.part
    return patched(
        patch,
        kernels,
        warned,
        cost=base.cost + after.cost - before.cost,
        excused=base.excused + after.excused - before.excused,
        bound=base.bound + after.bound - before.bound,
    )
