"""Channels last: no transposes but those at a model's ends, and files that are so stay so."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import GENERAL, file_of, op_types, quant_node

LAST = "qonnx.custom_op.channels_last"
RNG = np.random.default_rng(6)
SHAPE = (1, 3, 8, 8)


def weight(c_out, c_in):
    return RNG.normal(size=(c_out, c_in, 3, 3)).astype(np.float32)


def conv(name, x, w):
    return helper.make_node("Conv", [x, w], [name], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def quantized(name, w, arrays, *, scale=0.25):
    """A weight behind a Quant with a scale per channel."""
    arrays[f"{name}_w"] = w
    scales = np.linspace(scale, 2 * scale, w.shape[0]).reshape(-1, 1, 1, 1)
    node, added = quant_node(f"{name}_q", f"{name}_w", scale=scales, zero_point=0.0, bits=4)
    arrays.update(added)
    return node


def file(nodes, arrays):
    return file_of(nodes, {"x": (TensorProto.FLOAT, SHAPE)}, ["y"], arrays)


def between(*middle, arrays=None, c_in=4):
    """A convolution, ops, and a convolution, both of quantized weights."""
    held = dict(arrays or {})
    nodes = [quantized("a", weight(4, 3), held), quantized("b", weight(2, c_in), held)]
    return file([*nodes, conv("c1", "x", "a_q"), *middle, conv("y", "m", "b_q")], held)


def per_channel():
    node, arrays = quant_node(
        "m", "c1", scale=np.linspace(0.1, 0.4, 4).reshape(1, 4, 1, 1), zero_point=0.0, bits=5
    )
    return between(node, arrays=arrays)


def pair(axis):
    arrays = {"s": np.linspace(0.1, 0.4, 4).astype(np.float32) if axis else np.float32(0.1)}
    arrays["z"] = np.zeros(np.shape(arrays["s"]), np.int8)
    more = {"axis": axis} if axis else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["c1", "s", "z"], ["q"], "q", **more),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["m"], "d", **more),
    ]
    return between(*nodes, arrays=arrays)


def stored_weights():
    arrays = {
        "w": RNG.integers(-8, 8, (4, 3, 3, 3)).astype(np.int8),
        "s": np.linspace(0.1, 0.4, 4).astype(np.float32),
        "z": np.zeros(4, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], "d", axis=0),
        conv("c1", "x", "d"),
        helper.make_node("Relu", ["c1"], ["y"], "r"),
    ]
    return file(nodes, arrays)


def residual():
    arrays = {}
    nodes = [
        quantized("a", weight(4, 3), arrays),
        quantized("b", weight(4, 4), arrays),
        conv("c1", "x", "a_q"),
    ]
    node, added = quant_node("h", "c1", scale=0.2, zero_point=0.0, bits=4)
    nodes += [node, conv("c2", "h", "b_q"), helper.make_node("Add", ["c2", "h"], ["m"], "add")]
    nodes += [quantized("e", weight(2, 4), arrays), conv("y", "m", "e_q")]
    return file(nodes, {**arrays, **added})


def concat():
    nodes = [helper.make_node("Relu", ["c1"], ["r"]), helper.make_node("Tanh", ["r"], ["t"])]
    return between(*nodes, helper.make_node("Concat", ["r", "t"], ["m"], "cat", axis=-3), c_in=8)


def shared_weight():
    arrays = {}
    node = quantized("a", weight(3, 3), arrays)
    again = onnx.NodeProto.FromString(node.SerializeToString())
    again.output[0], again.name = "a_q2", "a_q2"
    return file([node, again, conv("c1", "x", "a_q"), conv("y", "c1", "a_q2")], arrays)


def thresholds():
    arrays = {"t": np.sort(RNG.normal(size=(4, 7)), axis=1).astype(np.float32)}
    node = helper.make_node("MultiThreshold", ["c1", "t"], ["m"], "t", domain=GENERAL, out_dtype="UINT3")
    return between(node, arrays=arrays)


def bias_of_channels():
    arrays = {
        "b": RNG.normal(size=(4, 1, 1)).astype(np.float32),
        "p": RNG.normal(size=(4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Add", ["b", "c1"], ["h"], "b"),
        helper.make_node("PRelu", ["h", "p"], ["m"], "p"),
    ]
    return between(*nodes, arrays=arrays)


CASES = {
    "scales per channel": per_channel(),
    "a pair": pair(0),
    "a pair per channel": pair(1),
    "weights stored": stored_weights(),
    "residual": residual(),
    "concat": concat(),
    "one weight twice": shared_weight(),
    "thresholds": thresholds(),
    "a bias of channels": bias_of_channels(),
}


@pytest.mark.parametrize("name", list(CASES))
def test_transposes_are_at_the_ends_alone(name):
    data = CASES[name]
    done = convert(data, "channels-last")
    kinds = op_types(done)
    assert kinds.count("Transpose") == 2
    assert kinds[-1] == "Transpose"
    convs = [node for node in onnx.load_from_string(done).graph.node if node.op_type == "Conv"]
    assert {node.domain for node in convs} == {LAST}
    x = RNG.normal(size=SHAPE).astype(np.float32)
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("to", ["cleaned", "qonnx", "qonnx-2", "channels-last"])
def test_channels_last_stay_so(name, to):
    last = convert(CASES[name], "channels-last")
    done = convert(last, to)
    assert op_types(done).count("Transpose") == 2
    assert {n.domain for n in onnx.load_from_string(done).graph.node if n.op_type == "Conv"} == {LAST}
    x = RNG.normal(size=SHAPE).astype(np.float32)
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], run_model(last, {"x": x})["y"])


def test_onnxruntime_gets_standard_ops():
    done = convert(convert(CASES["residual"], "channels-last"), "onnx-qcdq")
    assert {node.domain for node in onnx.load_from_string(done).graph.node} == {""}


@pytest.mark.parametrize("name", ["separable_conv_model_ch_last", "branched_model_ch_last"])
def test_models_that_are_channels_last_are_cleaned_so(models, name):
    path = models / "qonnx" / f"{name}.onnx"
    done = convert(path, "cleaned")
    assert "Transpose" not in op_types(done)
    graph = read_written(path)
    x = {graph.inputs[0]: RNG.normal(size=graph.values[graph.inputs[0]].shape).astype(np.float32)}
    for key, array in run_model(done, x).items():
        np.testing.assert_array_equal(array, run_model(path, x)[key])
