"""What FINN and every QONNX read alike in our files: layouts, parameters, attributes, unsigned numbers."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import planner
from planner.formats.onnx.write import write_graph
from tests.exporters.plans import model, op, residual_ops

RNG = np.random.default_rng(9)


def attributes(node):
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def planned(ops, shapes, constants, form, *, result):
    graph = model(ops, inputs=shapes, outputs=result, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = [
        {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(4)
    ]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "finn-fpga")
    return plan, onnx.load_from_string(planner.export(ready, plan, form)).graph


@pytest.fixture
def convolutions():
    """Convolutions with attributes at their defaults, a residual Add with a Relu, layers of a matrix."""
    return residual_ops(RNG)


def test_layouts_are_those_of_every_qonnx(convolutions):
    """QONNX 0.4, which FINN pins, accepts NCHW and NHWC alone."""
    _, graph = planned(*convolutions, "finn", result={"y": (1, 5)})
    nodes = [node for node in graph.node if node.op_type == "MultiThreshold"]
    assert len(nodes) == 6
    assert {attributes(node).get("data_layout", b"") for node in nodes} == {b"", b"NCHW"}


@pytest.mark.parametrize("form", ["finn", "qonnx"])
def test_windows_are_written_out(convolutions, form):
    """`LowerConvsToMatMul` reads strides, pads, dilations and group from the file alone."""
    _, graph = planned(*convolutions, form, result={"y": (1, 5)})
    found = [attributes(node) for node in graph.node if node.op_type == "Conv"]
    assert [(a["kernel_shape"], a["strides"], a["dilations"], a["pads"], a["group"]) for a in found] == [
        ([3, 3], [1, 1], [1, 1], [0, 0, 0, 0], 1),
        ([3, 3], [1, 1], [1, 1], [1, 1, 1, 1], 1),
    ]


def test_results_of_relus_are_unsigned_and_behind_one(convolutions):
    """FINN takes an unsigned Quant behind a Relu alone, and a scalar zero point and width."""
    plan, graph = planned(*convolutions, "qonnx", result={"y": (1, 5)})
    makers = {name: node for node in graph.node for name in node.output}
    arrays = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    quants = [node for node in graph.node if node.op_type == "Quant"]
    data = [node for node in quants if node.input[0] not in arrays]
    signed = [attributes(node)["signed"] for node in data]
    assert sorted(signed) == [0, 0, 0, 1, 1, 1]
    for node, is_signed in zip(data, signed, strict=True):
        assert is_signed or makers[node.input[0]].op_type == "Relu"
    assert not any(makers.get(node.input[0], node).op_type == "Flatten" for node in data)
    assert all(arrays[name].shape == () for node in quants for name in node.input[2:4])
    first = plan.kernels_in_order[0].outputs[0].type
    assert str(first.storage) == "u8"


@pytest.mark.parametrize("kind", ["Clip", "Relu"])
def test_a_lone_activation_has_its_quant_behind_it(kind):
    """A Clip's bounds are off the grid; FINN takes a Relu into the thresholds of the Quant behind it."""
    bounds = {"lo": np.float32(-0.333), "hi": np.float32(0.4711)} if kind == "Clip" else {}
    ops = [op("MaxPool", "x", "p", kernel_shape=(2, 2)), op(kind, " ".join(["p", *bounds]), "c")]
    constants = {name: np.asarray(number) for name, number in bounds.items()}
    constants["w"] = RNG.normal(size=(4, 3, 1, 1)).astype(np.float32)
    shapes = {"x": (1, 3, 4, 4)}
    _, graph = planned([*ops, op("Conv", "c w", "y")], shapes, constants, "qonnx", result={"y": (1, 4, 3, 3)})
    (conv,) = (node for node in graph.node if node.op_type == "Conv")
    (quant,) = (node for node in graph.node if conv.input[0] in node.output)
    (cut,) = (node for node in graph.node if quant.input[0] in node.output)
    assert (quant.op_type, cut.op_type) == ("Quant", kind)


def test_a_relu_behind_a_residual_add_is_in_its_thresholds(convolutions):
    _, graph = planned(*convolutions, "finn", result={"y": (1, 5)})
    assert "Relu" not in [node.op_type for node in graph.node]
    (added,) = (node for node in graph.node if node.op_type == "Add")
    (reader,) = (node for node in graph.node if added.output[0] in node.input)
    assert reader.op_type == "MultiThreshold"
    assert attributes(reader)["out_dtype"] == b"UINT8"


def test_constants_of_floats_have_no_datatype():
    """FINN refuses to multiply a constant that it was told to be a sign; weights of signs keep theirs."""
    ops = [op("Add", "x o", "a"), op("Mul", "a o", "b"), op("MatMul", "b w", "y")]
    constants = {
        "o": np.asarray([1, -1, 1, -1], np.float32),
        "w": RNG.choice([-1, 1], size=(4, 3)).astype(np.float32),
    }
    graph = planner.load_model(
        write_graph(model(ops, inputs={"x": (2, 4)}, outputs={"y": (2, 3)}, constants=constants))
    )
    plan = planner.plan(graph, "finn-fpga")
    file = onnx.load_from_string(planner.export(graph, plan, "finn")).graph
    said = {
        item.tensor_name: item.quant_parameter_tensor_names[0].value for item in file.quantization_annotation
    }
    assert said == {"w": "BIPOLAR"}
