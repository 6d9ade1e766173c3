"""What cannot be read is refused in one line that says what and where."""

import numpy as np
import onnx
import pytest

from planner.errors import ModelError
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import Node, write_model
from tests.formats.onnx.reader.runs import model

GOOD = model("g (float[2] x) => (float[2] y) <float[2] k = {1,2}> { [a] y = Add(x, k) }")


def edited(change) -> bytes:
    proto = onnx.ModelProto.FromString(GOOD)
    change(proto)
    return proto.SerializeToString()


def external(proto: onnx.ModelProto, location: str) -> None:
    tensor = proto.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("float_data")
    tensor.external_data.add(key="location", value=location)


def cycle() -> bytes:
    nodes = [Node("Add", ("x", "b"), ("a",), "first"), Node("Relu", ("a",), ("b",), "second")]
    ports = {"inputs": [("x", "f32", (2,))], "outputs": [("b", "f32", (2,))]}
    return write_model(name="loop", nodes=nodes, constants={}, **ports)


def listed(port) -> None:
    port.type.sequence_type.elem_type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def twice(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])
    proto.graph.initializer[1].float_data[0] = 7


NO_GRAPH = edited(lambda m: m.ClearField("graph"))

BAD = {
    "empty": (b"", "the model is no ONNX model: it is empty"),
    "text": (b"hello, world", "the model is no ONNX model, or a truncated one: its 12 bytes do not parse"),
    "brackets": (
        b"[" * 2_000_000,
        "the model is no ONNX model, or a truncated one: its 2000000 bytes do not parse",
    ),
    "truncated": (
        GOOD[:-20],
        f"the model is no ONNX model, or a truncated one: its {len(GOOD) - 20} bytes do not parse",
    ),
    "no_graph": (
        NO_GRAPH,
        (f"the model is no ONNX model, or a truncated one: its {len(NO_GRAPH)} bytes hold no graph"),
    ),
    "no_outputs": (
        edited(lambda m: m.graph.ClearField("output")),
        "the model has no outputs, so there is nothing to compute",
    ),
    "no_opset": (
        edited(lambda m: m.ClearField("opset_import")),
        "the model names no opset, which a file of IR version 8 does",
    ),
    "cycle": (cycle(), "these depend on each other in a cycle: 'first' -> 'second'"),
    "undefined_operand": (
        edited(lambda m: m.graph.ClearField("initializer")),
        "model 'g': 'a' names 'k', which is no value of the graph",
    ),
    "undefined_output": (
        edited(lambda m: m.graph.output.add(name="z")),
        "model 'g': output 'z' is defined by nothing",
    ),
    "short_tensor": (
        edited(lambda m: m.graph.initializer[0].dims.append(1000)),
        "tensor 'k' does not hold the f32 [2, 1000] it names",
    ),
    "initializer_twice": (
        edited(twice),
        "initializer 'k' is there twice, with different numbers (nothing says which one counts)",
    ),
    "list_output": (
        edited(lambda m: listed(m.graph.output[0])),
        (
            "output 'y' is of kind sequence; only tensors can be model inputs and outputs here "
            "(cut the model so that the operators on other kinds stay outside)"
        ),
    ),
    "external_in_bytes": (
        edited(lambda m: external(m, "weights.bin")),
        (
            "tensor 'k' lies in the external file 'weights.bin', and the model came as bytes "
            "(give the path of the model file, or to the service `external_data`)"
        ),
    ),
}


def refusal(data: bytes) -> str:
    try:
        read_onnx(data)
    except ModelError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", BAD)
def test_bad_bytes(case):
    data, message = BAD[case]
    with pytest.raises(ModelError) as caught:
        read_onnx(data)
    assert str(caught.value) == message


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.onnx"
    with pytest.raises(ModelError) as caught:
        read_onnx(path)
    assert str(caught.value) == f"cannot read {str(path)!r}: No such file or directory"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("gone.bin", "external file '{folder}/gone.bin' of tensor 'k' does not exist"),
        ("../up.bin", "external file '../up.bin' of tensor 'k' lies outside '{folder}'"),
        ("/etc/passwd", "external file '/etc/passwd' of tensor 'k' lies outside '{folder}'"),
        ("short.bin", "tensor 'k' holds 4 bytes, its f32 [2] needs 8"),
    ],
)
def test_bad_external_data(tmp_path, location, message):
    (tmp_path / "short.bin").write_bytes(np.zeros(1, np.float32).tobytes())
    path = tmp_path / "model.onnx"
    path.write_bytes(edited(lambda m: external(m, location)))
    with pytest.raises(ModelError) as caught:
        read_onnx(path)
    assert str(caught.value) == message.format(folder=tmp_path)


def test_every_cut_of_a_file_is_refused_or_read():
    messages = [refusal(GOOD[:length]) for length in range(len(GOOD))]
    assert sum(map(bool, messages)) > len(GOOD) // 2
    assert not any("\n" in message for message in messages)
