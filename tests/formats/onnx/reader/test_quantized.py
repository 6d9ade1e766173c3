"""Quantized dialects as constraints: what the importer makes of each, on a float graph."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.calibration.run import calibrate
from planner.conversion.convert import convert
from planner.errors import ModelError, UnsupportedExport
from planner.formats.onnx.read import read_onnx
from planner.interpreter.models import run_model
from planner.ir.graph import HALVES
from planner.ir.types.qtypes import Uniform
from planner.pipeline import annotate, check, evaluate, export, plan
from planner.plans.explain import explain
from tests.conversion.files import file_of, quant_node
from tests.formats.onnx.reader.runs import outputs


def parsed(text: str, **arrays: np.ndarray) -> bytes:
    """A model from onnx's text form; arrays become initializers."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items())
    return model.SerializeToString()


def facts(graph):
    return {name: [str(fact) for fact in value.facts] for name, value in graph.values.items() if value.facts}


def types(graph):
    return [op.type for op in graph.ops]


DIGITS = Path(__file__).resolve().parents[4] / "examples" / "digits"
HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "onnx.brevitas" : 1]>'
S, Z = np.float32(0.5), np.int8(3)
W = np.asarray([[1, -2], [3, 127]], np.int8)


def test_a_pair_of_an_activation_is_a_type():
    text = (
        f"{HEAD} g (float[2,2] x) => (float[2,2] y) {{ h = Relu(x) q = QuantizeLinear(h, s, z) d = "
        f"DequantizeLinear(q, s, z) y = Relu(d) }}"
    )
    graph = read_onnx(parsed(text, s=S, z=Z))
    assert types(graph) == ["Relu", "Relu"]
    assert facts(graph) == {"h": ["!quant.uniform<i8:f32, 0.5:3>"]}


def test_a_model_input_stays_float_and_its_quantized_form_has_the_type():
    text = (
        f"{HEAD} g (float[2,2] x) => (float[2,2] y) {{ q = QuantizeLinear(x, s, z) d = "
        f"DequantizeLinear(q, s, z) y = Relu(d) }}"
    )
    graph = read_onnx(parsed(text, s=S, z=Z))
    assert types(graph) == ["Identity", "Relu"]
    assert facts(graph) == {"d": ["!quant.uniform<i8:f32, 0.5:3>"]}


def test_the_contrib_domain_is_the_same():
    text = (
        f"{HEAD} g (float[2,2] x) => (float[2,2] y) {{ h = Relu(x) q = com.microsoft.QuantizeLinear(h, s, z) "
        "d = com.microsoft.DequantizeLinear(q, s, z) y = Relu(d) }"
    )
    assert facts(read_onnx(parsed(text, s=S, z=np.uint16(7)))) == {"h": ["!quant.uniform<u16:f32, 0.5:7>"]}


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(-8, 7, "i8<-8:7>"), (-7, 7, "i8<-7:7>"), (-128, 127, "i8"), (-3, 10, "i8<-3:10>")],
)
def test_clip_narrows_the_storage_range(low, high, kind):
    text = (
        f"{HEAD} g (float[2,2] x) => (float[2,2] y) {{ h = Relu(x) q = QuantizeLinear(h, s, z) "
        "c = Clip(q, low, high) d = DequantizeLinear(c, s, z) y = Relu(d) }"
    )
    graph = read_onnx(parsed(text, s=S, z=np.int8(0), low=np.int8(low), high=np.int8(high)))
    assert facts(graph) == {"h": [f"!quant.uniform<{kind}:f32, 0.5>"]}


