"""Every rounding, against ratios of whole numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.constants.quantize import Arithmetic
from planner.constants.rounding import QONNX, ROUNDINGS, round_floats
from planner.errors import QTypeError


def by_hand(real: Fraction, rounding: str) -> int:
    """The definition, one real at a time."""
    low, high = math.floor(real), math.ceil(real)
    nearer = low if real - low < high - real else high
    is_tie = real - low == high - real and low != high
    return {
        "away": high if real > 0 else low,
        "ceil": high,
        "floor": low,
        "half_away": (high if real > 0 else low) if is_tie else nearer,
        "half_down": low if is_tie else nearer,
        "half_even": (low if low % 2 == 0 else high) if is_tie else nearer,
        "half_to_zero": (low if real > 0 else high) if is_tie else nearer,
        "half_up": high if is_tie else nearer,
        "to_zero": low if real > 0 else high,
    }[rounding]


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [  #                 -2.5 -1.5 -0.7 -0.5 -0.2  0.2  0.5  0.7  1.5  2.5
        ("half_even", (-2, -2, -1, 0, 0, 0, 0, 1, 2, 2)),
        ("half_away", (-3, -2, -1, -1, 0, 0, 1, 1, 2, 3)),
        ("half_to_zero", (-2, -1, -1, 0, 0, 0, 0, 1, 1, 2)),
        ("half_up", (-2, -1, -1, 0, 0, 0, 1, 1, 2, 3)),
        ("half_down", (-3, -2, -1, -1, 0, 0, 0, 1, 1, 2)),
        ("floor", (-3, -2, -1, -1, -1, 0, 0, 0, 1, 2)),
        ("ceil", (-2, -1, 0, 0, 0, 1, 1, 1, 2, 3)),
        ("to_zero", (-2, -1, 0, 0, 0, 0, 0, 0, 1, 2)),
        ("away", (-3, -2, -1, -1, -1, 1, 1, 1, 2, 3)),
    ],
)
def test_the_roundings(rounding, expected):
    reals = (-2.5, -1.5, -0.7, -0.5, -0.2, 0.2, 0.5, 0.7, 1.5, 2.5)
    for dtype in (np.float32, np.float64):
        assert round_floats(np.array(reals, dtype), rounding).tolist() == list(expected)
    assert [by_hand(Fraction(real), rounding) for real in reals] == list(expected)


def test_nothing_is_lost_just_beside_a_tie():
    """Adding a half would carry 0.49999999999999994 to 1, and 1 less a little to 2."""
    for dtype in (np.float32, np.float64):
        one = np.array(1, dtype)
        for real in (np.nextafter(one / 2, 0 * one), np.nextafter(one / 2, one), np.nextafter(one, 2 * one)):
            for sign in (1, -1):
                for rounding in ROUNDINGS:
                    value = np.array([sign * real], dtype)
                    assert round_floats(value, rounding)[0] == by_hand(Fraction(float(value[0])), rounding)


@given(st.floats(-(2.0**52), 2.0**52), st.sampled_from(sorted(ROUNDINGS)))
def test_any_double(real, rounding):
    assert round_floats(np.array([real]), rounding)[0] == by_hand(Fraction(real), rounding)


def test_what_is_not_finite_stays():
    for rounding in ROUNDINGS:
        found = round_floats(np.array([np.inf, -np.inf, np.nan]), rounding)
        np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan])


def test_every_name_of_qonnx_is_known():
    assert set(QONNX.values()) <= set(ROUNDINGS)
    assert {QONNX[name] for name in ("UP", "HALF_UP", "HALF_DOWN")} == {"away", "half_away", "half_to_zero"}


def test_an_unknown_rounding():
    known = ", ".join(ROUNDINGS)
    for use in (lambda: Arithmetic(rounding="HALF_UP"), lambda: round_floats(np.zeros(1), "HALF_UP")):
        with pytest.raises(QTypeError) as caught:
            use()
        assert str(caught.value) == f"unknown rounding 'HALF_UP'; known: {known}"
