"""Conflicts name few facts, all of them needed; a best-effort plan gives up one of them and says so."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.checker.check import check
from planner.errors import Conflict, PlanInvalid, UnknownName
from planner.ir.graph import Constant, Op, model_digest
from planner.ir.types.qtypes import Uniform, storage, uniform
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from planner.propagation.selection.conflicts import fewest
from tests.propagation.small import graph_of, target_of

ROWS = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: concat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
- {kernel: fc, in: {x: a8, w: n8, b?: b32}, out: {y: a8}, accumulator: i16, rules: RULES}
""".replace("RULES", "[{multiplier_accumulator_scale: {port: b, of: [x, w]}}]")
FREE = target_of(ROWS)
RIGID = replace(FREE, rescale_allowed=False)
STRICT = replace(FREE, on_no_kernel="error")
P, Q, R = (f"!quant.uniform<i8:f32, {scale}>" for scale in (0.5, 0.5009765625, 2.0))


def joined(p=P, q=Q, far=R):
    """Two kernels into a concat, and a pin far away from it."""
    return graph_of(
        {"x": "[-1, 1]", "p": p, "q": q, "c": "", "y": "[-2, 2]", "z": f"[-2, 2] & {far}"},
        [
            ("k1", "add", "x x", "p"),
            ("k2", "add", "x x", "q"),
            ("cat", "concat", "p q", "c"),
            ("k3", "add", "c c", "y"),
            ("k4", "add", "y y", "z"),
        ],
        outputs="z",
    )


def test_two_pins_and_a_device_that_never_rescales():
    with pytest.raises(Conflict, match="would need a requantize before 'cat'") as caught:
        propagate(joined(), RIGID)
    facts = caught.value.facts
    assert set(facts[:2]) == {f"value 'p': {P}", f"value 'q': {Q}"}
    assert facts[-1].endswith("rescale: allowed: false")
    assert any(fact.startswith("kernel 'cat': ") for fact in facts)
    assert len(facts) <= 5
    assert not any(R in fact for fact in facts)


@pytest.mark.parametrize("dropped", ["p", "q"])
def test_every_named_fact_is_needed(dropped):
    propagate(joined(**{dropped: "[-1, 1]"}), RIGID)


def test_rows_alone_can_clash():
    """No fact at fault: the kernels and their rows are named."""
    graph = graph_of(
        {"x": "[-1, 1]", "a": "[-1, 1]", "g": "[-1, 1]", "y": "[-1, 1]"},
        [("k1", "add", "x x", "a"), ("g", "gelu", "a", "g"), ("k2", "add", "g g", "y")],
        outputs="y",
    )
    with pytest.raises(Conflict) as caught:
        propagate(graph, RIGID)
    assert any(fact == "kernel 'g': no row" for fact in caught.value.facts)


def test_a_wish_that_no_row_serves():
    """Case 26 where float is no way out: the annotation, the kernel and the target are named."""
    graph = graph_of(
        {"x": P, "a": "!quant.any<i16> & [-1, 1]", "y": f"[-1, 1] & {R}"},
        [("k1", "add", "x x", "a"), ("k2", "add", "a a", "y")],
        outputs="y",
    )
    with pytest.raises(Conflict) as caught:
        propagate(graph, STRICT)
    assert caught.value.facts[0] == "value 'a': !quant.any<i16>"
    assert caught.value.facts[1] == "kernel 'k1' is add"
    assert caught.value.facts[2].endswith("on_no_kernel: error")


def test_fewest_finds_a_minimal_set():
    facts = [(name, parse_type(P)) for name in "abcdefghij"]
    calls = []

    def clashes(kept):
        calls.append(kept)
        return {"c", "h"} <= {name for name, _ in kept}

    assert {name for name, _ in fewest(facts, clashes)} == {"c", "h"}
    assert len(calls) < 20
    assert fewest(facts, lambda _: True) == []
    assert fewest(facts, lambda _: False) == []


