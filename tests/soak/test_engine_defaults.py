"""Every ONNX file of the matrix, model by target by format, loads and runs at onnxruntime's defaults.

Its optimisations rewrite a file into one that nobody wrote; one of them broke a vision transformer's Resize.
"""

from functools import lru_cache

import pytest

import planner
from benchmarks.samples import Sample
from benchmarks.target_matrix import model_names
from benchmarks.target_matrix_side import load
from planner.errors import PlannerError, UnsupportedExport
from planner.formats.runnable import is_engines_own
from planner.formats.table import EXPORTERS
from planner.interpreter.at_defaults import reason
from planner.ir.graph import Graph
from planner.target.load import target_ids

FORMATS = tuple(filter(is_engines_own, EXPORTERS))


@lru_cache(maxsize=1)
def calibrated(name: str, work) -> tuple[Graph, list[Sample]]:
    return load(name, work)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.mark.soak
@pytest.mark.parametrize("target", target_ids())
@pytest.mark.parametrize("name", model_names())
def test_files_run_at_the_engines_defaults(name, target, work, record_property):
    try:
        graph, samples = calibrated(name, work)
        plan = planner.plan(graph, target)
    except PlannerError as error:
        pytest.skip(f"refused: {error.message}")
    failures, count = {}, 0
    for form in FORMATS:
        try:
            data = planner.export(graph, plan, form)
        except UnsupportedExport:
            continue
        count += 1
        why = reason(graph, data, samples[:1])
        if why:
            failures[form] = why
    record_property("count", count)
    assert not failures
