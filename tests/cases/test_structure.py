"""Cases 40 and 41 of tests/cases: loops, branches and functions, as annotated models planned for `npu.yaml`.

The models are in `structure/`, the whole plan and its reasons in `golden/`. What holds of any model (a
function costs what its body costs, a loop no less than its trips) is at the end, on random graphs.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import planner
from planner.checker.check import check
from planner.errors import Conflict, ModelError, PlanFormatError, PlanInvalid
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.text.read_module import read_mlir
from planner.formats.mlir.text.write_module import write_mlir
from planner.ir.expand import expand
from planner.ir.graph import Graph, Region, Value
from planner.ir.structure import Call, Loop
from planner.ir.types.qtypes import AnyType, Calibrated
from planner.ir.validity import validate
from planner.plans.plan import Plan
from planner.plans.read_mlir import plan_from_mlir
from tests.cases.table import A, B, counted, port_type, told
from tests.propagation.graphs import TARGET, random_graph, seeded

HERE = Path(__file__).parent / "structure"
NPU = planner.load_target(Path(__file__).parent / "npu.yaml")

# Rescales, the price, and ports of one scale.
CASES = {
    "loop_start_is_finer": (
        ("h0#0 requantize -> w/begin:h.in[0]",),
        48.0,
        ("w/begin:h.in[0]", "w/sum.in[0]", "w/act.out[0]", "w/end:n.out[0]", "k2.in[0]"),
    ),
    "loop_state_pinned_in_the_body": ((), 32.0, ("k0.out[0]", "w/sum.in[0]", "w/act.out[0]", "k2.in[0]")),
    "loop_operand_is_rescaled_outside": (
        ("a#0 requantize -> w/begin:a.in[0]",),
        48.0,
        ("k0.out[0]", "w/mix.in[1]", "w/mix.out[0]", "k2.in[0]"),
    ),
    "loop_in_a_loop": (("h0#0 requantize -> w/begin:h.in[0]",), 32.0, ("w/again/sum.out[0]", "k2.in[0]")),
    "loop_of_movers": ((), 32.0, ("k1.out[0]", "w/turn.in[0]", "k2.in[0]")),
    "if_rescales_at_a_branch_end": (
        ("choose/else/q#0 requantize -> choose/join:r.in[1]",),
        48.0,
        ("choose/then/sum.out[0]", "choose/join:r.in[1]", "k2.in[0]"),
    ),
    "if_branches_agree": ((), 32.0, ("choose/then/sum.out[0]", "choose/else/sum.out[0]", "k2.in[0]")),
    "function_shared_by_two_calls": ((), 48.0, ("c1/move.in[0]", "c2/move.in[0]")),
    "function_cloned_for_a_caller": ((), 16.0, ("c2/move.in[0]", "c3/move.in[0]")),
    "function_with_a_pinned_parameter": (
        ("x#0 requantize -> c1/begin:p.in[0]",),
        32.0,
        ("c1/sum.in[0]", "c2/sum.in[0]"),
    ),
}
BODIES = {
    "function_shared_by_two_calls": {"f": {"f": ("c1", "c2")}},
    "function_cloned_for_a_caller": {"f": {"f": ("c1",), "f@c2": ("c2", "c3")}},
    "loop_in_a_loop": {"outer": {"outer": ("w",)}, "inner": {"inner": ("w/again",)}},
}


def read(name: str) -> Graph:
    return read_annotated((HERE / f"{name}.json").read_text())


def planned(name: str) -> tuple[Graph, Plan]:
    graph = read(name)
    return graph, planner.plan(graph, NPU)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    rescales, price, alike = CASES[name]
    graph, plan = planned(name)
    check(plan, graph, NPU)
    assert counted(plan) == list(rescales)
    assert (plan.cost, plan.optimal) == (price, True)
    labels = {(port_type(plan, port).scales, port_type(plan, port).zero_points) for port in alike}
    assert len(labels) == 1


@pytest.mark.parametrize("name", CASES)
def test_plan_and_explanation(golden, name):
    _, plan = planned(name)
    about = [text.partition(" ")[0] for text in CASES[name][0]] or [CASES[name][2][-1]]
    golden(f"{name}.txt", told(plan, about))


@pytest.mark.parametrize("name", BODIES)
def test_places_that_are_planned_alike_share_a_body(name):
    _, plan = planned(name)
    found = {function: {b.name: b.places for b in group} for function, group in plan.bodies.items()}
    assert found == BODIES[name]


@pytest.mark.parametrize("name", CASES)
def test_text_forms(name):
    graph, plan = planned(name)
    text = write_annotated(graph)
    assert write_annotated(read_annotated(text)) == text
    module = write_mlir(graph)
    assert write_annotated(read_mlir(module)) == text
    assert write_mlir(read_mlir(module)) == module
    for again in (planner.plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        assert again.to_json() == plan.to_json()
        check(again, graph, NPU)
        assert again.bodies == plan.bodies


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"scf.yield"(%next)', '"scf.yield"(%state)', "a body of scf.for holds one func.call and a yield"),
        ('%from = "arith.constant"() {value = 0 : index}', '%from = "some.op"()', "only tensors are known"),
        ("private @step", "@step", "2 public functions"),
        ('callee = @"step"', 'callee = @"main"', "has 2 inputs for 2|runs|1 inputs|itself|could not"),
    ],
)
def test_bad_modules_are_refused(old, new, problem):
    text = write_mlir(read("loop_start_is_finer"))
    assert old in text
    with pytest.raises((ModelError, Conflict), match=problem):
        planner.plan(read_mlir(text.replace(old, new)), NPU)


def test_every_model_has_a_case():
    assert {path.stem for path in HERE.glob("*.json")} == {*CASES, "function_runs_itself"}


def test_recursion_is_a_conflict():
    with pytest.raises(Conflict, match="'f' runs itself: f -> g -> f") as caught:
        planner.plan(read("function_runs_itself"), NPU)
    assert caught.value.facts == ("function 'f' runs 'g'", "function 'g' runs 'f'")


def test_calls_that_multiply_end():
    """Twenty-five functions that each call the next twice: 2^25 kernels, were they put in place."""
    values = {name: Value(name, (1,)) for name in ("x", "m", "y")}

    def body(i: int) -> Graph:
        if i == 24:
            inside: tuple[Region, ...] = (Region("k", "add", ("x", "x"), ("y",)),)
        else:
            calls = ((("x",), ("m",)), (("m",), ("y",)))
            inside = tuple(
                Region(f"c{n}", "f", read, made, structure=Call(f"f{i + 1}"))
                for n, (read, made) in enumerate(calls)
            )
        return Graph(f"f{i}", values, (), ("x",), ("y",), regions=inside)

    functions = {f"f{i}": body(i) for i in range(25)}
    call = Region("c", "f", ("x",), ("y",), structure=Call("f0"))
    graph = Graph("laughs", values, (), ("x",), ("y",), regions=(call,), functions=functions)
    with pytest.raises(ModelError, match="more than 1,048,576 kernels"):
        expand(validate(graph))


def test_a_rescale_in_a_loop_costs_every_trip():
    """The state is pinned at its end and at its start: one of the two pays, and the start pays once."""
    document = json.loads((HERE / "loop_start_is_finer.json").read_text())
    body = document["functions"][0]
    next(v for v in body["values"] if v["name"] == "h")["constraints"] = [B]
    next(v for v in body["values"] if v["name"] == "n")["constraints"] = [A]
    plan = planner.plan(read_annotated(json.dumps(document)), NPU)
    inside = [r for r in plan.rescales if r.value in ("w/h", "w/n") and r.kind == "requantize"]
    assert [r.cost for r in inside] == [160.0]


def test_a_carried_value_of_two_scales_is_refused():
    graph, plan = planned("loop_start_is_finer")
    end = plan.kernels["w/end:n"]
    other = planner.parse_type(B)
    ports = tuple(replace(port, type=other) for port in (*end.inputs, *end.outputs))
    broken = replace(end, inputs=ports[:1], outputs=ports[1:])
    kernels = tuple(broken if k.name == end.name else k for k in plan.kernels_in_order)
    with pytest.raises(PlanInvalid, match=r"w/end:n|step"):
        check(replace(plan, kernels_in_order=kernels), graph, NPU)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["kernels"][1]["loop"].update(body="nothing"), "runs function 'nothing'"),
        (lambda d: d["kernels"][1]["loop"].update(trip_count=0), "loops 0 times"),
        (lambda d: d["kernels"][1]["loop"].update(carried=[[0, 3]]), r"carries \[0, 3\]"),
        (lambda d: d["kernels"][1]["inputs"].pop(), "1 inputs for 2 of function 'step'"),
    ],
)
def test_bad_structure_is_refused(change, problem):
    document = json.loads((HERE / "loop_start_is_finer.json").read_text())
    change(document)
    with pytest.raises(ModelError, match=problem):
        read_annotated(json.dumps(document))


def test_bad_fields_are_refused():
    document = json.loads((HERE / "loop_start_is_finer.json").read_text())
    document["kernels"][1]["call"] = "step"
    with pytest.raises(PlanFormatError, match=r"kernels\[1\].loop: the kernel has 'call' too"):
        read_annotated(json.dumps(document))
    del document["kernels"][1]["call"]
    document["kernels"][1]["loop"]["carried"] = [[0]]
    with pytest.raises(PlanFormatError, match=r"kernels\[1\].loop.carried\[0\]"):
        read_annotated(json.dumps(document))


def outlined(graph: Graph, first: int, last: int) -> Graph:
    """Make a function of the kernels from one place to another, and call it."""
    inside = graph.regions[first:last]
    written = {name for region in inside for name in region.outputs}
    read_inside = [name for region in inside for name in region.inputs if name]
    others = (*graph.regions[:first], *graph.regions[last:])
    outside = {name for region in others for name in region.inputs} | set(graph.outputs)
    inputs = tuple(dict.fromkeys(n for n in read_inside if n not in written and n not in graph.constants))
    outputs = tuple(n for n in graph.values if n in written and n in outside)
    inner = {*read_inside, *written}
    # What a caller knows of an operand is not the function's to say; its own values keep what is known.
    values = {
        n: replace(v, facts=() if n in inputs or n in outputs else v.facts)
        for n, v in graph.values.items()
        if n in inner
    }
    body = Graph(
        "f",
        values,
        (),
        inputs,
        outputs,
        constants={n: c for n, c in graph.constants.items() if n in inner},
        regions=inside,
    )
    call = Region("c", "f", inputs, outputs, structure=Call("f"))
    left = (*graph.regions[:first], call, *graph.regions[last:])
    return validate(replace(graph, regions=left, functions={"f": body}))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 25))
def test_a_function_costs_what_its_body_costs(seed, size):
    """Inlining by hand gives the same price."""
    graph, random = random_graph(seed, size), seeded(seed)
    first = random.randrange(size - 1)
    called = outlined(graph, first, random.randrange(first + 1, size))
    assert planner.plan(called, TARGET).cost == planner.plan(graph, TARGET).cost


def looped(graph: Graph, trips: int) -> tuple[Graph, Graph]:
    """A graph of one input and output as a loop's body, and the same body written out `trips` times.

    The start is what a kernel computes: a float input can be quantized in two ways, what is stored cannot.
    """
    name, result = graph.inputs[0], graph.outputs[0]
    start = replace(graph.values[name], name="start", facts=graph.values[result].facts)
    loop = Loop("body", trips, ((0, 0),))
    region = Region("w", "loop", ("start",), ("last",), structure=loop)
    end = replace(graph.values[result], name="last", facts=())
    given, first = replace(start, name="given"), Region("first", "add", ("given", "given"), ("start",))
    body = replace(graph, outputs=(result,), inputs=(name,))
    values = {"given": given, "start": start, "last": end}
    rolled = Graph(
        "rolled", values, (), ("given",), ("last",), regions=(first, region), functions={"body": body}
    )
    calls = tuple(
        Region(f"c{i}", "body", ("start" if i == 0 else f"s{i}",), (f"s{i + 1}",), structure=Call("body"))
        for i in range(trips)
    )
    states = {f"s{i}": replace(end, name=f"s{i}") for i in range(1, trips + 1)}
    unrolled = Graph(
        "unrolled",
        {"given": given, "start": start, **states},
        (),
        ("given",),
        (f"s{trips}",),
        regions=(first, *calls),
        functions={"body": body},
    )
    return validate(rolled), validate(unrolled)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 4))
def test_unrolling_a_loop_costs_at_most_its_trips(seed, size, trips):
    """In rescales: a border makes some loss unavoidable, which the first trip written out may pay to avoid.

    The start has a range as the state has; without one, only the loop knows what comes in.
    """
    graph = random_graph(seed, size, facts=0.05)
    name, result = graph.inputs[0], graph.outputs[0]
    assume(len(graph.inputs) == 1 and name != result)
    assume(any(isinstance(fact, Calibrated) for fact in graph.values[result].facts))
    # An Any at the state keeps the body's movers from float if there is no border to take it.
    assume(not any(isinstance(fact, AnyType) for value in graph.values.values() for fact in value.facts))
    values = {**graph.values, name: replace(graph.values[name], facts=())}
    values[result] = replace(values[result], shape=values[name].shape)
    once = tuple(replace(region, trip_count=1) for region in graph.regions)
    rolled, unrolled = looped(replace(graph, values=values, outputs=(result,), regions=once), trips)
    check(planner.plan(rolled, TARGET), rolled, TARGET)
    prices = [planner.plan(one, TARGET, bit_price=0.0).cost for one in (unrolled, rolled)]
    # A border's class offers a label of its own: 11 of 2,624 bodies are up to 15 % dearer written out.
    assert prices[0] <= 1.5 * trips * prices[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_a_loop_is_planned_for_its_trips_and_replanned(seed, size):
    """Whatever is edited in a loop, planning again is planning from scratch."""
    graph = random_graph(seed, size, facts=0.05)
    assume(len(graph.inputs) == 1 and graph.inputs[0] != graph.outputs[0])
    rolled, _ = looped(replace(graph, outputs=graph.outputs[:1]), 3)
    plan = planner.plan(rolled, TARGET)
    flat = expand(rolled)
    inner = sorted(n for n in flat.values if n not in flat.constants and n in plan.kernels_at)
    name = seeded(seed).choice(inner)
    edits = {"values": {name: A}}
    try:
        scratch = planner.plan(planner.annotate(rolled, annotations=_annotations(edits)), TARGET)
    except planner.PlannerError:
        return
    assert planner.replan(plan, edits).to_json() == scratch.to_json()


def _annotations(edits: dict) -> dict:
    return {"format": "qplan.annotations/1", **edits}