def test_stored_weights_are_numbers_with_a_type_per_axis():
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) {{ w = DequantizeLinear<axis = 0>(q, s, z) k = "
        f"Unsqueeze(w, axes) y = Conv(x3, k) }}"
    )
    text = text.replace("float[1,2] x", "float[1,2,4] x3").replace("float[1,2] y", "float[1,2,4] y")
    arrays = {"q": W, "s": np.float32([0.5, 0.25]), "z": np.int8([0, 0]), "axes": np.int64([2])}
    graph = read_onnx(parsed(text, **arrays))
    assert types(graph) == ["Conv"]
    (weight,) = [c.array for n, c in graph.constants.items() if n in graph.ops[0].inputs]
    np.testing.assert_array_equal(weight.reshape(2, 2), W * np.float32([[0.5], [0.25]]))


def test_a_convolution_weight_keeps_its_scales():
    weight = np.arange(-4, 4, dtype=np.int8).reshape(2, 1, 2, 2)
    text = (
        f"{HEAD} g (float[1,1,3,3] x) => (float[1,2,2,2] y) {{ w = DequantizeLinear<axis = 0>(q, s) y "
        f"= Conv(x, w) }}"
    )
    graph = read_onnx(parsed(text, q=weight, s=np.float32([0.5, 0.25])))
    assert facts(graph) == {"w": ["!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25}>"]}


@pytest.mark.parametrize(
    ("scales", "lowest", "kind"),
    [
        ([0.5, 0.25], [-127, -127], "i8<-127:127>"),
        ([0.0078125, 128.0], [-127, -100], "i8<-127:127>"),
        ([128.0, 0.0078125], [-100, -127], "i8<-127:127>"),
        ([0.5, 0.25], [-128, -127], "i8"),
        ([0.5, 0.25], [-127, -128], "i8"),
        ([0.5], [-127, -127], "i8<-127:127>"),
        ([0.5], [-127, -128], "i8"),
    ],
)
def test_a_weight_without_its_lowest_number_is_even(scales, lowest, kind):
    """Of each channel by its own scale."""
    weight = np.stack([np.linspace(low, 127, 4) for low in lowest]).astype(np.int8).reshape(2, 1, 2, 2)
    text = (
        f"{HEAD} g (float[1,1,3,3] x) => (float[1,2,2,2] y) {{ w = DequantizeLinear<axis = 0>(q, s) y "
        f"= Conv(x, w) }}"
    )
    arrays = {"q": weight, "s": np.float32(scales if len(scales) > 1 else scales[0])}
    graph = read_onnx(parsed(text, **arrays))
    (fact,) = graph.values["w"].facts
    assert str(fact.storage) == kind


def test_blocks_become_a_sub_channel_type():
    text = (
        f"{HEAD} g (float[1,4] x) => (float[1,2] y) {{ w = DequantizeLinear<axis = 0, block_size = "
        f"2>(q, s) y = MatMul(x, w) }}"
    )
    scales = np.float32([[0.5, 0.25], [1.0, 2.0]])
    graph = read_onnx(parsed(text, q=np.ones((4, 2), np.int8), s=scales))
    (kind,) = graph.values["w"].facts
    assert isinstance(kind, Uniform)
    assert (kind.blocks, kind.grid) == (((0, 2), (1, 1)), (2, 2))
    np.testing.assert_array_equal(graph.constants["w"].array, np.repeat(scales, 2, axis=0))


def test_qlinear_convolution_is_a_convolution_with_types():
    text = (
        f"{HEAD} g (float[1,1,3,3] x) => (float[1,1,2,2] y) {{ q = QuantizeLinear(x, xs, xz) r = "
        f"QLinearConv(q, xs, xz, w, ws, wz, ys, yz, b) y = DequantizeLinear(r, ys, yz) }}"
    )
    arrays = {
        "xs": np.float32(0.25), "xz": np.uint8(128), "w": np.ones((1, 1, 2, 2), np.int8),
        "ws": np.float32([0.5]), "wz": np.int8([0]), "ys": np.float32(2.0), "yz": np.uint8(100),
        "b": np.int32([8]),
    }  # fmt: skip
    graph = read_onnx(parsed(text, **arrays))
    assert types(graph) == ["Identity", "Conv", "Identity"]
    conv = graph.ops[1]
    assert [str(f) for f in graph.values[conv.inputs[0]].facts] == ["!quant.uniform<u8:f32, 0.25:128>"]
    assert [str(f) for f in graph.values[conv.inputs[1]].facts] == ["!quant.uniform<i8<-127:127>:f32, 0.5>"]
    assert [str(f) for f in graph.values[conv.outputs[0]].facts] == ["!quant.uniform<u8:f32, 2.0:100>"]
    np.testing.assert_array_equal(graph.constants[conv.inputs[2]].array, np.float32([1.0]))


def test_stored_integers_may_be_moved_before_they_are_read():
    text = (
        f"{HEAD} g (float[1,1,4,4] x) => (float[1,4] y) {{ h = Relu(x) q = QuantizeLinear(h, s, z) m "
        f"= MaxPool<kernel_shape = [2,2], strides = [2,2]>(q) f = Flatten(m) y = DequantizeLinear(f, "
        f"s, z) }}"
    )
    graph = read_onnx(parsed(text, s=S, z=Z))
    assert types(graph) == ["Relu", "MaxPool", "Flatten"]
    assert facts(graph) == {"h": ["!quant.uniform<i8:f32, 0.5:3>"]}


def test_an_integer_product_is_a_float_one():
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) {{ h = Relu(x) q = QuantizeLinear(h, s, z) a = "
        f"MatMulInteger(q, w, z) f = Cast<to = 1>(a) y = Mul(f, k) }}"
    )
    data = parsed(text, s=S, z=Z, w=W, k=np.float32(0.25))
    graph = read_onnx(data)
    assert "MatMul" in types(graph) or "Gemm" in types(graph)
    assert ["!quant.uniform<i8:f32, 0.5:3>"] in facts(graph).values()


def test_dynamic_quantization_asks_for_a_width():
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) {{ h = Relu(x) q, s, z = DynamicQuantizeLinear(h) "
        "a = MatMulInteger(q, w, z) f = Cast<to = 1>(a) k = Mul(s, ws) y = Mul(f, k) }"
    )
    graph = read_onnx(parsed(text, w=W, ws=np.float32(0.5)))
    assert types(graph) == ["Relu", "MatMul"]
    assert facts(graph)["h"] == ["!quant.any<u8>"]
    np.testing.assert_array_equal(graph.constants[graph.ops[1].inputs[1]].array, W * np.float32(0.5))


@pytest.mark.parametrize(
    "domain", ["", "onnx.brevitas", "finn", "finn.custom_op.general", "qonnx.custom_op.general"]
)
@pytest.mark.parametrize("kind", ["Quant", "IntQuant"])
def test_qonnx_is_read_in_every_domain_without_an_import(domain, kind):
    node = helper.make_node(kind, ["h", "s", "z", "b"], ["y"], "q", domain=domain, signed=1, narrow=1)
    relu, last = helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["y"], ["out"])
    arrays = {"s": np.float32(0.25), "z": np.int64(0), "b": np.int64(4)}
    data = file_of([relu, node, last], {"x": (TensorProto.FLOAT, [3])}, ["out"], arrays, domains=())
    graph = read_onnx(data)
    assert facts(graph) == {"h": ["!quant.uniform<i4<-7:7>:f32, 0.25>"]}
    assert any("rounding_mode ROUND is taken" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"bits": 7.5}, "!quant.uniform<i8<-91:90>:f32, 0.5>"),
        ({"bits": 7.5, "mode": "FLOOR"}, "!quant.uniform<i8<-91:89>:f32, 0.5>"),
        ({"bits": 7.5, "mode": "CEIL"}, "!quant.uniform<i8<-90:90>:f32, 0.5>"),
        ({"bits": 4, "signed": 0, "zero_point": 3.0}, "!quant.uniform<u4:f32, 0.5:3>"),
        ({"bits": 8, "signed": 0, "narrow": 1}, "!quant.uniform<u8<0:254>:f32, 0.5>"),
        ({"bits": 4, "scale": [[0.5], [0.25], [2.0]]}, "!quant.uniform<i4:f32:0, {0.5,0.25,2.0}>"),
        ({"bits": 4, "scale": np.full((3, 4), 0.5)}, "!quant.uniform<i4:f32, 0.5>"),
        (
            {"bits": 4, "scale": np.repeat([[0.5, 0.25]], 3, axis=0).repeat(2, axis=1)},
            "!quant.uniform<i4:f32:{1:2}, {{0.5, 0.25}}>",
        ),
    ],
)
def test_parameters_of_quant_become_a_type(parameters, kind):
    given = {"scale": 0.5, "zero_point": 0.0, **parameters}
    node, arrays = quant_node("q", "h", **given)
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node, helper.make_node("Relu", ["q"], ["y"])]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [3, 4])}, ["y"], arrays))
    found = [text for texts in facts(graph).values() for text in texts]
    assert found == [kind]


