"""Multipliers, shifts and what they make of integers: the known numbers, and slow Python integers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from planner.errors import RuleError
from planner.ir.arithmetic.multipliers import LITERT_16
from planner.ir.arithmetic.rescaling import (
    BEYOND,
    MIN_SHIFT,
    apply_scale_16,
    apply_scale_32,
    check_scale_32,
    multiplier_and_shift,
    multiplier_or_zero,
    reciprocal_scale,
)


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [
        (0.025 / 0.15, 1431655765, 13 + 20),
        (0.075 / 0.15, 1073741824, 11 + 20),
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
        multiplier_and_shift(np.array([1.0, BEYOND]))
    assert str(error.value) == (
        "a requantize by 536870912.0 needs a shift below 2, integer multipliers go up to 2^29 "
        "(a coarser output scale makes the factor smaller)"
    )
    assert multiplier_and_shift(BEYOND * (1 - 2.0**-31))[1] == MIN_SHIFT


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


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [
        (0.5, 1 << 14, 15),
        (1.0, 1 << 14, 14),
        (1 - 2.0**-32, 1 << 14, 14),  # rounds up to a power of two
        (1 - 2.0**-18, (1 << 15) - 1, 15),  # the upper half would have 16 bits
        (0.75, 3 << 13, 15),
        (2.0**14 * (1 - 2.0**-20), (1 << 15) - 1, 1),
        (2.0**-32, 1 << 14, 46),
        (2.0**-33, 0, 15),
        (0.0, 0, 15),
    ],
)
def test_a_multiplier_of_16_bits(scale, multiplier, shift):
    assert [int(part) for part in LITERT_16.factor(scale)] == [multiplier, shift]


@pytest.mark.parametrize("scale", [2.0**14, 2.0**14 * (1 - 2.0**-40), 2.0**40, np.inf])
def test_no_multiplier_of_16_bits(scale):
    with pytest.raises(RuleError):
        LITERT_16.factor(scale)


def test_the_products_of_litert_16():
    """One rounding, half up, of exact products, beyond 64 bits too."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.integers(-(1 << 47), 1 << 47, 300), [0, 1, -1, 1 << 60, -(1 << 60)]])
    multipliers, shifts = rng.integers(0, 1 << 15, len(values)), rng.integers(1, 47, len(values))
    multipliers[-2:], shifts[-2:] = (1 << 15) - 1, 46
    exact = [
        math.floor(Fraction(v * m, 1 << s) + Fraction(1, 2))
        for v, m, s in zip(values.tolist(), multipliers.tolist(), shifts.tolist(), strict=True)
    ]
    assert LITERT_16.apply(values, multipliers, shifts).tolist() == exact


@pytest.mark.parametrize("shift", [31, 32, 33, 38, 45, 61, 62])
def test_apply_scale_32(shift):
    """Single rounding is half up; double rounding is gemmlowp's two steps."""
    rng = np.random.default_rng(shift)
    value, multiplier = values(rng), rng.integers(1 << 30, 1 << 31, 400)
    multiplier[:100] = 1 << 30  # exact ties
    pairs = list(zip(value.tolist(), multiplier.tolist(), strict=True))
    single = [math.floor(Fraction(v * m, 1 << shift) + Fraction(1, 2)) for v, m in pairs]
    assert apply_scale_32(value, multiplier, np.asarray(shift), double_round=False).tolist() == single
    double = [gemmlowp(v, m, shift) for v, m in pairs]
    assert apply_scale_32(value, multiplier, np.asarray(shift), double_round=True).tolist() == double
    assert shift not in (32, 33) or single != double


def test_apply_scale_takes_accumulators_of_48_bits():
    value = np.array([(1 << 47) - 1, -(1 << 47), 3], np.int64)
    got = apply_scale_32(value, np.asarray((1 << 31) - 1), np.asarray(40), double_round=False)
    assert got.tolist() == [
        math.floor(Fraction(int(v) * ((1 << 31) - 1), 1 << 40) + Fraction(1, 2)) for v in value
    ]


