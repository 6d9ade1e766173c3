"""What FINN and every QONNX read alike in our files: layouts, parameters, attributes, unsigned numbers."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import planner
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import write_graph
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from tests.formats.plans import model, op, residual_ops

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
    relus = [node for node in graph.node if node.op_type == "Relu"]
    assert not any(node.input[0] in one.output for node in relus for one in relus)
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


@pytest.mark.parametrize("sizes", [(), (5,), (5, 6)])
def test_sums_that_are_handed_on_are_scaled_by_channel(sizes):
    """A float result of a product: its factors and bias lie along the channels, whatever axes follow."""
    kernel = tuple(2 for _ in sizes)
    weight = RNG.normal(size=(4, 3, *kernel)) * np.array([1, 2, 0.3, 5]).reshape(
        -1, *(1 for _ in (3, *sizes))
    )
    constants = {"w": weight.astype(np.float32), "b": RNG.normal(size=4).astype(np.float32)}
    made = op("Conv", "x w b", "y") if sizes else op("Gemm", "x w b", "y", transB=1)
    x, y = (1, 3, *sizes), (1, 4, *(size - 1 for size in sizes))
    graph = planner.load_model(
        write_graph(model([made], inputs={"x": x}, outputs={"y": y}, constants=constants))
    )
    samples = [{"x": RNG.normal(size=x).astype(np.float32)} for _ in range(4)]
    asked = {"format": "qplan.annotations/1", "values": {"y": "!quant.none"}}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples), annotations=asked)
    plan = planner.plan(ready, "finn-fpga")
    data = planner.export(ready, plan, "finn")
    assert "Mul" in [node.op_type for node in onnx.load_from_string(data).graph.node]
    runner, interpreter = ModelRunner(read_written(data)), Interpreter(ready, plan)
    for sample in samples:
        (found,) = runner.run(sample).values()
        np.testing.assert_allclose(found, interpreter.run(sample).outputs["y"], rtol=1e-6)


def joined_net(kind, mode, **more):
    """Convolutions around a Concat of channels, or a Resize with whole factors."""
    between = [op("Concat", "a b", "c", axis=1)]
    if kind == "Resize":
        between = [op("Resize", "a - s", "c", mode="nearest", coordinate_transformation_mode=mode, **more)]
    ops = [op("Conv", "x v", "a"), op("Conv", "x v2", "b"), *between, op("Conv", "c w", "y")]
    channels = 8 if kind == "Concat" else 4
    shapes = {"v": (4, 3, 3, 3), "v2": (4, 3, 3, 3), "w": (5, channels, 3, 3)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    constants["s"] = np.array([1, 1, 2, 3], np.float32)
    read = {name for one in ops for name in one.inputs}
    ops = [one for one in ops if one.outputs[0] in {"y", *read}]
    return ops, {"x": (1, 3, 8, 8)}, {name: array for name, array in constants.items() if name in read}


CHANNELS_LAST = [
    ("Concat", "", {}),
    ("Resize", "asymmetric", {"nearest_mode": "floor"}),
    ("Resize", "half_pixel", {}),
]


@pytest.mark.parametrize(("kind", "mode", "more"), CHANNELS_LAST)
def test_a_concat_and_a_resize_have_channels_last(kind, mode, more):
    """FINN has a layer for them there alone, and moves no transpose past them."""
    ops, shapes, constants = joined_net(kind, mode, **more)
    graph = model(ops, inputs=shapes, outputs={"y": None}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "finn-fpga")
    data = planner.export(ready, plan, "finn")
    nodes = onnx.load_from_string(data).graph.node
    (node,) = (node for node in nodes if node.op_type == kind)
    makers = {name: node for node in nodes for name in node.output}
    (reader,) = (one for one in nodes if node.output[0] in one.input)
    turned = [makers[name] for name in node.input if name in makers]
    assert [one["perm"] for one in map(attributes, (*turned, reader))] == (
        [[0, 2, 3, 1]] * len(turned) + [[0, 3, 1, 2]]
    )
    if kind == "Concat":
        assert attributes(node)["axis"] == 3
    else:
        arrays = {
            item.name: numpy_helper.to_array(item) for item in onnx.load_from_string(data).graph.initializer
        }
        assert arrays[node.input[2]].tolist() == [1, 2, 3, 1]
    wanted = planner.evaluate(ready, plan, samples[0]).outputs["y"]
    np.testing.assert_allclose(
        ModelRunner(read_written(data)).run(samples[0])["y"], wanted, rtol=0, atol=1e-5
    )


def test_a_resize_that_does_more_than_copy_stays_as_it_is():
    """In thirds to the nearer pixel: FINN's layer repeats pixels whatever the mode says."""
    ops, shapes, constants = joined_net("Resize", "asymmetric")
    _, graph = planned(ops, shapes, constants, "finn", result={"y": None})
    assert not [node for node in graph.node if node.op_type == "Transpose"]


