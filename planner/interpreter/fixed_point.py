"""Fixed point: sums of scaled integers, rounded once, by every arithmetic that is not `float32_even`.

`scaled_sum` takes integers and exact ratios and rounds as TOSA's RESCALE, TFLite's kernels, exact rational
arithmetic or a plain shift do. Nothing here knows kernels, types or zero points. Everything is exact in 64
bits; values beyond 32 bits go through Python's integers.
Source: TOSA specification, apply_scale_32; TFLite MultiplyByQuantizedMultiplier; design 01, section 8.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import RuleError

Array: TypeAlias = npt.NDArray[Any]
Integers: TypeAlias = npt.NDArray[np.int64]
Term: TypeAlias = tuple[Array, Array]

MANTISSA_BITS: Final = 31
MAX_SHIFT: Final = 62
MIN_SHIFT: Final = 2
HEADROOM: Final = 20
WORD_HEADROOM: Final = 15
_LIMIT: Final = float(1 << 62)


def ratios(numerators: Sequence[float], factor: float, divisor: float) -> Array:
    """Exact `numerator * factor / divisor`, one Fraction per numerator."""
    rest = Fraction(factor) / Fraction(divisor)
    result = np.empty(len(numerators), object)
    result[:] = [Fraction(number) * rest for number in numerators]
    return result


def scaled_sum(terms: Sequence[Term], arithmetic: str, *, headroom: int = HEADROOM) -> Integers:
    """`sum of integers * ratio`, rounded by an arithmetic.

    Args:
      terms: (integers, exact ratios as Fractions) pairs that broadcast; more than one as in an addition.
      arithmetic: a key of `ARITHMETICS`.
      headroom: bits that TOSA and TFLite give the terms of an addition below their last one.

    Raises:
      RuleError: a ratio this arithmetic cannot multiply by.
    """
    return ARITHMETICS[arithmetic](terms, headroom)


def multiplier_and_shift(scale: float | Array) -> tuple[Integers, Integers]:
    """`scale` as `multiplier / 2^shift` with a 31-bit multiplier, as TOSA has it: shifts of 2 to 62.

    Raises:
      RuleError: a scale of 2^30 or more, whose shift would be below 2.

    Source: TOSA, RESCALE; frexp, round half away to 2^31, fold 2^31 back, cap the shift at 62.
    """
    multiplier, shift = _mantissa_and_shift(scale)
    beyond = np.maximum(shift - MAX_SHIFT, 0)
    return multiplier >> np.minimum(beyond, MANTISSA_BITS), np.minimum(shift, MAX_SHIFT)


def multiplier_or_zero(scale: float | Array) -> tuple[Integers, Integers]:
    """The same as TFLite has it: scales below 2^-32 become 0.

    Raises:
      RuleError: a scale of 2^30 or more.
    """
    multiplier, shift = _mantissa_and_shift(scale)
    is_tiny = shift > MAX_SHIFT
    return np.where(is_tiny, 0, multiplier), np.where(is_tiny, MANTISSA_BITS, shift)


def apply_scale(value: Array, multiplier: Array, shift: Array) -> Integers:
    """`value * multiplier / 2^shift`, rounded half up. Source: TOSA apply_scale_32, single round."""
    half = np.left_shift(1, np.asarray(shift, np.int64) - 1)
    return _shifted_product(value, multiplier, shift, half)


def apply_scale_double(value: Array, multiplier: Array, shift: Array) -> Integers:
    """The same, rounded twice where the shift exceeds 31: gemmlowp's doubling high multiply, then a shift.

    Source: TOSA apply_scale_32, double round; TFLite MultiplyByQuantizedMultiplier.
    """
    wide = np.asarray(shift, np.int64)
    half = np.left_shift(1, wide - 1)
    first = np.where(value >= 0, 1 << 30, -(1 << 30))
    return _shifted_product(value, multiplier, wide, half + np.where(wide > MANTISSA_BITS, first, 0))


def _mantissa_and_shift(scale: float | Array) -> tuple[Integers, Integers]:
    real = np.asarray(scale, np.float64)
    fraction, exponent = np.frexp(real)
    mantissa = np.floor(np.ldexp(fraction, MANTISSA_BITS) + 0.5).astype(np.int64)
    is_full = mantissa == 1 << MANTISSA_BITS
    mantissa = np.where(is_full, mantissa >> 1, mantissa)
    shift = MANTISSA_BITS - exponent.astype(np.int64) - is_full
    if np.any(shift < MIN_SHIFT):
        raise RuleError(
            f"a requantize by {float(real.max())!r} needs a shift below {MIN_SHIFT}, "
            "integer multipliers go up to 2^30",
            hint="a coarser output scale makes the factor smaller",
        )
    return mantissa, shift


def _shifted_product(value: Array, multiplier: Array, shift: Array, offset: Array) -> Integers:
    is_wide = value.size > 0 and max(-int(value.min()), int(value.max())) >= 1 << 31
    if not is_wide:
        narrow = value.astype(np.int64) * np.asarray(multiplier, np.int64)
        return np.asarray((narrow + offset) >> np.asarray(shift, np.int64))
    product = value.astype(object) * np.asarray(multiplier).astype(object)
    total = (product + np.asarray(offset).astype(object)) >> np.asarray(shift).astype(object)
    return np.asarray(np.clip(total, -(1 << 62), 1 << 62), np.int64)


def _single(terms: Sequence[Term], headroom: int) -> Integers:
    return _folded(terms, headroom, apply_scale)


def _double(terms: Sequence[Term], headroom: int) -> Integers:
    return _folded(terms, headroom, apply_scale_double)


def _folded(
    terms: Sequence[Term], headroom: int, apply: Callable[[Array, Array, Array], Integers]
) -> Integers:
    """TOSA: the inputs get headroom (their left shift is folded into the shift), then the output."""
    if len(terms) == 1:
        return apply(terms[0][0], *multiplier_and_shift(_reals(terms[0][1])))
    twice = _twice_largest(terms)
    total = np.zeros((), np.int64)
    for integers, ratio in terms:
        multiplier, shift = multiplier_and_shift(_reals(ratio / twice))
        total = total + apply(integers, multiplier, shift - headroom)
    return apply(total, *multiplier_and_shift(float(twice / (1 << headroom))))


def _gemmlowp(terms: Sequence[Term], headroom: int) -> Integers:
    """TFLite: the same with the inputs really shifted left."""
    if len(terms) == 1:
        return apply_scale_double(terms[0][0], *multiplier_or_zero(_reals(terms[0][1])))
    twice = _twice_largest(terms)
    total = np.zeros((), np.int64)
    for integers, ratio in terms:
        shifted = integers.astype(np.int64) << headroom
        total = total + apply_scale_double(shifted, *multiplier_or_zero(_reals(ratio / twice)))
    return apply_scale_double(total, *multiplier_or_zero(float(twice / (1 << headroom))))


def _twice_largest(terms: Sequence[Term]) -> Fraction:
    return max(Fraction(abs(number)) for _, ratio in terms for number in ratio.flat) * 2


def _reals(ratio: Array) -> npt.NDArray[np.float64]:
    return np.asarray(ratio, object).astype(np.float64)


def _power_of_two(terms: Sequence[Term], _headroom: int) -> Integers:
    """One arithmetic shift, half up; terms of an addition are aligned first, without a loss."""
    exponents = [np.vectorize(_exponent, otypes=[np.int64])(ratio) for _, ratio in terms]
    least = min(0, *(int(exponent.min()) for exponent in exponents))
    total = np.zeros((), np.int64)
    for (integers, _), exponent in zip(terms, exponents, strict=True):
        total = total + (integers.astype(np.int64) << (exponent - least))
    return total if least == 0 else np.asarray((total + (1 << (-least - 1))) >> -least)


def _exponent(ratio: Fraction) -> int:
    parts = (ratio.numerator, ratio.denominator)
    if any(part & (part - 1) for part in parts):
        raise RuleError(
            f"a requantize by {float(ratio)!r} is no shift, power_of_two arithmetic takes only 2^n",
            hint="give the row's ports power_of_two scales",
        )
    return parts[0].bit_length() - parts[1].bit_length()


def _exact_even(terms: Sequence[Term], _headroom: int) -> Integers:
    """Float64, and Fractions for the few sums that lie too near to a tie to trust it."""
    approximate, reach = np.zeros(()), np.zeros(())
    for integers, ratio in terms:
        part = integers.astype(np.float64) * _reals(ratio)
        approximate, reach = approximate + part, reach + np.abs(part)
    rounded = np.clip(np.rint(approximate), -_LIMIT, _LIMIT).astype(np.int64)
    if all(_is_dyadic(ratio) for _, ratio in terms):
        return rounded
    to_tie = np.abs(approximate - np.floor(approximate) - 0.5)
    doubtful = np.flatnonzero(to_tie <= reach * 2.0**-48)
    parts = [(np.broadcast_to(n, rounded.shape), np.broadcast_to(r, rounded.shape)) for n, r in terms]
    flat = rounded.reshape(-1)
    for i in doubtful.tolist():
        flat[i] = round(sum((int(n.flat[i]) * r.flat[i] for n, r in parts), Fraction(0)))
    return flat.reshape(rounded.shape)


def _is_dyadic(ratio: Array) -> bool:
    """Whether float64 is exact anyway: each ratio is a power of two."""
    return all((number.numerator * number.denominator).bit_count() == 1 for number in ratio.flat)


ARITHMETICS: Final[Mapping[str, Callable[[Sequence[Term], int], Integers]]] = {
    "exact_even": _exact_even,
    "gemmlowp": _gemmlowp,
    "power_of_two": _power_of_two,
    "tosa_double": _double,
    "tosa_single": _single,
}
