"""Operators of transformers on every target: the page is what planning gives, and float has a reason."""

import onnxruntime
import pytest

import planner
from benchmarks.transformer_models import OPERATORS, model_of, samples_of
from benchmarks.transformer_operators import PAGE, computing, page, planned, told_by_target
from planner.onnx.write import write_graph
from planner.target.load import target_ids


def test_the_page_is_what_planning_gives():
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_is_read_with_shapes_and_written(operator):
    model = planner.load_model(model_of(operator))
    assert all(value.shape is not None for value in model.values.values())
    sample = samples_of(operator)[0]
    (written, *_) = _run(write_graph(model), sample)
    (given, *_) = _run(model_of(operator), sample)
    # Behind the last token in a cache stands what nobody reads.
    assert abs(written - given).max() < 1e-5


@pytest.mark.parametrize("target", ["litert-int8", "tensorrt-int8", "tosa-int8"])
def test_what_no_row_serves_is_named_by_the_target(target):
    said = told_by_target(target, "Float")
    for operator in OPERATORS:
        for kernel in computing(planned(operator, target)):
            if "no row is called so" in (kernel.reason or ""):
                named = {"Sqrt": "SQRT", "Pow": "POW", "LRN": "LOCAL_RESPONSE"}.get(kernel.kernel, "")
                assert kernel.kernel in said or (named and named in said), kernel.kernel


@pytest.mark.parametrize("target", target_ids())
def test_every_target_names_its_document(target):
    assert told_by_target(target, "Sources?")


def _run(data, sample):
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = {port.name for port in session.get_inputs()}
    return session.run(None, {name: array for name, array in sample.items() if name in names})