def test_thresholds_of_pictures_with_channels_last_say_so():
    """FINN puts transposes around a layer whose thresholds say channels first."""
    ops = [
        op("MaxPool", "x", "p", kernel_shape=(2, 2)),
        op("Transpose", "p", "t", perm=(0, 2, 3, 1)),
        op("Add", "t t", "a"),
        op("Transpose", "a", "u", perm=(0, 3, 1, 2)),
        op("Conv", "u w", "y"),
    ]
    constants = {"w": RNG.normal(size=(4, 3, 1, 1)).astype(np.float32)}
    _, graph = planned(ops, {"x": (1, 3, 5, 5)}, constants, "finn", result={"y": None})
    said = {
        node.output[0].partition("_")[0]: attributes(node)["data_layout"]
        for node in graph.node
        if node.op_type == "MultiThreshold"
    }
    assert said == {"p": b"NCHW", "a": b"NHWC"}


@pytest.mark.parametrize(("before", "layout"), [("Relu", b"NHWC"), ("MaxPool", b"NCHW")])
def test_constants_along_the_last_axis_say_that_channels_are_last(before, layout):
    """FINN takes four axes for channels first unless thresholds say otherwise, and gave other numbers."""
    more = {"kernel_shape": (1, 1)} if before == "MaxPool" else {}
    ops = [op(before, "x", "a", **more), op("Add", "a c", "b"), op("Relu", "b", "y")]
    constants = {"c": np.array([-0.5, 0.25, 1, 2], np.float32)}
    _, graph = planned(ops, {"x": (1, 4, 4, 4)}, constants, "finn", result={"y": None})
    nodes = [node for node in graph.node if node.op_type == "MultiThreshold"]
    assert {attributes(node)["data_layout"] for node in nodes if node.input[0] == "x"} == {layout}


def test_the_place_of_the_largest_is_a_topk_of_one():
    """FINN has LabelSelect for the indices of a TopK along the last axis, and nothing for an ArgMax."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("ArgMax", ["r"], ["y"], axis=-1),
    ]
    ends = [
        [helper.make_tensor_value_info(name, kind, size)]
        for name, kind, size in (("x", onnx.TensorProto.FLOAT, (1, 6)), ("y", onnx.TensorProto.INT64, (1, 1)))
    ]
    weight = numpy_helper.from_array(RNG.normal(size=(6, 5)).astype(np.float32), "w")
    file = helper.make_model(
        helper.make_graph(nodes, "g", *ends, [weight]), opset_imports=[helper.make_opsetid("", 21)]
    )
    graph = planner.load_model(file.SerializeToString())
    samples = [{"x": RNG.normal(size=(1, 6)).astype(np.float32)} for _ in range(8)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "finn-fpga")
    data = planner.export(ready, plan, "finn")
    last = onnx.load_from_string(data).graph.node[-1]
    assert (last.op_type, last.output[1]) == ("TopK", "y")
    runner = ModelRunner(read_written(data))
    for sample in samples:
        assert runner.run(sample)["y"] == planner.evaluate(ready, plan, sample).outputs["y"]


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_of_a_picture_is_a_pool(keepdims):
    """FINN has GlobalAccPool for a GlobalAveragePool, and nothing for a ReduceMean."""
    ops = [op("Relu", "x", "a"), op("ReduceMean", "a s", "y", keepdims=keepdims)]
    constants = {"s": np.array([2, 3])}
    _, graph = planned(ops, {"x": (1, 4, 4, 4)}, constants, "finn", result={"y": None})
    assert [node.op_type for node in graph.node].count("GlobalAveragePool") == 1


@pytest.mark.parametrize("kind", ["LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "Sigmoid", "Softsign"])
def test_a_function_that_rises_is_thresholds(kind):
    _, graph = planned([op(kind, "x", "y")], {"x": (1, 4)}, {}, "finn", result={"y": None})
    assert {node.op_type for node in graph.node} == {"MultiThreshold", "Mul", "Identity"}


@pytest.mark.parametrize(
    ("kind", "attributes_of", "wanted"),
    [
        ("AveragePool", {"kernel_shape": (2, 2)}, "Conv"),
        ("AveragePool", {"kernel_shape": (4, 4)}, "GlobalAveragePool"),
        ("GlobalMaxPool", {}, "MaxPool"),
        ("Relu", {}, "MultiThreshold"),
    ],
)
def test_what_has_no_layer_is_written_as_what_has_one(kind, attributes_of, wanted):
    """The numbers of each were equal in FINN while it ran in software."""
    shapes = {"x": (1, 4, 4, 4)}
    ops = [op("LeakyRelu", "x", "a"), op(kind, "a", "b", **attributes_of), op("Sigmoid", "b", "y")]
    _, graph = planned(ops, shapes, {}, "finn", result={"y": None})
    kinds = [node.op_type for node in graph.node]
    assert kind not in kinds
    assert wanted in kinds
