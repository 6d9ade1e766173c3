"""Bias grids: pinned weights stored finer for their biases' sake; each bound alone, and an exact search."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.checker.check import check
from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.graph import Op, model_digest
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.explain import explain
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

X = "!quant.uniform<i8:f32, 0.0078125>"
PIN = "!quant.uniform<i3<-3:3>:f32, 0.25>"
WEIGHT = np.array([[0.5, -0.25], [0.75, 0.25]], np.float32)
BIAS = np.array([0.0625, 0.7777], np.float32)
RULE = "{multiplier_accumulator_scale: {port: b, of: [x, w]}}"
BYTES = "{storage: i8, range: [-127, 127], symmetric: true%s}"
AXIS = BYTES % ", granularity: axis"


def device(*, w=BYTES % "", b="{storage: i32}", rules=(RULE,), more=""):
    """One row, `fc`: x @ w.T + b."""
    listed = ", ".join(rules)
    return target_of(
        f"- {{kernel: fc, in: {{x: a8, w: {w}, b?: {b}}}, out: {{y: a8}}, axis: {{w: 0}}, "
        f"rules: [{listed}]{more}}}"
    )


def dense(w=WEIGHT, b=BIAS, *, pin=PIN, facts=(), own=(), x=X):
    """The kernel `k`; `facts` are of the bias, `own` of the weight's port."""
    shapes = {"x": (1, w.shape[1]), "y": (1, len(w))}
    graph = graph_of(
        {"x": x, "w": w, "b": b, "y": "[-4, 4]"}, [("k", "fc", "x w b", "y")], outputs="y", shapes=shapes
    )
    op = Op("k_op", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1})
    region = replace(graph.regions[0], ops=(op,))
    if own:
        region = replace(region, input_facts=((), own, ()))
    values = dict(graph.values)
    values["w"] = replace(values["w"], facts=(parse_type(pin) if isinstance(pin, str) else pin,))
    values["b"] = replace(values["b"], facts=facts)
    return replace(graph, values=values, regions=(region,))


def planned(graph, target, **options):
    plan = propagate(graph, target, model=model_digest(graph), **options)
    check(plan, graph, target)
    assert plan_from_json(plan.to_json()).key == plan_from_mlir(plan.to_mlir()).key == plan.key
    return plan


def powers(plan, pin):
    """By slice, the binary logarithm of how much finer the weight is than its pin."""
    kind = plan.kernels["k"].inputs[1].type
    return np.log2(np.asarray(pin) / np.asarray(kind.scales)).tolist()


@pytest.mark.parametrize(
    ("settings", "power"),
    [
        ({}, 5),  # 3 x 32 = 96 of 127
        ({"w": "{storage: i4, range: [-7, 7], symmetric: true}"}, 1),
        ({"w": "{storage: i16, symmetric: true}"}, 13),
        ({"w": BYTES % ", weight_bits_effective: 7"}, 4),  # 63
        ({"w": BYTES % ", scale_min: 0.0625"}, 2),
        ({"w": BYTES % ", scale_min: 0.0626"}, 1),
        ({"w": BYTES % ", power_of_two: true"}, 5),
        ({"b": "{storage: i16}"}, 5),  # 398.2 x 32 of 16383.5
        ({"b": "{storage: i14}"}, 3),  # x 8 of 4095.5
        ({"b": "{storage: i32, scale_min: 0.0001}"}, 4),
        ({"more": ", accumulator: i15"}, 4),  # (4 x 128 + 398) x 16 of 16383
        ({"w": "{storage: i8, range: [-7, 7], symmetric: true}", "more": ", accumulator: i11"}, 0),
        ({"rules": (RULE, "{multiplier_scale: {out: y, of: [x, w], range: [0.01, 1]}}")}, 2),
        ({"rules": (RULE, "{multiplier_scale: {out: y, of: [x, w]}}")}, 5),
    ],
    ids=str,
)
def test_each_bound(settings, power):
    """Case 65: the greatest power of two that leaves all within its bounds."""
    plan = planned(dense(), device(**settings))
    assert plan.kernels["k"].row is not None
    assert powers(plan, 0.25) == [power]
    assert any("'b' has numbers off its grid: 1 of 2" in step.source for step in plan.steps) == (power > 0)


