"""Every converted file is of its dialect and loads in its engine, or is refused with the reason."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import LOADED, convert
from planner.errors import UnsupportedExport
from tests.conversion.files import GENERAL, file_of, op_types, quant_node, run_onnxruntime

MODELS = Path(os.environ.get("QPLAN_MODELS", "../shared/models")) / "qonnx"
OPERATORS = {
    "onnx-integer": ("ConvInteger", "MatMulInteger"),
    "onnx-qoperator": ("QLinearConv", "QLinearMatMul"),
}
X = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("to", sorted(LOADED))
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_a_real_model_is_written_whole_or_refused(path, to):
    try:
        data = convert(path, to)
    except UnsupportedExport:
        return
    onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    if to in OPERATORS:
        assert not {node.op_type for node in onnx.load_from_string(data).graph.node}.isdisjoint(OPERATORS[to])


def test_weights_that_are_turned_become_integer_products():
    quants = [
        quant_node(name, source, scale=0.5, bits=4, zero_point=0.0)
        for name, source in (("xq", "x"), ("wq", "w"))
    ]
    nodes = [node for node, _ in quants]
    nodes += [
        helper.make_node("Transpose", ["wq"], ["t"]),
        helper.make_node("MatMul", ["xq", "t"], ["y"], "m"),
    ]
    arrays = {key: array for _, held in quants for key, array in held.items()}
    arrays["w"] = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    data = file_of(nodes, {"x": (TensorProto.FLOAT, X.shape)}, ["y"], arrays)
    done = convert(data, "onnx-integer")
    assert "MatMulInteger" in op_types(done)
    wanted = run_onnxruntime(convert(data, "onnx"), {"x": X})["y"]
    np.testing.assert_array_equal(run_onnxruntime(done, {"x": X})["y"], wanted)


@pytest.mark.parametrize("to", sorted(OPERATORS))
@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([helper.make_node("Relu", ["x"], ["y"], "r")], "it has no Conv or MatMul"),
        (
            [helper.make_node("MatMul", ["x", "x"], ["y"], "m")],
            "MatMul at 'm' .* its operand 'x' is given by an input and not by a quantizer",
        ),
        ([helper.make_node("Gemm", ["x", "x"], ["y"], "g")], "Gemm at 'g' .* no operator on stored integers"),
    ],
)
def test_a_model_without_such_products_is_refused(to, nodes, words):
    data = file_of(nodes, {"x": (TensorProto.FLOAT, (4, 4))}, ["y"], {})
    with pytest.raises(UnsupportedExport, match=words):
        convert(data, to)


@pytest.mark.parametrize("to", sorted(LOADED - OPERATORS.keys()))
@pytest.mark.parametrize(
    ("kind", "domain"),
    [("GenericPartition", GENERAL), ("DebugMarker", GENERAL), ("Quant2", GENERAL), ("Deform", "acme.vision")],
)
def test_an_op_that_the_engine_lacks_is_refused_by_name(to, kind, domain):
    node = helper.make_node(kind, ["x"], ["y"], "strange", domain=domain)
    data = file_of([node], {"x": (TensorProto.FLOAT, (2, 2))}, ["y"], {}, domains=(GENERAL, "acme.vision"))
    with pytest.raises(UnsupportedExport, match=f"{to} cannot say {kind} of {domain} at 'strange'"):
        convert(data, to)


def test_what_the_engine_does_not_load_is_refused_in_its_words():
    node = helper.make_node("Convolve", ["x"], ["y"], "strange")
    data = file_of([node], {"x": (TensorProto.FLOAT, (2, 2))}, ["y"], {})
    with pytest.raises(
        UnsupportedExport, match=r"onnxruntime does not load this model as onnx-qdq: .*Convolve"
    ):
        convert(data, "onnx-qdq")
