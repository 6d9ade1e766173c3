"""Rows that hold too little: which row serves where a fact says what rounding leaves at readers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.checker.check import check
from planner.errors import InputError
from planner.ir.graph import model_digest
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from planner.what_if.replan import replan
from tests.propagation.small import graph_of, target_of

A8 = "{kernel: mul, in: {a: a8, b: a8}, out: {y: a8}}"
A16 = "{kernel: mul, in: {a: a16, b: a16}, out: {y: a16}}"
INTO_16 = "{kernel: mul, in: {a: a8, b: a8}, out: {y: a16}}"
REST = (
    "{kernel: sin, in: {x: a8}, out: {y: a8}}",
    "{kernel: sin, in: {x: a16}, out: {y: a16}}",
    "{kernel: view, in: {x: '*'}, out: {y: '*'}, rules: [{same_scale: [x, y]}]}",
)
ANGLE = "!quant.calibrated<f32<0.0:100.0>, {readers = {8 = 15.5, 16 = 63.6}}>"


def rotary(angle=ANGLE, *, more="", a="[-1, 1]"):
    """Position by frequency, through a view into a sine, whose result is needed."""
    return graph_of(
        {"p": a, "f": "[0, 1]", "angle": f"{angle} & {more}", "v": angle, "y": "[-1, 1]"},
        [("m", "mul", "p f", "angle"), ("turn", "view", "angle", "v"), ("sine", "sin", "v", "y")],
        outputs="y",
        moves={"m": "Mul", "turn": "Reshape", "sine": "Sin"},
    )


def target(*rows, costs="", head=""):
    text = target_of("\n".join(f"- {row}" for row in (*rows, *REST)))
    document = {**text.document, **({"costs": costs} if costs else {})}
    document["defaults"] = {**document.get("defaults", {}), **(head or {})}
    return planner.load_target(document)


def planned(graph, device, **options):
    """A plan that holds, in memory and read back, by the model and by the target."""
    plan = propagate(graph, device, model=model_digest(graph), **options)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        check(one, graph, device)
    return plan


def stores(plan, kernel="m"):
    return "".join(
        "-" if port.type is None else str(port.type.storage)[1:].partition("<")[0] + " "
        for port in (*plan.kernels[kernel].inputs, *plan.kernels[kernel].outputs)
    ).strip()


def short(plan):
    return [(step.port, step.source) for step in plan.steps if step.rule == "short"]


SAID = "in i8, 'angle' leaves 15.5 dB at 'sine'"


@pytest.mark.parametrize(
    ("rows", "wanted", "expected"),
    [
        ((A8, A16), None, "8 8 8"),
        ((A8, A16), 15.4, "8 8 8"),
        ((A8, A16), 15.5, "8 8 8"),  # as much as is wanted is enough
        ((A8, A16), 15.6, "16 16 16"),
        ((A8, INTO_16, A16), 20, "8 8 16"),  # the next row, not the widest
        ((A8, A16), 63.6, "16 16 16"),
        ((A8, A16), 63.7, "16 16 16"),  # none leaves it: the one of most dB
        ((A16, A8), 63.7, "16 16 16"),
        ((A8,), 20, "8 8 8"),
        ((A16, A8), 15.6, "16 16 16"),
    ],
)
def test_the_first_row_that_leaves_enough_serves(rows, wanted, expected):
    device = target(*rows, costs={"wanted_db": wanted} if wanted is not None else "")
    assert stores(planned(rotary(), device)) == expected


def test_the_log_says_what_each_row_leaves_that_was_passed_over():
    plan = planned(rotary(), target(A8, A16, costs={"wanted_db": 20}))
    told = "in i8, 'v' leaves 15.5 dB at 'sine'"
    assert short(plan) == [("m", SAID), ("sine", told)]
    assert f"m: {SAID}" in planner.explain(plan, "m")
    assert plan.warnings == ()


@pytest.mark.parametrize(
    ("rows", "wanted", "expected"),
    [
        ((A8, A16), 20, [SAID]),
        ((A16, A8), 20, []),
        ((A8, A16), 70, [SAID, "in i16, 'angle' leaves 63.6 dB at 'sine'"]),
        ((A16, A8), 70, ["in i16, 'angle' leaves 63.6 dB at 'sine'"]),
        ((A8,), 20, [SAID]),
    ],
)
def test_what_is_told_are_rows_in_front_and_the_best_where_none_holds_enough(rows, wanted, expected):
    plan = planned(rotary(), target(*rows, costs={"wanted_db": wanted}))
    assert [why for port, why in short(plan) if port == "m"] == expected


@pytest.mark.parametrize(
    ("angle", "expected"),
    [
        ("[0, 100]", "8 8 8"),
        ("!quant.calibrated<f32<0.0:100.0>, {readers = {16 = 10.0}}>", "8 8 8"),
        ("!quant.calibrated<f32<0.0:100.0>, {readers = {4 = 1.0, 8 = 15.5}}>", "16 16 16"),
        ("!quant.calibrated<f32<0.0:100.0>, {readers = {8 = -100.0, 16 = -3.0}}>", "16 16 16"),
    ],
)
def test_of_a_width_without_a_fact_nothing_is_asked(angle, expected):
    assert stores(planned(rotary(angle), target(A8, A16, costs={"wanted_db": 20}))) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("!quant.uniform<i8:f32, 0.4:-128>", "8 8 8"),  # a pin says how it is stored
        ("!quant.any<i8>", "16 16 16"),  # at least 8 bits
        ("!quant.any<i16>", "16 16 16"),
    ],
)
def test_pins_come_first(more, expected):
    assert stores(planned(rotary(more=more), target(A8, A16, costs={"wanted_db": 20}))) == expected


def test_annotations_come_first():
    graph = planner.with_wanted(rotary(), {"m": "i8"})
    assert stores(planned(graph, target(A8, A16, costs={"wanted_db": 20}))) == "8 8 8"


FLOAT = {"wanted_db": 20, "wanted_float": True}


def test_float_is_taken_only_where_it_is_wanted():
    plan = planned(rotary(), target(A8, costs=FLOAT))
    assert plan.kernels["m"].row is None
    assert plan.kernels["m"].reason.startswith("no row holds enough: ")
    assert plan.kernels["m"].reason.endswith(SAID)
    assert stores(planned(rotary(), target(A8, A16, costs=FLOAT))) == "16 16 16"


@pytest.mark.parametrize("more", ["!quant.uniform<i8:f32, 0.4:-128>", "!quant.any<i8>"])
def test_a_kernel_that_a_fact_says_something_of_does_not_go_to_float(more):
    assert planned(rotary(more=more), target(A8, costs=FLOAT)).kernels["m"].row is not None


def test_where_no_kernel_may_run_in_float_the_row_of_most_db_serves():
    device = target(A8, costs=FLOAT, head={"on_no_kernel": "error"})
    assert stores(planned(rotary(), device)) == "8 8 8"


def test_a_floor_may_be_given_with_the_request():
    device = target(A8, A16)
    plan = planned(rotary(), device, wanted_db=20)
    assert (stores(plan), plan.options["wanted_db"]) == ("16 16 16", 20)
    none = planned(rotary(), target(A8, A16, costs={"wanted_db": 20}), wanted_db=None)
    assert stores(none) == "8 8 8"
    floats = planned(rotary(), target(A8), wanted_db=20, wanted_float=1)
    assert floats.kernels["m"].row is None


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({"wanted_db": -1}, "cost wanted_db is -1; accepted: a number of 0 to 1e+09"),
        ({"wanted_db": "20"}, "cost wanted_db is '20'; accepted: a number of 0 to 1e+09"),
        ({"wanted_float": 2}, "cost wanted_float is 2; accepted: true or false, or 1 or 0"),
        ({"wanted_float": None}, "cost wanted_float is None; accepted: true or false, or 1 or 0"),
    ],
)
def test_a_floor_that_is_none_is_refused(cost, message):
    with pytest.raises(InputError) as caught:
        propagate(rotary(), target(A8), **cost)
    assert caught.value.message == message


def test_without_any_fact_the_plan_says_that_nothing_was_asked():
    plan = planned(rotary("[0, 100]"), target(A8, A16, costs={"wanted_db": 20}))
    assert plan.warnings == (
        (
            "wanted_db is 20, and no fact has the dB at consumers, so no row is rejected for it: "
            "calibrate with `readers` (`--readers`)"
        ),
    )


def test_a_plan_without_a_floor_reads_as_before():
    plan = planned(rotary(), target(A8, A16))
    assert "wanted" not in plan.to_json()


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_both_strategies_share_the_rows(strategy):
    plan = planned(rotary(), target(A8, A16, costs={"wanted_db": 20}), strategy=strategy)
    assert stores(plan) == "16 16 16"


def test_several_readers_and_an_output_are_counted():
    graph = graph_of(
        {"p": "[-1, 1]", "f": "[0, 1]", "angle": ANGLE, "y": "[-1, 1]", "z": "[-1, 1]"},
        [("m", "mul", "p f", "angle"), ("s1", "sin", "angle", "y"), ("s2", "sin", "angle", "z")],
        outputs="y z angle",
    )
    plan = planned(graph, target(A8, A16, costs={"wanted_db": 20}))
    assert short(plan)[0] == ("m", "in i8, 'angle' leaves 15.5 dB at the model's output or 2 more")


DB = st.sampled_from([5.0, 15.5, 20.0, 30.0, 60.0])


@settings(max_examples=60, deadline=None)
@given(
    db=st.lists(st.tuples(DB, DB), min_size=4, max_size=4),
    wanted=st.sampled_from([0.0, 15.5, 16.0, 25.0, 61.0]),
    to_float=st.booleans(),
    order=st.permutations([A8, A16, INTO_16]),
    edited=st.sampled_from(["p", "angle", "y"]),
)
def test_every_plan_holds_and_a_replan_is_a_plan_from_scratch(db, wanted, to_float, order, edited):
    """And what the row of a kernel is depends on the values at its ports alone."""
    names = ["p", "angle", "v", "y"]
    texts = {
        name: f"!quant.calibrated<f32<-2.0:2.0>, {{readers = {{8 = {a}, 16 = {b}}}}}>"
        for name, (a, b) in zip(names, db, strict=True)
    }
    graph = graph_of(
        {"f": "[0, 1]", **texts},
        [("m", "mul", "p f", "angle"), ("turn", "view", "angle", "v"), ("sine", "sin", "v", "y")],
        outputs="y",
        moves={"m": "Mul", "turn": "Reshape", "sine": "Sin"},
    )
    device = target(*order, costs={"wanted_db": wanted, "wanted_float": to_float})
    plan = planned(graph, device)
    worst = {8: min(db[0][0], db[1][0]), 16: min(db[0][1], db[1][1])}
    mixed = min(db[0][0], db[1][1])
    left = {A8: worst[8], A16: worst[16], INTO_16: mixed}
    best = next((row for row in order if left[row] >= wanted), None)
    if best is None:
        best = None if to_float else max(order, key=lambda row: left[row])
    expected = {A8: "8 8 8", A16: "16 16 16", INTO_16: "8 8 16", None: "---"}[best]
    assert stores(plan).replace(" ", "") == expected.replace(" ", "")
    edits = {"format": "qplan.annotations/1", "values": {edited: "!quant.any<i16>"}}
    again = replan(plan, edits)
    whole = propagate(planner.annotate(graph, annotations=edits), device, model=again.model)
    assert again.to_json() == whole.to_json()
