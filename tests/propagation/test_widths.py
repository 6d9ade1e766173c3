"""A range for a width: which port holds which, what movers hand on, and that the checker recomputes it."""

from dataclasses import replace

import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid, QTypeError
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Calibrated, Uniform, WidthRange
from planner.ir.types.ranges import hull_of_observed
from planner.ir.types.typetext import parse_type
from planner.plans.read_json import plan_from_json
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = target_of("""
- {kernel: conv, in: {x: a8}, out: {y: a8}}
- {kernel: wide, in: {x: a16}, out: {y: a16}}
- {kernel: wider, in: {x: a8}, out: {y: a16}}
- {kernel: reshape, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
- {kernel: cat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs*, y]}]}
- {kernel: same, in: {a: a8, b: a8}, out: {y: a8}, computes: true, rules: [{same_scale: [a, b, y]}]}
- {kernel: soft, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]}
""")
WIDE = "!quant.calibrated<f32<-8.0:8.0>, {8 = -2.0:2.0}>"
NARROW = 4.0
WHOLE = 16.0


def spans(plan):
    """By address, how many reals there are between the ends of each port's type."""
    ports = (port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs))
    return {port.address: port.type.hi - port.type.lo for port in ports if isinstance(port.type, Uniform)}


def planned(values, kernels, outputs, target=ROWS, **more):
    """A plan that the checker accepts."""
    graph = graph_of(values, kernels, outputs=outputs, moves=more.pop("moves", None))
    plan = propagate(graph, target, model=model_digest(graph), **more)
    check(plan, graph)
    return plan


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_each_port_holds_the_range_of_its_width(strategy):
    """8 bits hold what was chosen for them, 16 bits what was seen; cutting on purpose is no clip."""
    plan = planned(
        {"x": WIDE, "y": "[-1, 1]", "z": "[-1, 1]"},
        [("k8", "conv", "x", "y"), ("k16", "wide", "x", "z")],
        "y z",
        strategy=strategy,
    )
    found = spans(plan)
    assert found["k8.in[0]"] == pytest.approx(NARROW, rel=0.01)
    if strategy == "minimal":
        assert found["k16.in[0]"] == pytest.approx(WHOLE, rel=0.01)
    assert plan.values["x"].clip == 0.0
    assert plan.warnings == ()


def test_without_the_width_it_is_the_whole_range():
    found = [
        spans(planned({"x": kind, "y": "[-1, 1]"}, [("k", "conv", "x", "y")], "y"))["k.in[0]"]
        for kind in ("[-8, 8]", "!quant.calibrated<f32<-8.0:8.0>, {4 = -2.0:2.0, 16 = -4.0:4.0}>", WIDE)
    ]
    assert found[0] == found[1] == pytest.approx(WHOLE, rel=0.01)
    assert found[2] == pytest.approx(NARROW, rel=0.01)


def test_a_definition_and_its_reader_agree():
    """What a kernel writes in 8 bits is in the range for 8 bits, and no rescale stands between."""
    plan = planned(
        {"x": "[-1, 1]", "y": WIDE, "z": "[-1, 1]"}, [("a", "conv", "x", "y"), ("b", "conv", "y", "z")], "z"
    )
    found = spans(plan)
    assert found["a.out[0]"] == found["b.in[0]"] == pytest.approx(NARROW, rel=0.01)
    assert [rescale.value for rescale in plan.rescales] == ["x", "z"]
    assert plan.values["y"].bits_lost == 0.0


def test_a_float_reader_loses_nothing_by_the_choice():
    """A model output of what 8 bits hold: its own scale is that of the range chosen for them."""
    plan = planned({"x": "[-1, 1]", "y": WIDE}, [("a", "conv", "x", "y")], "y")
    assert spans(plan)["a.out[0]"] == pytest.approx(NARROW, rel=0.01)
    assert (plan.values["y"].bits_lost, plan.values["y"].clip) == (0.0, 0.0)


