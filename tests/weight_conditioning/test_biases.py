"""Bias correction: small layers computed by hand, who owns a bias afterwards, and what stays as it is.

Weights are 127 or a quarter more or less than an integer, so their scale is 1 and their error is known.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.calibration.run import calibrate
from planner.calibration.statistics import Mean, merge
from planner.calibration.statsjson import read_statistics
from planner.errors import Conflict, StatsError
from planner.formats.annotated.document import read_annotated
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.fusion.fuse import fuse
from planner.ir.graph import Op, Value
from planner.ir.types.qtypes import storage, uniform
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import operand_types, propagate
from planner.weight_conditioning.biases import NO_MEANS, correct_biases
from tests.calibration.graphs import graph_of

CPU = """
apiVersion: planner/v1
kind: Target
id: without-pairs
version: 1.0.0
extends: onnxruntime-cpu
types:
  i8c: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true, weight_pairs: null}
  i8t: {storage: i8, range: [-127, 127], symmetric: true, weight_pairs: null}
"""
"""A greatest weight of 127 makes the scale 1, whatever stands beside it in a sum."""
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def floats(*numbers):
    return np.array(numbers, np.float32)


def ready(graph, samples):
    stats = calibrate(graph, samples)
    return planner.annotate(graph, stats=stats), stats


def bias_of(graph, op="layer", index=2):
    name = next(item for item in graph.all_ops() if item.name == op).inputs[index]
    return name, graph.constants[name].array


def gemm(weight, bias, **attributes):
    op = Op("layer", "Gemm", ("x", "w", "b"), ("y",), attributes)
    n_in = weight.shape[1] if attributes.get("transB") else weight.shape[0]
    n_out = bias.shape[-1]
    return graph_of((op,), {"x": (1, n_in)}, constants={"w": weight, "b": bias}, shapes={"y": (1, n_out)})


# dW is (0, -0.25) and (0.25, 0) of the two outputs; E[x] is (1, 4).
WEIGHT = np.array([[127.0, 0.25], [2.75, 127.0]], np.float32)
SAMPLES = [{"x": floats(0, 6).reshape(1, 2)}, {"x": floats(2, 2).reshape(1, 2)}]


@pytest.mark.parametrize("transposed", [True, False])
def test_gemm(transposed):
    graph = gemm(WEIGHT, floats(10, 20), transB=1) if transposed else gemm(WEIGHT.T.copy(), floats(10, 20))
    model, stats = ready(graph, SAMPLES)
    name, bias = bias_of(correct_biases(model, CPU, stats))
    assert name == "b@layer"
    assert bias.dtype == np.float32
    assert bias.tolist() == [10 + 0.25 * 4, 20 - 0.25 * 1]


def test_matmul_and_add():
    ops = (Op("layer", "MatMul", ("x", "w"), ("m",)), Op("plus", "Add", ("b", "m"), ("y",)))
    shapes = {"m": (1, 3, 2), "y": (1, 3, 2)}
    constants = {"w": WEIGHT.T.copy(), "b": floats(10, 20)}
    graph = graph_of(ops, {"x": (1, 3, 2)}, constants=constants, shapes=shapes)
    model, stats = ready(graph, [{"x": floats(0, 6, 2, 2, 1, 4).reshape(1, 3, 2)}])
    assert stats.values["x"].mean == Mean(2, (1.0, 4.0))
    name, bias = bias_of(correct_biases(model, CPU, stats), "plus", 0)
    assert (name, bias.tolist()) == ("b@layer", [11.0, 19.75])


def convolution(kind, weight, bias, shape, **attributes):
    op = Op("layer", kind, ("x", "w", "b"), ("y",), attributes)
    rank = len(shape)
    shapes = {"y": (1, bias.size, *[None] * (rank - 2))}
    return graph_of((op,), {"x": shape}, constants={"w": weight, "b": bias}, shapes=shapes)


def test_conv_counts_its_border():
    """Taps (127, 1.25, 0.25): errors 0, -0.25, -0.25; the last tap meets three of the four outputs."""
    weight = floats(127, 1.25, 0.25).reshape(1, 1, 3)
    graph = convolution("Conv", weight, floats(5), (1, 1, 4), pads=(1, 1))
    model, stats = ready(graph, [{"x": floats(8, 0, 4, 4).reshape(1, 1, 4)}])
    assert stats.values["x"].mean == Mean(1, (4.0,))
    assert bias_of(correct_biases(model, CPU, stats))[1].tolist() == [5 + 0.25 * 4 * (1 + 0.75)]


def test_groups_read_their_own_channels():
    """Two groups of two channels, one output each; dW is -0.25 on channels 1 and 2."""
    weight = np.array([[127, 0.25], [0.25, 127]], np.float32).reshape(2, 2, 1)
    graph = convolution("Conv", weight, floats(0, 0), (1, 4, 2), group=2)
    model, stats = ready(graph, [{"x": floats(1, 1, 2, 2, 4, 4, 8, 8).reshape(1, 4, 2)}])
    assert bias_of(correct_biases(model, CPU, stats))[1].tolist() == [0.25 * 2, 0.25 * 4]


def test_conv_transpose_spreads_its_input():
    """Two inputs, two outputs a channel: with stride 2 each output meets one of the two taps."""
    weight = np.array([[[127, 0.25], [127, 1.25]]], np.float32)
    graph = convolution("ConvTranspose", weight, floats(0, 1), (1, 1, 3), strides=(2,))
    model, stats = ready(graph, [{"x": floats(2, 4, 6).reshape(1, 1, 3)}])
    assert bias_of(correct_biases(model, CPU, stats))[1].tolist() == [0.25 * 4 / 2, 1 + 0.25 * 4 / 2]


@pytest.mark.parametrize("target", [CPU, "litert-int8", "teaching-npu"])
def test_corrected_for_the_types_that_the_plan_has(target):
    """Nothing is assembled for them, so they are asked for another way than a plan's."""
    graph, _ = ready(planner.load_model(DIGITS / "digits.onnx"), DIGITS / "calibration.npz")
    device = planner.load_target(target)
    fused = fuse(graph, device)
    weighted = {
        kernel.name: {port.value: port.type for port in kernel.inputs}
        for kernel in propagate(fused, device).kernels_in_order
        if kernel.row is not None and any(port.value in graph.constants for port in kernel.inputs)
    }
    _, found = operand_types(fused, device, fuses=True)
    assert weighted
    assert {name: found[name] for name in weighted} == weighted


