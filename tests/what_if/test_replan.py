"""Planning again what an edit touches gives the plan that planning everything gives."""

import os

import pytest

import planner
from planner.errors import Conflict
from planner.ir.graph import Graph
from planner.plans.incremental import PatchedPlan
from planner.what_if.edits import edited
from tests.propagation.graphs import TARGET
from tests.what_if.models import in_parts, random_edit

EDITS = int(os.environ.get("QPLAN_EDITS", "60"))


def planned(graph: Graph) -> str:
    """The plan from scratch as text, or the conflict."""
    try:
        return planner.plan(graph, TARGET).to_json()
    except Conflict as conflict:
        return f"conflict: {conflict.message}"


@pytest.mark.parametrize("seed", range(6))
def test_a_replan_is_the_plan_from_scratch(seed: int) -> None:
    """Every record, number and digest, after every edit, the edits piling up."""
    graph = in_parts(seed, parts=8, kernels=4 + seed)
    plan = planner.plan(graph, TARGET)
    patched = 0
    for k in range(EDITS // 6):
        edits = random_edit(graph, seed * 10_000 + k)
        after = edited(graph, edits)
        wanted = planned(after)
        if wanted.startswith("conflict: "):
            with pytest.raises(Conflict) as caught:
                planner.replan(plan, edits)
            assert wanted == f"conflict: {caught.value.message}"
            continue
        again = planner.replan(plan, edits)
        assert again.to_json() == wanted
        patched += isinstance(again, PatchedPlan)
        graph, plan = after, again
    assert patched > EDITS // 12
