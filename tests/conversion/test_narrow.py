"""Narrow ranges in `onnx-qdq`: constants and signs need no Clip; integers of 2 bits are of opset 25."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.models import run_model
from tests.conversion.files import GENERAL, edges, file_of, op_types, quant_node, run_onnxruntime

ZOO = ("TFC_1W1A", "bnn_model_fc_1layer", "branched_model_ch_last", "separable_conv_model_ch_last",
       "espcn_subpixel_quant", "unsw_nb15-mlp-w2a2")  # fmt: skip


def opset(data):
    return next(entry.version for entry in onnx.load_from_string(data).opset_import if not entry.domain)


def optimised(data, feeds):
    """The outputs as onnxruntime gives them by default."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def stored(data):
    return {t.data_type for t in onnx.load_from_string(data).graph.initializer if t.name.endswith("/stored")}


def net(depth, *, bits=8, signed=1, weight_bits=3, narrow=1):
    """A product of an activation and a weight, both behind Quants."""
    x, of_x = quant_node("xq", "x", scale=0.5, zero_point=0.0, bits=bits, signed=signed)
    w, of_w = quant_node("wq", "w", scale=0.25, zero_point=0.0, bits=weight_bits, narrow=narrow)
    weight = np.random.default_rng(1).normal(size=(depth, 5)).astype(np.float32) * 0.6
    nodes = [x, w, helper.make_node("MatMul", ["xq", "wq"], ["y"], "m")]
    return file_of(nodes, {"x": (TensorProto.FLOAT, (3, depth))}, ["y"], {**of_x, **of_w, "w": weight})


@pytest.mark.parametrize("name", ZOO)
def test_zoo_models_in_whole_formats_keep_every_number(models, name):
    source = models / "qonnx" / f"{name}.onnx"
    done, graph = convert(source, "onnx-qdq"), read_written(source)
    onnx.checker.check_model(onnx.load_from_string(done), full_check=True)
    (port,) = graph.inputs
    feeds = {port: np.random.default_rng(0).normal(size=graph.values[port].shape).astype(np.float32)}
    wanted = run_model(source, feeds)
    for run in (run_onnxruntime, optimised, run_model):
        for key, array in run(done, feeds).items():
            np.testing.assert_array_equal(array, wanted[key])


@pytest.mark.parametrize(
    ("bits", "narrow", "kind"),
    [
        (3, 0, "INT4"),
        (3, 1, "INT4"),
        (4, 1, "INT4"),
        (5, 0, "INT8"),
        (8, 1, "INT8"),
        (12, 0, "INT16"),
        (2, 0, "INT4"),
    ],
)
def test_a_narrow_constant_is_stored_as_it_is(bits, narrow, kind):
    data = net(16, weight_bits=bits, narrow=narrow)
    done = convert(data, "onnx-qdq")
    assert opset(done) == 21
    assert "Clip" not in op_types(done)
    assert stored(done) == {getattr(TensorProto, kind)}
    x = np.random.default_rng(2).normal(size=(3, 16)).astype(np.float32)
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 16, 33, 64])
@pytest.mark.parametrize(("signed", "kind"), [(0, "UINT2"), (1, "INT2")])
def test_two_bits_are_those_of_opset_25(depth, signed, kind):
    data = net(depth, bits=2, signed=signed, weight_bits=2)
    done = convert(data, "onnx-qdq")
    model = onnx.load_from_string(done)
    onnx.checker.check_model(model, full_check=True)
    assert (opset(done), model.ir_version) == (25, 13)
    assert stored(done) == {TensorProto.INT2}
    assert getattr(TensorProto, kind) in {tensor.data_type for tensor in model.graph.initializer}
    x = np.random.default_rng(3).normal(size=(3, depth)).astype(np.float32) * 2
    wanted = run_model(data, {"x": x})["y"]
    for run in (run_onnxruntime, optimised, run_model):
        np.testing.assert_array_equal(run(done, {"x": x})["y"], wanted)


def test_edges_of_two_bits():
    x = edges(np.float32(0.173), 0, 2)
    # onnxruntime 1.31's kernel of 2 bits wraps around beyond 2^31 steps; ONNX's definition saturates.
    is_near = np.abs(x) < 2**31 * 0.173
    node, arrays = quant_node("y", "x", scale=0.173, zero_point=0.0, bits=2)
    data = file_of([node], {"x": (TensorProto.FLOAT, x.shape)}, ["y"], arrays)
    done = convert(data, "onnx-qdq")
    assert op_types(done) == ["QuantizeLinear", "DequantizeLinear"]
    wanted = run_model(data, {"x": x})["y"]
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], wanted)
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"][is_near], wanted[is_near])
    assert op_types(convert(done, "qonnx")) == ["Quant"]


def test_two_bits_are_planned_again():
    graph = read_onnx(convert(net(16, bits=2, signed=0, weight_bits=2), "onnx-qdq"))
    facts = [str(fact) for value in graph.values.values() for fact in value.facts]
    assert "!quant.uniform<u2:f32, 0.5>" in facts
    assert any("i2" in fact and "0.25" in fact for fact in facts)


@pytest.mark.parametrize("scale", [1.0, 0.173])
def test_signs_need_no_clip(scale):
    node = helper.make_node("BipolarQuant", ["x", "s"], ["y"], "y", domain=GENERAL)
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    data = file_of([node], {"x": (TensorProto.FLOAT, x.shape)}, ["y"], {"s": np.float32(scale)})
    done = convert(data, "onnx-qdq")
    assert "Clip" not in op_types(done)
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


def test_a_narrow_activation_is_refused_with_what_there_is():
    with pytest.raises(UnsupportedExport) as caught:
        convert(net(4, bits=3), "onnx-qdq")
    assert str(caught.value) == (
        "onnx-qdq cannot say Quant at 'xq' (port xq.in[0]): it keeps -4 to 3 of its 3 bits (onnx-qdq takes "
        "the whole range of u2, i2, u4, i4, u8, i8, u16, i16 (onnx-qcdq narrows with Clip))"
    )