def twins():
    """Two layers and a sum that read one bias."""
    ops = (
        Op("one", "Gemm", ("x", "w", "b"), ("p",), {"transB": 1}),
        Op("two", "Gemm", ("p", "w", "b"), ("q",), {"transB": 1}),
        Op("more", "Mul", ("q", "b"), ("y",)),
    )
    shapes = dict.fromkeys("pqy", (1, 2))
    return graph_of(ops, {"x": (1, 2)}, constants={"w": WEIGHT, "b": floats(10, 20)}, shapes=shapes)


def test_a_shared_bias_is_corrected_for_each_layer_alone():
    model, stats = ready(twins(), SAMPLES)
    pinned = replace(model.values["b"], facts=(parse_type("!quant.any<i8>"),))
    model = replace(model, values={**model.values, "b": pinned})
    corrected = correct_biases(model, CPU, stats)
    assert [op.inputs for op in corrected.ops] == [("x", "w", "b@one"), ("p", "w", "b@two"), ("q", "b")]
    assert corrected.constants["b"].array.tolist() == [10, 20]
    assert corrected.constants["b@one"].array.tolist() == [11.0, 19.75]
    low, high = stats.values["p"].mean.values
    assert corrected.constants["b@two"].array.tolist() == [
        np.float32(10 + 0.25 * high),
        np.float32(20 - 0.25 * low),
    ]
    assert corrected.values["b@one"].facts == pinned.facts
    assert model.constants.keys() == {"w", "b"}


