"""The writer: what goes in as records is what onnx and onnxruntime read."""

from dataclasses import replace

import numpy as np
import onnx
import onnx.checker
import pytest

from planner.errors import ModelError, UnsupportedExport
from planner.formats.onnx.attributes import value_of, write_attribute
from planner.formats.onnx.dtypes import ENUMS, NUMPY, dtype_of
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.tensors import array_of, tensor_of, tensor_parts
from planner.formats.onnx.write import Node, write_graph, write_model
from planner.ir.graph import Constant
from tests.formats.onnx.reader.runs import model, outputs

NUMBERS = [0, 1, 1, 0, 1]


@pytest.mark.parametrize("name", ["", "t", "é" * 90])
@pytest.mark.parametrize("shape", [(), (0,), (128, 3), (300, 1)])
def test_tensors_in_parts_are_what_protobuf_writes(name, shape):
    array = np.ones(shape, np.int8)
    assert b"".join(tensor_parts(name, array, "i8")) == tensor_of(name, array).SerializeToString()


@pytest.mark.parametrize("dtype", sorted(set(ENUMS) - {"string", "f8E8M0FNU", "f4E2M1FN", "c64", "c128"}))
def test_tensors_come_back(dtype):
    """Of every element type, an odd number of elements, and none at all; onnx reads the same."""
    for numbers in (NUMBERS, []):
        array = np.asarray(numbers, dtype=np.int8).astype(NUMPY[dtype])
        tensor = tensor_of("t", array)
        back = array_of(tensor)
        assert (back.shape, dtype_of(back)) == (array.shape, dtype)
        np.testing.assert_array_equal(back.astype(np.float64), array.astype(np.float64))
        theirs = onnx.numpy_helper.to_array(tensor)
        np.testing.assert_array_equal(theirs.astype(np.float64), array.astype(np.float64))


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("i4", [-8, 7, -1]), ("u4", [0, 15, 9]), ("i2", [-2, 1, -1, 0, 1]), ("u2", [3, 0, 2, 1, 1])],
)
def test_narrow_formats_are_packed(dtype, numbers):
    tensor = tensor_of("t", np.asarray(numbers, dtype=np.int16), dtype)
    assert len(tensor.raw_data) == 2
    assert array_of(tensor).astype(np.int64).tolist() == numbers
    assert onnx.numpy_helper.to_array(tensor).astype(np.int64).tolist() == numbers


def test_weights_stand_in_the_file_as_protobuf_writes_them():
    """Of every length of a length: none, one byte, two and three; packed, text and scalars."""
    constants = {
        "none": np.zeros((0, 3), np.float32),
        "scalar": np.asarray(2.5, np.float64),
        "short": np.arange(5, dtype=np.int64),
        "longer": np.arange(100, dtype=np.float32).reshape(4, 25).T,
        "longest": np.arange(70_000, dtype=np.int8).reshape(700, 100),
        "packed": (np.asarray([-8, 7, -1], np.int8), "i4"),
        "text": np.asarray(["a", "äö"], dtype=object),
    }
    node = Node("Identity", ("short",), ("y",))
    data = write_model(
        name="m", nodes=[node], inputs=[], outputs=[("y", "i64", (5,))], constants=constants, doc="d"
    )
    proto = onnx.load_from_string(data)
    wanted = [
        tensor_of(name, *(item if isinstance(item, tuple) else (item,))) for name, item in constants.items()
    ]
    assert list(proto.graph.initializer) == wanted
    assert (proto.doc_string, proto.graph.name, proto.graph.node[0].op_type) == ("d", "m", "Identity")
    assert len(proto.SerializeToString()) == len(data)


@pytest.mark.parametrize(
    "value",
    [1, 0.5, "text", b"\xff", (1, 2), (0.5, 1.5), ("a", "b"), (), np.arange(3, dtype=np.int8)],
    ids=repr,
)
def test_attributes_come_back(value):
    node = onnx.NodeProto()
    write_attribute(node, "key", value)
    back = value_of(node.attribute[0])
    np.testing.assert_array_equal(back, value)
    assert type(back) is type(value)


def test_attributes_without_a_kind_are_refused():
    with pytest.raises(ModelError, match=r"attribute 'key' is \{\}; ONNX has int"):
        write_attribute(onnx.NodeProto(), "key", {})


def test_a_model_of_int4_weights_runs():
    data = write_model(
        name="four",
        nodes=[Node("DequantizeLinear", ("w", "s"), ("v",)), Node("MatMul", ("x", "v"), ("y",), "mm")],
        inputs=[("x", "f32", ("N", 2))],
        outputs=[("y", "f32", ("N", 3))],
        constants={
            "w": (np.asarray([[1, -8, 7], [0, 2, -1]], np.int8), "i4"),
            "s": np.asarray(0.5, np.float32),
        },
        metadata={"key": "text"},
        doc="words",
    )
    proto = onnx.ModelProto.FromString(data)
    onnx.checker.check_model(proto, full_check=True)
    assert (proto.ir_version, proto.opset_import[0].version, proto.doc_string) == (10, 21, "words")
    assert [(entry.key, entry.value) for entry in proto.metadata_props] == [("key", "text")]
    got = outputs(data, {"x": np.asarray([[2, 4]], np.float32)})["y"]
    assert got.tolist() == [[1.0, -4.0, 5.0]]


def test_domains_in_use_are_imported():
    nodes = [Node("Gelu", ("x",), ("y",), domain="com.microsoft")]
    ports = {"inputs": [("x", "f32", (2,))], "outputs": [("y", "f32", (2,))]}
    data = write_model(name="m", nodes=nodes, constants={}, **ports)
    imports = {entry.domain: entry.version for entry in onnx.ModelProto.FromString(data).opset_import}
    assert imports == {"": 21, "com.microsoft": 1}
    assert outputs(data, {"x": np.zeros(2, np.float32)})["y"].tolist() == [0, 0]


def test_weights_no_file_can_hold_are_refused():
    """A fill takes no memory here and would take 4 GB in the file."""
    huge = np.broadcast_to(np.float32(1), (1 << 30,))
    with pytest.raises(UnsupportedExport) as caught:
        write_model(name="big", nodes=[], inputs=[], outputs=[], constants={"w": huge})
    assert str(caught.value) == (
        "model 'big' has 4294967296 bytes of weights, one ONNX file holds at most 1900000000 "
        "(write it to a path (over HTTP: external_data), then the weights go into a file beside it)"
    )


def test_external_weights_run(tmp_path):
    graph = read_onnx(model("g (float[600] x) => (float[600] y) <float k = {2}> { y = Mul(x, k) }"))
    wide = np.arange(600, dtype=np.float32)
    values = {**graph.values, "k": replace(graph.values["k"], shape=(600,))}
    graph = replace(graph, constants={"k": Constant(wide)}, values=values)
    (tmp_path / "m.onnx").write_bytes(write_graph(graph, external=tmp_path / "m.data"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.data", "m.onnx"]
    got = outputs(tmp_path / "m.onnx", {"x": np.ones(600, np.float32)})["y"]
    np.testing.assert_array_equal(got, wide)


def test_a_constant_without_numbers_cannot_be_written():
    graph = read_onnx(model("g (float[2] x) => (float[2] y) <float[2] k = {1,2}> { y = Mul(x, k) }"))
    graph = replace(graph, constants={"k": Constant(None, (0.0,), (1.0,))})
    with pytest.raises(ModelError, match="constant 'k' has a range but no numbers"):
        write_graph(graph)
