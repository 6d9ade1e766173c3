"""Activations that are plus or minus a number: grids of even steps have both, behind movers too."""

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Uniform
from planner.propagation.propagate import propagate
from tests.plans.planned import retyped
from tests.propagation.small import graph_of, target_of

ROWS = """
- {{kernel: add, in: {{a: {0}, b: {0}}}, out: {{y: {0}}}}}
- {{kernel: reshape, in: {{x: {0}}}, out: {{y: {0}}}, rules: [{{same_scale: [x, y]}}]}}
- {{kernel: cat, in: {{xs*: {0}}}, out: {{y: {0}}}, rules: [{{same_scale: [xs*, y]}}]}}
"""
SIGNS = "!quant.bipolar<f32, 0.75>"


def planned(spec, values, kernels, outputs, **more):
    graph = graph_of(values, kernels, outputs=outputs, **more)
    plan = propagate(graph, target_of(ROWS.format(spec)), model=model_digest(graph))
    check(plan)
    return plan


def kind_at(plan, kernel):
    found = plan.kernels[kernel].inputs[0].type
    assert isinstance(found, Uniform)
    return found


def has_both(kind, number=0.75):
    steps = number / kind.scale
    low, high = (np.rint(sign * steps) + kind.zero_point for sign in (-1, 1))
    inside = kind.storage.qmin <= low <= high <= kind.storage.qmax
    return bool(inside and abs(steps - np.rint(steps)) < 1e-5)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("{storage: u8}", (np.float32(0.75 / 127), 127)),
        ("{storage: i8}", (np.float32(0.75 / 127), -1)),
        ("{storage: u4}", (np.float32(0.75 / 7), 7)),
        ("{storage: u2}", (np.float32(0.75), 1)),
        # An even number of steps is one already, and so is a symmetric grid, or one with a zero point.
        ("{storage: i8, range: [-127, 127]}", (np.float32(0.75 / 127), 0)),
        ("{storage: i8, symmetric: true}", (np.float32(0.75 / 127), 0)),
        ("{storage: u8, zero_point: 128}", (np.float32(0.75 / 127), 128)),
    ],
)
def test_both_numbers_are_on_the_grid(spec, wanted):
    plan = planned(spec, {"a": SIGNS, "y": "[-2, 2]"}, [("k", "add", "a a", "y")], "y")
    kind = kind_at(plan, "k")
    assert (np.float32(kind.scale), kind.zero_point) == wanted
    assert has_both(kind)


def test_one_bit_has_no_middle():
    """Of two stored numbers one is 0: the planner says what it can, and refuses nothing."""
    plan = planned("{storage: u1}", {"a": SIGNS, "y": "[-2, 2]"}, [("k", "add", "a a", "y")], "y")
    assert plan.kernels["k"].inputs[0].type.storage.steps == 1


def test_behind_what_moves_them_they_are_the_same_numbers():
    kernels = [("m", "reshape", "a", "b"), ("k", "add", "b b", "y")]
    plan = planned(
        "{storage: u8}", {"a": SIGNS, "b": "", "y": "[-2, 2]"}, kernels, "y", moves={"m": "Identity"}
    )
    assert has_both(kind_at(plan, "k"))
    assert not [rescale for rescale in plan.rescales if rescale.value == "b"]


def test_beside_other_numbers_their_hull_decides():
    kernels = [("m", "cat", "a c", "b"), ("k", "add", "b b", "y")]
    values = {"a": SIGNS, "c": "[-3, 1]", "b": "", "y": "[-6, 2]"}
    plan = planned("{storage: u8}", values, kernels, "y", moves={"m": "Concat"})
    assert kind_at(plan, "k").scale == pytest.approx(4 / 255)


def test_a_grid_beside_them_loses_bits_and_is_refused_as_dearer():
    graph = graph_of({"a": SIGNS, "y": "[-2, 2]"}, [("k", "add", "a a", "y")], outputs="y")
    plan = propagate(graph, target_of(ROWS.format("{storage: u8}")))
    kind = kind_at(plan, "k")
    odd = Uniform(kind.storage, (float(np.float32(2 * kind.scale)),), kind.zero_points)
    with pytest.raises(PlanInvalid):
        check(retyped(plan, "k.in[0]", odd))