@pytest.mark.parametrize(
    ("bits", "zero_point", "weights", "fact"),
    [
        # Less their zero points the integers are those of a symmetric byte: the numbers stay on every device.
        (4, 8, (-4.0, 3.5), "!quant.uniform<u4:f32, 0.5:8>"),
        (4, 15, (-7.5, 0.0), "!quant.uniform<u4:f32, 0.5:15>"),
        (8, 100, (-50.0, 63.5), "!quant.uniform<u8:f32, 0.5:100>"),
        (8, 127, (-63.5, 63.5), "!quant.uniform<u8:f32, 0.5:127>"),
        # 128 is one too many for i8, so most devices have to round: the width is asked for, and the grid
        # where a row has it.
        (8, 127, (-63.5, 64.0), "!quant.any<u8:f32, 0.5:127>"),
        (8, 0, (0.0, 127.5), "!quant.any<u8:f32, 0.5>"),
    ],
)
def test_weights_with_a_zero_point_are_pinned_where_bytes_hold_them(bits, zero_point, weights, fact):
    node, arrays = quant_node("q", "w", scale=0.5, zero_point=float(zero_point), bits=bits, signed=0)
    arrays["w"] = np.linspace(*weights, 12, dtype=np.float32).reshape(3, 4)
    nodes = [node, helper.make_node("MatMul", ["x", "q"], ["y"])]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [2, 3])}, ["y"], arrays))
    assert facts(graph) == {"q": [fact]}