@pytest.mark.parametrize(("bits", "power"), [(11, 0), (12, 1), (16, 1)])
def test_sums_may_leave_less_room_than_the_bias(bits, power):
    """At most 4 x 128 of products and 40 of a bias; the storage has room for twice of each weight."""
    few = {"w": "{storage: i8, range: [-7, 7], symmetric: true}", "more": f", accumulator: i{bits}"}
    plan = planned(dense(b=np.array([0.0625, 0.0777], np.float32)), device(**few))
    assert plan.kernels["k"].row is not None
    assert powers(plan, 0.25) == [power]


def test_the_same_reals_bit_for_bit():
    plan = planned(dense(), device())
    pin, kind = parse_type(PIN), plan.kernels["k"].inputs[1].type
    old, new = (quantize_array(WEIGHT, one) for one in (pin, kind))
    assert np.array_equal(new, old * 32)
    assert np.array_equal(dequantize_array(new, kind), dequantize_array(old, pin))
    bias = plan.kernels["k"].inputs[2].type
    assert abs(dequantize_array(quantize_array(BIAS, bias), bias) - BIAS).max() <= 0.25 / 128 / 32 / 2


def test_the_words():
    plan = planned(dense(), device())
    assert (
        "[3] k.in[1] has a finer scale than its fixed type and the same numbers "
        "(stored times 2^5, as 'b' has numbers off its grid: 1 of 2)"
    ) in explain(plan, "k")


NARROW = "{storage: i3, range: [-3, 3], symmetric: true}"


def test_a_coarse_bias_is_told():
    """No room in the weight's storage: half a step of the sums is 3 % of a step of the result."""
    [told] = planned(dense(b=np.array([0.0625, 0.7783], np.float32)), device(w=NARROW)).warnings
    assert told == (
        "k.in[2]: 'b' is rounded by up to 3.0% of a step of !quant.uniform<i8:f32, 0.0313725508749485:-1>, "
        "and as many of the results may be a step off: weights in more bits than i3<-3:3> leave room for a "
        "finer bias (annotations, kernels: {k: {in: ['*', i8]}})"
    )
    assert not planned(dense(b=np.array([0.0625, 0.7783], np.float32)), device()).warnings
    assert not planned(dense(b=np.array([0.0625, 0.7773], np.float32)), device(w=NARROW)).warnings


def off(plan, b):
    """The most that rounding does to a bias, in steps of the result, in fractions."""
    port_types = [port.type for port in plan.kernels["k"].inputs]
    made = Fraction(plan.kernels["k"].outputs[0].type.scale)
    errors = [
        abs(Fraction(float(number)) / step - round(Fraction(float(number)) / step)) * step
        for number, scale in zip(b, np.broadcast_to(port_types[1].scales, len(b)), strict=True)
        for step in [Fraction(float(scale)) * Fraction(port_types[0].scale)]
    ]
    return float(max(errors) / made)


def test_each_channel_by_itself():
    """On the grid: its pin's scale; else as fine as the channel's own numbers leave room for."""
    pin = "!quant.uniform<i4<-7:7>:f32:0, {0.25, 0.25, 0.25}>"
    w = np.array([[0.5, -0.25], [0.75, 0.25], [1.75, 0.25]], np.float32)
    plan = planned(dense(w, np.array([0.25, 0.1, 0.1], np.float32), pin=pin), device(w=AXIS))
    assert powers(plan, 0.25) == [0, 5, 4]
    assert "stored times 2^4 to 2^5" in explain(plan, "k")


def test_zero_points_stay():
    pin, store = "!quant.uniform<u3:f32, 0.25:3>", "{storage: u8}"
    kind = planned(dense(pin=pin), device(w=store)).kernels["k"].inputs[1].type
    assert kind == parse_type("!quant.uniform<u8:f32, 0.125:3>")  # 1 below its zero point, which leaves 3
    pin = "!quant.uniform<u8:f32, 0.25:128>"
    kind = planned(dense(pin=pin), device(w=store)).kernels["k"].inputs[1].type
    assert kind == parse_type("!quant.uniform<u8:f32, 0.0078125:128>")


def test_two_signs():
    """One bit, +-0.5: stored as +-64."""
    w = np.array([[0.5, -0.5], [0.5, 0.5]], np.float32)
    plan = planned(dense(w, pin=Bipolar("f32", 0.5)), device())
    assert powers(plan, 0.5) == [6]
    plan = planned(dense(w, pin=Bipolar("f32", 0.5)), device(w=AXIS))
    assert powers(plan, 0.5) == [0, 6]


