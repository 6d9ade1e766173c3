"""Kernels whose scales lie farther apart than integer multipliers reach run in float."""

from dataclasses import replace

import pytest

from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}, requantize: ARITHMETIC}
- kernel: mul
  in: {a: a8, b: a8}
  out: {y: a8}
  rules: [{multiplier_scale: {out: y, of: [a, b]}}]
  requantize: ARITHMETIC
- {kernel: tanh, in: {x: a8}, out: {y: a8}, requantize: ARITHMETIC}
"""
LOWEST = "-3.4028234663852886e+38"


def plan_of(arithmetic, mask, *, kernel="add"):
    """Scores of [-5, 5] and a mask, put together by one kernel, and another behind it."""
    target = target_of(ROWS.replace("ARITHMETIC", arithmetic))
    graph = graph_of(
        {"s": "[-5, 5]", "m": mask, "p": "[-5, 5]", "y": "[-1, 1]"},
        [("k1", kernel, "s m", "p"), ("k2", "tanh", "p", "y")],
        outputs="y",
    )
    plan = propagate(graph, target)
    check(plan)
    return plan


@pytest.mark.parametrize("arithmetic", ["gemmlowp", "litert_16", "tosa_double", "tosa_single"])
@pytest.mark.parametrize("kernel", ["add", "mul"])
def test_a_mask_of_the_least_float_is_added_in_float(arithmetic, kernel):
    plan = plan_of(arithmetic, f"[{LOWEST}, 0]", kernel=kernel)
    assert plan.kernels["k1"].row is None
    assert (
        plan.kernels["k1"].reason.partition(": ")[2]
        == "no integer multiplier gets from its inputs' scales to its result's"
    )
    assert plan.kernels["k2"].row is not None


@pytest.mark.parametrize("arithmetic", ["float32_even", "power_of_two", "exact_even"])
def test_other_arithmetics_have_no_multipliers(arithmetic):
    assert plan_of(arithmetic, f"[{LOWEST}, 0]").kernels["k1"].row is not None


def test_a_mask_within_reach_is_added_in_integers():
    """2^29 times the result's step is the first that is not: here 10 / 255 and 2^28."""
    assert plan_of("tosa_double", f"[{-(2**28) * 10}, 0]").kernels["k1"].row is not None
    assert plan_of("tosa_double", f"[{-(2**29) * 10}, 0]").kernels["k1"].row is None


@pytest.mark.parametrize("order", ["s m", "m s"])
def test_what_is_multiplied_counts_as_a_product(order):
    """A factor too coarse for the result and one as fine: their product is the scale that counts."""
    target = target_of(ROWS.replace("ARITHMETIC", "tosa_double"))
    graph = graph_of(
        {"s": "[-5000000000000, 5000000000000]", "m": "[-0.000000000001, 0.000000000001]", "p": "[-5, 5]"},
        [("k1", "mul", order, "p")],
        outputs="p",
    )
    assert propagate(graph, target).kernels["k1"].row is not None


def test_a_rescale_in_front_counts_too():
    """A value on a grid that no multiplier leads away from: its reader takes it in float."""
    target = target_of(ROWS.replace("ARITHMETIC", "tosa_double"))
    pins = [parse_type(f"!quant.uniform<i8:f32, {scale}>") for scale in ("1e+30", "1.0")]
    graph = graph_of({"s": str(pins[0]), "y": "[-1e+20, 1e+20]"}, [("k", "tanh", "s", "y")], outputs="y")
    graph = replace(graph, regions=(replace(graph.regions[0], input_facts=((pins[1],),)),))
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert plan.kernels["k"].row is None
    (left,) = [step for step in plan.steps if step.rule == "left"]
    assert f"in[0] {pins[1]}, from {pins[0]}" in left.source
