"""Fixed point: sums of scaled integers, rounded once, by every arithmetic that is not `float32_even`.

`scaled_sum` takes integers and exact ratios and rounds as TOSA's RESCALE, TFLite's kernels, exact rational
arithmetic or a plain shift do (`ir.arithmetic` multiplies). Nothing here knows kernels, types or zero
points. Source: TOSA 1.0, RESCALE; TFLite's Add; docs/specification.md, section 8.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.arithmetic.multipliers import LITERT_16, Multiplier, multiplier_of
from planner.ir.arithmetic.rescaling import Integers, apply_scale_32, multiplier_and_shift, multiplier_or_zero

Array: TypeAlias = npt.NDArray[Any]
Term: TypeAlias = tuple[Array, Array]

HEADROOM: Final = 20
WORD_HEADROOM: Final = 15
_LIMIT: Final = float(1 << 62)
_LARGEST: Final = float(np.finfo(np.float32).max)


def ratios(numerators: Sequence[float], factor: float, divisor: float) -> Array:
    """Exact `numerator * factor / divisor`, one Fraction per numerator.

    Of a bias that is no number nothing is added, of an infinite one the largest float32.
    """
    rest = Fraction(factor) / Fraction(divisor)
    result = np.empty(len(numerators), object)
    finite = np.nan_to_num(np.asarray(numerators, np.float64), posinf=_LARGEST, neginf=-_LARGEST)
    result[:] = [Fraction(number) * rest for number in finite.tolist()]
    return result


def scaled_sum(terms: Sequence[Term], arithmetic: str, *, headroom: int = HEADROOM) -> Integers:
    """`sum of integers * ratio`, rounded by an arithmetic.

    Args:
      terms: (integers, exact ratios as Fractions) pairs that broadcast; more than one as in an addition.
      arithmetic: a key of `ARITHMETICS`, or the text of a `Multiplier`.
      headroom: bits that TOSA and TFLite give the terms of an addition below their last one.

    Raises:
      RuleError: a ratio this arithmetic cannot multiply by.
    """
    own = multiplier_of(arithmetic)
    return ARITHMETICS[arithmetic](terms, headroom) if own is None else _multiplied(terms, headroom, own)


def is_fixed_point(arithmetic: str) -> bool:
    """Whether an arithmetic is one of those here."""
    return arithmetic in ARITHMETICS or multiplier_of(arithmetic) is not None


def _single(terms: Sequence[Term], headroom: int) -> Integers:
    return _folded(terms, headroom, double_round=False)


def _double(terms: Sequence[Term], headroom: int) -> Integers:
    return _folded(terms, headroom, double_round=True)


def _folded(terms: Sequence[Term], headroom: int, *, double_round: bool) -> Integers:
    """TOSA: the inputs get headroom (their left shift is folded into the shift), then the output."""
    apply = partial(apply_scale_32, double_round=double_round)
    if len(terms) == 1:
        return apply(terms[0][0], *multiplier_and_shift(_reals(terms[0][1])))
    twice = _twice_largest(terms)
    total = np.zeros((), np.int64)
    for integers, ratio in terms:
        multiplier, shift = multiplier_and_shift(_reals(ratio / twice))
        total = total + apply(integers, multiplier, shift - headroom)
    return apply(total, *multiplier_and_shift(float(twice / (1 << headroom))))


def _gemmlowp(terms: Sequence[Term], headroom: int) -> Integers:
    return _shifted_left(terms, headroom, multiplier_or_zero, partial(apply_scale_32, double_round=True))


def _multiplied(terms: Sequence[Term], headroom: int, own: Multiplier) -> Integers:
    """The same with a device's multiplier, and with less headroom where its shifts end before."""
    least = own.headroom(float(_twice_largest(terms)), headroom) if len(terms) > 1 else headroom
    return _shifted_left(terms, least, own.factor, own.apply)