def contradictory():
    return graph_of(
        {"x": "[-1, 1]", "a": f"{P} & {Q}", "y": "[-1, 1]"},
        [("k1", "add", "x x", "a"), ("k2", "add", "a a", "y")],
        outputs="y",
    )


def test_best_effort_leaves_the_later_of_two_facts_out():
    plan = propagate(contradictory(), FREE, best_effort=True)
    check(plan)
    assert str(plan.kernels["k1"].outputs[0].type) == P
    assert plan.warnings[0] == f"'a' cannot be both {P} and {Q}: left out: {Q} at a"
    assert plan.options["best_effort"] is True


def test_best_effort_rescales_all_the_same():
    plan = propagate(joined(), RIGID, best_effort=True)
    check(plan)
    assert any("allows none between kernels: done all the same" in warning for warning in plan.warnings)


def test_best_effort_runs_in_float_what_no_row_serves():
    graph = graph_of({"x": P, "y": P}, [("k", "gelu", "x", "y")], outputs="y")
    plan = propagate(graph, STRICT, best_effort=True)
    assert plan.kernels["k"].row is None
    assert "runs in float: k" in plan.warnings[0]


def test_best_effort_plans_a_model_without_conflicts_as_ever():
    plans = [propagate(joined(), FREE, best_effort=flag) for flag in (False, True)]
    assert plans[0].kernels_in_order == plans[1].kernels_in_order
    assert plans[0].warnings == plans[1].warnings


def summing(pin=None):
    values = {"x": P, "w": np.ones((2, 64), np.float32), "b": np.ones(2, np.float32), "y": "[-4, 4]"}
    graph = graph_of(values, [("k", "fc", "x w b", "y")], outputs="y", shapes={"x": (1, 64), "y": (1, 2)})
    op = Op("k_op", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1})
    facts = {**graph.values, "b": replace(graph.values["b"], facts=(pin,) if pin else ())}
    return replace(graph, regions=(replace(graph.regions[0], ops=(op,)),), values=facts)


def test_what_overflows_runs_in_float_unless_the_target_forbids_that():
    """No fact of the user says anything against it."""
    plan = propagate(summing(), FREE)
    check(plan)
    assert plan.kernels["k"].row is None
    assert plan.kernels["k"].reason.endswith("its sums need 21 bits in channel 0, the accumulator has i16")
    strict = replace(FREE, on_no_kernel="error")
    with pytest.raises(
        Conflict, match=r"no row of small serves fc at 'k': .*: its sums need 21 bits"
    ) as caught:
        propagate(summing(), strict)
    assert caught.value.facts[-1].endswith("on_no_kernel: error")
    assert propagate(summing(), strict, best_effort=True).kernels["k"].row is None


def test_a_weight_grows_where_it_would_be_multiplied_by_too_little():
    rule = "{multiplier_scale: {out: y, of: [x, w], range: [1/65536, 1]}}"
    device = target_of(f"- {{kernel: fc, in: {{x: a8, w: w8, b?: b32}}, out: {{y: a8}}, rules: [{rule}]}}")
    weights = np.array([[1.0] * 64, [1e-9] * 64], np.float32)
    graph = replace(summing(), constants={**summing().constants, "w": Constant(weights)})
    plan = propagate(graph, device)
    check(plan)
    x, w, _ = (port.type for port in plan.kernels["k"].inputs)
    y = plan.kernels["k"].outputs[0].type
    assert w.scales[0] == pytest.approx(1 / 127)
    assert x.scale * w.scales[1] / y.scale == pytest.approx(1 / 65536, rel=1e-5)


