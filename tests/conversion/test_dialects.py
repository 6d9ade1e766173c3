"""Other pairs of dialects: stored integers, float8, one bit, integer operators, layouts, clean files."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.conversion.convert import CONVERSIONS, convert
from planner.errors import UnknownName, UnsupportedExport
from planner.interpreter.models import run_model
from tests.conversion.files import edges, file_of, op_types, quant_node, run_onnxruntime

X = np.linspace(-40, 40, 161, dtype=np.float32)


def pair(scale, zero, dtype):
    arrays = {"s": np.float32(scale), "z": np.asarray(zero, dtype)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "y"),
    ]
    return file_of(nodes, {"x": (TensorProto.FLOAT, [None])}, ["y"], arrays)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("zero", [0, 7, 100])
def test_a_pair_becomes_quants(dtype, zero):
    data = pair(0.173, zero, dtype)
    x = edges(np.float32(0.173), 0, 8)
    expected = run_onnxruntime(data, {"x": x})["y"]
    done = convert(data, "qonnx")
    assert op_types(done)[0] == "Quant"
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_a_whole_quant_is_a_pair(dtype):
    info = np.iinfo(dtype)
    node, arrays = quant_node("y", "x", scale=0.173, zero_point=0.0, bits=info.bits, signed=int(info.min < 0))
    data = file_of([node], {"x": (TensorProto.FLOAT, [None])}, ["y"], arrays)
    done = convert(data, "onnx-qdq")
    assert op_types(done) == ["QuantizeLinear", "DequantizeLinear"]
    x = edges(np.float32(0.173), 0, 8)
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


@pytest.mark.parametrize(
    ("name", "kind"), [("E4M3FN", TensorProto.FLOAT8E4M3FN), ("E5M2", TensorProto.FLOAT8E5M2)]
)
def test_float8_becomes_a_float_quant(name, kind):
    zero = helper.make_tensor("z", kind, [], [0.0])
    arrays = {"s": np.float32(0.25)}
    data = pair(0.25, 0, np.int8)
    model = onnx.load_from_string(data)
    del model.graph.initializer[:]
    model.graph.initializer.extend([numpy_helper.from_array(arrays["s"], "s"), zero])
    data = model.SerializeToString()
    x = np.concatenate([X, X * 1e-3, X * 100, np.float32([0.0, -0.0, 1e30, -1e30])])
    expected = run_model(data, {"x": x})["y"]
    done = convert(data, "qonnx")
    assert op_types(done) == ["FloatQuant"], name
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], expected)


@pytest.mark.parametrize("scale", [1.0, 0.173])
def test_one_bit_there_and_back(scale):
    node = helper.make_node("BipolarQuant", ["x", "s"], ["y"], "y", domain="onnx.brevitas")
    arrays = {"s": np.float32(scale)}
    data = file_of([node], {"x": (TensorProto.FLOAT, [None])}, ["y"], arrays, domains=())
    expected = run_model(data, {"x": X})["y"]
    assert set(np.unique(expected)) == {np.float32(-scale), np.float32(scale)}
    done = convert(data, "onnx-qcdq")
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": X})["y"], expected)
    back = convert(done, "qonnx")
    assert op_types(back) == ["BipolarQuant"]
    np.testing.assert_array_equal(run_model(back, {"x": X})["y"], expected)


def test_a_scale_of_run_time_has_a_plain_form():
    node, arrays = quant_node("y", "x", scale=1.0, zero_point=0.0, bits=4)
    del arrays["y_scale"]
    inputs = {"x": (TensorProto.FLOAT, [None]), "y_scale": (TensorProto.FLOAT, [])}
    data = file_of([node], inputs, ["y"], arrays)
    feeds = {"x": X, "y_scale": np.asarray(0.3, np.float32)}
    done = convert(data, "onnx")
    assert "Quant" not in op_types(done)
    np.testing.assert_array_equal(run_onnxruntime(done, feeds)["y"], run_model(data, feeds)["y"])


def test_qlinear_operators_become_pairs():
    arrays = {
        "s": np.float32(0.25), "z": np.uint8(128), "w": np.int8([[1, -2], [3, 4]]), "ws": np.float32(0.5),
        "wz": np.int8(0), "ys": np.float32(1.0), "yz": np.uint8(100),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["r"], "r"),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"], "y"),
    ]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [None, 2])}, ["y"], arrays)
    x = np.random.default_rng(0).uniform(-20, 20, (50, 2)).astype(np.float32)
    expected = run_onnxruntime(data, {"x": x})["y"]
    for to in ("onnx-qcdq", "qonnx"):
        done = convert(data, to)
        assert "QLinearMatMul" not in op_types(done)
        np.testing.assert_array_equal(run_model(done, {"x": x})["y"], expected)


def test_channels_last_there_and_back(models):
    path = models / "qonnx" / "separable_conv_model_ch_last.onnx"
    done = onnx.load_from_string(convert(path, "channels-last"))
    domains = [node.domain for node in done.graph.node if node.op_type == "Conv"]
    assert domains == ["qonnx.custom_op.channels_last"] * 4
    assert sum(node.op_type == "Transpose" for node in done.graph.node) <= 2
    x = np.random.default_rng(0).normal(size=(1, 512, 512, 3)).astype(np.float32)
    once, again = (run_model(data, {"global_in": x}) for data in (path, done.SerializeToString()))
    assert once["global_out"].tobytes() == again["global_out"].tobytes()


def test_cleaned_files_have_their_weights_turned(models):
    path = models / "qonnx" / "kwsmlp_w3a3.onnx"
    done = convert(path, "cleaned")
    assert "Transpose" in op_types(path.read_bytes())
    assert "Transpose" not in op_types(done)
    x = np.random.default_rng(0).normal(size=(1, 1, 10, 49)).astype(np.float32)
    assert run_model(done, {"inp.1": x})["74"].tobytes() == run_model(path, {"inp.1": x})["74"].tobytes()


def test_scales_and_zero_points_are_extracted():
    node, arrays = quant_node("y", "x", scale=0.25, zero_point=3.0, bits=4)
    data = file_of([node], {"x": (TensorProto.FLOAT, [None])}, ["y"], arrays)
    done = convert(data, "scale-zero-point-extracted")
    assert op_types(done) == ["Div", "Add", "Quant", "Sub", "Mul"]
    np.testing.assert_array_equal(run_model(done, {"x": X})["y"], run_model(data, {"x": X})["y"])


def test_what_is_no_grid_is_refused():
    arrays = {"t": np.float32([[0.0, 1.0]])}
    node = helper.make_node("MultiThreshold", ["x", "t"], ["y"], "y", domain="finn", out_dtype="UINT2")
    data = file_of([node], {"x": (TensorProto.FLOAT, [1, 4])}, ["y"], arrays, domains=("finn",))
    with pytest.raises(UnsupportedExport, match="onnx-qcdq cannot say MultiThreshold at 'y'"):
        convert(data, "onnx-qcdq")
    x = np.float32([[-1.0, 0.0, 0.5, 2.0]])
    np.testing.assert_array_equal(run_onnxruntime(convert(data, "onnx"), {"x": x})["y"], [[0, 1, 1, 2]])


def test_an_unknown_dialect_is_named():
    with pytest.raises(UnknownName, match="unknown dialect 'nnef'"):
        convert(pair(1.0, 0, np.int8), "nnef")
    assert list(CONVERSIONS) == sorted(CONVERSIONS)
