"""The onnx package's own node tests of quantization operators, in our runner and through our importer."""

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.models import ModelRunner
from tests.onnx_import.runs import check_each, every_node_case, kind_of

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
