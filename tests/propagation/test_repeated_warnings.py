"""Warnings of a plan, derived again from its rows and types."""

from dataclasses import replace

import pytest

from planner.errors import PlanInvalid
from planner.propagation.propagate import propagate
from planner.propagation.result.repeated_warnings import check_warnings
from tests.propagation.small import graph_of, target_of

PIN = "!quant.uniform<i16:f32, 3.0517578125e-05>"
GRAPH = graph_of(
    {"x": PIN, "y0": "[-2, 2]", "y1": "[-2, 2]"},
    [(f"k{i}", "conv", "x", f"y{i}") for i in range(2)],
    outputs="y0 y1",
)


@pytest.fixture(scope="module")
def plan():
    """Two kernels of 8 bits read a value of 16: each has a warning."""
    return propagate(GRAPH, target_of("- {kernel: conv, in: {x: a8}, out: {y: a8}}"))


def test_a_plan_has_the_warnings_of_its_rows_and_types(plan):
    assert len(plan.warnings) == 2
    check_warnings(plan, GRAPH)
    check_warnings(replace(plan, warnings=plan.warnings[::-1]), GRAPH)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda own: own[1:], "does not warn that k0.in[0] "),
        (lambda own: own[:1], "does not warn that k1.in[0] "),
        (lambda own: (*own, "all is well"), "warns that all is well; accepted: "),
        (lambda own: (*own, own[0]), "warns twice that k0.in[0] "),
    ],
)
def test_other_warnings_are_refused_and_only_of_this_planner(plan, changed, said):
    other = replace(plan, warnings=changed(plan.warnings))
    with pytest.raises(PlanInvalid) as refusal:
        check_warnings(other, GRAPH)
    assert said in refusal.value.message
    # Of a planner with other words, or of a plan made under another key, nothing is compared.
    check_warnings(replace(other, words=plan.words + 1), GRAPH)
    check_warnings(replace(other, key="sha256:0"), GRAPH)
