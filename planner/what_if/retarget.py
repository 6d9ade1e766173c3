"""Retarget: a planned model for another target, whose kernels are finer.

A kernel that the other target's `legalize` table takes apart keeps the types of its ports, so what stands
around it keeps its own; the rest is planned as that target has it. Source: design 01, section 6, "fuse on a
planned model".
"""

from dataclasses import replace

from planner.fusion.fuse import regions_of
from planner.fusion.legalize import legalize_planned
from planner.ir.dims import fixed_as_seen
from planner.ir.graph import Graph, model_digest, with_sizes
from planner.plans.plan import Plan, Planned, for_model
from planner.propagation.propagate import propagate
from planner.target.load import TargetSource, as_target
from planner.what_if.replan import as_planned


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
      target: the other target; regions stay as they are but for those its `legalize` table takes apart.
      model, source: the model, and the target the plan was made for; needed for a plan read from a file.
      best_effort: where pinned ports and rows cannot all hold, give some up, each with a warning; a plan
        that was made so stays so.

    Returns:
      A plan of the same model, its constraints and the pins of the kernels that were taken apart.

    Raises:
      Conflict: the pinned ports and the target's rows cannot all hold.
      InputError: the plan was read from a file and no model or source was given.
    """
    known, device = as_planned(plan, model, source), as_target(target)
    graph = legalize_planned(plan, known.fused, device, regions_of)
    options = {
        "strategy": plan.options["strategy"],
        "best_effort": best_effort or "best_effort" in plan.options,
    }
    annotated = known.annotated
    if device.files.sizes == "fixed":
        annotated = fixed_as_seen(annotated)
        graph = replace(with_sizes(graph, annotated), notes=annotated.notes)
    found = propagate(graph, device, model=model_digest(annotated), **options)
    return for_model(found, annotated)
