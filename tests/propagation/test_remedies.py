"""Rows that cannot be kept: a scale grows, the next row, a smaller fusion, float; never a conflict."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.checker.check import check
from planner.errors import Conflict
from planner.ir.graph import Op, model_digest
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from tests.propagation.small import graph_of, target_of

BIAS = "{multiplier_accumulator_scale: {port: b, of: [x, w]}}"
RANGED = "{{multiplier_scale: {{out: y, of: [x, w], range: [{}, {}]}}}}"
WIDE = "- {kernel: fc, in: {x: a16, w: n8, b?: '*'}, out: {y: a16}}"
NUMBERS = np.array([[1, 0.5], [0.1, 0.2], [0, 0]], np.float32)


def dense(w=NUMBERS, *, x="[-1, 1]", y="[-4, 4]", elements=2):
    """A kernel `fc`: x @ w.T + b."""
    bias = np.zeros(len(w), np.float32)
    shapes = {"x": (1, elements), "y": (1, len(w))}
    graph = graph_of(
        {"x": x, "w": w, "b": bias, "y": y}, [("k", "fc", "x w b", "y")], outputs="y", shapes=shapes
    )
    op = Op("k_op", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1})
    return replace(graph, regions=(replace(graph.regions[0], ops=(op,)),))


def row(more="", *rules, w="w8"):
    listed = ", ".join((BIAS, *rules))
    ports = f"in: {{x: a8, w: {w}, b?: b32}}, out: {{y: a8}}, axis: {{w: 0}}"
    return f"- {{kernel: fc, {ports}{more}, rules: [{listed}]}}"


def planned(graph, rows, **options):
    """A plan that holds, in memory and read back, by the model and by the target."""
    target = target_of("\n".join(rows))
    plan = propagate(graph, target, model=model_digest(graph), **options)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        check(one, graph, target)
    return plan


def told(plan, *rules):
    return [
        (step.rule, step.type, step.source.partition(" (")[0]) for step in plan.steps if step.rule in rules
    ]


REMEDIES = ("apart", "left", "grown")


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_sums_too_long_for_the_first_row_take_the_second(strategy):
    plan = planned(dense(), [row(", accumulator: i15"), WIDE], strategy=strategy)
    assert plan.kernels["k"].row == "fc@21"
    said = "its sums need 16 bits in channel 0, the accumulator has i15"
    assert told(plan, *REMEDIES) == [("left", "fc@20", said)]
    head = plan.steps[plan.step_at["k"]]
    assert [plan.steps[n].rule for n in head.because] == ["calibrated", "calibrated", "left"]
    assert f"k could not keep fc@20: {said}" in planner.explain(plan, "k")


def test_where_no_row_is_left_float_says_why_of_each():
    plan = planned(dense(), [row(", accumulator: i15"), row(", accumulator: i15", w="n8")])
    reason = plan.kernels["k"].reason
    assert [part.partition(": ")[2] for part in reason.split("; ")] == [
        "its sums need 16 bits in channel 0, the accumulator has i15",
        "its sums need 16 bits in channel 0, the accumulator has i15",
    ]
    assert [rule for rule, *_ in told(plan, *REMEDIES, "no row")] == ["left", "left", "no row"]


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize(("store", "most", "grown"), [("a8", 600, 1.001), ("p8", 1200, 2)])
def test_a_result_grows_where_multipliers_are_too_large(strategy, store, most, grown):
    """By 0.24 bits, or to the next power of two; a weight of zeros has any scale."""
    rows = [row("", RANGED.format("1/65536", f"1/{most}")).replace("y: a8", f"y: {store}"), WIDE]
    plan = planned(dense(), rows, strategy=strategy)
    x, w, _ = (port.type for port in plan.kernels["k"].inputs)
    y = plan.kernels["k"].outputs[0].type
    assert plan.kernels["k"].row == "fc@20"
    assert max(x.scale * s / y.scale for s in w.scales) <= 1 / most
    assert x.scale * w.scales[0] / y.scale > 1 / most / grown
    rules = [(rule, address) for rule, address, _ in told(plan, *REMEDIES)]
    assert ("grown", "k.out[0]") in rules


@pytest.mark.parametrize("w", ["w8", "n8"])
def test_a_weight_grows_where_multipliers_are_too_small(w):
    tiny = NUMBERS if w == "w8" else NUMBERS / 10
    plan = planned(dense(tiny), [row("", RANGED.format("1/2048", "1"), w=w), WIDE])
    x, w, _ = (port.type for port in plan.kernels["k"].inputs)
    y = plan.kernels["k"].outputs[0].type
    assert min(x.scale * s / y.scale for s in w.scales) == pytest.approx(1 / 2048, rel=1e-5)
    assert [address for _, address, _ in told(plan, "grown")] == ["k.in[1]"]
    check(plan)


def test_growing_that_costs_more_than_casts_leaves_the_row():
    """Ten bits of a weight are worth 2 x 9.5 an element of the result; two inputs cost 2, the result 3."""
    plan = planned(dense(NUMBERS / 100), [row("", RANGED.format("1/200", "1")), WIDE])
    assert plan.kernels["k"].row == "fc@21"
    (left,) = told(plan, *REMEDIES)
    assert left[2].endswith("the row takes 1/200 to 1")
    many = planned(dense(NUMBERS / 100, elements=100), [row("", RANGED.format("1/200", "1")), WIDE])
    assert many.kernels["k"].row == "fc@20"
    least = planned(
        dense(NUMBERS / 100, elements=100), [row("", RANGED.format("1/200", "1")), WIDE], max_bits_lost=1.0
    )
    assert least.kernels["k"].row == "fc@21"


def test_channels_that_cannot_move_the_result_grow_for_nothing():
    """What is lost of weights whose products are within half a step of the result is lost to nobody."""
    plan = planned(dense(NUMBERS / 1000), [row("", RANGED.format("1/2048", "1")), WIDE], max_bits_lost=1.0)
    assert plan.kernels["k"].row == "fc@20"
    assert "1/2048" in told(plan, *REMEDIES)[0][2]


def test_a_pinned_result_or_weight_does_not_grow():
    pin = "!quant.uniform<i8:f32, 0.03125>"
    graph = dense()
    held = replace(graph.regions[0], output_facts=((planner.parse_type(pin),),))
    target = target_of(row("", RANGED.format("1/65536", "1/600")))
    plan = propagate(replace(graph, regions=(held,)), target)
    check(plan)
    assert plan.kernels["k"].row is None
    assert any("k.out[0] is float" in warning for warning in plan.warnings)
    value = planned(dense(y=pin), [row("", RANGED.format("1/65536", "1/600"))])
    assert value.kernels["k"].outputs[0].type.scale > 0.03125  # rescaled to its pin behind the kernel
    assert any(rescale.to_pin for rescale in value.rescales)


def test_a_mask_out_of_reach_takes_a_row_that_multiplies_otherwise():
    rows = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}, requantize: gemmlowp}
- {kernel: add, in: {a: a16, b: a16}, out: {y: a16}, requantize: float32_even}
"""
    graph = graph_of(
        {"s": "[-5, 5]", "m": "[-3e38, 0]", "y": "[-5, 5]"}, [("k", "add", "s m", "y")], outputs="y"
    )
    plan = planned(graph, rows.strip().splitlines())
    assert plan.kernels["k"].row == "add@21"
    assert told(plan, "left") == [
        ("left", "add@20", "no integer multiplier gets from its inputs' scales to its result's")
    ]