@pytest.mark.parametrize("target", ["finn-fpga", "litert-int8", "onnxruntime-cpu", "qnn-htp", "tosa-int8"])
def test_weights_with_a_zero_point_are_stored_as_they_are(target):
    """u4 around 3 is INT5 for FINN, and a byte around 0 elsewhere: the numbers are the same."""
    node, arrays = quant_node("q", "w", scale=0.25, zero_point=3.0, bits=4, signed=0)
    rng = np.random.default_rng(0)
    arrays["w"] = rng.normal(size=(8, 4)).astype(np.float32)
    arrays["w"][0] = 3.0
    nodes = [node, helper.make_node("MatMul", ["x", "q"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [2, 8])}, ["y"], arrays))
    ready = annotate(graph, stats=calibrate(graph, [{"x": rng.normal(size=(2, 8)).astype(np.float32)}]))
    done = plan(ready, target)
    check(done, ready, target)
    kind = done.kernels_in_order[0].inputs[1].type
    numbers = ready.constants["q"].array
    steps = np.rint(numbers / np.asarray(kind.scales, np.float32).reshape(1, -1))
    assert np.array_equal(steps * np.asarray(kind.scales, np.float32).reshape(1, -1), numbers)
    if target == "finn-fpga":
        assert (kind.storage.bits, set(kind.zero_points), set(kind.scales)) == (5, {0}, {0.25})


@pytest.mark.parametrize(
    ("exponent", "mantissa", "bias", "largest", "name"),
    [(4, 3, 7, 448, "f8E4M3FN"), (5, 2, 15, 57344, "f8E5M2")],
)
def test_float_quant_of_eight_bits_is_a_float_storage(exponent, mantissa, bias, largest, name):
    numbers = {"s": 0.5, "e": exponent, "m": mantissa, "b": bias, "l": largest}
    arrays = {key: np.float32(number) for key, number in numbers.items()}
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("FloatQuant", ["h", *arrays], ["q"], "q", domain="qonnx.custom_op.general"),
        helper.make_node("Relu", ["q"], ["y"]),
    ]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [3])}, ["y"], arrays))
    assert facts(graph) == {"h": [f"!quant.uniform<{name}:f32, 0.5>"]}


def test_block_scales_built_from_constants_are_sub_channel_types():
    arrays = {
        "base": np.float32([[[0.5], [0.25]]]), "grid": np.int64([3, 2, 2]), "flat": np.int64([3, 4]),
        "z": np.float32(0), "b": np.float32(4),
    }  # fmt: skip
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Expand", ["base", "grid"], ["wide"]),
        helper.make_node("Reshape", ["wide", "flat"], ["scales"]),
        helper.make_node("Identity", ["scales"], ["s"]),
        helper.make_node("Quant", ["h", "s", "z", "b"], ["q"], "q", domain="qonnx.custom_op.general"),
        helper.make_node("Relu", ["q"], ["y"]),
    ]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [3, 4])}, ["y"], arrays)
    assert facts(read_onnx(data)) == {"h": ["!quant.uniform<i4:f32:{1:2}, {{0.5, 0.25}}>"]}
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    done = convert(data, "onnx-qcdq")
    assert run_model(done, {"x": x})["y"].tobytes() == run_model(data, {"x": x})["y"].tobytes()


