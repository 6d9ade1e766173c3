"""Sizes that samples show of open dimensions: in statistics, prices, plans, files."""

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import planner
from planner.calibration.fetching.exposing import exposed
from planner.calibration.sizes_seen import NO_RANK, NOTHING, AllSizes, SizesSeen, join, seen_once
from planner.calibration.statistics import merge
from planner.calibration.statsjson import read_statistics
from planner.errors import PlanFormatError, StatsError, UnsupportedExport
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import write_mlir
from planner.ir.borders import homes
from planner.ir.dims import COUNTED, TAKEN, fixed_as_seen, odd_sizes
from planner.ir.expand import expand
from planner.ir.graph import Value, model_digest
from planner.ir.structure import END
from planner.ops import defined
from planner.plans.read_mlir import plan_from_mlir

FLOAT = onnx.TensorProto.FLOAT
FORMATS = (
    ("litert-int8", "litert"),
    ("tosa-int8", "tosa"),
    ("stablehlo", "stablehlo"),
    ("stablehlo", "stablehlo-int"),
)


def attention(*, names=("batch", "seq")):
    """Scores of every pair of steps of x @ w, and what they weigh; open in two dimensions."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "q"], ["y"]),
    ]
    numbers = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", FLOAT, [*names, 8])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, [*names, 8])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(numbers, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return planner.load_model(model.SerializeToString())


def samples(*lengths, batch=1):
    numbers = np.random.default_rng(1)
    return [{"x": numbers.normal(size=(batch, length, 8)).astype(np.float32)} for length in lengths]


def planned(model, data, target="litert-int8", **costs):
    ready = planner.annotate(model, stats=planner.calibrate(model, data))
    return ready, planner.plan(ready, target, **costs)


def test_statistics_have_the_sizes_of_every_open_value():
    stats = planner.calibrate(attention(), samples(16, 16))
    assert {name: seen.sizes for name, seen in stats.sizes.items()} == {
        "x": (1, 16, 8),
        "q": (1, 16, 8),
        "t": (1, 8, 16),
        "s": (1, 16, 16),
        "p": (1, 16, 16),
        "y": (1, 16, 8),
    }
    assert read_statistics(stats.to_json()) == stats


def test_of_samples_that_differ_the_largest_weighs():
    stats = planner.calibrate(attention(), samples(16, 24, 12))
    assert stats.sizes["s"] == SizesSeen((1, 24, 24), (1, 12, 12), (1, 24, 24))
    ready = planner.annotate(attention(), stats=stats)
    assert (ready.values["s"].seen, ready.values["s"].varies) == ((1, 24, 24), (1, 2))
    assert ready.values["s"].shape == ("batch", "seq", "seq")
    assert f"{COUNTED}: x[0] 'batch' is 1, x[1] 'seq' is 24 at most" in ready.notes
    assert read_statistics(stats.to_json()) == stats


def test_a_batch_of_one_is_no_news():
    model = planner.load_model("examples/digits/digits.onnx")
    stats = planner.calibrate(model, "examples/digits/calibration.npz")
    assert stats.sizes[model.inputs[0]].sizes == (1, 1, 8, 8)
    assert planner.annotate(model, stats=stats).notes == model.notes


def test_a_model_without_open_sizes_has_none():
    model = planner.load_model("examples/digits/digits.onnx", dims={"N": 1})
    stats = planner.calibrate(model, "examples/digits/calibration.npz")
    assert "sizes" not in json.loads(stats.to_json())
    assert planner.annotate(model, stats=stats).notes == model.notes


@pytest.mark.parametrize("cut", [1, 2])
def test_shards_join_to_the_same(cut):
    data = samples(16, 24, 12, 20)
    whole = planner.calibrate(attention(), data)
    parts = [planner.calibrate(attention(), data[k : k + cut]) for k in range(0, 4, cut)]
    for order in permutations(parts):
        joined = order[0]
        for part in order[1:]:
            joined = merge(joined, part)
        assert joined.sizes == whole.sizes


SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), SHAPES, max_size=3), min_size=1, max_size=6), st.data()
)
def test_joining_knows_no_order_and_no_grouping(shapes, data):
    parts = [seen_once(entry, {"loop": sum(map(len, entry.values()))}) for entry in shapes]
    whole = NOTHING
    for part in parts:
        whole = join(whole, part)
    rest = data.draw(st.permutations(parts))
    while len(rest) > 1:
        at = data.draw(st.integers(0, len(rest) - 2))
        rest[at : at + 2] = [join(rest[at], rest[at + 1])]
    assert rest[0] == whole
    assert join(whole, whole) == whole


@pytest.mark.parametrize("ran", [{"loop": 0}, {"loop": 3}, {"loop": 0, "other": 2}])
def test_a_loop_that_one_part_alone_saw_ran_as_often_as_it_saw(ran):
    one, other = seen_once({"a": (2,)}, ran), seen_once({"b": (3,)}, {})
    assert join(one, other).trips == join(other, one).trips == ran


def test_a_value_whose_rank_differs_has_no_sizes():
    found = join(seen_once({"a": (2, 3)}, {}), seen_once({"a": (2,)}, {}))
    assert found == AllSizes({"a": NO_RANK}, {})


@pytest.mark.parametrize("length", [16, 48])
def test_prices_and_work_are_those_of_the_model_with_these_sizes(length):
    """The open model with statistics costs what the same model costs once it is sized."""
    data = samples(length)
    ready, plan = planned(attention(), data)
    sized, other = planned(planner.load_model(written(attention()), dims={"batch": 1, "seq": length}), data)
    assert (plan.cost, plan.work) == (other.cost, other.work)
    assert [(r.id, r.elements) for r in plan.rescales] == [(r.id, r.elements) for r in other.rescales]
    for op in ready.ops:
        count = defined(op.type).macs
        if count is not None:
            assert count(op, ready).macs == count(op, sized).macs


def written(model):
    from planner.formats.onnx.write import write_graph

    return write_graph(model)


@pytest.mark.parametrize("lengths", [(16, 16), (16, 24)])
def test_a_plan_carries_them_through_its_texts_and_its_checks(lengths):
    model, data = attention(), samples(*lengths)
    ready, plan = planned(model, data)
    text = plan.to_json()
    for again in (planner.plan_from_json(text), plan_from_mlir(plan.to_mlir())):
        assert again.to_json() == text
        for known in (None, ready, model):
            planner.check(again, known, "litert-int8")
    assert (
        plan.key != planner.plan(planner.annotate(model, stats=without_sizes(model, data)), "litert-int8").key
    )


def without_sizes(model, data):
    return replace(planner.calibrate(model, data), sizes={})


def test_statistics_of_before_are_read_and_count_one():
    model, data = attention(), samples(16)
    stats = planner.calibrate(model, data)
    document = {key: entry for key, entry in json.loads(stats.to_json()).items() if key != "sizes"}
    old = read_statistics(json.dumps(document))
    plan = planner.plan(planner.annotate(model, stats=old), "litert-int8")
    assert plan.cost == 16.0
    assert planner.plan(planner.annotate(model, stats=stats), "litert-int8").cost == 256.0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"sizes": [1, -2]}, "sizes.x.sizes[1]: -2 is no size"),
        ({"sizes": [1, 2.5]}, "sizes.x.sizes[1]: expected a whole number, found 2.5"),
        ({"sizes": 3}, "sizes.x.sizes: expected a list of sizes, found 3"),
        ({"least": [1]}, "sizes.x.sizes: this field is missing"),
        ({"sizes": [4], "least": [1, 1]}, "sizes.x: sizes, least and most have as many entries"),
        ({"sizes": [4], "most": [3]}, "sizes.x: size 4 lies outside 4 to 3"),
        ([1], "sizes.x: expected an object, found [1]"),
    ],
)
def test_statistics_with_odd_sizes_are_refused(entry, said):
    document = {"format": "qplan.stats/2", "model": "m", "method": "minmax", "samples": 1, "values": {}}
    with pytest.raises(StatsError) as caught:
        read_statistics(json.dumps(document | {"sizes": {"x": entry}}), "s.json")
    assert str(caught.value) == f"s.json: {said}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Value("x", (1, 2), seen=(1, 2)), "all sizes of 'x' are known"),
        (Value("x", (None, 2), seen=(1, 3)), "sizes [1, 3] do not fit shape [None, 2]"),
        (Value("x", (None,), seen=(-1,)), "[-1] are no sizes"),
        (Value("x", (None,), seen=(1,), varies=(1,)), "[1] are no axes of sizes [1]"),
    ],
)
def test_an_annotated_model_with_odd_sizes_is_refused(value, said):
    assert said in odd_sizes(value)
    model = attention()
    text = write_annotated(replace(model, values={**model.values, "x": replace(value, name="x")}))
    with pytest.raises(PlanFormatError, match=r"values\[0\]\.seen"):
        read_annotated(text)


def test_an_annotated_model_keeps_them():
    ready, _ = planned(attention(), samples(16, 24))
    for read in (
        read_annotated(write_annotated(ready)),
        planner.load_model(write_mlir(ready).encode(), format="mlir"),
    ):
        assert {n: (v.seen, v.varies) for n, v in read.values.items()} == {
            n: (v.seen, v.varies) for n, v in ready.values.items()
        }


def test_statistics_stay_those_of_the_model():
    """Sizes are no part of what statistics are of, so an annotated model can be calibrated again."""
    model = attention()
    stats = planner.calibrate(model, samples(16))
    again = planner.calibrate(planner.annotate(model, stats=stats), samples(24))
    assert again.model == stats.model
    assert planner.annotate(model, stats=again).values["x"].seen == (1, 24, 8)


@pytest.mark.parametrize(("target", "name"), FORMATS)
def test_files_of_fixed_sizes_have_those_of_the_samples(target, name):
    model = attention()
    ready, plan = planned(model, samples(16, 16), target)
    data = planner.export(ready, plan, name)
    assert planner.export(model, planner.plan_from_json(plan.to_json()), name) == data
    if name != "litert":
        assert b"tensor<1x16x8x" in data
        assert b"open" not in data


def test_a_litert_file_has_those_of_the_samples():
    pytest.importorskip("tflite")
    ready, plan = planned(attention(), samples(16, 16), "litert-int8")
    read = planner.load_model(planner.export(ready, plan, "litert"))
    assert read.values[read.inputs[0]].shape == (1, 16, 8)


@pytest.mark.parametrize(("target", "name"), FORMATS[:1] + FORMATS[2:])
def test_samples_that_differ_make_no_file_of_fixed_sizes(target, name):
    ready, plan = planned(attention(), samples(16, 24), target)
    with pytest.raises(UnsupportedExport) as caught:
        planner.export(ready, plan, name)
    assert caught.value.message == f"{name} has fixed sizes, and samples differ in x[1] 'seq'"
    assert "--dim seq=N" in caught.value.hint
    assert "--dim batch" not in caught.value.hint


def test_other_formats_keep_them_open():
    ready, plan = planned(attention(), samples(16, 16))
    file = onnx.load_from_string(planner.export(ready, plan, "onnx-qdq"))
    assert [dim.dim_param or dim.dim_value for dim in file.graph.input[0].type.tensor_type.shape.dim] == [
        "batch",
        "seq",
        8,
    ]


@pytest.mark.parametrize("target", ["qnn-htp", "hexagon-a16w8"])
def test_a_target_of_fixed_sizes_takes_those_of_the_samples(target):
    model = attention()
    ready, plan = planned(model, samples(16, 16), target)
    planner.check(plan, ready, target)
    planner.check(plan, model, target)
    assert f"{TAKEN}: x[0] 'batch' is 1, x[1] 'seq' is 16" in plan.graph.notes
    assert not plan.warnings or not any("open" in text for text in plan.warnings)
    for known in (ready, model):
        file = onnx.load_from_string(planner.export(known, plan, "onnx-qdq"))
        shape = file.graph.input[0].type.tensor_type.shape.dim
        assert [dim.dim_value for dim in shape] == [1, 16, 8]


@pytest.mark.parametrize(
    ("data", "listed"),
    [
        (samples(16, 24), "x[0] 'batch', x[1] 'seq' (samples differ); give them (--dim seq=N,"),
        (None, "x[0] 'batch', x[1] 'seq'; give them (--dim batch=N --dim seq=N,"),
    ],
)
def test_a_target_of_fixed_sizes_warns_of_open_ones(data, listed):
    model = attention()
    stats = None if data is None else planner.calibrate(model, data)
    plan = planner.plan(planner.annotate(model, stats=stats, annotations=RANGES), "qnn-htp")
    (said,) = [text for text in plan.warnings if "fixed sizes" in text]
    assert listed in said
    again = planner.replan(plan, {"format": "qplan.annotations/1", "values": {"q": "!quant.none"}})
    assert said in again.warnings


RANGES = {
    "format": "qplan.annotations/1",
    "values": dict.fromkeys("xqtspy", "!quant.calibrated<f32<-4.0:4.0>>"),
}


def test_sizes_that_data_decides_stay_open():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["n"])]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [2, None])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = planner.load_model(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    stats = planner.calibrate(model, [{"x": np.ones((1, 4), np.float32)}])
    fixed = fixed_as_seen(planner.annotate(model, stats=stats))
    assert fixed.values["r"].shape == (1, 4)
    assert fixed.values["n"].shape == (2, None)


def scan():
    """A Scan over an open axis, of two results."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("s", "x")],
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("t", "o")],
    )
    node = helper.make_node("Scan", ["start", "xs"], ["end", "ys"], body=body, num_scan_inputs=1)
    inputs = [
        helper.make_tensor_value_info("start", FLOAT, [4]),
        helper.make_tensor_value_info("xs", FLOAT, ["steps", 4]),
    ]
    outputs = [helper.make_tensor_value_info("ys", FLOAT, ["steps", 4])]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return planner.load_model(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )


