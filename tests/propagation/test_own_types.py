"""A plan law: fixing a value to the very type it has changes no type, no rescale, and no price."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import PlannerError
from planner.ir.types.qtypes import Calibrated, Uniform
from planner.target.modeltext import read_model_text
from tests.plans.randommodels import random_model
from tests.propagation.test_laws import port_types

TARGETS = ("ethos-u55", "litert-int8", "onnxruntime-cpu", "teaching-npu", "tensorrt-int8")
IN_FRONT_OF_A_CUT = """x : f32[1,4,4,4] {{-1, 1}}
a = AveragePool(x) [kernel_shape=[1,1]] : f32[1,4,4,4] {{-5, 5}}
b = AveragePool(x) [kernel_shape=[1,1]] : f32[1,4,4,4] {{0, 4}}
s = {op}(a, b) : f32[1,4,4,4] {{-9, 9}}
y = Relu(s) : f32[1,4,4,4] {{0, 3}}
z = AveragePool(y) [kernel_shape=[1,1]] : f32[1,4,4,4] {{0, 3}}
return z"""


def pinned_to_their_own(model, plan):
    """The model with one value fixed to its type, for each value where that has a say in nothing else."""
    rows_say = {
        port.value for kernel in plan.kernels_in_order if kernel.row is None for port in kernel.inputs
    }
    for name, value in plan.values.items():
        facts = model.values[name].facts
        # Outputs stay quantized where they are fixed, data movement in float is not free to be float any
        # more, and a type that is coarser than needed makes the free bits behind it free once more.
        told = name in model.outputs or name in rows_say or value.bits_lost > plan.target.costs.free_bits
        if isinstance(value.type, Uniform) and not told and all(isinstance(f, Calibrated) for f in facts):
            pinned = replace(model.values[name], facts=(*facts, value.type))
            yield name, replace(model, values={**model.values, name: pinned})


def assert_unmoved(model, target):
    """Types, rescales, and the price with what facts excuse are those without the fixed type."""
    plan = planner.plan(model, target)
    count = 0
    for name, pinned in pinned_to_their_own(model, plan):
        again = planner.plan(pinned, target)
        if [kernel.row for kernel in again.kernels_in_order] != [k.row for k in plan.kernels_in_order]:
            continue  # of two kernel variants the one that stores what facts say comes first
        assert port_types(again) == port_types(plan), name
        assert again.rescales == plan.rescales, name
        assert again.price == plan.price, name
        planner.check(again, pinned, target)
        count += 1
    return count


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_what_a_cut_leaves_needs_no_fixed_type(op, target):
    """A sum in front of a Relu saturates at the ends of its own range: its operands need no more."""
    model = read_model_text(IN_FRONT_OF_A_CUT.format(op=op), "cut")
    assert assert_unmoved(model, target) or op == "Sub"  # which not all of them have


def test_operands_of_a_sum_need_what_its_result_keeps():
    """[-5, 5] plus [0, 4] cut to [0, 3]: below -4 and above 3 no operand is told apart."""
    model = read_model_text(IN_FRONT_OF_A_CUT.format(op="Add"), "cut")
    plan = planner.plan(model, "onnxruntime-cpu")
    kind = plan.kernels["s"].inputs[0].type
    assert -4.1 < kind.lo < -4.0
    assert 3.0 < kind.hi < 3.1


def tried(seeds):
    """The law on random models; the number of fixed types."""
    count = 0
    for seed, target in seeds:
        try:
            # No other facts: a wildcard takes its storage of a fixed type before it asks its consumers.
            count += assert_unmoved(random_model(seed, 2 + seed % 9, facts=0.0), target)
        except PlannerError as error:
            if type(error).__name__ == "PlanInvalid":
                raise
    return count


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.sampled_from(TARGETS)), min_size=5, max_size=5))
@settings(max_examples=4, deadline=None)
def test_a_fixed_type_of_its_own_moves_nothing(seeds):
    """Random models on shipped targets."""
    tried(seeds)


@pytest.mark.soak
def test_a_fixed_type_of_its_own_moves_nothing_at_length():
    """The same, more of them."""
    assert tried((seed, TARGETS[seed % len(TARGETS)]) for seed in range(400)) > 1000
