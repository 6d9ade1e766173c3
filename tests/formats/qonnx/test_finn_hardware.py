"""What FINN asks of thresholds before it makes hardware of them, of every file that we write for it.

The conditions are those that `InferThresholdingLayer`, `InferQuantizedMatrixVectorActivation` and
`RoundAndClipThresholds` of FINN 0.10 check or need (`convert_to_hw_layers.py`, `round_thresholds.py`).
"""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import planner
from planner.analysis.datatypes import datatypes
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import write_graph
from tests.formats.plans import model, op

RNG = np.random.default_rng(4)


def image_net():
    """Convolutions, a residual Add, a pool, and a last layer without thresholds."""
    ops = [
        op("Conv", "x w b", "c", pads=(1, 1, 1, 1)),
        op("Relu", "c", "r"),
        op("Conv", "r v", "d", pads=(1, 1, 1, 1)),
        op("Add", "d r", "s"),
        op("MaxPool", "s", "p", kernel_shape=(2, 2), strides=(2, 2)),
        op("Flatten", "p", "f"),
        op("Gemm", "f g h", "y"),
    ]
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "v": (4, 4, 3, 3), "g": (64, 5), "h": (5,)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    graph = model(ops, inputs={"x": (1, 3, 8, 8)}, outputs={"y": (1, 5)}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples))


def kinds_of(data):
    return datatypes(read_written(data, opened=False))


def said(data):
    """FINN's datatypes as the file has them."""
    entries = onnx.load_from_string(data).graph.quantization_annotation
    return {entry.tensor_name: entry.quant_parameter_tensor_names[0].value for entry in entries}


def assert_finn_takes(data):
    """The number of thresholdings that become hardware, and of products."""
    graph = onnx.load_from_string(data).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inferred, annotated, made = kinds_of(data), said(data), 0
    for node in (node for node in graph.node if node.op_type == "MultiThreshold"):
        x, table = node.input
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        kind = attributes["out_dtype"].decode()
        thresholds = arrays[table]
        assert np.all(np.diff(thresholds, axis=1) >= 0), node.name
        assert np.all(np.isfinite(thresholds)), node.name
        assert attributes["out_bias"] == int(attributes["out_bias"])
        assert annotated[node.output[0]] == kind
        if not inferred[x].startswith(("INT", "UINT", "BI", "TERNARY")):
            continue
        made += 1
        assert annotated[table].startswith(("INT", "UINT", "BI", "TERNARY")), node.name
        assert np.array_equal(thresholds, np.ceil(thresholds))
        assert attributes["out_scale"] == 1.0
        assert not kind.startswith("INT") or attributes["out_bias"] < 0
    for node in (node for node in graph.node if node.op_type in ("Conv", "MatMul")):
        assert all(inferred[name].startswith(("INT", "UINT", "BI")) for name in node.input[:1]), node.name
        assert annotated[node.input[1]].startswith(("INT", "UINT", "BI", "TERNARY")), node.name
    return made


def test_thresholds_of_an_image_net_become_hardware():
    ready = image_net()
    data = planner.export(ready, planner.plan(ready, "finn-fpga"), "finn")
    assert assert_finn_takes(data) >= 3
    names = [node.op_type for node in onnx.load_from_string(data).graph.node]
    # No float op but the scales and the bias of the last layer, which leave the device.
    assert names.index("Mul") > max(i for i, name in enumerate(names) if name in ("Conv", "MatMul"))


@pytest.mark.parametrize(("name", "least"), [("TFC_1W2A", 3), ("TFC_2W2A", 3), ("unsw_nb15-mlp-w2a2", 2)])
def test_thresholds_of_the_zoo_become_hardware(models, name, least):
    ready = planner.load_model(models / "qonnx" / f"{name}.onnx")
    data = planner.export(ready, planner.plan(ready, "finn-fpga"), "finn")
    assert assert_finn_takes(data) >= least
