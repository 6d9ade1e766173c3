"""Rounding as one multiply, add and shift: equal to the arithmetic for every accumulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formats.common.roundings import Rounding
from planner.formats.common.thresholds import NEVER, fit, fit_pairs, least_arguments, least_floats
from planner.ir.arithmetic.multipliers import Multiplier
from planner.ir.types.qtypes import storage, uniform

ARITHMETICS = (
    *("exact_even", "float32_even", "gemmlowp", "tosa_double", "tosa_single"),
    *map(str, (Multiplier(16, "half_away", (0, 30)), Multiplier(10, "floor", (0, 40)))),
)


def rounding(arithmetic, scales, zero_point, low, high):
    y = uniform(storage("u8"), 0.05, zero_point)
    w = np.asarray(scales, np.float32)
    x = np.float32(0.03)
    multiplier = (x * w / np.float32(y.scale)).astype(np.float32)
    return Rounding(y, arithmetic, tuple(w.astype(float).tolist()), float(x), multiplier, low, high)


@given(
    arithmetic=st.sampled_from(ARITHMETICS),
    scales=st.lists(st.floats(1e-4, 0.9), min_size=1, max_size=3),
    zero_point=st.integers(0, 255),
    ends=st.tuples(st.integers(0, 255), st.integers(0, 255)).filter(lambda e: e[0] < e[1]),
    reach=st.integers(1, 1 << 22),
)
def test_steps_give_what_the_arithmetic_gives_to_every_accumulator(
    arithmetic, scales, zero_point, ends, reach
):
    made = rounding(arithmetic, scales, zero_point, *ends)
    limit = np.full(len(scales), reach)
    steps = made.steps(-limit, limit)
    assert steps is not None
    middle = np.repeat(np.linspace(-reach, reach, 4001).astype(np.int64)[None], len(scales), axis=0)
    near = np.repeat(np.arange(max(-reach, -2000), min(reach, 2000) + 1)[None], len(scales), axis=0)
    for v in (middle, near):
        np.testing.assert_array_equal(steps.of(v) + ends[0], made.stored(v))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_every_accumulator_of_a_range(arithmetic):
    made = rounding(arithmetic, (0.001, 0.25), 120, 0, 255)
    limit = np.full(2, 100_000)
    steps = made.steps(-limit, limit)
    v = np.repeat(np.arange(-100_000, 100_001)[None], 2, axis=0)
    np.testing.assert_array_equal(steps.of(v), made.stored(v))


def test_ties_to_even_that_no_multiplication_has_go_by_a_table():
    """Half a level each: 1/2 rounds to 0 and 3/2 to 2."""
    levels = least_arguments(
        lambda v: np.clip(np.rint(v / 2), 0, 9).astype(int), np.asarray([-5]), np.asarray([25]), 9
    )
    steps = fit(levels, np.asarray([0.5]))
    assert steps.table is not None
    assert steps.table[0].tolist() == [NEVER] * 10
    v = np.arange(-5, 26)[None]
    np.testing.assert_array_equal(steps.of(v)[0], np.clip(np.rint(v[0] / 2), 0, 9))


def test_a_constant_function_has_steps():
    levels = least_arguments(lambda v: np.full(v.shape, 3), np.asarray([-9]), np.asarray([9]), 7)
    assert fit(levels, np.asarray([1e-9])).of(np.arange(-9, 10)[None]).tolist() == [[3] * 19]


@given(a=st.floats(0.01, 2), b=st.floats(-2, 2).filter(lambda b: abs(b) > 0.01), offset=st.floats(-20, 20))
def test_pairs_are_right_for_every_pair_or_none(a, b, offset):
    one, two = np.arange(-16, 16), np.arange(-8, 8)
    levels = np.clip(np.rint(one[:, None] * a + two * b + offset), 0, 31).astype(np.int64)
    pairs = fit_pairs(levels, one, two, (a, b), 31)
    if pairs is not None:
        total = one[:, None] * pairs.multipliers[0] + two * pairs.multipliers[1] + pairs.offset
        np.testing.assert_array_equal(np.clip(total >> pairs.shift, 0, 31), levels)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3e-5, 77.0])
def test_thresholds_of_floats_round_half_to_even(scale):
    """Each threshold is the first float32 of its level, and the one below it is not."""
    step = np.float32(scale)

    def levels(x):
        return np.clip(np.rint(x / step) + 8, 0, 15).astype(np.int64)

    least = least_floats(levels, 15)
    np.testing.assert_array_equal(levels(least), np.arange(1, 16))
    np.testing.assert_array_equal(levels(np.nextafter(least, np.float32(-np.inf))), np.arange(15))
    if scale == 1.0:
        assert least[8] > 0.5
        assert least[9] == 1.5