def test_a_width_per_channel_is_a_range_per_slice():
    node, arrays = quant_node("q", "h", scale=0.5, zero_point=0.0, bits=[[2], [4], [8]])
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node, helper.make_node("Relu", ["q"], ["y"])]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [3, 4])}, ["y"], arrays))
    (kind,) = graph.values["h"].facts
    assert kind.ranges == ((-2, 1), (-8, 7), (-128, 127))


def test_what_has_no_type_stays_float_with_the_reason():
    node, arrays = quant_node("q", "h", scale=0.5, zero_point=0.0, bits=4, mode="ROUND_TO_ZERO")
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node, helper.make_node("Relu", ["q"], ["y"])]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [3, 4])}, ["y"], arrays)
    graph = read_onnx(data)
    assert facts(graph) == {}
    assert graph.notes == (
        "Quant at 'q' falls back to float: no type rounds by ROUND_TO_ZERO on both sides of zero",
    )
    assert not [op.type for op in graph.ops if "::" in op.type]


@pytest.mark.parametrize("name", ["kwsmlp_w3a3", "qkeras_jettagging", "TFC_2W2A"])
@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_a_trained_model_is_planned_for_another_target(models, name, target):
    graph = read_onnx(models / "qonnx" / f"{name}.onnx")
    (port,) = graph.inputs
    rng = np.random.default_rng(3)
    samples = [{port: rng.normal(size=graph.values[port].shape).astype(np.float32)} for _ in range(4)]
    model = annotate(graph, stats=calibrate(graph, samples))
    found = plan(model, target)
    check(found, model)
    linear = [k for k in found.kernels_in_order if k.kernel in ("fully_connected", "gemm", "matmul")]
    assert len(linear) >= 4
    assert all(kernel.row for kernel in linear)
    pinned = [rescale for rescale in found.rescales if rescale.to_pin]
    assert pinned
    assert all(explain(found, rescale.id) for rescale in pinned)


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_an_exported_file_comes_back_and_is_planned_to_the_same_numbers(target, form):
    graph = read_onnx(DIGITS / "digits.onnx")
    model = annotate(graph, stats=calibrate(graph, DIGITS / "calibration.npz"))
    first = export(model, plan(model, target), form)
    read_back = read_onnx(first)
    again = plan(read_back, target)
    check(again, read_back)
    second = export(read_back, again, form)
    with np.load(DIGITS / "calibration.npz") as archive:
        images = archive["image"][:4]
    for image in images:
        once, twice = (run_model(data, {"image": image[None]}) for data in (first, second))
        assert once["probabilities"].tobytes() == twice["probabilities"].tobytes()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            helper.make_node("Quant", ["x", "s", "z"], ["y"], "q", domain="onnx.brevitas"),
            "Quant at 'q' has 3 operands, it takes 4",
        ),
        (
            helper.make_node("Trunc", ["x", "s", "z", "s"], ["y"], "q", domain="qonnx.custom_op.general"),
            "Trunc at 'q' has 4 operands, it takes 5 or 6",
        ),
        (
            helper.make_node("Quant", ["x", "s", "z", "z"], ["y"], "q", domain="finn", rounding_mode="ODD"),
            (
                "'q' has the rounding mode 'ODD' (QONNX has CEIL, DOWN, FLOOR, HALF_DOWN, HALF_EVEN, "
                "HALF_UP, ROUND, ROUND_TO_ZERO, UP)"
            ),
        ),
        (
            helper.make_node("QLinearConv", ["x", "s", "z"], ["y"], "q"),
            (
                "QLinearConv at 'q' is refused by onnx: Node(q) with schema(::QLinearConv:10) has input size "
                "3 not in range [min=8, max=9] (accepted is what "
                "https://onnx.ai/onnx/operators/onnx__QLinearConv.html says)"
            ),
        ),
        (
            helper.make_node("QGemm", ["x", "s", "z"], ["y"], "q", domain="com.microsoft"),
            "QGemm at 'q': 3 operands are too few; onnxruntime takes 6 to 9",
        ),
    ],
)
def test_operators_that_lack_something_are_refused(node, message):
    arrays = {"s": np.float32(1), "z": np.float32(0)}
    data = file_of([node], {"x": (TensorProto.FLOAT, [3])}, ["y"], arrays, domains=())
    with pytest.raises(ModelError) as caught:
        read_onnx(data)
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["QLinearConv", "QGemm"])
@pytest.mark.parametrize(("scales", "biases"), [(4, 5), (3, 4)])
def test_a_bias_that_does_not_fit_its_scales_is_refused(kind, scales, biases):
    operands, domain = (
        ("x s z w ws wz s z b", "") if kind == "QLinearConv" else ("x s z w ws wz b s z", "com.microsoft")
    )
    shape, weight = ([1, 3, 4, 4], (4, 3, 1, 1)) if kind == "QLinearConv" else ([2, 3], (3, 4))
    arrays = {
        "s": np.float32(1),
        "z": np.uint8(0),
        "w": np.ones(weight, np.uint8),
        "ws": np.ones(scales, np.float32),
        "wz": np.zeros(scales, np.uint8),
        "b": np.ones(biases, np.int32),
    }
    node = helper.make_node(kind, operands.split(), ["y"], "q", domain=domain)
    types = {"y": TensorProto.UINT8}
    data = file_of([node], {"x": (TensorProto.UINT8, shape)}, ["y"], arrays, domains=(), types=types)
    with pytest.raises(ModelError) as caught:
        read_onnx(data)
    assert str(caught.value) == (
        f"{kind} at 'q': its bias 'b' of the shape [{biases}] "
        f"does not fit scales of the shapes [] and [{scales}]"
    )


