"""Types per axis and per block through data movement (case 37), and from ranges per axis."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import Conflict, PlanInvalid
from planner.ir.graph import Constant, Graph, Op, Region, Value, model_digest
from planner.ir.types.typetext import parse_type
from planner.ir.validity import validate
from planner.plans.read_json import plan_from_json
from planner.plans.write_json import plan_to_json
from planner.propagation.propagate import propagate
from tests.plans.planned import forged
from tests.propagation.small import target_of

ROWS = target_of(
    """
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: "*"}, out: {y: "*"}, rules: [{same_scale: [xs, y]}]}
- {kernel: part, in: {x: "*"}, out: {ys*: "*"}, rules: [{same_scale: [x, ys]}]}
- {kernel: plain, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: depthwise, in: {x: C8}, out: {y: C8}, axis: {x: 1, y: 1}}
- {kernel: lastwise, in: {x: C8}, out: {y: C8}, axis: {x: -1, y: -1}}
""".replace("C8", "{storage: i8, granularity: axis}")
)
AXIS_1 = "!quant.uniform<i8:f32:1, {0.5,0.25,0.125}>"
BLOCKS = "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.125, 1.0}}>"


def graph_of(values, kernels, outputs, numbers=None):
    """values: name -> (shape, fact or ""); kernels: (name, kernel, op, inputs, outputs, attributes)."""
    made = {
        name: Value(name, shape, "f32", tuple(parse_type(text) for text in facts.split(" & ") if text))
        for name, (shape, facts) in values.items()
    }
    constants = {}
    for name, array in (numbers or {}).items():
        made[name] = Value(name, np.shape(array), "i64")
        constants[name] = Constant(np.array(array, np.int64))
    regions = []
    for name, kernel, op, ins, outs, attributes in kernels:
        ports = tuple(n for n in ins if n not in constants)
        ops = (Op(f"{name}_op", op, tuple(ins), tuple(outs), attributes),) if op else ()
        regions.append(Region(name, kernel, ports, tuple(outs), ops))
    written = {n for region in regions for n in region.outputs}
    inputs = tuple(n for n in made if n not in written and n not in constants)
    return validate(Graph("g", made, (), inputs, tuple(outputs), constants, tuple(regions)))


def moved(op, shapes, fact, attributes=None, numbers=None):
    """One mover over a pinned value; the result goes out of the model."""
    ins = ["x", *(numbers or {})]
    graph = graph_of(
        {"x": (shapes[0], fact), "y": (shapes[1], "")},
        [("move", "view", op, ins, ["y"], attributes or {})],
        ["y"],
        numbers,
    )
    plan = propagate(graph, ROWS)
    check(plan)
    check(plan_from_json(plan_to_json(plan)))
    return plan, str(plan.kernels["move"].outputs[0].type)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "numbers", "wanted"),
    [
        ("Transpose", ((2, 3), (3, 2)), {"perm": (1, 0)}, {}, ":0, {0.5,0.25,0.125}"),
        ("Transpose", ((2, 3, 4), (4, 3, 2)), {}, {}, ":1, {0.5,0.25,0.125}"),
        ("Transpose", (("N", 3, 4), ("N", 4, 3)), {"perm": (0, 2, 1)}, {}, ":2, {0.5,0.25,0.125}"),
        ("Reshape", ((2, 3, 4), (2, 3, 2, 2)), {}, {}, ":1, {0.5,0.25,0.125}"),
        ("Reshape", (("N", 3, 4), ("N", 3, 2, 2)), {}, {}, ":1, {0.5,0.25,0.125}"),
        ("Reshape", ((2, 3, 4), (2, 1, 3, 4)), {}, {}, ":2, {0.5,0.25,0.125}"),
        ("Unsqueeze", ((2, 3), (1, 2, 3)), {}, {}, ":2, {0.5,0.25,0.125}"),
        ("Flatten", ((1, 3), (1, 3)), {}, {}, ":1, {0.5,0.25,0.125}"),
        ("Identity", ((2, 3), (2, 3)), {}, {}, ":1, {0.5,0.25,0.125}"),
        ("Slice", ((2, 3), (2, 2)), {}, {"s": [1], "e": [3], "a": [1]}, ":1, {0.25,0.125}"),
        ("Slice", ((2, 3), (2, 3)), {}, {"s": [-1], "e": [-9], "a": [1], "t": [-1]}, ":1, {0.125,0.25,0.5}"),
        ("Slice", ((2, 3), (1, 3)), {}, {"s": [1], "e": [2], "a": [0]}, ":1, {0.5,0.25,0.125}"),
        ("Pad", ((2, 3), (4, 3)), {}, {"p": [1, 0, 1, 0]}, ":1, {0.5,0.25,0.125}"),
        ("Pad", ((2, 3), (2, 5)), {}, {"p": [0, 1, 0, 1]}, ":1, {0.5,0.5,0.25,0.125,0.125}"),
    ],
)
def test_an_axis_that_stays_whole_moves_on(op, shapes, attributes, numbers, wanted):
    """No requantize: the result has the scales of what it holds."""
    plan, kind = moved(op, shapes, AXIS_1, attributes, numbers)
    assert wanted in kind
    assert [rescale.kind for rescale in plan.rescales] == ["dequantize"]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "numbers"),
    [
        ("Reshape", ((2, 3), (6,)), {}, {}),
        ("Reshape", ((2, 3), (3, 2)), {}, {}),
        ("Reshape", (("N", 3), ("M",)), {}, {}),
        ("Flatten", ((1, 3, 2), (1, 6)), {}, {}),
        ("DepthToSpace", ((1, 3), (1, 3)), {}, {}),
        ("Pad", ((2, 3), (2, 5)), {"mode": "reflect"}, {"p": [0, 1, 0, 1]}),
    ],
)
def test_slices_that_are_mixed_are_requantized_per_tensor(op, shapes, attributes, numbers):
    plan, kind = moved(op, shapes, AXIS_1, attributes, numbers)
    assert parse_type(kind).is_per_tensor
    assert [rescale.kind for rescale in plan.rescales] == ["requantize", "dequantize"]


def test_slices_that_are_mixed_conflict_where_nothing_rescales():
    graph = graph_of(
        {"x": ((2, 3), AXIS_1), "y": ((6,), "")}, [("move", "view", "Reshape", ["x"], ["y"], {})], ["y"]
    )
    with pytest.raises(Conflict, match="would need a requantize before 'move'") as caught:
        propagate(graph, replace(ROWS, rescale_allowed=False))
    assert caught.value.facts[0] == f"value 'x': {AXIS_1}"


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "numbers", "wanted"),
    [
        ("Transpose", ((2, 4), (4, 2)), {"perm": (1, 0)}, {}, "{0:2, 1:1}, {{0.5, 0.125}, {0.25, 1.0}}"),
        ("Reshape", ((2, 4), (2, 1, 4)), {}, {}, "{0:1, 2:2}, {{{0.5, 0.25}}, {{0.125, 1.0}}}"),
        ("Slice", ((2, 4), (2, 2)), {}, {"s": [2], "e": [4], "a": [1]}, "{0:1, 1:2}, {{0.25}, {1.0}}"),
        ("Slice", ((2, 4), (1, 4)), {}, {"s": [1], "e": [2], "a": [0]}, "{0:1, 1:2}, {{0.125, 1.0}}"),
    ],
)
def test_blocks_move_likewise(op, shapes, attributes, numbers, wanted):
    plan, kind = moved(op, shapes, BLOCKS, attributes, numbers)
    assert wanted in kind
    assert [rescale.kind for rescale in plan.rescales] == ["dequantize"]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "numbers"),
    [
        ("Reshape", ((2, 4), (2, 2, 2)), {}, {}),
        ("Slice", ((2, 4), (2, 2)), {}, {"s": [1], "e": [3], "a": [1]}),
    ],
)
def test_blocks_that_are_cut_through_are_requantized(op, shapes, attributes, numbers):
    plan, _ = moved(op, shapes, BLOCKS, attributes, numbers)
    assert [rescale.kind for rescale in plan.rescales] == ["requantize", "dequantize"]


OTHER = "!quant.uniform<i8:f32:1, {2.0,4.0,8.0}>"
TENSOR = "!quant.uniform<i8:f32, 0.0625>"


@pytest.mark.parametrize(
    ("second", "axis", "wanted"),
    [
        (OTHER, 1, "i8:f32:1, {0.5,0.25,0.125,2.0,4.0,8.0}"),  # along it: the vectors join
        (AXIS_1, 0, "i8:f32:1, {0.5,0.25,0.125}"),  # across it: the same vector
        (TENSOR, 1, "i8:f32:1, {0.5,0.25,0.125,0.0625,0.0625,0.0625}"),  # one scale is a vector of it
    ],
)
def test_concat_joins_vectors(second, axis, wanted):
    shape = (4, 3) if axis == 0 else (2, 6)
    graph = graph_of(
        {"x": ((2, 3), AXIS_1), "z": ((2, 3), second), "y": (shape, "")},
        [("cat", "join", "Concat", ["x", "z"], ["y"], {"axis": axis})],
        ["y"],
    )
    plan = propagate(graph, ROWS)
    check(plan)
    assert wanted in str(plan.kernels["cat"].outputs[0].type)
    assert [rescale.kind for rescale in plan.rescales] == ["dequantize"]


def test_concat_across_other_vectors_is_requantized():
    graph = graph_of(
        {"x": ((2, 3), AXIS_1), "z": ((2, 3), OTHER), "y": ((4, 3), "")},
        [("cat", "join", "Concat", ["x", "z"], ["y"], {"axis": 0})],
        ["y"],
    )
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["cat"].outputs[0].type.is_per_tensor


def test_split_takes_its_part():
    graph = graph_of(
        {"x": ((2, 3), AXIS_1), "y": ((2, 2), ""), "z": ((2, 1), "")},
        [("split", "part", "Split", ["x"], ["y", "z"], {"axis": 1})],
        ["y", "z"],
    )
    plan = propagate(graph, ROWS)
    check(plan)
    kinds = [port.type for port in plan.kernels["split"].outputs]
    assert [kind.scales for kind in kinds] == [(0.5, 0.25), (0.125,)]
    assert [kind.axis for kind in kinds] == [1, 1]


def chain(*kernels, fact=AXIS_1, shapes=((2, 3), (3, 2), (2, 3))):
    names = ["x", *(f"v{i}" for i in range(len(kernels)))]
    facts = [fact, *("!quant.calibrated<f32<-1.0:1.0>>" for _ in kernels)]
    values = dict(zip(names, zip(shapes, facts, strict=False), strict=False))
    made = [
        (
            f"k{i}",
            kernel,
            op,
            [names[i]] * (2 if kernel == "add" else 1),
            [names[i + 1]],
            {"perm": (1, 0)} if op == "Transpose" else {},
        )
        for i, (kernel, op) in enumerate(kernels)
    ]
    return graph_of(values, made, [names[-1]])


@pytest.mark.parametrize("last", ["depthwise", "lastwise"])
def test_a_row_that_takes_slices_reads_them_as_they_are(last):
    """Through two transposes to a depthwise kernel: nothing is rescaled."""
    graph = chain(
        ("view", "Transpose"),
        ("view", "Transpose"),
        (last, ""),
        shapes=((2, 3), (3, 2), (2, 3), (2, 3)),
    )
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["k2"].inputs[0].type == parse_type(AXIS_1)
    assert [rescale.kind for rescale in plan.rescales] == ["dequantize"]


@pytest.mark.parametrize("last", ["depthwise", "add"])
def test_a_row_that_does_not_gets_one_scale_on_its_edge(last):
    """Along another axis, or per tensor: the requantize is on the reader's edge, the mover carries."""
    graph = chain(("view", "Transpose"), (last, ""), shapes=((2, 3), (3, 2), (3, 2)))
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["k0"].outputs[0].type.axis == 0
    assert plan.kernels["k1"].inputs[0].type.is_per_tensor
    assert [(r.value, r.kind) for r in plan.rescales if r.kind == "requantize"] == [("v0", "requantize")]