def test_the_addition_of_the_stablehlo_page():
    """0.025 and 0.075 into 0.15: inputs to half a unit in 20 more bits, the sum back by 2^-20."""
    twice = 2 * 0.075
    multipliers, shifts = multiplier_and_shift(np.array([0.025, 0.075]) / twice)
    assert multipliers.tolist() == [1431655765, 1073741824]
    assert (shifts - 20).tolist() == [13, 11]
    multiplier, shift = multiplier_and_shift(twice / (0.15 * 2**20))
    assert (int(multiplier), int(shift)) == (1073741824, 50)


@pytest.mark.parametrize(
    ("scale", "multiplier", "shift"),
    [(1.0, 1 << 14, 14), (0.3, round(0.3 * 2**16), 16), (1 - 2.0**-20, 1 << 14, 14), (2.0**-70, 0, 62)],
)
def test_sixteen_bits(scale, multiplier, shift):
    got = multiplier_and_shift(scale, bits=16)
    assert (int(got[0]), int(got[1])) == (multiplier, shift)


def test_apply_scale_16_rounds_half_up():
    rng = np.random.default_rng(0)
    value = rng.integers(-(1 << 47), 1 << 47, 300)
    multiplier, shift = rng.integers(1 << 14, 1 << 15, 300), rng.integers(31, 63, 300)
    triples = zip(value.tolist(), multiplier.tolist(), shift.tolist(), strict=True)
    expected = [math.floor(Fraction(v * m, 1 << s) + Fraction(1, 2)) for v, m, s in triples]
    assert apply_scale_16(value, multiplier, shift).tolist() == expected


@pytest.mark.parametrize(
    ("value", "multiplier", "shift", "message"),
    [
        (1 << 47, 1 << 14, 20, "apply_scale_16 takes 48 bits: 140737488355328 is not in"),
        (1 << 40, 1 << 14, 20, "apply_scale_16 gives 32 bits: 17179869184 is not in"),
        (1, 1 << 15, 20, "a multiplier of 16 bits: 32768 is not in 0 to 32767"),
        (1, 1 << 14, 1, "a shift: 1 is not in 2 to 62"),
    ],
)
def test_what_apply_scale_16_refuses(value, multiplier, shift, message):
    with pytest.raises(RuleError, match=message):
        apply_scale_16(*(np.array([number]) for number in (value, multiplier, shift)))


@pytest.mark.parametrize(
    ("value", "multiplier", "shift", "message"),
    [
        ([-8, 8], 1, 4, "apply_scale_32 of 8 with a shift of 4 takes values below"),
        ([-9, 7], 1, 4, "apply_scale_32 of -9 with a shift of 4"),
        ([0], 1 << 31, 4, "a multiplier of 32 bits: 2147483648"),
        ([0], -1, 4, "a multiplier of 32 bits: -1"),
        ([0], 1, 63, "a shift: 63 is not in 2 to 62"),
    ],
)
def test_what_apply_scale_32_may_not_be_given(value, multiplier, shift, message):
    with pytest.raises(RuleError, match=message):
        check_scale_32(np.array(value), np.array([multiplier]), np.array([shift]))


def test_values_at_the_limit_are_taken():
    check_scale_32(np.array([-8, 7]), np.array([(1 << 31) - 1]), np.array([4]))


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_scales_are_finite(scale):
    with pytest.raises(RuleError, match="scales are finite"):
        multiplier_and_shift(scale)


def test_a_sum_times_its_reciprocal_is_divided_with_ties_away_from_zero():
    """Every sum of 1 to 64 bytes, and the numbers of TOSA's own text for a few counts."""
    for count in range(1, 65):
        sums = np.arange(-255 * count, 255 * count + 1)
        wanted = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
        np.testing.assert_array_equal(
            apply_scale_32(sums, *reciprocal_scale(count), double_round=False), wanted
        )
    multipliers, shifts = reciprocal_scale(np.array([1, 2, 3, 4, 49]))
    assert multipliers.tolist() == [1073741825, 1073741825, 1431655766, 1073741825, 1402438302]
    assert shifts.tolist() == [30, 31, 32, 32, 36]