def _planned(data: bytes, target: str, **samples: np.ndarray):
    model = read_onnx(data)
    model = annotate(model, stats=calibrate(model, [samples]))
    made = plan(model, target)
    check(made, model)
    return model, made


def _reason_for_float(data, target, **sample):
    """Why a model's one kernel is float."""
    _, made = _planned(data, target, **sample)
    (kernel,) = made.kernels_in_order
    assert kernel.row is None
    return kernel.reason


@pytest.mark.parametrize("target", ["llm-w4", "tensorrt-int8"])
def test_a_weight_in_blocks_that_no_row_has(target):
    """Blocks of 2 fit no row of blocks of 32 and more: the kernel is float, and says why."""
    weight = helper.make_tensor("q", TensorProto.INT4, [4, 2], [1, -2, 3, -4, 5, -6, 7, -8])
    scales = np.array([[0.5, 0.25], [1, 0.125]], np.float32)
    model = onnx.parser.parse_model(
        f"{HEAD} g (float[1,4] x) => (float[1,2] y) "
        "{ w = DequantizeLinear<axis=0, block_size=2>(q, s) y = MatMul(x, w) }"
    )
    model.graph.initializer.extend([weight, numpy_helper.from_array(scales, "s")])
    reason = _reason_for_float(model.SerializeToString(), target, x=np.ones((1, 4), np.float32))
    assert "has the fixed type !quant.uniform<i4:f32:{0: 2, 1: 1}, {4 scales}>" in reason


def test_two_signs_of_a_scale_that_the_device_lacks():
    """The DPU has powers of two: a weight of +-0.3 stays float there. hls4ml multiplies by another scale."""
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) "
        "{ w = onnx.brevitas.BipolarQuant(q, s) y = MatMul(x, w) }"
    )
    data = parsed(text, q=np.array([[1, -1], [-1, -1]], np.float32), s=np.float32(0.3))
    sample = {"x": np.ones((1, 2), np.float32)}
    assert "!quant.bipolar" in _reason_for_float(data, "dpuczdx8g", **sample)
    _, made = _planned(data, "hls4ml-fpga", **sample)
    (kernel,) = (one for one in made.kernels_in_order if one.kernel == "dense")
    assert str(kernel.inputs[1].type) == "!quant.uniform<i2<-1:1>:f32, 0.30000001192092896>"


