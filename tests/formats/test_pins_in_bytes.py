"""Trained values of few bits on devices of bytes: one clamp in a byte, and files that their runtimes take.

A convolution with a result of fixed type u5, a Flatten, and a layer that reads it; no device here has 5 bits.
"""

import numpy as np
import onnx
import pytest

import planner
from planner.constants.quantize import quantize_array
from planner.ir.types.qtypes import storage, uniform
from planner.ir.types.typetext import parse_type
from planner.plans.read_json import plan_from_json
from tests.formats.litert.writer.running import told
from tests.formats.plans import model, op, run
from tests.oracles import litert

RNG = np.random.default_rng(5)
X = uniform(storage("i8"), 0.03125)
SAMPLES = [{"x": RNG.normal(size=(1, 2, 4, 4)).astype(np.float32) * 2} for _ in range(8)]


@pytest.fixture(scope="module", params=["litert-int8", "onnxruntime-cpu", "tosa-int8"])
def planned(request):
    graph = model(
        [
            op("Conv", "x w", "c", pads=[1] * 4),
            op("Relu", "c", "r"),
            op("Flatten", "r", "f"),
            op("Gemm", "f v", "y", transB=1),
        ],
        inputs={"x": (1, 2, 4, 4)},
        outputs={"y": (1, 5)},
        constants={
            "w": RNG.normal(size=(3, 2, 3, 3)).astype(np.float32) * 0.4,
            "v": RNG.normal(size=(5, 48)).astype(np.float32) * 0.2,
        },
        facts={"x": (X,), "r": (uniform(storage("u5"), 0.125),), "y": (uniform(storage("i8"), 0.0625),)},
        shapes={"c": (1, 3, 4, 4), "r": (1, 3, 4, 4), "f": (1, 48)},
    )
    annotated = planner.annotate(graph, stats=planner.calibrate(graph, SAMPLES))
    plan = planner.plan(annotated, request.param)
    planner.check(plan, annotated, request.param)
    return request.param, annotated, plan


def made_by(data, result):
    """The op of an ONNX file that writes a tensor; where that is a view, what stands in front of it."""
    nodes = {name: node for node in onnx.load_from_string(data).graph.node for name in node.output}
    while nodes[result].op_type == "Flatten":
        result = nodes[result].input[0]
    return nodes[result]


def test_what_moves_a_pinned_value_moves_it_in_bytes(planned):
    _, _, plan = planned
    flatten = next(kernel for kernel in plan.kernels_in_order if kernel.kernel == "Flatten")
    assert [port.type.storage.bits for port in (*flatten.inputs, *flatten.outputs)] == [8, 8]


def test_the_plan_pays_for_one_clamp(planned):
    """Where the device has no storage of five bits: a narrowing and a widening before."""
    _, _, plan = planned
    inner = [rescale for rescale in plan.rescales if rescale.kind not in ("quantize", "dequantize")]
    assert [(rescale.kind, rescale.to_pin) for rescale in inner] == [("clamp", True)]
    assert plan_from_json(plan.to_json()).rescales == plan.rescales


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator", "onnx-integer"])
def test_onnx(planned, form):
    target, graph, plan = planned
    if form == "onnx-qoperator" and target != "onnxruntime-cpu":
        return  # its arithmetic is that of no other device
    data = planner.export(graph, plan, form)
    for sample in SAMPLES:
        stored = {"x": quantize_array(sample["x"], X)}
        wanted = planner.evaluate(graph, plan, sample).outputs["y"]
        if form != "onnx-qdq" or target == "onnxruntime-cpu":
            np.testing.assert_array_equal(run(data, stored)[0], wanted)
    if form == "onnx-integer" and target != "onnxruntime-cpu":  # which has both signs, and moves to the other
        product = next(n for n in onnx.load_from_string(data).graph.node if n.op_type == "MatMulInteger")
        clip = made_by(data, product.input[0])
        assert (clip.op_type, made_by(data, clip.input[0]).op_type) == ("Clip", "Cast")


def test_tosa(planned):
    target, graph, plan = planned
    if target != "tosa-int8":
        return
    text = planner.export(graph, plan, "tosa").decode()
    # One rescale for each layer, one clamp for the pin, which lies within what Relu keeps.
    assert (text.count("tosa.rescale"), text.count("tosa.clamp")) == (2, 1)
    assert "min_val = 0 : i8, max_val = 31 : i8" in text


def test_litert(planned, tmp_path):
    target, graph, plan = planned
    if target != "litert-int8":
        return
    data = planner.export(graph, plan, "litert")
    assert {name: told(data).counts[name] for name in ("QUANTIZE", "MAXIMUM", "MINIMUM")} == {
        "QUANTIZE": 0,
        "MAXIMUM": 1,
        "MINIMUM": 1,
    }
    fed = [{"x": quantize_array(sample["x"], X)} for sample in SAMPLES]
    found = litert.run(tmp_path, [(data, fed)])[0]
    assert not isinstance(found, str), found
    for sample, got in zip(SAMPLES, found, strict=True):
        np.testing.assert_array_equal(got["y"], planner.evaluate(graph, plan, sample).outputs["y"])


@pytest.mark.parametrize("pin", ["u5:f32, 0.015625", "i8<-5:100>:f32, 0.015625:-5", "i4:f32, 0.015625"])
def test_litert_cuts_what_it_requantizes(pin, tmp_path):
    """QUANTIZE saturates at the ends of the byte, whatever part of it a type has."""
    graph = model(
        [op("Flatten", "x", "f"), op("Gemm", "f v", "y", transB=1)],
        inputs={"x": (1, 4)},
        outputs={"y": (1, 2)},
        constants={"v": np.array([[1, 0, 0, 0], [0, 1, 0.5, 0]], np.float32)},
        facts={"x": (X,), "f": (parse_type(f"!quant.uniform<{pin}>"),), "y": (X,)},
        shapes={"f": (1, 4)},
    )
    plan = planner.plan(graph, "litert-int8")
    assert [rescale.kind for rescale in plan.rescales] == ["requantize"]
    samples = [
        {"x": np.array([row], np.float32)} for row in ([3, 2, -1, 1], [-3, -2, 0.1, 0], [0.2, 0.3, 0, 0])
    ]
    fed = [{"x": quantize_array(sample["x"], X)} for sample in samples]
    found = litert.run(tmp_path, [(planner.export(graph, plan, "litert"), fed)])[0]
    assert not isinstance(found, str), found
    for sample, got in zip(samples, found, strict=True):
        np.testing.assert_array_equal(got["y"], planner.evaluate(graph, plan, sample).outputs["y"])