SUM = parse_type("!quant.uniform<i32:f32, 0.001953125>")


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"b": np.array([0.0625, 0.5], np.float32)}, {}),
        ({"facts": (SUM,)}, {}),
        ({"own": (parse_type("!quant.uniform<i8<-127:127>:f32, 0.25>"),)}, {}),
        ({"w": WEIGHT + np.float32(0.1)}, {}),
        ({"b": np.array([0.0625, np.nan], np.float32)}, {}),
        ({}, {"rules": ("{free_scale: [x, w, y]}",)}),
    ],
    ids=["on its grid", "a pinned bias", "a pinned port", "numbers beside the grid", "a NaN", "no sum"],
)
def test_what_stays(given, target):
    plan = propagate(dense(**given), device(**target))
    kind = plan.kernels["k"].inputs[1].type
    assert kind is None or kind.scales == (0.25,)


def test_a_bias_that_is_derived_anew():
    pinned = dense(facts=(parse_type("!quant.uniform<i32:f32, 0.125>"),))
    assert powers(planned(pinned, device(), bias_pins="derive"), 0.25) == [5]


def by_search(w, b, pin, *, top, room, sums, reach, x):
    """The powers by slice, tried one after the other in exact arithmetic."""
    scales = [Fraction(scale) for scale in pin.scales]
    rows = [(w[i], [b[i]]) for i in range(len(b))] if len(scales) > 1 else [(w, b)]
    found = []
    for scale, (weights, biases) in zip(scales, rows, strict=True):
        stored = np.rint(np.asarray(weights, np.float64) / float(scale)).astype(int).reshape(len(biases), -1)
        steps = [Fraction(float(number)) / (scale * x) for number in biases]
        if all(abs(step - round(step)) <= Fraction(1, 10**6) * max(1, abs(step)) for step in steps):
            found.append(0)
            continue
        fits = [
            power
            for power in range(1, 9)
            if abs(stored).max() * 2**power <= top
            and max(map(abs, steps)) * 2**power <= room
            and all(
                int(abs(row).sum()) * 2**power * reach + round(abs(step) * 2**power) <= sums
                for row, step in zip(stored, steps, strict=True)
            )
        ]
        found.append(max(fits, default=0))
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.integers(2, 8),
    short=st.integers(15, 32),
    axis=st.booleans(),
    scale=st.sampled_from([0.25, 0.1, 3e-3]),
)
def test_against_a_search(seed, bits, short, axis, scale):
    """Every power tried, in fractions; the checker agrees with the plan, planned again it stays."""
    rng = np.random.default_rng(seed)
    most = (1 << bits - 1) - 1
    scales = [float(np.float32(scale * (i + 1))) for i in range(3)] if axis else [float(np.float32(scale))]
    stored = rng.integers(-most, most + 1, (3, 4))
    w = (stored * np.asarray(scales, np.float32)[:, None]).astype(np.float32)
    b = rng.choice([0, 0.5, 1, 40, 3000], 3) * rng.integers(-9, 10, 3) * scale / 128
    b = b.astype(np.float32)
    kind = f"{{{', '.join(map(repr, scales))}}}" if axis else repr(scales[0])
    pin = parse_type(f"!quant.uniform<i{bits}<{-most}:{most}>:f32{':0' if axis else ''}, {kind}>")
    target = device(w=AXIS if axis else BYTES % "", more=f", accumulator: i{short}")
    graph = dense(w, b, pin=pin)
    plan = planned(graph, target)
    if plan.kernels["k"].row is None:
        return
    room = float(1 << 30) if short == 32 else float((1 << short - 1) - 1) / 2
    wanted = by_search(
        w, b, pin, top=127, room=room, sums=(1 << short - 1) - 1, reach=128, x=Fraction(1, 128)
    )
    assert [round(power) for power in powers(plan, scales)] == wanted
    share = off(plan, b)
    if abs(share - 0.02) > 1e-6:
        assert any("leave room for a finer bias" in text for text in plan.warnings) == (share > 0.02)
    assert isinstance(plan.kernels["k"].inputs[1].type, Uniform)
