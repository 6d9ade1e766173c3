"""Rows with float results (case 67): every kind of consumer, facts, order of rows, consequences."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Uniform
from planner.ir.types.wanted import wanted_from_data
from planner.plans.explain import explain
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from tests.formats.plans import model, op
from tests.propagation.small import graph_of, target_of

STORED = (
    "- {kernel: matmul, in: {x: a8, w: a8}, out: {y: a8}, rules: [{multiplier_scale: {out: y, of: [x, w]}}]}"
)
FLOATS = "- {kernel: matmul, in: {x: a8, w: a8}, out: {y: {storage: f32}}}"
OTHERS = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: weigh, in: {x: {storage: f32}, w: a8}, out: {y: {storage: f32}}}
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
- {kernel: mix, in: {xs*: u8}, out: {y: u8}, rules: [{free_scale: [xs, y]}]}
"""
W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
OPS = {"k": "Add", "v1": "Reshape", "v2": "Transpose", "cat": "Concat", "loose": "Concat"}


def target(rows=f"{STORED}\n{FLOATS}", islands="integer"):
    made = target_of(f"{rows}\n{OTHERS.strip()}")
    return replace(made, islands=islands)


TARGET = target()


def graph(*kernels, outputs, facts=None):
    """`mm` writes y of x and w; what else reads it is given."""
    names = {n for _, _, ins, outs in kernels for n in (*ins.split(), *outs.split())} | {"y"}
    ranges = dict.fromkeys(sorted(names - {"w", "x"}), "[-4, 4]") | {"x": "[-1, 1]", "w": W}
    return graph_of(
        {name: (facts or {}).get(name, known) for name, known in ranges.items()},
        [("mm", "matmul", "x w", "y"), *kernels],
        outputs=outputs,
        moves=OPS,
    )


def plan_of(*kernels, outputs, facts=None, on=TARGET, **options):
    made = graph(*kernels, outputs=outputs, facts=facts)
    plan = propagate(made, on, model=model_digest(made), **options)
    check(plan, made, on)
    return plan


def hands_on(plan, name="mm"):
    return plan.kernels[name].row is not None and plan.row_of(name).hands_on_floats


SOFT = ("act", "softmax", "y", "z")
READERS = {
    "a float kernel": ([SOFT], "z", True),
    "an output of the model": ([], "y", True),
    "a float kernel and an output": ([SOFT], "y z", True),
    "a port that runs in float": ([("kw", "weigh", "y w", "z")], "z", True),
    "a kernel on integers": ([("k", "add", "y y", "z")], "z", False),
    "an output and a kernel on integers": ([("k", "add", "y y", "z")], "y z", False),
    "a float kernel and one on integers": ([SOFT, ("k", "add", "y y", "t")], "z t", False),
    "a float kernel behind a view": ([("v1", "view", "y", "a"), ("act", "softmax", "a", "z")], "z", True),
    "a float kernel behind two": (
        [("v1", "view", "y", "a"), ("v2", "view", "a", "b"), ("act", "softmax", "b", "z")],
        "z",
        True,
    ),
    "a kernel on integers behind a view": ([("v1", "view", "y", "a"), ("k", "add", "a a", "z")], "z", False),
    "both behind one view": (
        [("v1", "view", "y", "a"), ("act", "softmax", "a", "z"), ("k", "add", "a a", "t")],
        "z t",
        False,
    ),
    "an output behind a view": ([("v1", "view", "y", "z")], "z", True),
    "a concat with what is stored, in front of floats": (
        [("k", "add", "x x", "s"), ("cat", "join", "y s", "a"), ("act", "softmax", "a", "z")],
        "z",
        True,
    ),
    "a concat that rescales inside": (
        [("k", "add", "x x", "s"), ("loose", "mix", "y s", "a"), ("act", "softmax", "a", "z")],
        "z",
        False,
    ),
    "nothing": ([("k", "add", "x x", "z")], "z", None),
}


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize("name", READERS)
def test_it_serves_where_nothing_stores_its_result(name, strategy):
    kernels, outputs, wanted = READERS[name]
    plan = plan_of(*kernels, outputs=outputs, strategy=strategy)
    if wanted is None:
        assert "mm" not in plan.kernels
        return
    assert hands_on(plan) is wanted
    assert (plan.kernels["mm"].outputs[0].type is None) is wanted


