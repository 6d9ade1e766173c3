"""same_storage: ports of any storage that have one, with scales of their own."""

from dataclasses import replace

import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import model_digest
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from planner.target.lint.findings import lint
from tests.propagation.small import graph_of, target_of

ROWS = """
- kernel: add
  in: {a: "*", b: PORT}
  out: {y: "*"}
  rules: RULES
- {kernel: other, in: {x: a8}, out: {y: a8}}
"""
WIDE = "!quant.uniform<i16:f32, 0.0001>"
ALIKE = "[{same_storage: [a, b, y]}]"


def planned(rules, *, port="'*'", a="[-1, 1]", b="[-3, 3]", y="[-4, 4]"):
    target = target_of(ROWS.replace("RULES", rules).replace("PORT", port))
    graph = graph_of(
        {"a": a, "b": b, "y": y, "z": "[-4, 4]"},
        [("k", "add", "a b", "y"), ("o", "other", "y", "z")],
        outputs="z",
    )
    plan = propagate(graph, target, model=model_digest(graph))
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        check(one, graph, target)
    return plan, [port.type for port in (*plan.kernels["k"].inputs, *plan.kernels["k"].outputs)]


def test_one_pinned_port_gives_all_its_width():
    _, free = planned("[]", a=WIDE)
    assert free[2].storage.bits == 8, "as its reader has it"
    _, alike = planned(ALIKE, a=WIDE)
    assert [kind.storage.bits for kind in alike] == [16, 16, 16]
    assert len({kind.scale for kind in alike}) == 3, "scales stay the ports' own"


def test_a_port_that_says_its_storage_gives_it():
    _, kinds = planned(ALIKE, port="a16")
    assert [str(kind.storage) for kind in kinds] == ["i16"] * 3


def test_an_any_widens_all():
    _, kinds = planned(ALIKE, b="[-3, 3] & !quant.any<i16:f32>")
    assert [kind.storage.bits for kind in kinds] == [16, 16, 16]


def test_rules_that_share_a_port_are_one_group():
    _, kinds = planned("[{same_storage: [a, b]}, {same_scale: [b, y]}]", a=WIDE)
    assert [kind.storage.bits for kind in kinds] == [16, 16, 16]
    assert kinds[1] == kinds[2]


def test_a_plan_with_unlike_storages_is_refused():
    plan, _ = planned("[]", a=WIDE)
    told = plan_from_json(plan.to_json())
    key = told.kernels["k"].row
    alike = target_of(ROWS.replace("RULES", ALIKE).replace("PORT", "'*'")).rows["add"][0]
    rows = {**told.target.rows, key: replace(told.target.rows[key], rules=alike.rules)}
    with pytest.raises(PlanInvalid, match="joins it to ports stored as i16; accepted: i16"):
        check(replace(told, target=replace(told.target, rows=rows)))


def test_lint_finds_unlike_storages_and_lone_ports():
    target = target_of(
        "- {kernel: add, in: {a: a8, b: a16}, out: {y: '*'}, rules: [{same_storage: [a, b, y]}]}\n"
        "- {kernel: one, in: {a: '*'}, out: {y: '*'}, rules: [{same_storage: [y]}]}"
    )
    codes = {finding.code for finding in lint(target)}
    assert {"L004", "L033"} <= codes