def test_a_row_of_one_scale_does_not_carry():
    graph = chain(("plain", "Transpose"), ("add", ""), shapes=((2, 3), (3, 2), (3, 2)))
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["k0"].inputs[0].type.is_per_tensor


@pytest.mark.parametrize("wish", ["power_of_two: true", "zero_point: 0", "symmetric: true", "scale_max: 0.3"])
def test_a_wildcard_with_wishes_does_not_carry_what_breaks_them(wish):
    fact = "!quant.uniform<i8:f32:1, {0.5:1,0.3:2,0.125}>"
    graph = chain(("view", "Transpose"), fact=fact, shapes=((2, 3), (3, 2)))
    port = f'{{storage: "*", {wish}}}'
    target = target_of(
        f"- {{kernel: view, in: {{x: {port}}}, out: {{y: {port}}}, rules: [{{same_scale: [x, y]}}]}}"
    )
    plan = propagate(graph, target)
    check(plan)
    assert plan.kernels["k0"].inputs[0].type.is_per_tensor


RANGES = "!quant.calibrated<f32:1, {-1.0:1.0, -2.0:1.0, 0.0:4.0}>"


def test_ranges_per_axis_give_types_per_axis_where_all_ports_take_them():
    graph = chain(("depthwise", ""), ("depthwise", ""), fact=RANGES, shapes=((2, 3), (2, 3), (2, 3)))
    plan = propagate(graph, ROWS)
    check(plan)
    kind = plan.kernels["k0"].inputs[0].type
    assert kind.axis == 1
    assert kind.scales == pytest.approx([2 / 255, 3 / 255, 4 / 255])
    assert kind.zero_points == (-1, 42, -128)
    assert plan.kernels["k0"].outputs[0].type.is_per_tensor  # its own range is of the whole