def test_a_loop_weighs_as_often_as_it_ran():
    """A Scan over an open axis: ten trips where nobody looked, those of the samples where somebody did."""
    model = scan()
    data = [{"start": np.zeros(4, np.float32), "xs": np.ones((n, 4), np.float32)} for n in (7, 25)]
    stats = planner.calibrate(model, data)
    assert set(stats.trips.values()) == {25}
    assert read_statistics(stats.to_json()) == stats
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, "litert-int8")
    assert {k.trip_count for k in plan.kernels_in_order if k.kernel == "add"} <= {25}
    assert 25 in {k.trip_count for k in plan.kernels_in_order}
    for again in (planner.plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        assert again.to_json() == plan.to_json()
        planner.check(again, model, "litert-int8")
    assert planner.calibrate(ready, data).model == stats.model


def test_a_digest_without_sizes_is_as_it_was():
    model = attention()
    ready, _ = planned(model, samples(16))
    bare = {name: replace(value, facts=(), seen=None, varies=()) for name, value in ready.values.items()}
    assert model_digest(replace(ready, values=bare)) == model_digest(model)


def test_a_plan_retargeted_to_fixed_sizes_has_those_of_the_samples():
    ready, plan = planned(attention(), samples(16, 16))
    other = planner.retarget(plan, "qnn-htp")
    assert other.graph.values["x"].shape == (1, 16, 8)
    planner.check(other, ready, "qnn-htp")
    planner.check(other, attention(), "qnn-htp")


@pytest.mark.parametrize("count", range(4))
def test_values_let_out_of_a_loop_are_its_next_results(count):
    """Numbered on from those it has, each once, for a border op tells its result by its number."""
    graph = expand(scan())
    names = [name for name, scope in homes(graph).items() if scope][:count]
    assert len(names) == count
    grown, shown = exposed(graph, names)
    assert list(shown) == names
    places = sorted(op.attributes["index"] for op in grown.ops if op.type == END)
    assert places == [*range(2 + count)]
