"""A quantized source with calibration data: outputs that it leaves float stay as written, unless asked."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.calibration.as_written import left_float
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.typetext import parse_type
from tests.fusion.small import graph_of

TARGETS = ("finn-fpga", "onnxruntime-cpu")
"""Those whose kernels hand on floats."""


def qat(*, tail=()):
    """Q, MatMul, Relu, Q, MatMul, Add: the last sums have no quantizer, and then what `tail` adds."""
    rng = np.random.default_rng(0)
    numbers = {
        "s": np.float32(0.02),
        "z": np.int8(0),
        "t": np.float32(0.03),
        "v": np.asarray(rng.integers(-127, 128, (8, 8)), np.int8),
        "w": np.asarray(rng.integers(-127, 128, (8, 5)), np.int8),
        "ws": np.float32(0.005),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["v", "ws"], ["vd"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"]),
        helper.make_node("MatMul", ["d", "vd"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "t", "z"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "t", "z"], ["rd"]),
        helper.make_node("MatMul", ["rd", "wd"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y" if not tail else "a"]),
        *tail,
    ]
    graph = helper.make_graph(
        nodes,
        "qat",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


TAILS = {
    "sums": (),
    "reshaped": (helper.make_node("Transpose", ["a"], ["y"]),),
    "softmax": (helper.make_node("Softmax", ["a"], ["y"]),),
}


def ready(data, **more):
    graph = planner.load_model(data)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((4, 8)).astype(np.float32)} for _ in range(4)]
    stats = planner.calibrate(graph, samples, method="minmax")
    return graph, planner.annotate(graph, stats=stats, **more), samples


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("target", TARGETS)
def test_calibration_makes_no_output_worse(target, tail):
    data = qat(tail=TAILS[tail])
    without, graph, samples = ready(data, target=planner.load_target(target))
    worst = []
    for model in (without, graph):
        plan = planner.plan(model, target)
        planner.check(plan, model, target)
        interpreter = Interpreter(model, plan)
        off = [interpreter.run(one).outputs["y"] - planner.run(data, one)["y"] for one in samples]
        worst.append(float(np.abs(off).max()))
    assert worst[1] <= worst[0] + 1e-6
    assert any("leave 'y' float" in note for note in graph.notes)


def test_what_is_asked_for_is_quantized():
    asked = {"format": "qplan.annotations/1", "values": {"y": "!quant.any<i8>"}}
    device = planner.load_target("onnxruntime-cpu")
    _, graph, _ = ready(qat(), annotations=asked, target=device)
    plan = planner.plan(graph, device)
    assert plan.kernels_in_order[-1].outputs[0].type is not None
    assert not any("leave 'y' float" in note for note in graph.notes)


def test_a_device_that_stores_every_result_gets_its_ranges():
    _, graph, _ = ready(qat(), target=planner.load_target("litert-int8"))
    plan = planner.plan(graph, "litert-int8")
    assert all(kernel.row for kernel in plan.kernels_in_order)


def test_a_model_that_is_quantized_in_part_is_calibrated():
    tail = (
        helper.make_node("MatMul", ["a", "k"], ["c"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.eye(5, dtype=np.float32))),
    )
    nodes = (tail[1], tail[0], helper.make_node("Relu", ["c"], ["y"]))
    _, graph, _ = ready(qat(tail=nodes), target=planner.load_target("onnxruntime-cpu"))
    assert not any("leave 'y' float" in note for note in graph.notes)


FIXED = "!quant.uniform<i8:f32, 0.5>"
WAYS = {
    # text, values with a fixed type, and the values between each float end and the quantizers
    "an output behind one product": ("h = Relu(x)\ny = MatMul(h, W)", "xhW", [{"y"}]),
    "an output behind two": ("h = Relu(x)\na = MatMul(h, W)\ny = MatMul(a, W)", "xhW", []),
    "an output behind a float weight": ("h = Relu(x)\ny = MatMul(h, V)", "xh", []),
    "an output behind others": ("h = Relu(x)\na = MatMul(h, W)\ny = Tanh(a)", "xhW", [{"a", "y"}]),
    "two sides of one product each": (
        *("h = Relu(x)\na = MatMul(h, W)\nb = MatMul(h, U)\ny = Add(a, b)", "xhWU"),
        [{"a", "b", "y"}],
    ),
    "an output of an input": ("y = MatMul(x, W)", "W", []),
    "an input in front of one product": ("h = MatMul(x, W)\ny = Relu(h)", "hyW", [{"x"}]),
    "an input in front of two": ("a = MatMul(x, W)\nh = MatMul(a, W)\ny = Relu(h)", "hyW", []),
    "an input in front of a float weight": ("h = MatMul(x, V)\ny = Relu(h)", "hy", []),
    "an input that others compute of": ("a = Tanh(x)\nh = MatMul(a, W)\ny = Relu(h)", "hyW", [{"x", "a"}]),
    "an input of two readers": (
        *("a = MatMul(x, W)\nb = MatMul(x, U)\nh = Add(a, b)\ny = Relu(h)", "hyWU"),
        [{"x", "a", "b"}],
    ),
    "an input that only moves": ("h = Flatten(x)\ny = Relu(h)", "hy", []),
    "an input that reaches an output": ("h = MatMul(x, W)\ny = Tanh(x)", "hW", []),
    "nothing is left": ("h = Relu(x)\ny = Relu(h)", "xhy", []),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_quantizers_leave_float_is_between_them_and_an_end(name):
    text, fixed, between = WAYS[name]
    graph = graph_of(text, outputs=["y"])
    facts = (parse_type(FIXED),)
    values = {
        name: replace(value, facts=facts) if name in fixed else value for name, value in graph.values.items()
    }
    assert list(left_float(replace(graph, values=values))) == between
