"""The onnx package's own node tests of quantization operators, in our runner and through our importer."""

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from planner.formats.onnx.dtypes import ENUMS, NUMPY
from planner.formats.onnx.nodes import op_node
from planner.formats.onnx.read import read_onnx, read_written
from planner.formats.onnx.sessions import open_session, run_arrays
from planner.formats.onnx.write import write_model
from planner.interpreter.models import ModelRunner
from planner.ir.graph import Op
from tests.formats.onnx.reader.runs import check_each, every_node_case, kind_of

OPERATORS = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)


@cache
def cases():
    return [case for case in every_node_case() if kind_of(case, OPERATORS)]


def cases_of(kind):
    return [case for case in cases() if kind_of(case, OPERATORS) == kind]


def array_of(item):
    return numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item)


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_node_cases_run_as_expected(kind):
    check_each(cases_of(kind), runs_as_expected)


def runs_as_expected(case):
    runner = ModelRunner(read_written(case.model.SerializeToString()))
    inputs = [info.name for info in case.model.graph.input]
    outputs = [info.name for info in case.model.graph.output]
    for given, wanted in case.data_sets:
        feeds = {name: array_of(item) for name, item in zip(inputs, given, strict=False)}
        got = runner.run(feeds)
        for output, item in zip(outputs, wanted, strict=True):
            expected = array_of(item)
            assert got[output].dtype == expected.dtype
            np.testing.assert_allclose(
                got[output].astype(np.float64), expected.astype(np.float64), rtol=case.rtol, atol=case.atol
            )


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_node_cases_are_imported(kind):
    check_each(cases_of(kind), is_imported)


def is_imported(case):
    graph = read_onnx(case.model.SerializeToString())
    assert graph.outputs == tuple(info.name for info in case.model.graph.output)


def test_there_are_all_of_them():
    assert len(cases()) == 45


# onnxruntime computes no casts of these; each is refused with the operator and the types.
UNCAST = ("FLOAT4E2M1", "FLOAT6", "INT2", "e8m0")


@cache
def casts():
    named = [case for case in every_node_case() if case.name.startswith("test_cast_")]
    return [case for case in named if not any(kind in case.name for kind in UNCAST)]


def test_casts_of_every_element_type_run_as_expected():
    assert {"BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2FNUZ", "INT4", "UINT4"} <= {
        part for case in casts() for part in case.name.split("_")
    }
    check_each(casts(), runs_as_expected)


@pytest.mark.parametrize("kind", ["bf16", "f8E4M3FN", "f8E5M2FNUZ", "i4", "u4"])
def test_numbers_of_narrow_types_pass_through_onnxruntime(kind):
    """Odd counts too: two elements of 4 bits share a byte."""
    numbers = np.array([[1, 0, 3], [2, 1, 1], [7, 2, 0]]).astype(NUMPY[kind])
    body = [op_node(Op("up", "Cast", ("x",), ("y",), {"to": ENUMS["f32"]}))]
    body.append(op_node(Op("back", "Cast", ("y",), ("z",), {"to": ENUMS[kind]})))
    outputs = [("y", "f32", (3, 3)), ("z", kind, (3, 3))]
    data = write_model(
        name="m",
        nodes=body,
        inputs=[("x", kind, (3, 3))],
        outputs=outputs,
        constants={},
        opset=21,
        domains={},
    )
    up, back = run_arrays(open_session(data), ["y", "z"], {"x": numbers})
    np.testing.assert_array_equal(up, numbers.astype(np.float32))
    assert back.dtype == numbers.dtype
    np.testing.assert_array_equal(back, numbers)