def test_a_value_in_float8_is_no_file_of_integers():
    """The value is stored so although no port of a kernel is."""
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) "
        "{ q = QuantizeLinear(x, s, z) h = DequantizeLinear(q, s, z) y = MatMul(h, w) }"
    )
    model = onnx.parser.parse_model(text)
    arrays = {"s": np.float32(0.1), "w": np.eye(2, dtype=np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items())
    model.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    graph, made = _planned(model.SerializeToString(), "litert-int8", x=np.ones((1, 2), np.float32))
    for form in ("onnx-qdq", "onnx-qoperator", "qonnx", "finn"):
        with pytest.raises(UnsupportedExport, match="float storage"):
            export(graph, made, form)


def test_a_trained_scale_that_no_shift_gets_to():
    """Pins off the powers of two where rows shift: rescales multiply exactly, in files too."""
    text = (
        f"{HEAD} g (float[1,256] x) => (float[1,256] y) "
        "{ q = QuantizeLinear(x, s, z) h = DequantizeLinear(q, s, z) u = Unsqueeze(h, axes) "
        "m = MaxPool<kernel_shape=[1, 1]>(u) p = QuantizeLinear(m, t, z) d = DequantizeLinear(p, t, z) "
        "y = Squeeze(d, axes) }"
    )
    data = parsed(text, s=np.float32(0.3), t=np.float32(0.5), z=np.int8(0), axes=np.array([1, 2]))
    sample = {"x": (np.arange(-128, 128, dtype=np.float32) * np.float32(0.3))[None]}
    graph, made = _planned(data, "dpuczdx8g", **sample)
    got = evaluate(graph, made, sample)
    ratio = Fraction(float(np.float32(0.3))) * 2
    assert got.stored["h"][0].tolist() == [math.floor(n * ratio + Fraction(1, 2)) for n in range(-128, 128)]
    pinned, kept = "!quant.uniform<i8:f32, 0.30000001192092896>", "!quant.uniform<i8:f32, 0.5>"
    assert "leave 1 value ('x') float" in made.warnings[0]
    assert made.warnings[1:] == tuple(
        f"{port} is {kept}, 'h' has the fixed type {pinned}: no shift leads from one to the other, so the "
        "device has to multiply"
        for port in ("DequantizeLinear_1.out[0]", "Unsqueeze_2.in[0]")
    )
    data = export(graph, made, "onnx-integer")
    np.testing.assert_array_equal(outputs(data, sample)["y"], got.outputs["y"])
    assert export(graph, made, "finn")


@pytest.mark.parametrize("target", ["finn-fpga", "hls4ml-fpga"])
def test_half_a_step_before_an_unsigned_value(target):
    """FLOOR takes half a step off first: a constant below 0 has signs where its result has none."""
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) "
        '{ r = Relu(x) y = onnx.brevitas.Quant<signed=0, narrow=0, rounding_mode="FLOOR">(r, s, z, b) }'
    )
    data = parsed(text, s=np.float32(0.25), z=np.float32(0), b=np.float32(3))
    sample = np.array([[0.3, 1.2]], np.float32)
    _, made = _planned(data, target, x=sample)
    port = next(port for kernel in made.kernels_in_order for port in kernel.inputs if "bias" in port.value)
    assert port.type.storage.signed
    assert port.type.scale <= 0.125


def test_a_pin_of_more_levels_than_thresholds_have():
    """A value of 32 bits between two kernels of bytes: no port has it, a stream would."""
    text = (
        f"{HEAD} g (float[1,2] x) => (float[1,2] y) "
        "{ q = QuantizeLinear(x, s, z) h = DequantizeLinear(q, s, z) u = Relu(h) y = Relu(u) }"
    )
    model = read_onnx(parsed(text, s=np.float32(0.25), z=np.int8(0)))
    wide = {"format": "qplan.annotations/1", "values": {"u": "!quant.uniform<i32:f32, 0.001:7>"}}
    stats = calibrate(model, [{"x": np.ones((1, 2), np.float32)}])
    model = annotate(model, stats=stats, annotations=wide)
    made = plan(model, "litert-int8")
    with pytest.raises(UnsupportedExport) as error:
        export(model, made, "finn")
    assert str(error.value) == (
        "'u' has the fixed type i32, more levels than thresholds are written for "
        "(give it at most 16 bits, or no fixed type)"
    )