@pytest.mark.parametrize("reader", ["float", "conv"])
def test_a_coarser_label_loses_bits_against_the_chosen_range(reader):
    """A value that shares the scale of one four times as wide: 2 bits, of the range for its 8 bits."""
    values = {"x": "[-1, 1]", "a": WIDE, "b": "[-8, 8]", "y": "[-8, 8]", "z": "[-1, 1]", "w": "[-1, 1]"}
    kernels = [("k", "conv", "x", "a"), ("l", "conv", "x", "b"), ("c", "same", "a b", "y")]
    kernels += [("d", "conv", "y", "z"), ("e", "conv", "a", "w")][: 1 + (reader == "conv")]
    plan = planned(values, kernels, "a z" if reader == "float" else "w z", bit_price=0.0)
    assert spans(plan)["k.out[0]"] == spans(plan)["c.out[0]"] == pytest.approx(WHOLE, rel=0.01)
    assert plan.values["a"].bits_lost == pytest.approx(2.0, abs=0.01)


def test_movers_hand_it_on():
    """A value that nothing was observed of has the range of what is moved to it, in each width."""
    kernels = [("a", "conv", "x", "y"), ("r", "reshape", "y", "m"), ("b", "conv", "m", "z")]
    values = {"x": "[-1, 1]", "y": WIDE, "m": "", "z": "[-1, 1]"}
    plan = planned(values, kernels, "z", moves={"r": "Reshape"})
    found = spans(plan)
    inner = [found[name] for name in ("a.out[0]", "r.in[0]", "r.out[0]", "b.in[0]")]
    assert inner == [inner[0]] * 4
    assert inner[0] == pytest.approx(NARROW, rel=0.01)
    assert [rescale.value for rescale in plan.rescales] == ["x", "z"]


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ("", 9.0),  # the hull of -1 to 1 and 0 to 8
        ("!quant.calibrated<f32<-8.0:8.0>, {8 = -0.5:2.0}>", 9.0),  # what is read is held all the same
        ("[-8, 8]", 9.0),
    ],
)
def test_a_concat_holds_the_hull_of_what_it_reads(stated, wanted):
    narrow = "!quant.calibrated<f32<-8.0:8.0>, {8 = -1.0:1.0}>"
    values = {"x": "[-1, 1]", "a": narrow, "b": "[0, 8]", "y": stated, "z": "[-1, 1]"}
    kernels = [
        ("k", "conv", "x", "a"),
        ("l", "conv", "x", "b"),
        ("c", "cat", "a b", "y"),
        ("d", "conv", "y", "z"),
    ]
    plan = planned(values, kernels, "z", moves={"c": "Concat"})
    assert spans(plan)["c.in[0]"] == spans(plan)["c.out[0]"] == pytest.approx(wanted, rel=0.01)
    assert plan.values["a"].clip == plan.values["y"].clip == 0.0


def test_a_relu_cuts_what_it_hands_on():
    values = {"x": "[-1, 1]", "y": WIDE, "m": "", "z": "[-1, 1]"}
    kernels = [("a", "conv", "x", "y"), ("r", "reshape", "y", "m"), ("b", "conv", "m", "z")]
    plan = planned(values, kernels, "z", moves={"r": "Relu"})
    assert spans(plan)["b.in[0]"] == pytest.approx(2.0, rel=0.01)


def test_pins_and_fixed_types_decide():
    pin = "!quant.uniform<i8:f32, 0.05>"
    plan = planned({"x": f"{WIDE} & {pin}", "y": "[-1, 1]"}, [("k", "conv", "x", "y")], "y")
    assert plan.kernels["k"].inputs[0].type == parse_type(pin)
    chosen = "!quant.calibrated<f32<0.0:1.0>, {8 = 0.0:0.25}>"
    plan = planned({"x": "[-1, 1]", "y": chosen}, [("k", "soft", "x", "y")], "y")
    assert plan.kernels["k"].outputs[0].type.scale == 1 / 256
    assert plan.values["y"].clip == 0.0


def test_a_constant_has_parameters_of_its_own_numbers():
    """A range for a width is calibration's; the numbers of a constant are known."""
    import numpy as np

    target = target_of("- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}")
    graph = graph_of(
        {"x": "[-1, 1]", "c": np.array([-8.0, 1.0, 2.0, 8.0], np.float32), "y": "[-1, 1]"},
        [("k", "add", "x c", "y")],
        outputs="y",
    )
    chosen = replace(graph.values["c"], facts=(parse_type(WIDE),))
    for given in (graph, replace(graph, values={**graph.values, "c": chosen})):
        plan = propagate(given, target, model=model_digest(given))
        check(plan, given)
        assert spans(plan)["k.in[1]"] == pytest.approx(WHOLE, rel=0.01)