def test_correcting_again_changes_nothing():
    model, stats = ready(twins(), SAMPLES)
    once = correct_biases(model, CPU, stats)
    twice = correct_biases(once, CPU, stats)
    assert twice.ops == once.ops
    assert twice.constants == once.constants


def test_a_corrected_model_survives_the_file(tmp_path):
    model, stats = ready(planner.load_model(DIGITS / "digits.onnx"), DIGITS / "calibration.npz")
    corrected = correct_biases(model, CPU, stats)
    path = tmp_path / "digits.onnx"
    path.write_bytes(write_graph(corrected))
    planner.check(planner.plan(corrected, CPU), read_onnx(path), planner.load_target(CPU))


def test_fused_graphs_keep_their_ports_in_step():
    model, stats = ready(twins(), SAMPLES)
    corrected = correct_biases(fuse(model, planner.load_target(CPU)), CPU, stats)
    assert [region.inputs for region in corrected.regions][:2] == [("x", "w", "b@one"), ("p", "w", "b@two")]
    assert [op.inputs for op in corrected.all_ops()][:2] == [("x", "w", "b@one"), ("p", "w", "b@two")]


def unchanged_cases():
    plain = gemm(WEIGHT, floats(10, 20), transB=1)
    no_bias = replace(plain, ops=(replace(plain.ops[0], inputs=("x", "w")),))
    two_rows = replace(plain, ops=(replace(plain.ops[0], attributes={"transB": 1, "beta": 0.0}),))
    return {"no bias": no_bias, "bias times nothing": two_rows}


@pytest.mark.parametrize("name", unchanged_cases())
def test_layers_without_a_bias_stay(name):
    model, stats = ready(unchanged_cases()[name], SAMPLES)
    corrected = correct_biases(model, CPU, stats)
    assert (corrected.ops, corrected.constants) == (model.ops, model.constants)


@pytest.mark.parametrize("fact", ["pin", "float weight", "float input"])
def test_pins_and_float_kernels_stay(fact):
    model, stats = ready(gemm(WEIGHT, floats(10, 20), transB=1), SAMPLES)
    scale = planner.plan(model, CPU).kernels["layer"].inputs[2].type.scales
    facts = {
        "pin": ("b", uniform(planner.parse_type("!quant.any<i32>").storage, scale, axis=0)),
        "float weight": ("w", planner.parse_type("!quant.none")),
        "float input": ("x", planner.parse_type("!quant.none")),
    }
    name, kind = facts[fact]
    model = replace(model, values={**model.values, name: replace(model.values[name], facts=(kind,))})
    corrected = correct_biases(model, CPU, stats)
    assert corrected.constants == model.constants


def test_facts_that_contradict_each_other_are_left_to_the_plan():
    """A best-effort plan gives one of them up; the biases are those for its types."""
    model, stats = ready(gemm(WEIGHT, floats(10, 20), transB=1), SAMPLES)
    facts = (*model.values["x"].facts, uniform(storage("u8"), 1.0), planner.parse_type("!quant.any<i16>"))
    torn = replace(model, values={**model.values, "x": replace(model.values["x"], facts=facts)})
    corrected = correct_biases(torn, CPU, stats)
    with pytest.raises(Conflict, match="'x' cannot be both"):
        planner.plan(corrected, CPU)
    plan = planner.plan(corrected, CPU, best_effort=True)
    assert plan.kernels["layer"].row
    assert not np.array_equal(bias_of(corrected)[1], bias_of(model)[1])


def test_statistics_without_means_leave_a_note():
    model, stats = ready(twins(), SAMPLES)
    old = replace(stats, values={name: replace(v, mean=None) for name, v in stats.values.items()})
    noted = correct_biases(model, CPU, old)
    assert (noted.ops, noted.constants) == (model.ops, model.constants)
    assert noted.notes == (*model.notes, NO_MEANS)
    assert correct_biases(noted, CPU, old).notes == noted.notes


