"""Multipliers of few bits: factors and roundings against exact fractions, and the instances with names."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RuleError
from planner.interpreter.fixed_point import ratios, scaled_sum
from planner.ir.arithmetic.multipliers import LITERT_16, ROUNDINGS, Multiplier, beyond_of, multiplier_of

KINDS = (
    Multiplier(16, "half_away", (0, 30)),
    Multiplier(8, "half_even", (0, 15)),
    Multiplier(8, "floor", (3, 20), flushes=True),
    Multiplier(24, "half_up", (2, 46), cut_from=32),
    Multiplier(4, "half_up", (0, 62)),
    LITERT_16,
)


def rounded(value, rounding):
    floor = math.floor(value)
    rest = value - floor
    half = Fraction(1, 2)
    up = {
        "floor": False,
        "half_up": rest >= half,
        "half_away": rest > half or (rest == half and value > 0),
        "half_even": rest > half or (rest == half and floor % 2 == 1),
    }
    return floor + up[rounding]


@given(
    st.sampled_from(ROUNDINGS),
    st.integers(-(1 << 60), 1 << 60),
    st.integers(0, (1 << 31) - 1),
    st.integers(0, 62),
)
def test_products_round_as_exact_fractions_do(rounding, value, factor, shift):
    kind = Multiplier(32, rounding, (0, 62))
    found = int(kind.apply(np.array([value]), np.array([factor]), np.array([shift]))[0])
    exact = rounded(Fraction(value * factor, 1 << shift), rounding)
    assert found == max(-(1 << 62), min(exact, 1 << 62))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ties_near_zero(rounding):
    """-2.5 to 2.5 in halves, and a shift of nothing."""
    values = np.arange(-5, 6)
    kind = Multiplier(8, rounding, (0, 10))
    found = kind.apply(values, np.array(1), np.array(1)).tolist()
    assert found == [rounded(Fraction(int(v), 2), rounding) for v in values]
    assert kind.apply(values, np.array(3), np.array(0)).tolist() == (3 * values).tolist()


@given(st.sampled_from(KINDS), st.floats(2.0**-70, 2.0**40))
def test_a_factor_is_as_near_as_its_bits_allow(kind, scale):
    if scale >= kind.beyond:
        with pytest.raises(RuleError, match="needs a shift below"):
            kind.factor(scale)
        return
    try:
        factor, shift = (int(part) for part in kind.factor(scale))
    except RuleError:
        # A mantissa that rounds up is one bit longer: the last factors below the end.
        assert scale >= kind.beyond * (1 - 2.0 ** -(kind.bits - 1))
        return
    assert 0 <= factor < 1 << (kind.bits - 1)
    assert kind.shifts[0] <= shift <= kind.shifts[1]
    assert (factor == 0) == (scale < kind.least) or scale >= kind.least * (1 - 2.0 ** -(kind.bits - 2))
    if factor >= 1 << (kind.bits - 2):
        # Half a unit of the multiplier; one that is cut from more bits may miss a little over half of one.
        assert abs(Fraction(factor, 1 << shift) - Fraction(scale)) <= Fraction(11, 20) / (1 << shift) or (
            kind.cut_from and factor == (1 << (kind.bits - 1)) - 1
        )


def test_the_ends_of_a_reach():
    kind = Multiplier(8, "half_up", (3, 20))
    assert kind.beyond == 2.0**4
    assert [int(part) for part in kind.factor(2.0**4 * (1 - 2.0**-7))] == [127, 3]
    with pytest.raises(RuleError, match=r"shift below 3, multipliers of 8 bits go up to 2\^4"):
        kind.factor(2.0**4)
    assert [int(part) for part in kind.factor(kind.least)] == [1, 20]
    assert [int(part) for part in kind.factor(kind.least * 0.99)] == [0, 20]
    flushing = Multiplier(8, "half_up", (3, 20), flushes=True)
    assert [int(part) for part in flushing.factor(flushing.least)] == [64, 20]
    assert int(flushing.factor(flushing.least * 0.99)[0]) == 0
    assert int(kind.factor(np.array([0.0]))[0][0]) == 0
    with pytest.raises(RuleError, match="finite"):
        kind.factor(np.inf)


def test_named_arithmetics_are_instances():
    """One product of each: the general multiplier gives the integers that the name gives."""
    rng = np.random.default_rng(0)
    sums = rng.integers(-(1 << 31), 1 << 31, 4000)
    for name, kind in (("tosa_single", Multiplier(32)), ("litert_16", LITERT_16)):
        for scale in np.exp(rng.uniform(-18, 1, 40)):
            terms = [(sums, ratios([float(scale)], 1.0, 1.0))]
            assert np.array_equal(scaled_sum(terms, name), scaled_sum(terms, str(kind))), (name, scale)


@pytest.mark.parametrize("kind", KINDS)
def test_its_text_is_its_name(kind):
    assert multiplier_of(str(kind)) == kind
    assert beyond_of(str(kind)) == kind.beyond


def test_other_names_are_no_multipliers():
    for name in ("tosa_double", "float32_even", "", "16-bit multiplier, half_odd, shift 1..2"):
        assert multiplier_of(name) is None
    assert beyond_of("exact_even") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bits": 3}, "a multiplier of 3 bits; 4 to 32"),
        ({"bits": 33}, "a multiplier of 33 bits"),
        ({"bits": 8, "shifts": (5, 4)}, "shifts of 5 to 4"),
        ({"bits": 8, "shifts": (-1, 4)}, "shifts of -1 to 4"),
        ({"bits": 8, "shifts": (0, 63)}, "shifts of 0 to 63"),
        ({"bits": 16, "cut_from": 16}, "16 bits cut from 16"),
    ],
)
def test_multipliers_that_are_none(fields, words):
    with pytest.raises(RuleError, match=words):
        Multiplier(**fields)


def test_a_sum_of_two_has_less_headroom_where_shifts_end():
    """Shifts to 15: 20 more bits would shift the last factor out."""
    kind = Multiplier(8, "half_up", (0, 15))
    terms = [(np.arange(-50, 50), ratios([ratio], 1.0, 1.0)) for ratio in (0.5, 0.25)]
    found = scaled_sum(terms, str(kind))
    assert np.abs(found - np.arange(-50, 50) * 0.75).max() <= 0.75