def test_where_the_target_forbids_float_it_is_a_fact_of_the_conflict():
    target = replace(target_of(row(", accumulator: i15")), on_no_kernel="error")
    with pytest.raises(Conflict, match="its sums need 16 bits") as caught:
        propagate(dense(), target)
    assert caught.value.facts[-1].endswith("on_no_kernel: error")


POOLS = """
apiVersion: planner/v1
kind: Target
id: pooling
version: 1.0.0
title: Pooling
mode: fixed
types:
  a8: {storage: i8}
  w8: {storage: i8, range: [-127, 127], symmetric: true}
defaults: {port: a8, on_no_kernel: float}
fusions:
  - {kernel: conv_pool, pattern: "MaxPool(Relu(Conv(x, w, b?)))"}
  - {kernel: conv, pattern: "Relu?(Conv(x, w, b?))"}
kernels:
  - {kernel: conv_pool, in: {x: a8, w: w8, b?: "*"}, out: {y: a8}, when: {MaxPool.kernel_shape: [2, 2]}}
  - {kernel: conv, in: {x: a8, w: w8, b?: "*"}, out: {y: a8}}
  - {kernel: Softmax, in: {x: a8}, out: {y: a8}}
"""
MODEL = """
w = constant : f32[4,3,3,3] {-0.5, 0.5}
a = Conv(x, w) : f32[1,4,6,6] {-2, 2}
b = Relu(a) : f32[1,4,6,6] {0, 2}
c = MaxPool(b) [kernel_shape=[SIZE,SIZE]] : f32[1,4,4,4] {0, 2}
y = Softmax(c) : f32[1,4,4,4] {0, 1}
"""


