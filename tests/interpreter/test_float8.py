"""Float8 in the reference interpreter: values are the nearest such floats, kernels compute in float32."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.interpreter.calls import FLOAT32_EVEN
from planner.interpreter.memory import FLOAT32_STEPS

X = np.linspace(-60, 60, 24, dtype=np.float32).reshape(4, 6)
SCALE = np.float32(0.1)
FILE = """<ir_version: 10, opset_import: ["" : 21]> g (float[4,6] x) => (float[4,3] y) {
    q = QuantizeLinear(x, s, z)
    h = DequantizeLinear(q, s, z)
    r = Relu(h)
    t = Reshape(r, shape)
    y = MatMul(t, w)
}"""
DEVICE = """
apiVersion: planner/v1
kind: Target
id: eighths
version: 1.0.0
title: Kernels in float8
mode: fixed
types:
  f8: {storage: f8E4M3FN, symmetric: true}
kernels:
  - kernel: MatMul
    in: {x: f8, w: f8}
    out: {y: f8}
  - kernel: Relu
    in: {x: f8}
    out: {y: f8}
    rules: [{same_scale: [x, y]}]
"""


def model() -> bytes:
    file = onnx.parser.parse_model(FILE)
    arrays = {"s": SCALE, "w": np.eye(6, 3, dtype=np.float32), "shape": np.array([4, 6])}
    file.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    file.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    return file.SerializeToString()


def rounded(reals: np.ndarray, scale: np.float32) -> np.ndarray:
    """To the nearest float8 times a scale, saturated."""
    held = np.clip(reals / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return held.astype(np.float32) * scale


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8", "tosa-int8", "stablehlo"])
def test_a_value_pinned_to_float8_is_that_of_the_file(target):
    """Planned for devices that have none, the pin is the file's in any arithmetic."""
    data = model()
    graph = planner.load_model(data)
    stats = planner.calibrate(graph, [{"x": X}])
    plan = planner.plan(planner.annotate(graph, stats=stats), target)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": X})
    for arithmetic in (None, FLOAT32_EVEN, *sorted(FLOAT32_STEPS)):
        found = planner.evaluate(graph, plan, {"x": X}, arithmetic=arithmetic)
        np.testing.assert_allclose(
            found.outputs["y"], wanted, atol=0.5
        )  # the device cuts at 44.35, as calibrated


def test_kernels_of_float8():
    """Each in float32 between its types, a mover of floats included."""
    graph = planner.load_model(model())
    stats = planner.calibrate(graph, [{"x": X}])
    device = planner.load_target(DEVICE)
    plan = planner.plan(planner.annotate(graph, stats=stats), device)
    (relu,) = (kernel for kernel in plan.kernels_in_order if kernel.kernel == "Relu")
    assert "f8E4M3FN" in str(relu.outputs[0].type)
    found = planner.evaluate(graph, plan, {"x": X})
    out = relu.outputs[0]
    assert found.stored[out.value].dtype == ml_dtypes.float8_e4m3fn
    held = rounded(rounded(X, SCALE), np.float32(relu.inputs[0].type.scales[0]))
    assert np.array_equal(found.reals[out.value], np.maximum(held, 0))
    assert np.max(np.abs(found.outputs["y"] - np.maximum(X, 0)[:, :3])) < 4


def test_a_pinned_input_may_be_given_in_float8():
    graph = planner.load_model(model())
    stats = planner.calibrate(graph, [{"x": X}])
    pin = {"format": "qplan.annotations/1", "values": {"x": "!quant.uniform<f8E5M2:f32, 0.5>"}}
    plan = planner.plan(planner.annotate(graph, stats=stats, annotations=pin), "litert-int8")
    stored = np.clip(X / np.float32(0.5), -57344, 57344).astype(ml_dtypes.float8_e5m2)
    given, real = (planner.evaluate(graph, plan, {"x": x}) for x in (stored, X))
    assert np.array_equal(given.outputs["y"], real.outputs["y"])