def _shifted_left(
    terms: Sequence[Term],
    headroom: int,
    factor: Callable[[Any], tuple[Integers, Integers]],
    apply: Callable[[Array, Array, Array], Integers],
) -> Integers:
    """TFLite: the same with the inputs really shifted left."""
    if len(terms) == 1:
        return apply(terms[0][0], *factor(_reals(terms[0][1])))
    twice = _twice_largest(terms)
    total = np.zeros((), np.int64)
    for integers, ratio in terms:
        shifted = integers.astype(np.int64) << headroom
        total = total + apply(shifted, *factor(_reals(ratio / twice)))
    return apply(total, *factor(float(twice / (1 << headroom))))


def _litert_16(terms: Sequence[Term], headroom: int) -> Integers:
    """LiteRT: sums of 16-bit products by a multiplier of 16 bits, once; additions as TFLite has them."""
    if len(terms) > 1:
        return _gemmlowp(terms, headroom)
    return _multiplied(terms, headroom, LITERT_16)


def _twice_largest(terms: Sequence[Term]) -> Fraction:
    return max(Fraction(abs(number)) for _, ratio in terms for number in ratio.flat) * 2


def _reals(ratio: Array) -> npt.NDArray[np.float64]:
    return np.asarray(ratio, object).astype(np.float64)


def _power_of_two(terms: Sequence[Term], _headroom: int) -> Integers:
    """One arithmetic shift, half up; terms of an addition are aligned first, without a loss.

    If a ratio is no shift (an average, a fixed type off the powers of two) the product is exact before.
    """
    if not all(is_shift(ratio) for _, ratio in terms):
        return _exact(terms, _half_up, lambda total: math.floor(total + Fraction(1, 2)))
    exponents = [np.vectorize(_exponent, otypes=[np.int64])(ratio) for _, ratio in terms]
    least = min(0, *(int(exponent.min()) for exponent in exponents))
    total = np.zeros((), np.int64)
    for (integers, _), exponent in zip(terms, exponents, strict=True):
        total = total + (integers.astype(np.int64) << (exponent - least))
    return total if least == 0 else np.asarray((total + (1 << (-least - 1))) >> -least)


def _exponent(ratio: Fraction) -> int:
    return ratio.numerator.bit_length() - ratio.denominator.bit_length()


def _half_up(reals: Array) -> Array:
    return np.floor(reals + 0.5)


def _exact_even(terms: Sequence[Term], _headroom: int) -> Integers:
    return _exact(terms, np.rint, round)


def _exact(
    terms: Sequence[Term], nearest: Callable[[Array], Array], nearest_exactly: Callable[[Fraction], int]
) -> Integers:
    """Float64, and Fractions for the few sums that lie too near to a tie to trust it."""
    approximate, reach = np.zeros(()), np.zeros(())
    for integers, ratio in terms:
        part = integers.astype(np.float64) * _reals(ratio)
        approximate, reach = approximate + part, reach + np.abs(part)
    rounded = np.clip(nearest(approximate), -_LIMIT, _LIMIT).astype(np.int64)
    if all(is_shift(ratio) for _, ratio in terms):
        return rounded
    to_tie = np.abs(approximate - np.floor(approximate) - 0.5)
    # Sums beyond the limit saturate whatever their last bits are.
    doubtful = np.flatnonzero((to_tie <= reach * 2.0**-48) & (np.abs(approximate) < _LIMIT))
    parts = [(np.broadcast_to(n, rounded.shape), np.broadcast_to(r, rounded.shape)) for n, r in terms]
    flat = rounded.reshape(-1)
    for i in doubtful.tolist():
        flat[i] = nearest_exactly(sum((int(n.flat[i]) * r.flat[i] for n, r in parts), Fraction(0)))
    return flat.reshape(rounded.shape)


def is_shift(ratio: Array) -> bool:
    """Whether each ratio is a power of two, which float64 multiplies by exactly."""
    return all((number.numerator * number.denominator).bit_count() == 1 for number in ratio.flat)


ARITHMETICS: Final[Mapping[str, Callable[[Sequence[Term], int], Integers]]] = {
    "exact_even": _exact_even,
    "gemmlowp": _gemmlowp,
    "litert": _gemmlowp,
    "litert_16": _litert_16,
    "power_of_two": _power_of_two,
    "tosa_double": _double,
    "tosa_single": _single,
}