def pooled(size, text=POOLS, model=MODEL):
    graph, target = read_model_text(model.replace("SIZE", str(size)), "m"), load_target(text)
    plan = planner.plan(graph, target)
    for one in (plan, plan_from_json(plan.to_json())):
        check(one, graph, target)
    return plan


def test_a_fusion_that_no_row_takes_whole_becomes_smaller_ones():
    plan = pooled(3)
    assert [(kernel.kernel, kernel.row) for kernel in plan.kernels_in_order] == [
        ("conv", "conv@17"),
        ("MaxPool", None),
        ("Softmax", "Softmax@18"),
    ]
    assert plan.kernels["c"].reason == "no fusion of 'pooling' takes MaxPool: no row serves it (conv_pool)"
    why = "text:16: MaxPool.kernel_shape is [3, 3], must be [2, 2]"
    assert told(plan, *REMEDIES) == [("apart", "conv_pool", why)] * 2
    assert "a was part of a conv_pool, which does not run whole: " + why in planner.explain(plan, "a")
    whole = pooled(2)
    assert [kernel.kernel for kernel in whole.kernels_in_order] == ["conv_pool", "Softmax"]
    assert not told(whole, *REMEDIES)


def test_sums_too_long_for_a_fusion_are_those_of_a_smaller_one():
    """Remedies follow each other: the only row is left, the kernel is taken apart, its part fits."""
    text = POOLS.replace(", when: {MaxPool.kernel_shape: [2, 2]}", ", accumulator: i15")
    numbers = str(np.full((4, 3, 3, 3), 0.5).tolist())
    plan = pooled(
        2, text, MODEL.replace("constant : f32[4,3,3,3] {-0.5, 0.5}", f"constant {numbers} : f32[4,3,3,3]")
    )
    assert [kernel.row for kernel in plan.kernels_in_order] == ["conv@17", None, "Softmax@18"]
    ((_, _, why), *_) = told(plan, "apart")
    assert why == "text:16: its sums need 20 bits in channel 0, the accumulator has i15"


def test_two_fusions_of_the_same_ops_do_not_take_turns():
    """Once each was taken apart into the other, for ever."""
    text = POOLS.replace(
        "  - {kernel: conv, pattern",
        """  - {kernel: twin, pattern: "Relu?(Conv(x, w, b?))"}\n  - {kernel: conv, pattern""",
    )
    served = '- {kernel: conv, in: {x: a8, w: w8, b?: "*"}, out: {y: a8}}'
    row = served.replace("}}", "}, accumulator: i15}")
    text = text.replace(served, f"{row}\n  {row.replace('conv', 'twin')}")
    numbers = str(np.full((4, 3, 3, 3), 0.5).tolist())
    model = MODEL.replace("constant : f32[4,3,3,3] {-0.5, 0.5}", f"constant {numbers} : f32[4,3,3,3]")
    plan = pooled(3, text, model)
    assert plan.kernels["a"].row is None
    assert {"twin", "conv"} <= {kernel for _, kernel, _ in told(plan, "apart")}


