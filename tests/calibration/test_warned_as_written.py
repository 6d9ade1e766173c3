"""A quantized source whose plan gives other numbers than it: the plan names what is not as written."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import PlanInvalid
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir

TARGETS = ("onnxruntime-cpu", "onnxruntime-dynamic", "litert-int8", "tosa-int8", "qnn-htp", "finn-fpga")
ACTIVATIONS = ("Relu", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh", "PRelu", "Add")
SAME = 70.0
"""dB from which on numbers differ by single steps at ties."""
OWN = ("of the model's file", "than the quantized model")


def source(activation="LeakyRelu", *, normalized=False, first=True, fixed=False, quantized=True):
    """Q, Conv, Q, then an activation, behind it a Conv and a Q, each Q with its DequantizeLinear.

    Args:
      normalized: with a BatchNormalization behind the first quantizer, and a quantizer of its own.
      first: whether the input has a quantizer.
      fixed: whether what the activation gives has one.
      quantized: whether there are quantizers at all.
    """
    rng = np.random.default_rng(3)
    numbers = {
        "s": np.float32(0.03),
        "z": np.int8(0),
        "ws": np.float32(0.004),
        "slope": np.asarray([0.2, 0.3, 0.17, -0.1], np.float32).reshape(4, 1, 1),
        **{f"n{i}": (1 + rng.standard_normal(4) * 0.2).astype(np.float32) for i in range(3)},
        "n3": np.full(4, 0.7, np.float32),
        **{name: np.asarray(rng.integers(-127, 128, (4, 4, 3, 3)), np.int8) for name in ("v", "w")},
    }
    nodes = []

    def quantizer(name):
        if not quantized:
            return name
        nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]))
        return f"{name}d"

    for name in ("v", "w"):
        if quantized:
            nodes.append(helper.make_node("DequantizeLinear", [name, "ws"], [f"{name}f"]))
        else:
            numbers[f"{name}f"] = numbers[name] * numbers["ws"]
    read = quantizer("x") if first else "x"
    nodes.append(helper.make_node("Conv", [read, "vf"], ["a"], pads=[1, 1, 1, 1]))
    read = quantizer("a")
    if normalized:
        nodes.append(helper.make_node("BatchNormalization", [read, "n0", "n1", "n2", "n3"], ["b"]))
        read = quantizer("b")
    slope = ["slope"] if activation in ("Add", "Mul", "PRelu") else []
    nodes.append(helper.make_node(activation, [read, *slope], ["c"], name="c_made"))
    read = quantizer("c") if fixed else "c"
    nodes.append(helper.make_node("Conv", [read, "wf"], ["d"], name="c_read", pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Identity", [quantizer("d")], ["y"]))
    graph = helper.make_graph(
        nodes,
        "source",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def planned(data, target, *, calibrated=True, annotations=None):
    model = planner.load_model(data)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 4, 6, 6)).astype(np.float32)} for _ in range(4)]
    stats = planner.calibrate(model, samples) if calibrated else None
    ready = planner.annotate(model, stats=stats, annotations=annotations, target=planner.load_target(target))
    return model, ready, planner.plan(ready, target), samples


def said(plan):
    return [text for text in plan.warnings if any(part in text for part in OWN)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_plan_gives_the_numbers_of_its_source_or_warns(target, activation, normalized):
    model, ready, plan, samples = planned(source(activation, normalized=normalized), target)
    planner.check(plan, ready, target)
    quality = planner.compare(model, planner.export(ready, plan, "onnx-qdq"), samples)
    assert quality.worst_sqnr >= SAME or plan.warnings


def test_values_that_the_source_leaves_float_are_named_and_kept_when_asked():
    data = source("LeakyRelu")
    _, _, plan, _ = planned(data, "litert-int8")
    [text] = said(plan)
    assert "leave 1 value ('c') float" in text
    asked = {"format": "qplan.annotations/1", "kernels": {"c_made": "float", "c_read": "float"}}
    for more in ({"annotations": asked}, {"calibrated": False}):
        model, ready, plan, samples = planned(data, "litert-int8", **more)
        assert not said(plan)
        quality = planner.compare(model, planner.export(ready, plan, "onnx-qdq"), samples)
        assert quality.worst_sqnr >= SAME


def test_constants_that_the_source_leaves_float_are_named_without_calibration():
    _, _, plan, _ = planned(source("Add", fixed=True), "litert-int8", calibrated=False)
    assert any("kernels store other numbers" in text for text in said(plan))


def test_what_a_row_quantizes_again_at_run_time_is_named():
    _, _, plan, _ = planned(source("Relu", fixed=True), "onnxruntime-dynamic")
    assert any("another grid" in text for text in said(plan))
    asked = {"format": "qplan.annotations/1", "kernels": {"*": "float"}}
    _, _, plan, _ = planned(source("Relu", fixed=True), "onnxruntime-dynamic", annotations=asked)
    assert not said(plan)


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "onnxruntime-dynamic"])
def test_a_source_that_is_kept_has_nothing_said_of_it(target):
    _, _, plan, _ = planned(source("Relu", fixed=True), target)
    assert not said(plan)


def test_an_input_without_a_quantizer_stays_float_where_kernels_hand_on_floats():
    data = source("Relu", first=False, fixed=True)
    model, ready, plan, samples = planned(data, "onnxruntime-cpu")
    assert any("leave 'x'" in note for note in ready.notes)
    assert not said(plan)
    quality = planner.compare(model, planner.export(ready, plan, "onnx-qdq"), samples)
    assert quality.worst_sqnr >= SAME
    asked = {"format": "qplan.annotations/1", "values": {"x": "!quant.any<i8>"}}
    _, ready, plan, _ = planned(data, "onnxruntime-cpu", annotations=asked)
    assert all(kernel.row for kernel in plan.kernels_in_order)


def test_a_pin_of_the_user_makes_no_quantized_source():
    pin = {"format": "qplan.annotations/1", "values": {"c": "!quant.uniform<i8:f32, 0.05>"}}
    _, _, plan, _ = planned(source("Relu", quantized=False), "litert-int8", annotations=pin)
    assert not said(plan)


@pytest.mark.parametrize("form", ["json", "mlir"])
def test_what_is_said_comes_through_files_and_cannot_be_dropped(form):
    _, ready, plan, _ = planned(source("LeakyRelu"), "litert-int8")
    read = plan_from_json(plan.to_json()) if form == "json" else plan_from_mlir(plan.to_mlir())
    assert read.warnings == plan.warnings
    planner.check(read, ready, "litert-int8")
    with pytest.raises(PlanInvalid, match="does not warn that the quantizers"):
        planner.check(replace(plan, warnings=()), ready, "litert-int8")
