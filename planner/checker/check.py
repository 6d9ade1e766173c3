"""Verify a plan, from the plan, its rows, the model and the target alone.

It verifies that the plan is legal, that its price is as stated, and looks for cheaper plans near one that is
said to be optimal. It does not choose rows again, and takes the reasons in the log as they are. It shares
nothing with planning but graphs, types, targets and the records of plans. Out of its sight: functions of
`fn` rules, the fusions that made the kernels. Source: docs/specification.md, section 6.
"""

from collections.abc import Callable
from dataclasses import replace

from planner.checker.edges import check_edges
from planner.checker.figures.losses import check_clips, check_lost, check_price, follow
from planner.checker.figures.optimal import check_optimal
from planner.checker.figures.ranges import ranges_of, stored_parts
from planner.checker.kernels import Notes, at_run_time, binding, check_kernel
from planner.checker.log import check_steps, check_totals, check_values
from planner.checker.numbers import Known, check_constants, check_sums
from planner.checker.origins import check_key, check_model, check_options, check_target
from planner.checker.rules import check_rules
from planner.checker.structure import check_caches, check_carried, check_coverage, check_engines
from planner.ir.expand import expand
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.plans.records import step_rows
from planner.target.records import Target


def check(
    plan: Plan,
    model: Graph | None = None,
    target: Target | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Refuse a plan that breaks a rule of its target, its model or its own log; see `pipeline.check`."""
    check_options(plan)
    if target is not None:
        check_target(plan, target)
    if model is not None:
        model = expand(model)
        check_model(plan, model)
    regions, log = check_coverage(plan), step_rows(plan.steps)
    numbers = model.constants if model is not None else {}
    graph = plan.graph if not numbers else replace(plan.graph, constants={**plan.graph.constants, **numbers})
    notes = Notes(check_steps(log), numbers, graph, frozenset(binding(plan.graph)), at_run_time(plan))
    check_engines(plan)
    check_totals(plan)
    kernels = [
        (kernel, regions[kernel.name], check_kernel(plan, kernel, regions[kernel.name], notes))
        for kernel in plan.kernels_in_order
    ]
    check_carried(plan)
    check_caches(plan.graph)
    ranges = ranges_of(plan, kernels, graph) if model is not None else None
    known: set[Known] = set()
    for at, (_, _, served) in enumerate(kernels):
        if progress is not None:
            progress(at + 1, len(kernels))
        if served is None:
            continue
        if ranges is None:
            check_rules(served)
            continue
        # Weights before the biases that their scales decide: the first fault is the one to name.
        extents = check_constants(served, known, stored_parts(ranges, ranges.steps[at]))
        check_rules(served)
        check_sums(served, extents)
    check_values(plan, log)
    check_edges(plan, target)
    if ranges is not None:
        clips = check_clips(plan, ranges)
        followed = follow(ranges)
        check_lost(plan, followed.losses)
        check_price(plan, followed.losses)
        check_optimal(plan, ranges, followed, clips=clips)
    # Last: of a plan that was changed the change is the fault to name.
    check_key(plan, "" if model is None else model.module)