def test_a_float_softmax_costs_no_border_and_a_stored_reader_none_either():
    """Case 67: in front of the softmax neither quantize nor dequantize; in either order of the rows."""
    with_row, without = plan_of(SOFT, outputs="z"), plan_of(SOFT, outputs="z", on=target(STORED))
    assert [(r.value, r.kind) for r in with_row.rescales] == [("x", "quantize")]
    assert [(r.value, r.kind) for r in without.rescales] == [("x", "quantize"), ("y", "dequantize")]
    assert without.cost - with_row.cost == 4.0
    assert with_row.optimal
    swapped = target(f"{FLOATS}\n{STORED}")
    assert hands_on(plan_of(SOFT, outputs="z", on=swapped))
    assert not hands_on(plan_of(("k", "add", "y y", "z"), outputs="z", on=swapped))
    last = plan_of(outputs="y")
    assert (last.fully_quantized, [r.value for r in last.rescales]) == (True, ["x"])
    text = explain(with_row, "y")
    assert (
        text
        == f"y is float: mm computes with integers and returns floats, by {TARGET.rows['matmul'][1].source}."
    )


@pytest.mark.parametrize(
    ("fact", "wanted"),
    [
        ("[-4, 4]", True),
        ("[-4, 4] & !quant.none", True),
        ("!quant.none", True),
        ("[-4, 4] & !quant.any<i8>", False),
        ("[-4, 4] & !quant.uniform<i8:f32, 0.03125>", False),
    ],
)
def test_facts_of_the_result_come_first(fact, wanted):
    plan = plan_of(SOFT, outputs="z", facts={"y": fact})
    assert plan.kernels["mm"].row is not None
    assert hands_on(plan) is wanted


@pytest.mark.parametrize("fact", ["!quant.any<i8>", "!quant.uniform<i8:f32, 0.03125>"])
def test_a_pin_or_a_width_behind_a_view_stores_it(fact):
    plan = plan_of(
        ("v1", "view", "y", "a"), ("act", "softmax", "a", "z"), outputs="z", facts={"a": f"[-4, 4] & {fact}"}
    )
    assert not hands_on(plan)


def test_a_result_without_a_range_is_handed_on_or_stays_float():
    """A port without a range can't be stored; one that is handed on as float needs none."""
    assert hands_on(plan_of(SOFT, outputs="z", facts={"y": ""}))
    reader = plan_of(("k", "add", "y y", "z"), outputs="z", facts={"y": ""})
    assert (hands_on(reader), reader.kernels["k"].reason) == (True, "no range")
    assert plan_of(SOFT, outputs="z", facts={"x": ""}).kernels["mm"].reason == "no range"
    chain = plan_of(("mm2", "matmul", "y w", "z"), outputs="z", facts={"y": "", "z": ""})
    assert hands_on(chain, "mm")
    assert chain.kernels["mm2"].reason == "no range"


def test_pins_choose_among_rows_with_float_results():
    rows = f"{STORED}\n{FLOATS}\n{STORED.replace('x: a8', 'x: u8')}\n{FLOATS.replace('x: a8', 'x: u8')}"
    pinned = {"x": "[-1, 1] & !quant.uniform<u8:f32, 0.0078125:128>"}
    on = target(rows)
    assert plan_of(SOFT, outputs="z", on=on).kernels["mm"].row == on.rows["matmul"][1].key
    assert plan_of(SOFT, outputs="z", on=on, facts=pinned).kernels["mm"].row == on.rows["matmul"][3].key


def test_an_only_row_serves_stored_readers_too():
    plan = plan_of(("k", "add", "y y", "z"), outputs="z", on=target(FLOATS))
    assert hands_on(plan)
    assert ("y", "quantize") in [(r.value, r.kind) for r in plan.rescales]


def test_when_is_enforced():
    on = target(f"{STORED}\n{FLOATS[:-1]}, when: {{w: dynamic}}}}")
    assert not hands_on(plan_of(SOFT, outputs="z", on=on))


