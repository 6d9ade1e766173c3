"""Integer arithmetics: the known numbers, and agreement with slow Python integers and Fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from planner.errors import RuleError
from planner.interpreter.fixed_point import (
    HEADROOM,
    apply_scale,
    apply_scale_double,
    multiplier_and_shift,
    multiplier_or_zero,
    ratios,
    scaled_sum,
)


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [
        (0.025 / 0.15, 1431655765, 13 + HEADROOM),
        (0.075 / 0.15, 1073741824, 11 + HEADROOM),
        (2.0**-20, 1073741824, 50),
        (1.0, 1 << 30, 30),
        (0.75, 3 << 29, 31),
        (1 - 2.0**-40, 1 << 30, 30),  # rounds up to 2^31, which is folded back
        (2.0**28, 1 << 30, 2),
        (2.0**-33, 1 << 29, 62),  # the shift tops out at 62
        (2.0**-70, 0, 62),
    ],
)
def test_multiplier_and_shift(scale, multiplier, shift):
    got = multiplier_and_shift(scale)
    assert (int(got[0]), int(got[1])) == (multiplier, shift)


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [(2.0**-32, 1 << 30, 62), (0.99 * 2.0**-32, 0, 31), (0.3, round(0.3 * 2**32), 32)],
)
def test_multiplier_or_zero(scale, multiplier, shift):
    """TFLite: below 2^-32 nothing is left."""
    got = multiplier_or_zero(scale)
    assert (int(got[0]), int(got[1])) == (multiplier, shift)


def test_a_shift_below_two_is_an_error():
    with pytest.raises(RuleError) as error:
        multiplier_and_shift(np.array([1.0, 2.0**30]))
    assert str(error.value) == (
        "a requantize by 1073741824.0 needs a shift below 2, integer multipliers go up to 2^30 "
        "(a coarser output scale makes the factor smaller)"
    )


def gemmlowp(value: int, multiplier: int, shift: int) -> int:
    """Saturating rounding doubling high multiply, then a rounding shift, as the C code has them."""
    left, right = max(0, 31 - shift), max(0, shift - 31)
    product = (value << left) * multiplier
    nudge = (1 << 30) if product >= 0 else 1 - (1 << 30)
    high = int(Fraction(product + nudge) / (1 << 31))  # truncates towards zero
    mask = (1 << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return (high >> right) + ((high & mask) > threshold)


def values(rng, count=400):
    magnitude = np.exp2(rng.uniform(0, 31, count))
    return np.clip(np.rint(magnitude * rng.choice([-1, 1], count)), -(2**31) + 1, 2**31 - 1).astype(np.int64)


@pytest.mark.parametrize("shift", [31, 32, 33, 38, 45, 61, 62])
def test_apply_scale(shift):
    """Single rounding is half up; double rounding is gemmlowp's two steps."""
    rng = np.random.default_rng(shift)
    value, multiplier = values(rng), rng.integers(1 << 30, 1 << 31, 400)
    multiplier[:100] = 1 << 30  # exact ties
    pairs = list(zip(value.tolist(), multiplier.tolist(), strict=True))
    single = [math.floor(Fraction(v * m, 1 << shift) + Fraction(1, 2)) for v, m in pairs]
    assert apply_scale(value, multiplier, np.asarray(shift)).tolist() == single
    double = [gemmlowp(v, m, shift) for v, m in pairs]
    assert apply_scale_double(value, multiplier, np.asarray(shift)).tolist() == double
    assert shift not in (32, 33) or single != double


def test_apply_scale_takes_accumulators_of_48_bits():
    value = np.array([(1 << 47) - 1, -(1 << 47), 3], np.int64)
    got = apply_scale(value, np.asarray((1 << 31) - 1), np.asarray(40))
    assert got.tolist() == [
        math.floor(Fraction(int(v) * ((1 << 31) - 1), 1 << 40) + Fraction(1, 2)) for v in value
    ]


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


def test_power_of_two_refuses_other_scales():
    with pytest.raises(RuleError) as error:
        scaled_sum([(np.arange(3), ratios([0.3], 1.0, 1.0))], "power_of_two")
    assert str(error.value) == (
        "a requantize by 0.3 is no shift, power_of_two arithmetic takes only 2^n "
        "(give the row's ports power_of_two scales)"
    )


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