def test_down_to_single_ops_where_some_row_takes_one():
    text = POOLS.replace("- {kernel: conv, in", "- {kernel: Conv, in")
    plan = pooled(3, text)
    assert [(kernel.kernel, kernel.row) for kernel in plan.kernels_in_order][:2] == [
        ("Conv", "Conv@17"),
        ("Relu", None),
    ]
    none = pooled(3, text.replace("- {kernel: Conv, in", "- {kernel: Gemm, in"))
    assert none.kernels_in_order[0].kernel == "conv_pool"
    assert not told(none, *REMEDIES)


def test_a_product_that_stays_float_keeps_its_kernel_whole():
    """A Relu in integers behind its convolution in float would cost two casts and save nothing."""
    served = '- {kernel: conv, in: {x: a8, w: w8, b?: "*"}, out: {y: a8}}'
    plan = pooled(3, POOLS.replace(served, "- {kernel: Relu, in: {x: a8}, out: {y: a8}}"))
    first = plan.kernels_in_order[0]
    assert (first.kernel, first.row) == ("conv_pool", None)
    assert not told(plan, *REMEDIES)


EDITS = (
    {"values": {"b": "!quant.none"}},
    {"values": {"c": "!quant.none"}},
    {"values": {"w": "!quant.none"}},
    {"ports": {"a.in[0]": "!quant.none"}},
    {"values": {"x": "!quant.calibrated<f32<-9.0:9.0>>"}},
)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("edits", EDITS)
def test_an_edit_and_back_is_the_plan_before(size, edits):
    """Parts become whole again where that serves; an edit of values is planned as from scratch."""
    plan = pooled(size)
    there = planner.replan(plan, edits)
    check(there, there.annotated, there.whole_target)
    if "values" in edits:
        scratch = planner.plan(there.annotated, there.whole_target)
        assert (there.kernels_in_order, there.steps, there.key) == (
            scratch.kernels_in_order,
            scratch.steps,
            scratch.key,
        )
    before = {"values": {"x": "!quant.calibrated<f32<-2.0:2.0>>"}} if "x" in edits.get("values", {}) else None
    back = planner.replan(there, before or {"remove": list(next(iter(edits.values())))})
    assert [kernel.name for kernel in back.kernels_in_order] == [k.name for k in plan.kernels_in_order]
    assert back.kernels_in_order[0].row == plan.kernels_in_order[0].row


def test_a_kernel_put_back_into_float_stays_whole():
    plan = planner.restore(pooled(2), "a")
    assert [(kernel.kernel, kernel.row) for kernel in plan.kernels_in_order] == [
        ("conv_pool", None),
        ("Softmax", "Softmax@18"),
    ]