def test_models_without_arrays_stay():
    text = """{"format": "qplan.annotated/1", "name": "demo", "values": [
      {"name": "x", "shape": [1, 8], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]},
      {"name": "w", "shape": [8, 4], "dtype": "f32", "constant": {"range": [-0.5, 0.5]}},
      {"name": "y", "shape": [1, 4], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-2.0:2.0>>"]}],
     "kernels": [{"name": "fc1", "kernel": "fully_connected", "inputs": ["x", "w", null], "outputs": ["y"],
                  "attributes": {}, "trip_count": 1}],
     "inputs": ["x"], "outputs": ["y"]}"""
    model = read_annotated(text)
    _, stats = ready(twins(), SAMPLES)
    assert correct_biases(model, "litert-int8", stats) is model


def test_means_of_another_model_are_refused():
    model, stats = ready(gemm(WEIGHT, floats(10, 20), transB=1), SAMPLES)
    wrong = replace(stats, values={"x": replace(stats.values["x"], mean=Mean(1, (1.0, 2.0, 3.0)))})
    with pytest.raises(StatsError) as caught:
        correct_biases(model, CPU, wrong)
    assert str(caught.value) == (
        "the mean of 'x' has 3 channels along axis 1; 'layer' sums over 2 along axis 1 "
        "(calibrate this model again)"
    )


def test_statistics_are_read_from_a_file_and_the_input_stays(tmp_path):
    model, stats = ready(twins(), SAMPLES)
    path = tmp_path / "stats.json"
    stats.save(path)
    assert read_statistics(path.read_text()) == stats
    from_file = correct_biases(model, CPU, path)
    assert from_file.constants["b@one"].array.tolist() == [11.0, 19.75]


def test_means_merge_by_their_samples():
    graph = gemm(WEIGHT, floats(10, 20), transB=1)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 2)).astype(np.float32)} for _ in range(7)]
    whole = calibrate(graph, samples).values["x"].mean
    joined = merge(calibrate(graph, samples[:2]), calibrate(graph, samples[2:])).values["x"].mean
    assert joined.axis == whole.axis == 1
    assert joined.values == pytest.approx(whole.values, rel=1e-12)
    expected = np.mean([sample["x"][0] for sample in samples], axis=0, dtype=np.float64)
    assert whole.values == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_value_that_was_not_finite_has_no_mean():
    graph = gemm(WEIGHT, floats(10, 20), transB=1)
    bad = {"x": floats(np.nan, 1).reshape(1, 2)}
    for samples in ([bad, *SAMPLES], [*SAMPLES, bad]):
        assert calibrate(graph, samples).values["x"].mean is None
    joined = merge(calibrate(graph, SAMPLES), calibrate(graph, [*SAMPLES, bad]))
    assert joined.values["x"].mean is None


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_half_precision_means_are_taken_in_single(method):
    graph = gemm(WEIGHT.astype(np.float16), floats(10, 20).astype(np.float16), transB=1)
    values = {name: Value(name, value.shape, "f16") for name, value in graph.values.items()}
    samples = [{"x": sample["x"].astype(np.float16)} for sample in SAMPLES]
    stats = calibrate(replace(graph, values=values), samples, method=method)
    assert stats.values["x"].mean == Mean(1, (1.0, 4.0))


@pytest.mark.parametrize("target", [name for name in planner.target_ids() if name != "llm-w4"])
def test_digits_do_not_lose(target):
    """The figure is that of the logits: a softmax's hangs on a few images. No QDQ file holds 4-bit blocks."""
    model = planner.load_model(DIGITS / "digits.onnx")
    model = replace(model, outputs=(next(op for op in model.ops if op.type == "Softmax").inputs[0],))
    images = np.load(DIGITS / "test.npz")["image"]
    annotated, stats = ready(model, DIGITS / "calibration.npz")
    found = []
    for case in (annotated, correct_biases(annotated, target, stats)):
        form = "onnx-integer" if target == "onnxruntime-dynamic" else "onnx-qdq"
        data = planner.export(case, planner.plan(case, target), form)
        is_fixed = planner.load_target(target).files.sizes == "fixed"
        samples = [{"image": image[None]} for image in images] if is_fixed else [{"image": images}]
        found.append(planner.compare(model, data, samples).worst_sqnr)
    assert found[1] > found[0] - 0.05, found
