"""Pairs as operators on stored integers, without a plan: the same numbers, or a refusal with why."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.interpreter.models import run_model
from tests.conversion.files import file_of, op_types, quant_node, run_onnxruntime

RNG = np.random.default_rng(11)
X = (RNG.normal(size=(1, 3, 9, 9)) * 6).astype(np.float32)
W = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)


def network(*, x_scale=0.125, w_scale=0.0625, y_scale=0.25, x=None, y=None, bias=True, relu=False, tail=True):
    """Quant, Conv (and Relu), Quant in QONNX: unsigned bytes unless said otherwise, 4-bit weights."""
    unsigned = {"bits": 8, "signed": 0, "zero_point": 0.0}
    nodes, arrays = [], {"w": W, "b": np.asarray([0.5, -1.25, 0.0, 3.0], np.float32)}
    for name, source, more in (
        ("xq", "x", {"scale": x_scale, **(x or unsigned)}),
        ("wq", "w", {"scale": w_scale, "bits": 4, "zero_point": 0.0, "narrow": 1}),
    ):
        node, parameters = quant_node(name, source, **more)
        nodes.append(node)
        arrays |= parameters
    added = {True: ["b"], False: [], "stored": ["bq"]}[bias]
    if bias == "stored":
        node, parameters = quant_node("bq", "b", scale=0.125, bits=8, signed=1, zero_point=0.0)
        nodes.append(node)
        arrays |= parameters
    nodes.append(helper.make_node("Conv", ["xq", "wq", *added], ["c"], "conv", pads=[1] * 4))
    last = "c"
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["r"], "relu"))
        last = "r"
    if tail:
        node, parameters = quant_node("y", last, scale=y_scale, **(y or unsigned))
        nodes.append(node)
        arrays |= parameters
        last = "y"
    return file_of(nodes, {"x": (TensorProto.FLOAT, X.shape)}, [last], arrays), last


CHANNELS = np.asarray([0.25, 0.0625, 0.125, 0.5], np.float32).reshape(4, 1, 1, 1)
SIGNED = {"bits": 8, "signed": 1, "zero_point": 0.0}
CASES = {
    "bytes": {},
    "no bias": {"bias": False},
    "a stored bias": {"bias": "stored"},
    "a stored bias per channel": {"bias": "stored", "w_scale": CHANNELS},
    "a relu that does nothing": {"relu": True},
    "scales per channel": {"w_scale": CHANNELS},
    "signed": {"x": SIGNED, "y": SIGNED},
    "narrow results": {"y": {"bits": 5, "signed": 0, "zero_point": 0.0}},
    "a float result": {"tail": False},
}


@pytest.mark.parametrize("to", ["onnx-integer", "onnx-qoperator"])
@pytest.mark.parametrize("case", CASES)
def test_a_convolution(case, to):
    data, last = network(**CASES[case])
    wanted = run_model(data, {"x": X})[last]
    if (case, to) == ("a float result", "onnx-qoperator"):
        with pytest.raises(UnsupportedExport, match=r"'conv' .* its result is not quantized right behind it"):
            convert(data, to)
        return
    done = convert(data, to)
    assert {"onnx-integer": "ConvInteger", "onnx-qoperator": "QLinearConv"}[to] in op_types(done)
    assert np.ptp(wanted) > 1
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": X})[last], wanted)
    back = convert(done, "qonnx")
    np.testing.assert_array_equal(run_model(back, {"x": X})[last], wanted)


@pytest.mark.parametrize("to", ["onnx-integer", "onnx-qoperator"])
def test_a_product_of_two_activations(to):
    nodes, arrays = [], {}
    for name, source in (("aq", "a"), ("bq", "b"), ("y", "m")):
        node, parameters = quant_node(name, source, scale=0.5, bits=8, zero_point=0.0)
        if name == "y":
            nodes.append(helper.make_node("MatMul", ["aq", "bq"], ["m"], "product"))
        nodes.append(node)
        arrays |= parameters
    shapes = {"a": (2, 3, 7), "b": (2, 7, 5)}
    data = file_of(nodes, {key: (TensorProto.FLOAT, shape) for key, shape in shapes.items()}, ["y"], arrays)
    feeds = {key: (RNG.normal(size=shape) * 4).astype(np.float32) for key, shape in shapes.items()}
    done = convert(data, to)
    assert {"MatMulInteger", "QLinearMatMul"} & set(op_types(done))
    wanted = run_model(data, feeds)["y"]
    np.testing.assert_array_equal(run_onnxruntime(done, feeds)["y"], wanted)


REFUSALS = {
    "scale": ({"w_scale": 0.06}, r"its scale 0.06 is no power of two: float sums are rounded"),
    "bias": ({"x_scale": 8.0}, r"its bias lies off the grid of its sums"),
    "width": (
        {"x": {"bits": 12, "signed": 1, "zero_point": 0.0}},
        r"it stores -2048 to 2047, more than 8 bits",
    ),
}


@pytest.mark.parametrize("to", ["onnx-integer", "onnx-qoperator"])
@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_not_the_same_number_is_refused(case, to):
    options, why = REFUSALS[case]
    data, _ = network(**options)
    with pytest.raises(UnsupportedExport, match=f"{to} cannot say .* at .*{why}"):
        convert(data, to)


def test_one_storage_for_what_is_read_and_given():
    data, _ = network(y=SIGNED)
    with pytest.raises(UnsupportedExport, match=r"it reads u8 and i8 and gives i8, which no kernel does"):
        convert(data, "onnx-qoperator")


def test_a_trained_model_of_powers_of_two_keeps_its_numbers(models):
    path = models / "qonnx" / "qkeras_jettagging.onnx"
    x = RNG.normal(size=(1, 16)).astype(np.float32)
    wanted = run_model(path, {"global_in": x})
    done = convert(path, "onnx-integer")
    assert op_types(done).count("MatMulInteger") == 3
    got = run_onnxruntime(done, {"global_in": x})
    assert {name: array.tobytes() for name, array in got.items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }
