"""A kernel that a format cannot write by its row leaves it while the plan is made, or is refused by name."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

import planner
from planner.errors import UnknownName, UnsupportedExport
from planner.plans.read_mlir import plan_from_mlir
from tests.awkward.net import Net


def ready(data):
    graph = planner.load_model(data)
    random = np.random.default_rng(3)
    samples = [
        {name: random.normal(size=graph.values[name].shape).astype(np.float32) for name in graph.inputs}
        for _ in range(2)
    ]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples))


def summed():
    """A Conv, a sum with itself, a Conv."""
    net = Net(1)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    net.conv(net.op("Add", x, net.op("Relu", x)), 4, 2, out="y")
    net.output("y", None)
    return ready(net.data())


def picked():
    """A Conv and a CumSum, which TOSA lacks."""
    net = Net(2)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    net.op("CumSum", x, net.const(np.asarray(1, np.int64)), out="y")
    net.output("y", None)
    return ready(net.data())


def emptied():
    """A Slice to nothing behind a Conv."""
    net = Net(3)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    net.op("Slice", x, net.ints(2), net.ints(2), net.ints(1), out="y")
    net.output("y", None)
    return ready(net.data())


def target_with(kernel, arithmetic):
    """`litert-int8` with rows of a kernel that compute as no LiteRT operator does."""
    device = planner.load_target("litert-int8")
    rows = tuple(replace(row, requantize=arithmetic) for row in device.rows[kernel])
    return replace(device, rows={**device.rows, kernel: rows})


def test_a_row_that_the_own_format_cannot_write_is_left():
    graph, device = summed(), target_with("add", "float32_even")
    plan = planner.plan(graph, device)
    planner.check(plan, graph, device)
    (kernel,) = [kernel for kernel in plan.kernels_in_order if kernel.kernel == "add"]
    assert kernel.row is None
    assert "litert cannot write it: " in kernel.reason
    assert "its row computes in float32_even" in kernel.reason
    assert planner.export(graph, plan, "litert")
    assert all(kernel.row for kernel in plan.kernels_in_order if kernel.kernel == "conv2d")


def test_a_requested_format_goes_over_the_own():
    graph, device = summed(), target_with("add", "float32_even")
    plan = planner.plan(graph, device, formats=["onnx-qdq"])
    assert all(kernel.row is not None for kernel in plan.kernels_in_order)


def test_what_no_form_has_is_refused_by_name_while_planning():
    with pytest.raises(UnsupportedExport) as caught:
        planner.plan(picked(), "tosa-int8", formats=["tosa"])
    assert str(caught.value).startswith("tosa cannot write 'CumSum_1', CumSum of f32[1, 4, 6, 6], i64[]")


@pytest.mark.parametrize(("target", "form"), [("litert-int8", "litert"), ("tosa-int8", "tosa")])
def test_nobody_who_requests_no_format_loses_integers_for_nothing(target, form):
    """A format that has no form in float either gains nothing by it."""
    plan = planner.plan(emptied(), target)
    assert all(kernel.row is not None for kernel in plan.kernels_in_order)
    with pytest.raises(UnsupportedExport, match=f"{form} cannot write 'Slice_1', Slice of "):
        planner.plan(emptied(), target, formats=[form])


@pytest.mark.parametrize("form", ["litert", "onnx-qdq"])
def test_a_plan_carries_its_formats(form):
    graph = summed()
    plan = planner.plan(graph, "litert-int8", formats=[form])
    assert plan.options["formats"] == [form]
    assert plan.formats == (form,)
    back = planner.plan_from_json(plan.to_json())
    assert (back.options, back.key) == (plan.options, plan.key)
    assert plan_from_mlir(plan.to_mlir()).options == plan.options
    assert planner.plan(graph, "litert-int8").key != plan.key
    again = planner.replan(back, {"values": {}}, model=graph, target="litert-int8")
    assert again.options == plan.options
    assert "formats" not in planner.retarget(plan, "tosa-int8").options  # it has one of its own
    assert planner.retarget(plan, "teaching-npu").options["formats"] == [form]


def test_a_format_that_is_none_is_refused():
    with pytest.raises(UnknownName, match="onnx-qdk"):
        planner.plan(summed(), "litert-int8", formats=["onnx-qdk"])


@pytest.mark.parametrize(("target", "form"), [("litert-int8", "litert"), ("tosa-int8", "tosa")])
def test_borders_of_bodies_are_no_kernels_to_ask_about(target, form):
    """A model with an If, whose borders stand in no file alone."""
    net = Net(4)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    flag = net.op("Greater", net.op("ReduceSum", x, keepdims=0), net.const(np.float32(0)))
    bodies = {}
    for word, kind in (("then_branch", "Relu"), ("else_branch", "Tanh")):
        body = Net(5)
        body.op(kind, x, out=word)
        body.output(word, [1, 4, 6, 6])
        bodies[word] = body.graph(word)
    net.op("If", flag, out="y", **bodies)
    net.output("y", [1, 4, 6, 6])
    graph = ready(net.data())
    plan = planner.plan(graph, target, formats=[form])
    planner.check(plan, graph, target)
    assert planner.export(graph, plan, form)


@pytest.mark.parametrize(("target", "form"), [("litert-int8", "litert"), ("tosa-int8", "tosa")])
def test_a_condition_that_a_body_hands_on_is_no_kernel_alone(target, form):
    """A Loop that leaves the condition it is given, as exporters write loops that only count."""
    net, body = Net(6), Net(7)
    trip, flag, x = (body.name("v"), *(body.name("v") for _ in range(2)))
    body.input(trip, [], TensorProto.INT64)
    body.input(flag, [], TensorProto.BOOL)
    body.input(x, [2, 4])
    body.op("Identity", flag, out="on")
    body.op("Add", x, body.const(np.float32(0.5)), out="next")
    body.output("on", [], TensorProto.BOOL)
    body.output("next", [2, 4])
    start = net.op("Tanh", net.input("x", [2, 4]))
    net.op("Loop", net.const(np.int64(2)), "", start, out="y", body=body.graph("body"))
    net.output("y", [2, 4])
    graph = ready(net.data())
    plan = planner.plan(graph, target, formats=[form])
    planner.check(plan, graph, target)
    assert planner.export(graph, plan, form)


def test_a_resize_to_nothing_is_refused_while_planning():
    """RESIZE_BILINEAR takes no empty result, and the runtime says so only when the file is loaded."""
    net = Net(8)
    scales = net.const(np.asarray([1, 1, 0.3, 2], np.float32))
    net.op("Resize", net.input("x", [2, 4, 1, 1]), "", scales, mode="linear", out="y")
    net.output("y", None)
    with pytest.raises(UnsupportedExport, match="has no elements; litert accepts no empty tensor"):
        planner.plan(ready(net.data()), "litert-int8", formats=["litert"])


def test_a_result_in_a_pin_that_litert_lacks_is_refused_where_the_plan_is_for_others():
    """16 bits with a zero point, as another quantizer wrote them: the runtime refuses such a file whole."""
    net = Net(4)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    step, zero = net.const(np.float32(0.001)), net.const(np.int16(1200))
    x = net.op("DequantizeLinear", net.op("QuantizeLinear", x, step, zero), step, zero)
    net.conv(x, 4, 2, out="y")
    net.output("y", None)
    graph = ready(net.data(opset=21, ir=10))
    device = planner.load_target("litert-int8")
    device = replace(device, files=replace(device.files, formats=()))
    plan = planner.plan(graph, device)
    assert not [warning for warning in plan.warnings if "takes its place" in warning]
    with pytest.raises(UnsupportedExport, match=r"!quant.uniform<i16:f32, 0.001\d*:1200>"):
        planner.export(graph, plan, "litert")
    requested = planner.plan(graph, device, formats=["litert"])
    planner.check(requested, graph, device)
    [warning] = [warning for warning in requested.warnings if "takes its place" in warning]
    assert warning == (
        "Conv_0.out[0]: 'v4_3' is fixed to !quant.uniform<i16:f32, 0.0010000000474974513:1200>, and litert "
        "stores 16 bits with zero point 0 alone: "
        "!quant.uniform<i16<-32767:30451>:f32, 0.0010366528294980526> takes its place"
    )
    assert planner.export(graph, requested, "litert")


@pytest.mark.parametrize("form", ["litert", "tosa", "stablehlo", "stablehlo-int"])
@pytest.mark.parametrize(
    "op", ["AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool", "Conv", "ConvTranspose"]
)
def test_windows_over_three_axes_are_written_or_refused(op, form):
    """Video and volumes: the formats of mobile devices have windows over two axes alone."""
    net = Net(5)
    x = net.input("x", [1, 2, 4, 4, 4])
    weight = [net.const(np.ones((2, 2, 2, 2, 2), np.float32))] if op.startswith("Conv") else []
    more = {} if op.startswith("Global") else {"kernel_shape": [2, 2, 2]}
    net.op(op, x, *weight, out="y", **more)
    net.output("y", None)
    graph = ready(net.data())
    refused = ""
    try:
        planner.export(graph, planner.plan(graph, "tosa-int8", formats=[form]), form)
    except UnsupportedExport as error:
        refused = str(error)
    assert not refused or op in refused
