"""Whole .tflite files: read, planned for litert-int8, written again; beside what the file itself computes."""

from collections import Counter

import numpy as np
import pytest

import planner
from planner.conversion.convert import convert
from planner.formats.litert.reader.file import read_file
from planner.formats.litert.writer.write import write_litert
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import run_model
from tests.formats.litert.reader.files import FLOAT, OFFICIAL, path_of
from tests.formats.litert.writer.running import with_all_results
from tests.oracles import litert

SAMPLES = 16


def given(name):
    path = path_of(name)
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def operators(data):
    return Counter(operator.name for operator in read_file(data).operators)


def stored(graph, count=SAMPLES):
    rng = np.random.default_rng(0)
    return [
        {key: rng.integers(-128, 128, graph.values[key].shape).astype(np.int8) for key in graph.inputs}
        for _ in range(count)
    ]


def reals(graph, count):
    rng = np.random.default_rng(0)
    return [
        {key: rng.uniform(0, 1, graph.values[key].shape).astype(np.float32) for key in graph.inputs}
        for _ in range(count)
    ]


@pytest.mark.parametrize("kernels", ["optimized", "reference"])
@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_file_is_planned_as_it_is(name, kernels, tmp_path):
    path = given(name)
    graph = planner.load_model(path)
    plan = planner.plan(graph, "litert-int8")
    assert (plan.cost, plan.optimal, len(plan.rescales)) == (0.0, True, 0)
    assert all(kernel.row is not None for kernel in plan.kernels_in_order)
    data, written = path.read_bytes(), planner.export(graph, plan, "litert")
    assert operators(written) == operators(data)
    assert len(written) <= 1.02 * len(data)
    samples = stored(graph)
    before, after = litert.run(tmp_path, [(data, samples), (written, samples)], kernels=kernels)
    for sample, wanted in zip(after, before, strict=True):
        for key in graph.outputs:
            np.testing.assert_array_equal(sample[key], wanted[key])


@pytest.mark.parametrize("name", OFFICIAL)
def test_another_device_is_told_what_to_rescale(name):
    graph = planner.load_model(given(name))
    plan = planner.plan(graph, "tensorrt-int8")
    planner.check(plan, graph)
    assert plan.rescales


@pytest.mark.parametrize("name", [*OFFICIAL, *FLOAT])
def test_a_file_as_onnx_and_back(name, tmp_path):
    path = given(name)
    graph = planner.load_model(path)
    data = convert(path, "onnx-qdq")
    sample = reals(graph, 1)[0]
    wanted = run_model(path, sample)
    for key, array in run_model(data, sample).items():
        np.testing.assert_array_equal(array, wanted[key])
    assert planner.compare(graph, data, [sample]).outputs.keys() == set(graph.outputs)
    if name in OFFICIAL:
        again = planner.load_model(data)
        written = planner.export(again, planner.plan(again, "litert-int8"), "litert")
        kind = graph.values[graph.inputs[0]].facts[0]
        key = graph.inputs[0]
        ints = stored(graph, 4)
        fed = [{key: (s[key].astype(np.float32) - kind.zero_point) * np.float32(kind.scale)} for s in ints]
        before, after = litert.run(tmp_path, [(path.read_bytes(), ints), (written, fed)])
        for got, own in zip(after, before, strict=True):
            for out in graph.outputs:
                result = graph.values[out].facts[0]
                steps = np.rint(got[out] / result.scale) + result.zero_point
                np.testing.assert_array_equal(steps, own[out])


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_file_is_planned_and_runs(name, tmp_path):
    graph = planner.load_model(given(name))
    samples = reals(graph, 4)
    stats = planner.calibrate(graph, samples)
    graph = planner.annotate(graph, stats=stats)
    plan = planner.plan(graph, "litert-int8")
    graph, plan = with_all_results(graph, plan)
    data = write_litert(graph, plan)
    found = litert.run(tmp_path, [(data, samples)])[0]
    interpreter = Interpreter(graph, plan)
    for sample, got in zip(samples, found, strict=True):
        wanted = interpreter.run(sample).outputs
        for value, array in got.items():
            np.testing.assert_array_equal(array, wanted[value], err_msg=value)


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_file_computes_what_the_runtime_does(name, tmp_path):
    path = given(name)
    graph = planner.load_model(path)
    samples = reals(graph, 2)
    for sample, wanted in zip(samples, litert.run(tmp_path, [(path.read_bytes(), samples)])[0], strict=True):
        for key, array in run_model(path, sample).items():
            np.testing.assert_allclose(array, wanted[key], rtol=1e-4, atol=1e-5)
