"""Models that came from ONNX, with their ops, weights and opsets, survive every text form."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.formats.onnx.read import read_onnx
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.ir.types.qtypes import Calibrated
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.conftest import ROOT
from tests.equality import assert_same

DIGITS = ROOT / "examples/digits/digits.onnx"
TINY = ("mlperf-tiny/ad01_fp32.onnx", "sequence/silero_vad_16k_op15.onnx")


def calibrated(path: Path) -> Graph:
    """The model with a made-up range on every float value."""
    graph = read_onnx(path)
    values = {
        name: replace(value, facts=(Calibrated((-1.0 - i % 7,), (1.5 + i % 5,)),))
        for i, (name, value) in enumerate(graph.values.items())
        if value.is_float and name not in graph.constants
    }
    return replace(graph, values={**graph.values, **values})


def assert_survives(graph: Graph) -> None:
    """Every text form of a model gives it back, and its planned form on a target likewise."""
    target = load_target("litert-int8")
    for form in (graph, fuse(graph, target)):
        assert_same(form, read_annotated(write_annotated(form)))
        assert_same(form, read_mlir(write_mlir(form)))
        assert model_digest(read_mlir(write_mlir(form))) == model_digest(form)
    plan = propagate(fuse(graph, target), target)
    assert_same(plan, plan_from_json(plan_to_json(plan)))
    again = plan_from_mlir(plan_to_mlir(plan))
    assert_same(plan, again)
    assert plan_to_json(again) == plan_to_json(plan)
    assert plan_to_mlir(again) == plan_to_mlir(plan)


def test_the_shipped_example():
    assert_survives(calibrated(DIGITS))


@pytest.mark.parametrize("name", TINY)
def test_test_models(models, name):
    assert_survives(calibrated(models / name))
