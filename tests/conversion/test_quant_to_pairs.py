"""Quant as QuantizeLinear, Clip, DequantizeLinear: equal numbers in onnxruntime, or a refusal with why."""

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.formats.onnx.quantized.formulas import quant
from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.models import run_model
from tests.conversion.files import edges, file_of, op_types, quant_node, run_onnxruntime

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 2.5, 6.3, 7.5)
SCALES = {"tensor": np.float32(0.173), "axis": np.asarray([[0.25], [0.0371], [1.7]], np.float32)}
ROUNDINGS_TAKEN = "(onnx-qcdq takes ROUND, FLOOR, CEIL; with unsigned integers every mode)"
EVERY_MODE = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO", "HALF_UP", "HALF_DOWN")


def sample(scale, zero_point, bits):
    rows = [edges(s, zero_point, int(bits)) for s in np.resize(np.asarray(scale).reshape(-1), 3)]
    return np.stack(rows)


def one(bits=4, *, scale=0.173, zero_point=0.0, shape=(3, None), **more):
    node, arrays = quant_node("y", "x", scale=scale, zero_point=zero_point, bits=bits, **more)
    return file_of([node], {"x": (TensorProto.FLOAT, shape)}, ["y"], arrays)


def check(data, x, expected):
    done = convert(data, "onnx-qcdq")
    assert not {"Quant"} & set(op_types(done))
    got = run_onnxruntime(done, {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)
    back = convert(done, "qonnx")
    assert op_types(back)[-1] == "Quant"
    np.testing.assert_array_equal(run_model(back, {"x": x})["y"], expected)


@pytest.mark.parametrize("granularity", SCALES)
@pytest.mark.parametrize("zero_point", [0.0, 3.0, -2.0, 1.0])
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_sign_and_rounding(bits, zero_point, granularity):
    scale = SCALES[granularity]
    x = sample(scale, zero_point, bits)
    for signed, narrow, mode in product((0, 1), (0, 1), ("ROUND", "CEIL", "FLOOR")):
        data = one(bits, scale=scale, zero_point=zero_point, signed=signed, narrow=narrow, mode=mode)
        width = np.asarray(bits, np.float32)
        expected = quant(
            x, scale, np.float32(zero_point), width, signed=bool(signed), narrow=bool(narrow), rounding=mode
        )
        check(data, x, expected)


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("zero_point", [0.0, 3.0])
def test_unsigned_integers_take_every_rounding(mode, zero_point):
    x = sample(0.173, zero_point, 5)
    width, scale = np.asarray(5, np.float32), np.float32(0.173)
    expected = quant(x, scale, np.float32(zero_point), width, signed=False, rounding=mode)
    check_numbers = run_onnxruntime(
        convert(one(5, zero_point=zero_point, signed=0, mode=mode), "onnx-qcdq"), {"x": x}
    )
    np.testing.assert_array_equal(check_numbers["y"], expected)


def test_a_fractional_zero_point_is_kept():
    x = sample(0.173, 0.25, 4)
    expected = quant(x, np.float32(0.173), np.float32(0.25), np.asarray(4, np.float32))
    got = run_onnxruntime(convert(one(4, zero_point=0.25), "onnx-qcdq"), {"x": x})
    np.testing.assert_array_equal(got["y"], expected)


@pytest.mark.parametrize("mode", ["ROUND", "HALF_EVEN", "CEIL", "FLOOR"])
def test_a_zero_point_in_float64_is_rounded_as_the_quantizer_rounds(mode):
    node, arrays = quant_node("y", "x", scale=0.173, zero_point=0.25, bits=4, mode=mode)
    zero = np.float64(0.25)
    arrays["y_zero"] = np.asarray(zero)
    x = sample(0.173, 0.25, 4)
    expected = quant(x, np.float32(0.173), zero, np.asarray(4, np.float32), rounding=mode)
    data = file_of([node], {"x": (TensorProto.FLOAT, (3, None))}, ["y"], arrays)
    np.testing.assert_array_equal(run_onnxruntime(convert(data, "onnx-qcdq"), {"x": x})["y"], expected)


def test_a_zero_point_per_channel_is_kept():
    zero = np.asarray([[0.0], [1.0], [-3.0]], np.float32)
    x = sample(0.173, 0.0, 4)
    expected = quant(x, np.float32(0.173), zero, np.asarray(4, np.float32))
    check(one(4, zero_point=zero), x, expected)


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"bits": 9}, "it stores -256 to 255, more than 8 bits (onnx-qcdq takes up to 8 bits)"),
        (
            {"bits": [[2], [3], [4]]},
            "it has a bit width per channel (onnx-qcdq takes one width for the whole tensor)",
        ),
        (
            {"mode": "ROUND_TO_ZERO"},
            f"it rounds by ROUND_TO_ZERO {ROUNDINGS_TAKEN}",
        ),
        (
            {"mode": "HALF_UP"},
            f"it rounds by HALF_UP {ROUNDINGS_TAKEN}",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(parameters, why):
    with pytest.raises(UnsupportedExport) as caught:
        convert(one(**parameters), "onnx-qcdq")
    assert str(caught.value) == f"onnx-qcdq cannot say Quant at 'y' (port y.in[0]): {why}"


def test_a_scale_of_run_time_is_refused():
    node, arrays = quant_node("y", "x", scale=1.0, zero_point=0.0, bits=4)
    del arrays["y_scale"]
    inputs = {"x": (TensorProto.FLOAT, [3]), "y_scale": (TensorProto.FLOAT, [])}
    with pytest.raises(UnsupportedExport, match="is computed at run time"):
        convert(file_of([node], inputs, ["y"], arrays), "onnx-qcdq")


def test_weights_are_stored_as_integers():
    weight = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    node, arrays = quant_node("w", "weight", scale=[[0.5], [0.25], [0.125]], zero_point=0.0, bits=3, narrow=1)
    nodes = [node, *file_nodes("MatMul", ["x", "w"], "y")]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [2, 3])}, ["y"], {**arrays, "weight": weight})
    done = convert(data, "onnx-qcdq")
    assert op_types(done) == ["Clip", "DequantizeLinear", "MatMul"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = run_model(data, {"x": x})["y"]
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": x})["y"], expected)
    back = convert(done, "qonnx")
    assert op_types(back) == ["Quant", "MatMul"]
    np.testing.assert_array_equal(run_model(back, {"x": x})["y"], expected)
    restored = read_written(back)
    quant = restored.ops[0]
    assert quant.attributes == {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}
    assert restored.constants[quant.inputs[3]].array == 3


@pytest.mark.parametrize("name", ["TFC_2W2A", "espcn_subpixel_quant", "kwsmlp_w3a3", "qkeras_jettagging"])
def test_a_model_and_its_pairs_say_the_same_to_the_planner(models, name):
    """Widths, ranges in use, scales and zero points of every value; the container alone is another."""
    path = models / "qonnx" / f"{name}.onnx"
    first, second = read_onnx(path), read_onnx(convert(path, "onnx-qcdq"))
    assert {key: said(value) for key, value in first.values.items() if value.facts} == {
        key: said(value) for key, value in second.values.items() if value.facts
    }


def said(value):
    """What facts say, apart from the container."""
    return [
        (type(fact).__name__, *ends_of(fact), getattr(fact, "scales", ()), getattr(fact, "zero_points", ()))
        for fact in value.facts
    ]


def ends_of(fact):
    """The stored integers in use; a signed width stands for its even range too."""
    store = getattr(fact, "storage", None)
    return () if store is None else (store.qmin, store.qmax)


def file_nodes(kind, inputs, output):
    return [helper.make_node(kind, inputs, [output], output)]
