"""FINN's datatype annotations as types on values."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from planner.formats.onnx.read import read_onnx, read_written
from tests.conversion.files import file_of


def annotated(**datatypes):
    """`MatMul(MultiThreshold(x), w)` and a plain product, with datatypes by tensor name."""
    arrays = {"t": np.float32([[0.0, 1.0, 2.0]]), "w": np.float32([[1, -1], [-1, 1], [1, 1]])}
    nodes = [
        helper.make_node("MultiThreshold", ["x", "t"], ["q"], "q", domain="finn", out_dtype="UINT2"),
        helper.make_node("MatMul", ["q", "w"], ["y"], "y"),
    ]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, [2, 3])}, ["y"], arrays, domains=("finn",))
    proto = onnx.load_from_string(data)
    for name, text in datatypes.items():
        entry = proto.graph.quantization_annotation.add(tensor_name=name)
        entry.quant_parameter_tensor_names.add(key="tensor_layout", value="['N', 'C']")
        entry.quant_parameter_tensor_names.add(key="finn_datatype", value=text)
    return read_written(proto.SerializeToString())


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("q", "UINT2", ["!quant.uniform<u2:f32, 1.0>"]),
        ("x", "INT8", ["!quant.uniform<i8:f32, 1.0>"]),
        ("x", "FIXED<8,4>", ["!quant.uniform<i8:f32, 0.0625>"]),
        ("x", "FIXED<8,99999>", []),
        ("x", "INT0", []),
        ("q", "BIPOLAR", ["!quant.bipolar<f32, 1.0>"]),
        ("w", "BIPOLAR", ["!quant.bipolar<f32, 1.0>"]),
        ("w", "TERNARY", ["!quant.uniform<i2<-1:1>:f32, 1.0>"]),
        ("w", "INT4", ["!quant.uniform<i4:f32, 1.0>"]),
        ("w", "UINT8", ["!quant.any<u8>"]),  # no symmetric byte holds all of them
        ("t", "INT4", []),  # thresholds are no weights
        ("y", "INT8", []),  # sums are what they are
        ("x", "FLOAT32", []),
        ("x", "INT32", []),
        ("nobody", "INT4", []),
    ],
)
def test_a_datatype_is_a_type(name, text, facts):
    graph = annotated(**{name: text})
    found = {key: [str(fact) for fact in value.facts] for key, value in graph.values.items() if value.facts}
    assert found == ({name: facts} if facts else {})


def test_the_zoo_model_has_one_bit_weights_and_bytes_for_its_input(models):
    path = models / "qonnx" / "tfc_w1a1_finn_thresholds.onnx"
    facts = {name: [str(fact) for fact in value.facts] for name, value in read_onnx(path).values.items()}
    assert sum("!quant.bipolar<f32, 1.0>" in found for found in facts.values()) == 7
    assert facts["global_in"] == ["!quant.uniform<u8:f32, 1.0>"]
    assert facts["MatMul_3_param0"] == ["!quant.any<i2<-1:1>>"]  # behind it a factor was folded in