def test_ranges_per_axis_are_one_range_elsewhere():
    graph = chain(("add", ""), fact=RANGES, shapes=((2, 3), (2, 3)))
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["k0"].inputs[0].type.scale == pytest.approx(6 / 255)


def test_the_checker_follows_the_elements():
    """A transposed type with the axis left where it was, a vector in another order, a scale off by one."""
    plan, _ = moved("Transpose", ((3, 3), (3, 3)), AXIS_1, {"perm": (1, 0)})
    for wrong in ("i8:f32:1, {0.5,0.25,0.125}", "i8:f32:0, {0.25,0.5,0.125}", "i8:f32, 0.5"):
        with pytest.raises(PlanInvalid) as caught:
            check(forged(plan, {"move.out[0]": parse_type(f"!quant.uniform<{wrong}>")}))
        assert caught.value.port == "move.out[0]"


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "numbers"),
    [
        ("Reshape", ((2, 3, 4), (4, 3, 2)), {}, {}),
        ("Gather", ((2, 3), (2, 3)), {"axis": 1}, {"i": [2, 1, 0]}),
        ("Pad", ((2, 3), (2, 3)), {"mode": "reflect"}, {"p": [0, 1, 0, -1]}),
    ],
)
def test_mixed_slices_of_one_type_on_both_sides_are_refused(op, shapes, attributes, numbers):
    """The types of the class are alike, and still the elements of a slice are of several scales."""
    graph = graph_of(
        {"x": (shapes[0], AXIS_1), "y": (shapes[1], AXIS_1)},
        [("move", "view", op, ["x", *numbers], ["y"], attributes)],
        ["y"],
        numbers,
    )
    wrong = parse_type(AXIS_1)
    plan = propagate(graph, ROWS, model=model_digest(graph))
    check(plan, graph)
    plan = forged(plan, {"move.in[0]": wrong, "move.out[0]": wrong})
    plan.__dict__["rescales"] = ()
    with pytest.raises(PlanInvalid, match="mixes its slices") as caught:
        check(plan, graph)
    assert caught.value.port == "move.out[0]"


