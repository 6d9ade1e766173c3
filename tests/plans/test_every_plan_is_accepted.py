"""The checker accepts what the planner makes: random models with movers and float on every shipped target."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import Conflict
from planner.ir.kernel_requests import with_wanted
from planner.ir.structure import BEGIN, END, JOIN
from planner.plans.read_json import plan_from_json
from planner.target.load import target_ids
from tests.plans.movement_models import movement_model


@st.composite
def models(draw):
    seed, steps = draw(st.integers(0, 1 << 20)), draw(st.integers(1, 16))
    model = movement_model(seed, steps, facts=draw(st.sampled_from((0.0, 0.1, 0.3))))
    return with_wanted(model, draw(st.sampled_from(({}, {}, {"*": "float"}))))


def is_accepted(model, target, strategy):
    """In memory, and read back; a conflict of the facts is no plan."""
    try:
        plan = planner.plan(model, target, strategy=strategy)
    except Conflict:
        return
    planner.check(plan, model, target)
    planner.check(plan_from_json(plan.to_json()), model, target)


TARGETS, STRATEGIES = st.sampled_from(target_ids()), st.sampled_from(("minimal", "rfc"))


@settings(max_examples=60)
@given(models(), TARGETS, STRATEGIES)
def test_a_plan_is_accepted(model, target, strategy):
    is_accepted(model, target, strategy)


def test_two_facts_without_effect_inside_a_kernel_are_accepted_in_any_order():
    """A plan file lists the values inside a kernel in its own order."""
    is_accepted(movement_model(650879, 10, facts=0.3), "hls4ml-fpga", "rfc")


@pytest.mark.parametrize(("seed", "steps"), [(211306, 5), (63682, 10)])
def test_a_value_that_enters_a_branch_in_float_keeps_its_range(seed, steps):
    """Only the join behind is stored: it warns of no numbers that do not reach it."""
    is_accepted(with_wanted(movement_model(seed, steps, facts=0.1), {"*": "float"}), "litert-int8", "minimal")


@pytest.mark.soak
@settings(max_examples=3000)
@given(models(), TARGETS, STRATEGIES)
def test_a_plan_is_accepted_at_length(model, target, strategy):
    is_accepted(model, target, strategy)


def test_the_models_have_what_makes_ranges_hard():
    found = {op.type for seed in range(40) for op in movement_model(seed, 12).all_ops()}
    assert {"Pad", "Where", "Max", "Min", "Clip", "Concat", "Gather", "TopK", "ScatterElements"} <= found
    assert {BEGIN, END, JOIN} <= found
