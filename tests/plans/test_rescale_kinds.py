"""Kinds of rescales: a change of sign is a shift, and the planner and its checker name every kind alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.checker.edges import kinds_between
from planner.ir.types.qtypes import Storage, uniform
from planner.plans.rescales import kind_of
from planner.target.modeltext import read_model_text
from planner.target.records import Costs
from tests.strategies import storages

DEAR_CLAMP = Costs(clamp=5.0)
I8, U8 = Storage(8, True, -128, 127), Storage(8, False, 0, 255)

TARGET = """\
apiVersion: planner/v1
kind: Target
id: signs
version: 1.0.0
title: kernels of two signs
mode: fixed
types:
  a8: {storage: i8}
  u8: {storage: u8}
defaults: {port: a8, on_no_kernel: float}
rescale: {cost: {clamp: 5.0}}
kernels:
  - {kernel: Sigmoid, in: {x: a8}, out: {y: a8}}
  - {kernel: AveragePool, in: {x: u8}, out: {y: u8}}
"""
MODEL = """\
i = Identity(x) : f32[1,4,2,2] {-1, 1}
a = Sigmoid(i) : f32[1,4,2,2] {0, 1}
y = AveragePool(a) [kernel_shape=[1,1]] : f32[1,4,2,2] {0, 1}
return y
"""


@pytest.mark.parametrize(
    ("source", "wanted", "kind"),
    [
        (uniform(I8, 0.5, -128), uniform(U8, 0.5), "zero_point"),
        (uniform(U8, 0.5, 5), uniform(I8, 0.5, 5), "zero_point"),
        (uniform(Storage(8, True, -127, 127), 0.5), uniform(U8, 0.5, 128), "zero_point"),
        (uniform(U8, 0.5, 128), uniform(Storage(8, True, -127, 127), 0.5), "clamp"),
        (uniform(I8, 0.5), uniform(Storage(8, True, -127, 127), 0.5), "clamp"),
        (uniform(Storage(8, True, -127, 127), 0.5), uniform(I8, 0.5), None),
    ],
)
def test_a_change_of_sign_cuts_off_what_lies_outside(source, wanted, kind):
    assert kind_of(source, wanted, DEAR_CLAMP) == kind


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_a_shift_between_signs_costs_no_clamp(strategy):
    """Sums in i8 in front of a mean in u8, where a clamp costs more than a shift: 80 instead of 4."""
    model = read_model_text(MODEL, "m")
    plan = planner.plan(model, planner.load_target(TARGET), strategy=strategy)
    planner.check(plan, model)
    assert [(one.kind, one.cost) for one in plan.rescales if one.value == "a"] == [("zero_point", 4.0)]


@settings(max_examples=500, deadline=None)
@given(storages(16), storages(16), st.sampled_from([0.5, 0.25]), st.data())
def test_the_checker_names_the_same_kinds(one, other, scale, data):
    """Of two readings, made apart, of what leads from one type to another."""
    source = uniform(one, 0.5, data.draw(st.integers(one.qmin, one.qmax)))
    wanted = uniform(other, scale, data.draw(st.integers(other.qmin, other.qmax)))
    kind = kind_of(source, wanted, DEAR_CLAMP)
    kinds = kinds_between(source, wanted, DEAR_CLAMP)
    assert (kind in kinds) if kind else not kinds