def test_a_pad_of_differing_zero_points_is_requantized():
    pins = "!quant.uniform<i8:f32:1, {0.5:1,0.25,0.125}>"
    _, kind = moved("Pad", ((2, 3), (4, 3)), pins, {}, {"p": [1, 0, 1, 0]})
    assert parse_type(kind).is_per_tensor


def test_a_reader_of_slices_pays_for_what_its_data_lost():
    """Half of a split goes to a wide concat, half to a reader per axis: the split's scale stays fine."""
    fine = "!quant.uniform<i8:f32:1, {0.0078125,0.0078125,0.00390625}>"
    graph = graph_of(
        {
            "a": ((2, 6), "!quant.calibrated<f32<-1.0:1.0>>"),
            "x": ((2, 6), "!quant.calibrated<f32<-1.0:1.0>>"),
            "v": ((2, 3), fine),
            "u": ((2, 3), "!quant.calibrated<f32<-1.0:1.0>>"),
            "z": ((2, 3), "!quant.calibrated<f32<-8.0:8.0>>"),
            "w": ((2, 6), ""),
            "y": ((2, 6), "!quant.calibrated<f32<-16.0:16.0>>"),
            "o": ((2, 3), "!quant.calibrated<f32<-1.0:1.0>>"),
        },
        [
            ("k0", "add", "", ["a", "a"], ["x"], {}),
            ("split", "part", "", ["x"], ["v", "u"], {}),
            ("wide", "join", "", ["u", "z"], ["w"], {}),
            ("sum", "add", "", ["w", "w"], ["y"], {}),
            ("dw", "depthwise", "", ["v"], ["o"], {}),
        ],
        ["y", "o"],
    )
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.kernels["split"].outputs[0].type.scale == pytest.approx(2 / 255, rel=0.01)
    assert [r.value for r in plan.rescales if r.kind == "requantize"] == ["v", "u"]
    # A third of the slices asks for a bit more than 2/255.
    assert plan.values["v"].bits_lost == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        ("", 0.0),
        ("!quant.calibrated<f32<-127.0:127.0>>", 0.0),  # what was seen of all says nothing of one
        ("!quant.calibrated<f32<-4.0:4.0>>", 2.9),  # 64 / 4, 32 / 4 and 16 / 4
        ("!quant.calibrated<f32:1, {-16.0:16.0, -32.0:32.0, -1.0:1.0}>", 2.0),  # 2, 0 and 4
    ],
)
def test_slices_that_are_coarser_than_their_ranges_lose_bits(seen, lost):
    """Reported, the mean over the slices; nobody can avoid it, so it costs nothing."""
    graph = chain(("depthwise", ""), fact=f"{AXIS_1} & {seen}" if seen else AXIS_1, shapes=((2, 3), (2, 3)))
    plan = propagate(graph, ROWS)
    check(plan)
    assert plan.values["x"].bits_lost == pytest.approx(lost, abs=0.1)
    assert plan.cost == propagate(chain(("depthwise", ""), shapes=((2, 3), (2, 3))), ROWS).cost