def test_planned_again_nothing_changes():
    kernels = [("k8", "conv", "x", "y"), ("k16", "wider", "y", "z"), ("l", "wide", "z", "w")]
    values = {"x": WIDE, "y": WIDE, "z": WIDE, "w": WIDE}
    plan = planned(values, kernels, "w")
    assert plan_from_json(plan.to_json()).to_json() == plan.to_json()
    again = propagate(read_mlir(plan.to_mlir()), ROWS)
    assert spans(again) == spans(plan)
    assert spans(plan)["k16.out[0]"] == pytest.approx(WHOLE, rel=0.01)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ("-4.0:4.0", r"cuts off 49\.\d\d% of \[-4, 4\]"),
        ("-1.0:1.0", r"x: is listed as losing 0\.0 bits; accepted: 1\.0"),
    ],
)
def test_the_checker_recomputes_it(ends, message):
    """A plan made for another range of the width cuts off too much, or is too coarse."""
    graph = graph_of({"x": WIDE, "y": "[-1, 1]"}, [("k", "conv", "x", "y")], outputs="y")
    fact = parse_type(f"!quant.calibrated<f32<-8.0:8.0>, {{8 = {ends}}}>")
    other = replace(graph, values={**graph.values, "x": replace(graph.values["x"], facts=(fact,))})
    digests = [model_digest(one) for one in (graph, other)]
    text = propagate(graph, ROWS, model=digests[0]).to_json()
    check(plan_from_json(text), graph)
    with pytest.raises(PlanInvalid, match=message):
        check(plan_from_json(text.replace("8 = -2.0:2.0", f"8 = {ends}").replace(*digests)), other)


@pytest.mark.parametrize(("write", "read"), [(write_annotated, read_annotated), (write_mlir, read_mlir)])
def test_annotated_models_keep_it(write, read):
    texts = (WIDE, "!quant.calibrated<f32<-8.0:8.0>, {row_max = {0: -4.0}, two_values = true, 4 = 0.0:1.0}>")
    graph = graph_of(dict(zip("xy", texts, strict=True)), [("k", "conv", "x", "y")], outputs="y")
    assert {name: value.facts for name, value in read(write(graph)).values.items()} == {
        name: value.facts for name, value in graph.values.items()
    }


def test_the_hull_of_what_is_one_value_has_the_hull_of_each_width():
    one = Calibrated((-8.0,), (8.0,), widths=(WidthRange(4, -1.0, 1.0), WidthRange(8, -2.0, 3.0)))
    other = Calibrated((-4.0,), (9.0,), widths=(WidthRange(8, -3.0, 2.0),))
    assert hull_of_observed([one, other]) == Calibrated(
        (-8.0,), (9.0,), widths=(WidthRange(4, -4.0, 9.0), WidthRange(8, -3.0, 3.0))
    )
    assert (one.at(8), one.at(16)) == ((-2.0, 3.0), (-8.0, 8.0))


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((WidthRange(8, -1.0, 1.0), WidthRange(4, -1.0, 1.0)), "ranges for [8, 4] bits; accepted: each"),
        ((WidthRange(8, -1.0, 1.0), WidthRange(8, -1.0, 1.0)), "ranges for [8, 8] bits; accepted: each"),
        ((WidthRange(8, -3.0, 1.0),), "the range 8 = -3.0:1.0 leaves the observed one, -2.0:2.0"),
        ((WidthRange(8, -1.0, 2.5),), "the range 8 = -1.0:2.5 leaves the observed one, -2.0:2.0"),
    ],
)
def test_ranges_that_are_none(widths, message):
    with pytest.raises(QTypeError) as caught:
        Calibrated((-2.0,), (2.0,), widths=widths)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("bad", [(0, 0.0, 1.0), (65, 0.0, 1.0), (8, 1.0, 0.0), (8, 0.0, float("nan"))])
def test_widths_that_are_none(bad):
    with pytest.raises(QTypeError, match="accepted: "):
        WidthRange(*bad)
