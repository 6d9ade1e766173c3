"""A model that nobody calibrated: its plan is all float, and says so in one warning, whoever asked for it."""

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.ir.graph import Graph
from planner.what_if.edits import edited
from tests.propagation.graphs import TARGET
from tests.what_if.models import in_parts

DIGITS = Path("examples/digits/digits.onnx")
TEXT = (
    "no ranges are known for the values of model 'digits', so 15 kernels that the target has a row for run "
    "in float: calibrate the model on samples, or annotate ranges, and plan again"
)
RANGE = "!quant.calibrated<f32<0.0:1.0>>"


@pytest.fixture(scope="module")
def digits() -> Graph:
    return planner.load_model(DIGITS)


def on_input(graph: Graph, constraint: str) -> dict[str, object]:
    return {"format": "qplan.annotations/1", "values": {graph.inputs[0]: constraint}}


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_one_warning_of_the_whole(digits, strategy):
    plan = planner.plan(digits, "litert-int8", strategy=strategy)
    assert plan.warnings == (TEXT,)
    assert planner.plan_from_json(plan.to_json()).warnings == (TEXT,)
    assert TEXT.replace("'", "&#x27;") in planner.write_report(plan)


def test_a_range_anywhere_is_a_beginning(digits):
    """Only nothing at all looks like a step that was forgotten."""
    ranged = planner.annotate(digits, annotations=on_input(digits, RANGE))
    assert planner.plan(ranged, "litert-int8").warnings == ()


def test_facts_that_say_no_range_do_not_count(digits):
    asked = planner.annotate(digits, annotations=on_input(digits, "!quant.any<i8>"))
    assert TEXT in planner.plan(asked, "litert-int8").warnings


def test_a_target_of_weights_asks_for_no_ranges(digits):
    plan = planner.plan(digits, "llm-w4")
    assert any(kernel.row for kernel in plan.kernels_in_order)
    assert plan.warnings == ()


def test_a_replan_says_what_a_plan_would():
    """Ranges that come and go by edits, of a part that is planned alone."""
    graph = in_parts(3, parts=8, kernels=6)
    bare = replace(
        graph,
        values={name: replace(value, facts=()) for name, value in graph.values.items()},
        regions=tuple(replace(region, input_facts=(), output_facts=()) for region in graph.regions),
    )
    plan, name = planner.plan(bare, TARGET), graph.inputs[0]
    assert len(plan.warnings) == 1
    for edits in ({"values": {name: RANGE}}, {"values": {name: "!quant.any<i8>"}}, {"remove": [name]}):
        bare = edited(bare, edits)
        plan = planner.replan(plan, edits)
        assert plan.warnings == planner.plan(bare, TARGET).warnings
        assert plan.to_json() == planner.plan(bare, TARGET).to_json()
