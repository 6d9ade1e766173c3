"""The lines that sum a plan up: how much is quantized, and what the rest is."""

import pytest

import planner
from planner.cli.job.summaries import summary_text
from tests.cli.conftest import DATA, MODEL

ALL = 15


@pytest.fixture(scope="module")
def digits():
    graph = planner.load_model(MODEL)
    return planner.annotate(graph, stats=planner.calibrate(graph, DATA))


def kernels_line(graph, target="litert-int8", **options):
    return summary_text(planner.plan(graph, target, **options)).splitlines()[1].strip()


def test_a_plan_is_summed_up(digits):
    lines = summary_text(planner.plan(digits, "litert-int8")).splitlines()
    assert lines[0].startswith("digits on litert-int8 ")
    assert lines[1] == f"  {ALL} of {ALL} kernels quantized (fully quantized)"
    assert lines[2].startswith("  rescales: 1, casts: 2, cost: 458 ")


def test_what_is_left_in_float_is_counted(digits):
    first = planner.annotate(digits, kernels={"res/pool": "float"})
    line = kernels_line(first)
    assert "(fully quantized)" not in line
    assert line.endswith("kernels quantized")


def test_a_plan_all_in_float_says_why(digits):
    asked = planner.annotate(digits, kernels={"*": "float"})
    assert kernels_line(asked) == f"0 of {ALL} kernels quantized: as requested, the plan is all float"
    bare = planner.load_model(MODEL)
    lacking = planner.plan(bare, "litert-int8")
    count = len(lacking.kernels_in_order)
    told = f"0 of {count} kernels quantized: {count} lack a range, the plan is all float"
    assert kernels_line(bare) == told