@pytest.mark.parametrize(
    ("scale", "zero_point", "problem"),
    [
        ("1 / (x.zero_point - x.zero_point)", "0", "division by zero"),
        ("x.scale ** 2 * 2 ** 300", "0", "is beyond f32"),
        ("x.scale - x.scale", "0", "scale 0"),
        ("x.scale", "x.zero_point + 200", "zero point"),
    ],
)
def test_a_row_whose_rule_derives_no_type_is_left(scale, zero_point, problem):
    """It refused the plan of a whole model; the next row serves the kernel, and it is told why."""
    derives = f'{{derive: {{port: y, scale: "{scale}", zero_point: "{zero_point}"}}}}'
    ports = "in: {x: a8, w: a8, b?: b32}, out: {y: a8}"
    alone = target_of(f"- {{kernel: fc, {ports}, rules: [{derives}]}}")
    plan = propagate(summing(), alone, model=model_digest(summing()))
    check(plan, summing(), alone)
    assert plan.kernels["k"].row is None
    assert problem in plan.kernels["k"].reason
    two = target_of(f"- {{kernel: fc, {ports}, rules: [{derives}]}}\n- {{kernel: fc, {ports}}}")
    plan = propagate(summing(), two, model=model_digest(summing()))
    check(plan, summing(), two)
    assert plan.kernels["k"].row is not None
    [step] = [step for step in plan.steps if step.rule == "left"]
    assert problem in step.source


def test_a_bias_pin_off_the_product_is_derived_anew_where_that_is_the_policy():
    """Case 23: an error or derived, by policy; never kept silently."""
    wide = replace(FREE, rows={**FREE.rows, "fc": (replace(FREE.rows["fc"][0], accumulator=None),)})
    pin = uniform(storage("i32"), 0.125)
    with pytest.raises(Conflict, match="'b' has the fixed type"):
        propagate(summing(pin), wide)
    plan = propagate(summing(pin), wide, bias_pins="derive")
    bias = plan.kernels["k"].inputs[2].type
    assert isinstance(bias, Uniform)
    assert bias.scale == plan.kernels["k"].inputs[0].type.scale * plan.kernels["k"].inputs[1].type.scale
    assert plan.options["bias_pins"] == "derive"
    assert any("'b' has the fixed type" in warning for warning in plan.warnings)
    check(plan)
    with pytest.raises(UnknownName, match="unknown policy of bias_pins 'keep'"):
        propagate(summing(pin), wide, bias_pins="keep")


def test_a_pin_of_the_bias_port_counts_as_one_of_its_value():
    """Per tensor and per axis; it was kept silently where the port alone was pinned."""
    wide = replace(FREE, rows={**FREE.rows, "fc": (replace(FREE.rows["fc"][0], accumulator=None),)})
    for pin in (uniform(storage("i32"), 0.125), Uniform(storage("i32"), (0.125,), (0,), axis=0)):
        graph = summing()
        regions = tuple(replace(region, input_facts=((), (), (pin,))) for region in graph.regions)
        pinned = replace(graph, regions=regions)
        with pytest.raises(Conflict, match="'b' has the fixed type") as caught:
            propagate(pinned, wide)
        assert caught.value.facts[0] == f"port k.in[2]: {pin}"
        plan = propagate(pinned, wide, bias_pins="derive")
        assert any("'b' has the fixed type" in warning for warning in plan.warnings)
        check(plan)
        check(propagate(pinned, wide, best_effort=True))


@pytest.mark.parametrize(("graph", "target"), [(contradictory(), FREE), (joined(), RIGID)])
def test_a_best_effort_plan_holds_for_its_model_and_target(graph, target):
    """Facts left out are none of its own, forbidden casts are done all the same: its warnings tell."""
    plan = planner.plan(graph, target, best_effort=True)
    for one in (plan, planner.plan_from_json(plan.to_json())):
        planner.check(one, graph, target)
        with pytest.raises(PlanInvalid):
            planner.check(replace(one, warnings=()), graph, target)
    given = replace(plan, options={})
    with pytest.raises(PlanInvalid):
        planner.check(given, graph, target)
