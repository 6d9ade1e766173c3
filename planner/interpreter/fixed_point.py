"""Fixed point: sums of scaled integers, rounded once, by every arithmetic that is not `float32_even`.

`scaled_sum` takes integers and exact ratios and rounds as TOSA's RESCALE, TFLite's kernels, exact rational
arithmetic or a plain shift do; multipliers are `ir.arithmetic`'s. Nothing here knows kernels, types or zero
points. Source: TOSA 1.0, RESCALE; TFLite's Add; docs/specification.md, section 8.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.arithmetic.multipliers import NAMED, multiplier_of, scaling_of
from planner.ir.arithmetic.rescaling import Integers

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
      arithmetic: one of `ARITHMETICS`, or the text of a `Multiplier`.
      headroom: bits that TOSA and TFLite give the terms of an addition below their last one.

    Raises:
      RuleError: a ratio this arithmetic cannot multiply by.
    """
    exact = _EXACT.get(arithmetic)
    if exact is not None:
        return exact(terms)
    # LiteRT adds words of 16 bits as it adds bytes.
    own = scaling_of("gemmlowp" if arithmetic == "litert_16" and len(terms) > 1 else arithmetic)
    if own is None:
        raise KeyError(arithmetic)
    if len(terms) == 1:
        return own.apply(terms[0][0], *own.factor(_reals(terms[0][1])))
    twice = _twice_largest(terms)
    bits = own.headroom(float(twice), headroom)
    total = np.zeros((), np.int64)
    for integers, ratio in terms:
        multiplier, shift = own.factor(_reals(ratio / twice))
        if own.folds:
            total = total + own.apply(integers, multiplier, shift - bits)
        else:
            total = total + own.apply(integers.astype(np.int64) << bits, multiplier, shift)
    return own.apply(total, *own.factor(float(twice / (1 << bits))))


def is_fixed_point(arithmetic: str) -> bool:
    """Whether an arithmetic is one of those here."""
    return arithmetic in ARITHMETICS or multiplier_of(arithmetic) is not None


def _twice_largest(terms: Sequence[Term]) -> Fraction:
    return max(Fraction(abs(number)) for _, ratio in terms for number in ratio.flat) * 2


def _reals(ratio: Array) -> npt.NDArray[np.float64]:
    return np.asarray(ratio, object).astype(np.float64)


def _power_of_two(terms: Sequence[Term]) -> Integers:
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


def _exact_even(terms: Sequence[Term]) -> Integers:
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


_EXACT: Final[Mapping[str, Callable[[Sequence[Term]], Integers]]] = {
    "exact_even": _exact_even,
    "power_of_two": _power_of_two,
}
ARITHMETICS: Final = tuple(sorted({*_EXACT, *NAMED}))
