"""Planning again what an edit touches gives the plan that planning everything gives."""

import json
import os
from dataclasses import replace

import pytest

import planner
from planner.errors import Conflict, InputError, PlanInvalid
from planner.ir.graph import Graph
from planner.plans.incremental import PatchedPlan
from planner.plans.plan import Plan, Planned
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


def test_an_edit_of_digits_alone_is_written() -> None:
    """Both scales are one float32, so the types stay; texts of the plan have the digits of the edit."""
    before, after = (
        {"values": {"p3.v0": f"!quant.uniform<i8:f32, {scale}>"}} for scale in ("0.05", "0.0500000007")
    )
    plan = planner.replan(planner.plan(in_parts(1, parts=8, kernels=5), TARGET), before)
    again = planner.replan(plan, after)
    assert again.to_json() == planned(edited(plan.annotated, after))
    assert again.key != plan.key
    assert ("i8:f32, 0.05>" in plan.to_mlir(), "0.0500000007>" in plan.to_mlir()) == (True, False)
    assert ("i8:f32, 0.05>" in again.to_mlir(), "0.0500000007>" in again.to_mlir()) == (False, True)


def test_kernels_without_ops_and_rows_tie_what_is_around_them() -> None:
    """What float costs at a value that only such kernels stand at is in the log of a plan from scratch."""
    graph = in_parts(4, parts=8, kernels=4)
    edits = {"values": {"p4.v0": "!quant.uniform<i8:f32, 0.05:3>"}}
    assert planner.replan(planner.plan(graph, TARGET), edits).to_json() == planned(edited(graph, edits))


MOVING = """
apiVersion: planner/v1
kind: Target
id: moving
version: 1.0.0
title: moves what ops of another dialect hand on
types:
  qi8: {storage: i8}
  qu8: {storage: u8}
defaults: {port: DEFAULT}
kernels:
  - {kernel: "my::turn", in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
  - kernel: "my::split"
    in: {x: qi8}
    out: {y: qi8, z: qi8}
    rules: [{same_scale: {ports: [x, y, z], prefer: hull}}]
"""


def moved() -> Graph:
    """Movers of another dialect behind splits, one of them between floats."""
    ops = (
        ("o0", "Add", ("i1", "i1")),
        ("o2", "my::split", ("i1",), "o2b"),
        ("o3", "my::turn", ("o2",)),
        ("o4", "Relu", ("i2",)),
        ("o5", "my::turn", ("o3",)),
        ("o6", "my::split", ("o2b",), "o6b"),
    )
    names = ("i1", "i2", *(name for op in ops for name in (op[0], *op[3:])))
    document = {
        "format": "qplan.annotated/1",
        "name": "moved",
        "values": [
            {
                "name": name,
                "shape": [4],
                "dtype": "f32",
                "constraints": ["!quant.calibrated<f32<0.0:6.0>>"] if name == "i1" else [],
            }
            for name in names
        ],
        "kernels": [],
        "inputs": ["i1", "i2"],
        "outputs": ["o0", "o3", "o4", "o5", "o6", "o6b"],
        "ops": [
            {"name": name, "type": kind, "inputs": [*read], "outputs": [name, *more]}
            for name, kind, read, *more in ops
        ],
    }
    return planner.load_model(json.dumps(document).encode(), format="json")


@pytest.mark.parametrize("default", ["qi8", "qu8"])
def test_movers_of_other_dialects_tie_what_is_around_them(default: str) -> None:
    """They run in float here, without a row, and what float costs them is in the log."""
    target = planner.load_target(MOVING.replace("DEFAULT", default))
    edits = {"values": {"o5": "!quant.calibrated<f32<0.0:0.0>>"}}
    again = planner.replan(planner.plan(moved(), target), edits)
    assert again.to_json() == planner.plan(edited(moved(), edits), target).to_json()


EDIT = {"values": {"p3.v0": "!quant.none"}}


@pytest.fixture(scope="module")
def plan() -> Planned:
    return planner.plan(in_parts(1, parts=8, kernels=5), TARGET)


def test_a_plan_in_memory_knows_its_model_and_one_from_a_file_does_not(plan: Planned) -> None:
    read, again = planner.plan_from_json(plan.to_json()), planner.replan(plan, EDIT)
    assert (type(read), type(plan), type(again)) == (Plan, Planned, PatchedPlan)
    with pytest.raises(InputError, match="without its model and target") as caught:
        planner.replan(read, EDIT)
    assert "model=load_model(...) and target=load_target(...)" in str(caught.value)
    given = planner.replan(read, EDIT, model=plan.annotated, target=TARGET)
    assert type(given) is Planned
    assert given.to_json() == again.to_json()


def test_edits_that_change_nothing_give_the_plan(plan: Planned) -> None:
    read = planner.plan_from_json(plan.to_json())
    assert planner.replan(plan, {}) is plan
    assert planner.replan(read, {}, model=plan.annotated, target=TARGET).to_json() == plan.to_json()


def test_a_replan_with_an_altered_log_is_refused(plan: Planned) -> None:
    again = planner.replan(plan, EDIT)
    planner.check(again)
    *kept, last = again.steps
    forged = replace(again, steps=(*kept, replace(last, type="float")))
    with pytest.raises(PlanInvalid, match="decided float"):
        planner.check(forged)
