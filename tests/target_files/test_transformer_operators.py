"""Operators of transformers on every target: the page is what planning gives, and float has a reason."""

import numpy as np
import onnxruntime
import pytest

import planner
from benchmarks.transformer_models import OPERATORS, model_of, samples_of
from benchmarks.transformer_operators import PAGE, computing, page, planned, told_by_target
from planner.formats.onnx.write import write_graph
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


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "qnn-htp", "litert-int8", "tosa-int8", "llm-w4"])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_plan_computes_what_onnxruntime_runs(operator, target):
    """Read, planned, checked and written; the file gives the interpreter's numbers, bit for bit."""
    model = planner.load_model(model_of(operator))
    samples = [
        {name: array for name, array in sample.items() if name in model.inputs}
        for sample in samples_of(operator)
    ]
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    plan = planner.plan(ready, target)
    planner.check(plan, ready, planner.load_target(target))
    wanted = planner.evaluate(ready, plan, samples[0], arithmetic="float32_qdq").outputs
    assert any(np.ptp(array) > 0 for array in wanted.values())
    found = _run(planner.export(ready, plan, "onnx-qdq"), samples[0], plain=True)
    for have, want in zip(found, wanted.values(), strict=True):
        np.testing.assert_array_equal(have, want)


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


def _run(data, sample, *, plain=False):
    """Run a file; `plain`: without the optimizations that change results."""
    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = {port.name for port in session.get_inputs()}
    return session.run(None, {name: array for name, array in sample.items() if name in names})
