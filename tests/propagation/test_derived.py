"""Ports that `derive` and `fn` rules type: the plan's cost is the price of what the rules really yield."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.checker.check import check
from planner.errors import Conflict
from planner.formats.annotated.document import read_annotated
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Uniform, storage
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from planner.target.lint.findings import lint
from planner.target.load import load_target
from tests.propagation.small import graph_of, target_of

TEXT = """
apiVersion: planner/v1
kind: Target
id: luts
version: 1.0.0
title: Luts
mode: fixed
types: {a8: {storage: i8}}
defaults: {port: a8}
kernels:
  - {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
  - {kernel: concat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
  - kernel: lut
    in: {x: a8}
    out: {y: a8}
    rules: [{derive: {port: y, scale: "x.scale * 2", zero_point: "-128"}}]
  - {kernel: special, in: {x: a8}, out: {y: a8}, rules: [{fn: "double"}]}
  - {kernel: bounded, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: x, scale: 1/128}}]}
"""


def double(inputs, outputs, args):
    del args
    kind = inputs[0].type
    return {} if kind is None else {outputs[0].id: Uniform(storage("i8"), (kind.scale * 2,), (-128,))}


TARGET = load_target(TEXT, functions={"double": double})


def value(name, lo, hi, elements=16):
    return {"name": name, "shape": [elements], "constraints": [f"!quant.calibrated<f32<{lo}:{hi}>>"]}


def model(kernel, times):
    """`times` kernels in a row behind a concat that coarsens their input; the last one read by an add."""
    values = [value("x", -1.0, 1.0), value("a", -1.0, 1.0), value("b", -1.3, 1.3), value("c", -1.3, 1.3, 32)]
    kernels = [
        ("k1", "add", ["x", "x"], "a"),
        ("k2", "add", ["x", "x"], "b"),
        ("cat", "concat", ["a", "b"], "c"),
    ]
    for i in range(times):
        values.append(value(f"y{i}", 0.0, 4.0 * 2.0**i))
        kernels.append((f"lut{i}", kernel, [f"y{i - 1}" if i else "a"], f"y{i}"))
    values += [value("z", 0.0, 8.0), value("w", -2.0, 2.0, 32)]
    kernels += [("k3", "add", [f"y{times - 1}"] * 2, "z"), ("k4", "add", ["c", "c"], "w")]
    return read_annotated(
        json.dumps(
            {
                "format": "qplan.annotated/1",
                "name": "luts",
                "values": values,
                "kernels": [
                    {"name": n, "kernel": k, "inputs": ins, "outputs": [out]} for n, k, ins, out in kernels
                ],
                "inputs": ["x"],
                "outputs": ["z", "w"],
            }
        )
    )


@pytest.mark.parametrize("times", [1, 3, 9])
@pytest.mark.parametrize("kernel", ["lut", "special"])
def test_derived_ports_follow_the_chosen_scale(kernel, times):
    """Each result has twice the scale of what its kernel reads, though the concat made that coarser."""
    plan = propagate(model(kernel, times), TARGET)
    for i in range(times):
        lut = plan.kernels[f"lut{i}"]
        assert lut.outputs[0].type.scale == lut.inputs[0].type.scale * 2
        assert lut.outputs[0].type.zero_point == -128
    assert plan.cost >= sum(rescale.cost for rescale in plan.rescales)
    assert plan.bound <= plan.cost
    assert plan.steps[plan.values["y0"].decided_by].rule == {"lut": "derive", "special": "fn"}[kernel]


def test_derived_cost_is_the_price_of_its_rescales():
    """No bits are lost past the free half bit here, so the rescales are the price."""
    plan = propagate(model("lut", 1), TARGET)
    assert plan.cost == sum(rescale.cost for rescale in plan.rescales)


@pytest.mark.parametrize("kernel", ["lut", "special"])
@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize(("top", "share"), [(4.0, ""), (16.0, "clips 75.0% of (0.0, 16.0)")])
def test_a_derived_type_that_clips_is_warned_of(kernel, strategy, top, share):
    """As a fixed one is: no rule is overruled, and nobody else would tell."""
    document = {
        "format": "qplan.annotated/1",
        "name": "m",
        "values": [value("x", -1.0, 1.0), value("y", 0.0, top)],
        "kernels": [{"name": "k", "kernel": kernel, "inputs": ["x"], "outputs": ["y"]}],
        "inputs": ["x"],
        "outputs": ["y"],
    }
    plan = propagate(read_annotated(json.dumps(document)), TARGET, strategy=strategy)
    kind = plan.kernels["k"].outputs[0].type
    assert plan.warnings == ((f"k.out[0] is derived as {kind} and {share}",) if share else ())


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize(("top", "share"), [(1.0, ""), (4.0, "clips 60.1% of (-1.0, 4.0)")])
def test_a_fixed_input_that_clips_is_warned_of(strategy, top, share):
    """What it reads is required of its type alone, so that nothing else counts what is cut off."""
    document = {
        "format": "qplan.annotated/1",
        "name": "m",
        "values": [value("x", -1.0, 1.0), value("h", -1.0, top), value("y", -1.0, 1.0)],
        "kernels": [
            {"name": "a", "kernel": "add", "inputs": ["x", "x"], "outputs": ["h"]},
            {"name": "k", "kernel": "bounded", "inputs": ["h"], "outputs": ["y"]},
        ],
        "inputs": ["x"],
        "outputs": ["y"],
    }
    plan = propagate(read_annotated(json.dumps(document)), TARGET, strategy=strategy)
    fixed = "!quant.uniform<i8:f32, 0.0078125>"
    assert plan.warnings == ((f"k.in[0] is fixed to {fixed} and {share}",) if share else ())


ROWS = """
- {{kernel: k, in: {{x: a8}}, out: {{y: a8}}, rules: [{rules}]}}
- {{kernel: conv, in: {{x: a8}}, out: {{y: a8}}}}
"""


def around(rules, y="[-2, 2]"):
    """A kernel with these rules between two others, and its target."""
    target = target_of(ROWS.format(rules=", ".join(rules)))
    chain = [("c", "conv", "x", "h"), ("k", "k", "h", "y"), ("d", "conv", "y", "z")]
    return graph_of({"x": "[-1, 1]", "h": "[-1, 1]", "y": y, "z": "[-2, 2]"}, chain, outputs="z"), target


def derive(port, scale, zero_point="0"):
    return f"{{derive: {{port: {port}, scale: {scale}, zero_point: {zero_point}}}}}"


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize(
    ("rules", "scales"),
    [
        (("x.scale * 2", "y.scale / 2"), None),
        (("x.scale / 3", "y.scale * 3"), None),  # but for the rounding of a scale
        (("x.scale / 2 + 0.25", "y.scale"), (0.5, 0.5)),
        (("0.9 * x.scale + 0.01", "y.scale"), (0.1, 0.1)),
        (("sqrt(x.scale)", "y.scale"), (1.0, 1.0)),
    ],
)
def test_a_circle_that_numbers_satisfy_is_planned(strategy, rules, scales):
    graph, target = around([derive("y", rules[0]), derive("x", rules[1])])
    plan = propagate(graph, target, model=model_digest(graph), strategy=strategy)
    check(plan, graph, target)
    kinds = plan.kernels["k"].inputs[0].type, plan.kernels["k"].outputs[0].type
    assert scales is None or [kind.scale for kind in kinds] == pytest.approx(scales, rel=1e-5)
    assert "L036" not in {finding.code for finding in lint(target)}


NOTHING = {
    "two that double": [derive("y", "x.scale * 2"), derive("x", "y.scale * 2")],
    "two that halve": [derive("y", "x.scale / 2"), derive("x", "y.scale / 2")],
    "a zero point that climbs": [
        derive("y", "x.scale", "x.zero_point + 1"),
        derive("x", "y.scale", "y.zero_point"),
    ],
    "one scale, doubled": [derive("y", "x.scale * 2"), "{same_scale: [x, y]}"],
}


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize("name", NOTHING)
def test_a_circle_that_nothing_satisfies_is_a_conflict(name, strategy):
    """Its lines are the facts; lint tells before any model; a best-effort plan runs the kernel in float."""
    graph, target = around(NOTHING[name])
    with pytest.raises(Conflict, match="no scales and zero points were found that satisfy its row") as caught:
        propagate(graph, target, strategy=strategy)
    assert [fact.split(": ")[0] for fact in caught.value.facts] == [target.rows["k"][0].rules[0].source] * 2
    assert "L036" in {finding.code for finding in lint(target)}
    plan = propagate(graph, target, model=model_digest(graph), strategy=strategy, best_effort=True)
    assert plan.kernels["k"].row is None
    check(plan, graph, target)


@pytest.mark.parametrize(
    "rules",
    [
        [derive("y", "y.scale / 2")],
        [derive("y", "x.scale * 2"), derive("y", "x.scale * 3")],
        [derive("y", "x.scale * 2"), "{fixed_scale: {port: y, scale: 0.5}}"],
    ],
)
def test_rules_that_contradict_each_other_are_a_conflict(rules):
    graph, target = around(rules)
    with pytest.raises(Conflict):
        propagate(graph, target)


def test_a_derived_port_that_is_pinned_otherwise_is_a_conflict():
    """The plan was written, and then refused by the checker."""
    pin = "!quant.uniform<i8:f32, 0.5>"
    graph, target = around([derive("y", "x.scale * 2")])
    region = replace(graph.regions[1], output_facts=((parse_type(pin),),))
    graph = replace(graph, regions=(graph.regions[0], region, graph.regions[2]))
    with pytest.raises(Conflict, match=r"has the fixed type .* and is derived as") as caught:
        propagate(graph, target)
    assert caught.value.facts[0] == f"port k.out[0]: {pin}"
    plan = propagate(graph, target, best_effort=True)
    assert plan.kernels["k"].outputs[0].type.scale == 2 * plan.kernels["k"].inputs[0].type.scale


FACTORS, TERMS = (0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 4.0), (0.0, 0.0, 0.01, 0.3, -0.001)


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@given(st.lists(st.tuples(st.sampled_from(FACTORS), st.sampled_from(TERMS)), min_size=2, max_size=2))
def test_any_circle_holds_or_is_a_conflict(strategy, rules):
    """The plan that is made passes the checker, figures and all."""
    (first, second), (third, fourth) = rules
    graph, target = around(
        [derive("y", f"x.scale * {first} + {second}"), derive("x", f"y.scale / {third} + {fourth}")]
    )
    try:
        plan = propagate(graph, target, model=model_digest(graph), strategy=strategy)
    except Conflict:
        return
    check(plan, graph, target)