@pytest.mark.parametrize("target", ["finn-fpga", "hls4ml-fpga"])
@pytest.mark.parametrize("pin", ["!quant.uniform<u4:f32, 0.0625:3>", "!quant.uniform<i4:f32, 0.0625:-3>"])
def test_a_pin_with_a_zero_point_that_cuts_weights_is_stored_as_it_cuts(pin, target):
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(8, 4)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, [2, 8])}, ["y"], arrays))
    ready = annotate(graph, stats=calibrate(graph, [{"x": rng.normal(size=(2, 8)).astype(np.float32)}]))
    ready = annotate(ready, annotations={"format": "qplan.annotations/1", "values": {"w": pin}})
    done = plan(ready, target)
    check(done, ready, target)
    kind = done.kernels_in_order[0].inputs[1].type
    wanted = next(fact for fact in ready.values["w"].facts if isinstance(fact, Uniform))
    assert (kind.lo, kind.hi, set(kind.zero_points)) == (wanted.lo, wanted.hi, {0})


def scale_of_each(kind, shape):
    """The scale of every number of an array of a type."""
    scales = np.asarray(kind.scales)
    if kind.axis is not None:
        return np.broadcast_to(
            scales.reshape([-1 if k == kind.axis else 1 for k in range(len(shape))]), shape
        )
    if not kind.blocks:
        return np.broadcast_to(scales, shape)
    spread = scales.reshape(kind.grid)
    for axis, size in kind.blocks:
        spread = np.repeat(spread, size, axis)
    return np.broadcast_to(spread, shape)


@pytest.mark.parametrize("perm", ["", "<perm = [1, 0]>", "<perm = [0, 1]>"])
@pytest.mark.parametrize(
    ("grid", "scales", "each"),
    [
        ("", 0.5, [[0.5]]),
        ("<axis = 0>", [0.5, 0.25, 1, 2], [[0.5], [0.25], [1], [2]]),
        ("<axis = 1>", [0.5, 0.25], [[0.5, 0.25]]),
        ("<axis = 0, block_size = 2>", [[0.5, 0.25], [1, 2]], [[0.5, 0.25]] * 2 + [[1, 2]] * 2),
        (
            "<axis = 1, block_size = 1>",
            [[0.5, 0.25], [1, 2], [4, 8], [3, 5]],
            [[0.5, 0.25], [1, 2], [4, 8], [3, 5]],
        ),
    ],
)
def test_the_type_of_a_weight_is_turned_with_it(grid, scales, each, perm):
    weight = np.arange(-4, 4, dtype=np.int8).reshape(4, 2)
    turned = weight if perm.endswith("0, 1]>") else weight.T
    text = (
        f"{HEAD} g (float[1,{turned.shape[0]}] x) => (float[1,{turned.shape[1]}] y) "
        f"{{ w = DequantizeLinear{grid}(q, s) t = Transpose{perm}(w) y = MatMul(x, t) }}"
    )
    graph = read_onnx(parsed(text, q=weight, s=np.float32(scales)))
    name = graph.ops[-1].inputs[1]
    (kind,) = graph.values[name].facts
    each = np.broadcast_to(each, weight.shape)
    each = each if turned is weight else each.T
    np.testing.assert_array_equal(graph.constants[name].array, turned * each)
    # Of a type with a scale for each row of what is summed only its width is kept.
    if isinstance(kind, Uniform):
        np.testing.assert_array_equal(scale_of_each(kind, turned.shape), each)
    assert graph.values[name].shape == turned.shape


@pytest.mark.parametrize("half", [False, True])
def test_quantizers_of_halves_say_that_they_stay(half):
    """As TensorRT's tools write them for engines in float16: a pair on halves rounds twice."""
    kind = np.float16 if half else np.float32
    arrays = {"s": kind(0.5), "z": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    dtype = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    graph = read_onnx(file_of(nodes, {"x": (dtype, [3, 4])}, ["y"], arrays))
    wanted = f"{HALVES} (2 of them): export the model in float32, then quantize it"
    assert graph.notes == ((wanted,) if half else ())
