"""Statistics of a quantized model are those of the model with its quantizers, which may be its Relu."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import planner
from benchmarks.quantized_sources import model_of, samples_of
from planner.calibration.fetching.own_quantizers import with_own_quantizers
from planner.constants.quantize import dequantize_array, quantize_array
from planner.formats.onnx.sessions import open_graph, session_options
from planner.interpreter.reference import named_in_reference, open_reference
from planner.ir.graph import WRITTEN_LEFT_OUT, Op
from planner.ir.types.qtypes import Bipolar
from planner.ir.types.typetext import parse_type
from planner.weight_conditioning.biases import OWN_QUANTIZERS
from tests.calibration.graphs import graph_of

DIGITS = "examples/digits/digits.onnx"
DATA = "examples/digits/calibration.npz"


def numbers_of(kind, x):
    if isinstance(kind, Bipolar):
        return np.where(x >= 0, kind.scale, -kind.scale).astype(np.float32)
    return dequantize_array(quantize_array(x, kind), kind)


@pytest.mark.parametrize("place", ["x", "m", "y"])
@pytest.mark.parametrize(
    "text",
    [
        "!quant.uniform<u8:f32, 0.02>",
        "!quant.uniform<i8<-127:127>:f32, 0.0125:3>",
        "!quant.uniform<i4:f32, 0.25:-8>",
        "!quant.uniform<u16:f32, 0.0001:300>",
        "!quant.uniform<u3:f32:1, {0.5,0.25:1,0.125:7}>",
        "!quant.uniform<i8:f32:{0:2,1:3}, {{0.5},{0.01:-3}}>",
        "!quant.bipolar<f32, 0.5>",
    ],
)
def test_a_pin_is_what_its_quantizer_computes(text, place):
    """At an input, inside and at an output, of every kind of type: by onnxruntime, number for number."""
    kind = parse_type(text)
    ops = (Op("add", "Add", ("x", "half"), ("m",)), Op("twice", "Add", ("m", "m"), ("y",)))
    constants = {"half": np.full((4, 3), 0.5, np.float32)}
    graph = graph_of(ops, {"x": (4, 3)}, constants=constants, shapes={"m": (4, 3), "y": (4, 3)})
    values = {**graph.values, place: replace(graph.values[place], facts=(kind,))}
    graph = replace(graph, values=values, notes=(WRITTEN_LEFT_OUT,))
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32) * 3
    watched = replace(with_own_quantizers(graph), outputs=("m", "y"))
    found = open_graph(watched, session_options(), inline=1 << 20).run(None, {"x": x})
    read = numbers_of(kind, x) if place == "x" else x
    m = numbers_of(kind, read + np.float32(0.5)) if place == "m" else read + np.float32(0.5)
    y = numbers_of(kind, m + m) if place == "y" else m + m
    for got, wanted in zip(found, (m, y), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_model_without_quantizers_stays():
    model = planner.load_model(DIGITS)
    assert with_own_quantizers(model) is model


@pytest.mark.parametrize("seed", range(40))
def test_ranges_are_those_of_the_model_with_its_quantizers(seed):
    """QDQ, QONNX and their mixtures: values that both name, over the same samples, in shards too."""
    model, samples = planner.load_model(model_of(seed).SerializeToString()), samples_of(seed)
    stats = planner.calibrate(model, samples)
    # The reference has a value behind its quantizer under the value's name where nothing else reads it.
    read = Counter(name for op in model.written.ops for name in op.inputs)
    names = named_in_reference(model, [name for name in stats.values if read[name] == 1])
    run = open_reference(model, names)
    seen = [run("a sample", sample, names) for sample in samples]
    for name in names:
        wanted = min(found[name].min() for found in seen), max(found[name].max() for found in seen)
        got = stats.values[name].los[0], stats.values[name].his[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    with ThreadPoolExecutor(1) as executor:
        assert planner.calibrate(model, samples, executor=executor, parts=2).values == stats.values


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
@pytest.mark.parametrize(
    "target",
    ["finn-fpga", "hls4ml-fpga", "litert-int8", "onnxruntime-cpu", "qnn-htp", "teaching-npu", "tosa-int8"],
)
def test_a_file_of_ours_is_planned_again_as_it_computes(tmp_path, target, form):
    """Its Relus are quantizers: they are no ops any more."""
    made = planner.quantize(DIGITS, DATA, target="onnxruntime-cpu", format=form)
    file = tmp_path / "digits.onnx"
    file.write_bytes(made.data)
    again = planner.quantize(file, DATA, target=target)
    assert again.comparison.worst_sqnr > 45


def test_biases_of_a_quantized_model_stay_its_own():
    """Equal weights make no error; where scales of powers of two make one, the plan is still for the file."""
    data = planner.quantize(DIGITS, DATA, target="onnxruntime-cpu").data
    model = planner.load_model(data)
    stats = planner.calibrate(model, DATA)
    ready = planner.annotate(model, stats=stats)
    for target in ("onnxruntime-cpu", "litert-int8"):
        assert planner.correct_biases(ready, target, stats) is ready
    kept = planner.correct_biases(ready, "dpuczdx8g", stats)
    assert kept.constants == ready.constants
    assert OWN_QUANTIZERS in kept.notes