def test_islands_are_found_first_and_a_stored_neighbour_is_none():
    """`add` reads the product, so it is stored there, and the product is stored for it: no circle."""
    kernels = [("k", "add", "y y", "a"), ("act", "softmax", "a", "z")]
    plan = plan_of(*kernels, outputs="z", on=target(islands="float"))
    assert (plan.kernels["k"].row is not None, hands_on(plan)) == (True, False)
    kernels = [("act", "softmax", "y", "a"), ("k", "add", "a a", "b"), ("act2", "softmax", "b", "z")]
    plan = plan_of(*kernels, outputs="z", on=target(islands="float"))
    assert (plan.kernels["k"].row, hands_on(plan)) == (None, True)


def test_sums_that_do_not_fit_leave_this_row_too():
    narrow = "out: {y: {storage: f32}}, accumulator: i8"
    mm = model(
        [op("MatMul", "x w", "y")],
        inputs={"x": (2, 8)},
        outputs={"y": (2, 4)},
        constants={"w": np.ones((8, 4), np.float32)},
    )
    rows = f"{STORED}\n{FLOATS.replace('out: {y: {storage: f32}}', narrow)}".replace("matmul", "MatMul")
    on = target(rows)
    annotated = planner.annotate(mm, stats=planner.calibrate(mm, [{"x": np.ones((2, 8), np.float32)}]))
    plan = planner.plan(annotated, on)
    planner.check(plan, annotated, on)
    assert plan.kernels["op_y"].row == on.rows["MatMul"][0].key
    assert [step.rule for step in plan.steps].count("left") == 1


def real(*ops, outputs):
    """A MatMul on onnxruntime-cpu with ops behind it, calibrated."""
    made = model(
        [op("MatMul", "x w", "y"), *ops],
        inputs={"x": (4, 8)},
        outputs=dict.fromkeys(outputs, (4, 8)),
        constants={"w": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)},
        shapes={"y": (4, 8), "a": (4, 8)},
    )
    samples = [{"x": np.random.default_rng(k).normal(size=(4, 8)).astype(np.float32)} for k in range(3)]
    return planner.annotate(made, stats=planner.calibrate(made, samples))


def test_replan_equals_a_plan_from_scratch():
    """A reader that turns to float lets the product be handed on, and back."""
    on = planner.load_target("onnxruntime-cpu")
    made = real(op("Sigmoid", "y", "a"), op("Erf", "a", "z"), outputs="z")
    plan = planner.plan(made, on)
    assert not plan.row_of("op_y").hands_on_floats
    edited = planner.replan(plan, {"ports": {"op_a.in[0]": "!quant.none"}})
    assert edited.kernels["op_a"].row is None
    assert edited.row_of("op_y").hands_on_floats
    back = planner.replan(edited, {"remove": ["op_a.in[0]"]})
    assert back.to_json() == plan.to_json()


def test_texts_are_read_back_and_planned_again_as_they_are():
    on = planner.load_target("onnxruntime-cpu")
    made = real(op("Erf", "y", "z"), outputs="z")
    plan = planner.plan(made, on)
    for read_plan, text in ((plan_from_json, plan.to_json()), (plan_from_mlir, plan.to_mlir())):
        read = read_plan(text)
        assert read.to_json() == plan.to_json()
        planner.check(read, made, on)
    assert isinstance(plan.kernels["op_y"].inputs[0].type, Uniform)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ({}, False),
        ({"cat": "u8"}, True),
        ({"mm": "i8"}, True),
        ({"cat": "float"}, False),
        ({"mm": "any"}, False),
    ],
)
def test_what_is_asked_of_a_kernel_or_of_a_mover_behind_it_stores_its_result(asked, stored):
    row = "- {kernel: cat, in: {xs*: u8}, out: {y: u8}, rules: [{same_scale: [xs, y]}]}"
    on = target(f"{STORED}\n{FLOATS}\n{row}")
    made = graph(("cat", "cat", "y y", "c"), outputs="c")
    made = replace(made, wanted={key: wanted_from_data(data) for key, data in asked.items()})
    plan = propagate(made, on, model=model_digest(made))
    check(plan, made, on)
    assert isinstance(plan.kernels["mm"].outputs[0].type, Uniform) == stored
