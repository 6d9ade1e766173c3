"""The rule `requires`: a kernel whose types do not meet a condition leaves the row, and `check` agrees."""

from dataclasses import replace

import pytest

import planner
from planner.errors import PlanInvalid, TargetError
from planner.target.modeltext import read_model_text

TARGET = """
apiVersion: planner/v1
kind: Target
id: limited
version: 1.0.0
types: {a8: {storage: i8}}
defaults: {port: a8, on_no_kernel: float}
kernels:
  - kernel: Add
    in: {a: a8, b: a8}
    out: {y: a8}
    rules: [{free_scale: [a, b, y]}, {requires: "CONDITION"}]
"""
COARSE = "max(a.scale, b.scale) >= 1/256"


def target(condition=COARSE):
    return planner.load_target(TARGET.replace("CONDITION", condition))


def model(size):
    return read_model_text(
        f"""
x : f32[1,8] {{-{size}, {size}}}
z : f32[1,8] {{-{size / 10}, {size / 10}}}
h = Add(x, z) : f32[1,8] {{-{size}, {size}}}
y = Add(h, h) : f32[1,8] {{-{2 * size}, {2 * size}}}
""",
        "limited",
    )


@pytest.mark.parametrize(("size", "row"), [(1.0, True), (0.4, False)])
def test_a_kernel_that_does_not_meet_it_runs_in_float(size, row):
    device, graph = target(), model(size)
    plan = planner.plan(graph, device)
    first = plan.kernels_in_order[0]
    assert (first.row is not None) == row
    assert row or "requires max(a.scale (0.003137" in first.reason
    planner.check(plan, graph, device)


def test_the_checker_refuses_types_that_break_it():
    """A plan of a target without the rule does not pass for one with it."""
    graph, wide, narrow = model(0.4), target("a.scale > 0"), target()
    plan = planner.plan(graph, wide)
    rows = {row.key: row for row in narrow.rows["Add"]}
    forged = replace(plan, target=replace(plan.target, rows={key: rows[key] for key in plan.target.rows}))
    with pytest.raises(PlanInvalid, match=r"requires at .* accepts max"):
        planner.check(forged, graph)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("a.scale >", "column 10: expected"),
        ("a.rank == 2", "a.rank is not known to requires; known: a.scale"),
        ("1 < 2", "'1 < 2' asks for no port"),
        ("c.scale < 1", "requires of Add names port 'c'"),
    ],
)
def test_a_condition_that_says_nothing_is_refused(condition, message):
    with pytest.raises(TargetError, match=message):
        target(condition)
