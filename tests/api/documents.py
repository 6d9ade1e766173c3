"""Bodies that tests send: annotated models, ONNX files that lie, and how to send them."""

import hashlib
from typing import Any

import onnx
from onnx import TensorProto, helper

OCTETS = {"content-type": "application/octet-stream"}
JSON = {"content-type": "application/json"}
YAML = {"content-type": "application/yaml"}
AS_IT_IS = {"Accept-Encoding": "identity"}
"""Headers of who takes no compressed answers."""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def put(client: Any, data: bytes) -> str:
    """Upload a blob."""
    answer = client.put(f"/v1/blobs/{digest(data)}", content=data, headers=OCTETS)
    assert answer.status_code == 201, answer.text
    return digest(data)


def chain(kernels: int, **first: Any) -> dict[str, Any]:
    """An annotated model: fully connected kernels and additions in a row."""
    calibrated = "!quant.calibrated<f32<-{0}:{0}>>"
    values = [{"name": "x", "shape": [1, 8], "constraints": [calibrated.format(1.0)], **first}]
    steps = []
    for i in range(kernels):
        before = "x" if i == 0 else f"v{i - 1}"
        values.append({"name": f"v{i}", "shape": [1, 8], "constraints": [calibrated.format(1.0 + i % 5)]})
        if i % 5 == 4:
            steps.append({"name": f"k{i}", "kernel": "add", "inputs": [before, "x"], "outputs": [f"v{i}"]})
        else:
            values.append({"name": f"w{i}", "shape": [8, 8], "constant": {"range": [-0.5, 0.5]}})
            inputs = [before, f"w{i}", None]
            steps.append(
                {"name": f"k{i}", "kernel": "fully_connected", "inputs": inputs, "outputs": [f"v{i}"]}
            )
    ends = {"inputs": ["x"], "outputs": [f"v{kernels - 1}"]}
    return {"format": "qplan.annotated/1", "name": "chain", "values": values, "kernels": steps, **ends}


PINS = ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.25>")


def contradicted() -> dict[str, Any]:
    """An annotated model whose input has two fixed types."""
    return chain(1, constraints=list(PINS))


def onnx_file(nodes, constants=(), inputs=("x",), shape=(1, 8)) -> bytes:
    """A model with one output `y`."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made, list(constants))
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def relu() -> bytes:
    """A good model of one op."""
    return onnx_file([helper.make_node("Relu", ["x"], ["y"])])


def quantized_relu() -> bytes:
    """One op behind a quantizer: its ranges are known without statistics."""
    step = helper.make_tensor("step", TensorProto.FLOAT, [], [0.01])
    zero = helper.make_tensor("zero", TensorProto.INT8, [], [0])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    return onnx_file(nodes, (step, zero))


RANGE = {"format": "qplan.annotations/1", "values": {"x": "!quant.calibrated<f32<-1.0:1.0>>"}}
"""What a plan of `relu` needs to know."""


def integers(name: str, *numbers: int) -> TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)


def expanding(op: str) -> bytes:
    """A few bytes that stand for a tensor of 400 GB."""
    shape = integers("s", 100_000, 100_000, 10)
    one = helper.make_tensor("c", TensorProto.FLOAT, [1, 1, 1], [1.0])
    nodes = {
        "ConstantOfShape": [helper.make_node(op, ["s"], ["y"])],
        "Expand": [helper.make_node(op, ["c", "s"], ["y"])],
        "Tile": [helper.make_node(op, ["c", "s"], ["y"])],
    }
    return onnx_file(nodes[op], [shape] if op == "ConstantOfShape" else [shape, one], inputs=())


def claiming(*dims: int) -> bytes:
    """A tensor of a shape, without its numbers."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    return onnx_file([helper.make_node("Identity", ["w"], ["y"])], [tensor], inputs=())


def external(location: str, **numbers: int) -> bytes:
    """A tensor in a file of its own."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, item in {"location": location, **numbers}.items():
        tensor.external_data.add(key=key, value=str(item))
    return onnx_file([helper.make_node("Identity", ["w"], ["y"])], [tensor], inputs=())


def sparse(*dims: int) -> bytes:
    """A sparse tensor with one number."""
    model = onnx.ModelProto.FromString(onnx_file([helper.make_node("Identity", ["w"], ["y"])], inputs=()))
    tensor = model.graph.sparse_initializer.add(dims=dims)
    tensor.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]))
    tensor.indices.CopyFrom(integers("i", 0))
    return model.SerializeToString()


def nested(depth: int) -> bytes:
    """Graphs inside attributes inside nodes, `depth` of each."""
    inner = b""
    for _ in range(depth):
        inner = _field(1, _field(5, _field(6, inner)))
    return _field(7, inner)


def _field(number: int, content: bytes) -> bytes:
    length, size = len(content), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content
