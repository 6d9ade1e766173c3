"""A recurrent layer in the body of a Loop: one kernel, its states in classes, the file right bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.checker.check import check
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.sessions import open_session
from planner.pipeline import annotate, calibrate, evaluate, export, plan
from planner.target.load import load_target

TARGETS = {"device": Path(__file__).parent / "device.yaml", "teaching-npu": "teaching-npu"}
SHAPE = [3, 1, 4]


def looped() -> bytes:
    """Three trips of an LSTM that reads what it gave; it leaves its cell state out."""
    rng = np.random.default_rng(0)
    sizes = {"w": (1, 16, 4), "r": (1, 16, 4), "b": (1, 32)}
    arrays = {name: rng.uniform(-0.7, 0.7, size).astype(np.float32) for name, size in sizes.items()}
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    ports = {"s": SHAPE, "sq": SHAPE, "x": SHAPE, "z": SHAPE}
    info = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()
    }
    trip = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    go, on = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("c", "c2"))
    nodes = [
        helper.make_node("LSTM", ["s", "w", "r", "b"], ["y"], "cell", hidden_size=4),
        helper.make_node("Squeeze", ["y", "one"], ["sq"], "squeeze"),
        helper.make_node("Identity", ["c"], ["c2"], "keep"),
    ]
    body = helper.make_graph(nodes, "body", [trip, go, info["s"]], [on, info["sq"]], weights)
    loop = helper.make_node("Loop", ["n", "", "x"], ["z"], "loop", body=body)
    numbers = {"n": np.asarray(3, np.int64), "one": np.asarray([1], np.int64)}
    outer = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
    graph = helper.make_graph([loop], "looped", [info["x"]], [info["z"]], outer)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("name", list(TARGETS))
def test_a_layer_in_a_loop(name):
    target, model = load_target(TARGETS[name]), read_onnx(looped())
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(4)]
    graph = annotate(model, stats=calibrate(model, samples))
    made = plan(graph, target)
    check(made, graph, target)
    (kernel,) = (kernel for kernel in made.kernels_in_order if kernel.kernel == "LSTM")
    assert kernel.row is not None
    assert str(kernel.outputs[2].type.storage) == "i16"
    (theirs,) = open_session(export(graph, made, "onnx-qdq")).run(None, samples[0])
    ours = evaluate(graph, made, samples[0], arithmetic="float32_qdq").outputs["z"]
    np.testing.assert_array_equal(theirs, ours)
    (wanted,) = open_session(looped()).run(None, samples[0])
    np.testing.assert_allclose(theirs, wanted, atol=0.02)
