"""Integer arithmetics: the known numbers, and agreement with slow Python Fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from planner.interpreter.fixed_point import ratios, scaled_sum
from tests.ir.test_rescaling import gemmlowp


@pytest.mark.parametrize("terms", [1, 2])
def test_exact_even_is_what_fractions_say(terms):
    """Scales of float32, per channel, and sums that hit ties exactly."""
    rng = np.random.default_rng(terms)
    parts = []
    for _ in range(terms):
        scales = np.exp(rng.uniform(-9, 0, 6)).astype(np.float32).astype(float)
        scales[0], scales[1] = 0.5, 1.5
        parts.append((rng.integers(-40000, 40000, (300, 6)), ratios(scales.tolist(), 0.25, 1.0)))
    got = scaled_sum(parts, "exact_even")
    for i in range(300):
        for j in range(6):
            exact = sum((int(n[i, j]) * r[j] for n, r in parts), Fraction(0))
            assert got[i, j] == round(exact)


def test_power_of_two_shifts_half_up():
    ratio = ratios([0.25], 1.0, 1.0)
    integers = np.arange(-10, 11)
    assert scaled_sum([(integers, ratio)], "power_of_two").tolist() == [
        (n + 2) >> 2 for n in integers.tolist()
    ]
    both = scaled_sum([(integers, ratio), (integers, ratios([2.0], 1.0, 1.0))], "power_of_two")
    assert both.tolist() == [(9 * n + 2) >> 2 for n in integers.tolist()]


def test_a_bias_that_is_no_number_adds_nothing():
    got = ratios([0.5, float("nan"), float("inf")], 1.0, 0.25).tolist()
    assert got == [2, 0, 4 * Fraction(float(np.finfo(np.float32).max))]


@pytest.mark.parametrize("scale", [0.3, 1.4136341, 1 / 3])
def test_power_of_two_multiplies_exactly_where_no_shift_does(scale):
    """A pin off the powers of two: the product is exact, then rounded half up, ties included."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-(2**20), 2**20, (2, 500))
    got = scaled_sum([(a, ratios([scale], 1.0, 0.3)), (b, ratios([0.75], 1.0, 0.5))], "power_of_two")
    exact = [
        int(m) * Fraction(scale) / Fraction(0.3) + int(n) * Fraction(3, 2) for m, n in zip(a, b, strict=True)
    ]
    assert got.tolist() == [math.floor(total + Fraction(1, 2)) for total in exact]


@pytest.mark.parametrize("ratio", [Fraction(1, 4), Fraction(1), Fraction(8), Fraction(0.3)])
def test_an_average_is_an_exact_quotient_half_up(ratio):
    """Counts that are no powers of two, as of a window of 3 x 3, and ties (counts of 6)."""
    integers, counts = np.arange(-40, 41)[:, None], [4, 6, 9]
    parts = np.array([ratio / count for count in counts], object)
    got = scaled_sum([(integers, parts)], "power_of_two")
    for i, n in enumerate(integers[:, 0].tolist()):
        for j, count in enumerate(counts):
            assert got[i, j] == math.floor(n * ratio / count + Fraction(1, 2))


@pytest.mark.parametrize("arithmetic", ["tosa_single", "tosa_double", "gemmlowp"])
def test_additions_round_as_the_devices_do(arithmetic):
    """All pairs of bytes: inputs onto twice the coarser scale with 20 more bits, then the output."""
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    got = scaled_sum([(a, ratios([0.025], 1.0, 0.1)), (b, ratios([0.075], 1.0, 0.1))], arithmetic)
    exact = (a + 3 * b) / 4
    assert np.abs(got - exact).max() <= 0.5 + 2.0**-15
    left, right = 1431655765, 1073741824
    for i, j in [(0, 255), (17, 90), (131, 7), (254, 1)]:
        p, q = int(a[i, j]), int(b[i, j])
        if arithmetic == "gemmlowp":
            total = gemmlowp(p << 20, left, 33) + gemmlowp(q << 20, right, 31)
        else:
            total = ((p * left + (1 << 12)) >> 13) + ((q * right + (1 << 10)) >> 11)
        # 0.15 / (2^20 * 0.1) is 1.5 * 2^-20
        product = total * (3 << 29)
        once = (product + (1 << 49)) >> 50
        twice = (product + (1 << 49) + (1 << 30) * (1 if total >= 0 else -1)) >> 50
        assert got[i, j] == (once if arithmetic == "tosa_single" else twice)


def test_an_addition_of_one_scale_is_exact():
    a, b = np.meshgrid(np.arange(-255, 256), np.arange(-255, 256))
    one = ratios([0.1], 1.0, 0.1)
    for arithmetic in ("exact_even", "gemmlowp", "power_of_two", "tosa_double", "tosa_single"):
        assert np.array_equal(scaled_sum([(a, one), (b, one)], arithmetic), a + b)