@st.composite
def devices(draw):
    """Rows of which some have an accumulator, a range or a predicate that their kernel may not meet."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        more = draw(st.sampled_from(["", ", accumulator: i17", ", accumulator: i16", ", accumulator: i24"]))
        more += draw(st.sampled_from(["", "", ", when: {w.rank: 3}"]))
        more += draw(st.sampled_from(["", ", requantize: gemmlowp"]))
        low, high = draw(st.sampled_from([(1, 2), (1024, 1), (2048, 600), (65536, 512), (1000000, 3000)]))
        rules = [RANGED.format(f"1/{low}", f"1/{high}" if high != 2 else "2")]
        rows.append(row(more, *rules[: draw(st.integers(0, 1))], w=draw(st.sampled_from(["w8", "n8", "u8"]))))
    return rows


@st.composite
def nets(draw):
    """A dense layer of any reach, perhaps with a channel of next to nothing."""
    reach = draw(st.sampled_from([1e-12, 1e-3, 0.5, 30.0, 1e30]))
    seed = draw(st.integers(0, 1 << 16))
    w = np.random.default_rng(seed).normal(size=(3, draw(st.sampled_from([2, 40])))) * reach
    w[draw(st.integers(0, 2))] *= draw(st.sampled_from([0.0, 1e-6, 1.0]))
    y = draw(st.sampled_from(["[-4, 4]", "[0, 1e-6]", "[-1e30, 1]"]))
    return dense(w.astype(np.float32), y=y, elements=w.shape[1])


@given(nets(), devices(), st.sampled_from(["minimal", "rfc"]))
def test_no_row_that_cannot_be_kept_makes_a_conflict(graph, rows, strategy):
    """No fact of these models contradicts another: there is a plan, it holds, and float says why."""
    target = target_of("\n".join(rows))
    plan = propagate(graph, target, model=model_digest(graph), strategy=strategy)
    check(plan, graph, target)
    assert propagate(graph, target, model=model_digest(graph), strategy=strategy).steps == plan.steps
    kernel = plan.kernels["k"]
    tried = [step for step in plan.steps if step.rule == "left"]
    assert kernel.row is not None or kernel.reason
    assert len(tried) == len({step.type for step in tried}) <= len(target.rows["fc"])
    if kernel.row is None:
        assert all(step.source.partition(" (")[0] in kernel.reason for step in tried)


@st.composite
def chains(draw):
    """Dense layers one after the other, some of them added to what went in, of all kinds of ranges."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    values, kernels, ops, before = {"v0": "[-1, 1]"}, [], {}, "v0"
    for i in range(draw(st.integers(4, 24))):
        name, reach = f"v{i + 1}", float(10.0 ** random.integers(-3, 4))
        if i > 1 and random.random() < 0.3:
            kernels.append((f"k{i}", "add", f"{before} v{i - 1}", name))
        else:
            size = 4 if random.random() < 0.7 else 1e-4
            values |= {f"w{i}": random.normal(size=(4, 4)).astype(np.float32) * np.float32(size)}
            values |= {f"b{i}": np.zeros(4, np.float32)}
            kernels.append((f"k{i}", "fc", f"{before} w{i} b{i}", name))
            ops[f"k{i}"] = Op(f"o{i}", "Gemm", (before, f"w{i}", f"b{i}"), (name,), {"transB": 1})
        values[name] = f"[{-reach}, {reach}]"
        before = name
    shapes = dict.fromkeys(values, (4, 4))
    graph = graph_of(values, kernels, outputs=before, shapes=shapes)
    regions = [replace(r, ops=(ops[r.name],) if r.name in ops else ()) for r in graph.regions]
    return replace(graph, regions=tuple(regions))


JOINED = "- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}, rules: [{same_scale: [a, b, y]}]}"


@settings(max_examples=40)
@given(chains(), devices(), st.integers(0, 23), st.sampled_from([1e-4, 0.5, 7.0, 1e5]))
def test_an_edit_near_remedies_is_planned_as_from_scratch(graph, rows, at, reach):
    target = target_of("\n".join([*rows, JOINED]))
    plan = planner.plan(graph, target)
    check(plan, graph, target)
    name = f"v{at % (len(graph.regions) + 1)}"
    edited = planner.replan(plan, {"values": {name: f"!quant.calibrated<f32<{-reach}:{reach}>>"}})
    scratch = planner.plan(edited.annotated, target)
    check(edited, edited.annotated, target)
    assert (edited.kernels_in_order, tuple(edited.steps), edited.cost, edited.bound, edited.warnings) == (
        scratch.kernels_in_order,
        tuple(scratch.steps),
        scratch.cost,
        scratch.bound,
        scratch.warnings,
    )
