"""Conversion laws on drawn quantizers: every number stays, and there and back again is where one was."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.formats.onnx.quantized.dialect import QUANT
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import edges, file_of, op_types, quant_node, run_onnxruntime

SCALES = st.floats(2.0**-20, 1024, width=32)
LOSSLESS = ("qonnx", "qonnx-2", "onnx", "onnx-qcdq", "cleaned", "channels-last", "scale-zero-point-extracted")


def rows(scale, zero_point, bits):
    return np.stack([edges(s, zero_point, bits, 60) for s in np.resize(np.asarray(scale), 3)])


@st.composite
def quants(draw):
    """Parameters of a Quant, and whether it has a scale per channel."""
    many = draw(st.booleans())
    scale = [[draw(SCALES)] for _ in range(3)] if many else draw(SCALES)
    return {
        "scale": scale,
        "zero_point": float(draw(st.integers(-5, 12))),
        "bits": draw(st.one_of(st.integers(2, 8), st.floats(2, 8, width=16))),
        "signed": draw(st.integers(0, 1)),
        "narrow": draw(st.integers(0, 1)),
        "mode": draw(st.sampled_from(["ROUND", "HALF_EVEN", "CEIL", "FLOOR"])),
    }


def quant_file(parameters):
    node, arrays = quant_node("y", "x", **parameters)
    return file_of([node], {"x": (TensorProto.FLOAT, [3, None])}, ["y"], arrays)


@st.composite
def chains(draw):
    """A file of QuantizeLinear, Clip, DequantizeLinear with any storage range, and reals to try."""
    signed, many = draw(st.booleans()), draw(st.booleans())
    dtype = np.int8 if signed else np.uint8
    least = -128 if signed else 0
    low = draw(st.integers(least, least + 250))
    high = draw(st.integers(low + 1, least + 255))
    zero = draw(st.integers(least, least + 255)) if draw(st.booleans()) else 0
    scale = np.float32([draw(SCALES) for _ in range(3)] if many else draw(SCALES))
    arrays = {
        "s": scale,
        "z": np.full(scale.shape, zero, dtype),
        "low": np.asarray(low, dtype),
        "high": np.asarray(high, dtype),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q", axis=0),
        helper.make_node("Clip", ["q", "low", "high"], ["c"], "c"),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], "y", axis=0),
    ]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [3, None])}, ["y"], arrays)
    return data, rows(scale, 0, 8)


@given(quants())
def test_every_dialect_keeps_the_numbers_of_a_quant(parameters):
    data = quant_file(parameters)
    x = rows(parameters["scale"], parameters["zero_point"], int(parameters["bits"]))
    expected = run_model(data, {"x": x})["y"]
    for to in LOSSLESS:
        try:
            done = convert(data, to)
        except UnsupportedExport as error:
            assert "more than 8 bits" in str(error), (to, error)  # noqa: PT017 - the only reason that counts
            continue
        np.testing.assert_array_equal(run_model(done, {"x": x})["y"], expected, err_msg=to)
        if to in ("onnx", "onnx-qcdq"):
            np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"], expected, err_msg=to)


@given(quants())
def test_there_and_back_restores_a_quant_of_whole_bits(parameters):
    parameters["bits"] = int(parameters["bits"])
    data = quant_file(parameters)
    back = read_written(convert(convert(data, "onnx-qcdq"), "qonnx"))
    (op,) = back.ops
    mode = "ROUND" if parameters["mode"] == "HALF_EVEN" else parameters["mode"]
    assert (op.type, op.name, op.inputs[0], op.outputs[0]) == (QUANT, "y", "x", "y")
    narrow = parameters["narrow"]
    if (parameters["signed"], narrow, parameters["bits"]) != (0, 1, 2):  # 0 to 2 is also 1.58 bits
        assert op.attributes == {"signed": parameters["signed"], "narrow": narrow, "rounding_mode": mode}
    arrays = [back.constants[name].array for name in op.inputs[1:]]
    assert float(arrays[2]) == parameters["bits"]
    assert np.all(arrays[1] == parameters["zero_point"])
    np.testing.assert_array_equal(arrays[0].reshape(-1), np.float32(parameters["scale"]).reshape(-1))


@given(chains())
def test_any_clip_becomes_quants_with_the_same_numbers(drawn):
    data, x = drawn
    expected = run_onnxruntime(data, {"x": x})["y"]
    done = convert(data, "qonnx")
    assert "Quant" in op_types(done)
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(op_types(done))
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], expected)


@given(chains())
def test_a_chain_comes_back_with_the_same_numbers(drawn):
    data, x = drawn
    expected = run_onnxruntime(data, {"x": x})["y"]
    try:
        back = convert(convert(data, "qonnx"), "onnx-qcdq")
    except UnsupportedExport as error:
        assert "more than 8 bits" in str(error)  # noqa: PT017 - the only reason that counts
        return
    np.testing.assert_array_equal(run_onnxruntime(back, {"x": x})["y"], expected)
