"""Devices with several engines: which runs what, what crosses, and data that do not come back."""

from dataclasses import replace

import pytest

import planner
from planner.errors import PlanInvalid
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.target.diff import diff_targets
from planner.target.modeltext import read_model_text

TARGET = """
apiVersion: planner/v1
kind: Target
id: two-engines
version: 1.0.0
types:
  a8: {storage: i8}
defaults: {port: a8}
engines: {names: [npu, cpu], crossing: 3.0ONE_WAY}
kernels:
  - {kernel: MaxPool, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
  - {kernel: MaxPool, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}], runs_on: cpu}
  - {kernel: Add, in: {a: a8, b: a8}, out: {y: a8}}
  - kernel: Sigmoid
    in: {x: a8}
    out: {y: a8}
    rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]
    runs_on: cpu
"""
POOL = "[kernel_shape=[1,1]] : f32[1,4,8,8]"
MODEL = f"""
a = MaxPool(in0) {POOL} {{-1, 1}}
s = Sigmoid(a) : f32[1,4,8,8] {{0, 1}}
b = MaxPool(s) {POOL} {{0, 1}}
c = MaxPool(b) {POOL} {{0, 1}}
d = Add(a, a) : f32[1,4,8,8] {{-2, 2}}
y = Add(c, d) : f32[1,4,8,8] {{-2, 3}}
"""


def target(*, one_way=False, text=TARGET):
    return planner.load_target(text.replace("ONE_WAY", ", one_way: true" if one_way else ""))


def planned(device):
    """A plan that the checker takes, as it is and read back from its texts."""
    model = read_model_text(MODEL, "net")
    plan = planner.plan(model, device)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        planner.check(one, model, device)
        assert one.crossings == plan.crossings
    return plan


def engines_of(plan):
    return {name: plan.engine_of(name) for name in plan.kernels}


def test_rows_say_where_they_run_and_values_cross():
    plan = planned(target())
    assert engines_of(plan) == {"a": "npu", "s": "cpu", "b": "npu", "c": "npu", "d": "npu", "y": "npu"}
    assert [(c.value, c.source, c.reader, c.elements, c.work) for c in plan.crossings] == [
        ("a", "npu", "cpu", 256, 768.0),
        ("s", "cpu", "npu", 256, 768.0),
    ]
    assert plan.work.crossings == 1536.0
    others = plan.work.kernels + plan.work.rescales + plan.work.borders
    assert plan.work.total == others + 1536.0
    assert " on cpu." in planner.explain(plan, "s")


def test_behind_the_first_refusal_all_runs_on_the_cpu():
    """Edge TPU: what reads from the CPU stays there; what does not (`d`) keeps the NPU."""
    plan = planned(target(one_way=True))
    assert engines_of(plan) == {"a": "npu", "s": "cpu", "b": "cpu", "c": "cpu", "d": "npu", "y": "cpu"}
    assert plan.kernels["b"].row is not None, "the CPU's row of it serves"
    assert plan.kernels["y"].row is None, "the CPU has no row for it: float, which runs there"
    assert "it lies behind 's', which runs on cpu" in plan.kernels["y"].reason
    assert [crossing.value for crossing in plan.crossings] == ["a", "d"]


def test_a_plan_that_comes_back_is_refused():
    there, back = target(one_way=True), planned(target())
    told = plan_from_json(back.to_json())
    ref = replace(told.target, engines=there.engines)
    with pytest.raises(PlanInvalid, match="runs on npu behind cpu, from where nothing comes back"):
        planner.check(replace(told, target=ref))
    with pytest.raises(PlanInvalid):
        planner.check(told, read_model_text(MODEL, "net"), there)


def test_a_device_with_one_engine_has_no_names():
    text = TARGET.replace("engines: {names: [npu, cpu], crossing: 3.0ONE_WAY}", "")
    plan = planned(planner.load_target(text.replace(", runs_on: cpu", "").replace("    runs_on: cpu\n", "")))
    assert set(engines_of(plan).values()) == {""}
    assert plan.crossings == ()
    assert '"engines"' not in plan.to_json()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("runs_on: cpu", "runs_on: cpuu"), "T032 no engine 'cpuu' (did you mean 'cpu'?)"),
        (("names: [npu, cpu]", "names: [npu]"), "T014"),
        (("names: [npu, cpu]", "names: [npu, npu]"), "T032"),
        (("names: [npu, cpu]", "names: [npu, 'c p']"), "engines"),
        (("crossing: 3.0", "crossing: -1"), "T014"),
        (("engines: {names: [npu, cpu], crossing: 3.0ONE_WAY}", ""), "T032 no engine 'cpu'; none are named"),
    ],
)
def test_engines_that_are_none(change, words):
    with pytest.raises(planner.PlannerError) as caught:
        target(text=TARGET.replace(*change))
    assert words in str(caught.value)


def test_differences_of_engines_are_told():
    found = diff_targets(target(), target(one_way=True))
    assert [(one.what, one.name) for one in found if one.what == "work"] == [("work", "one way")]
