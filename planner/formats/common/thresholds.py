"""Thresholds: a rounding as the least integers that reach each level, and as one multiply, add and shift.

A requantize in any arithmetic is a monotone function of its accumulator, so the least accumulator of each
level says all of it. `fit` looks for integers with `(v * multiplier + offset) >> shift` of the same
thresholds, which proves it equal for every accumulator; where none exist it gives the thresholds
themselves, next to a guess that is at most one too low. No graph, no ONNX.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Reals: TypeAlias = npt.NDArray[np.float64]
Levels: TypeAlias = Callable[[Integers], npt.NDArray[Any]]

NEVER: Final = (1 << 62) - 1
# onnxruntime 1.31 clips an int64 of 2^31 and more to the lower end: quotients stay below.
_CLIPPED: Final = 1 << 30
PAIR_REACH: Final = 1 << 9  # no byte less its zero point is further out
_MULTIPLIER_BITS: Final = (31, 48)
_PRODUCT_BITS: Final = 60
_SEARCH_STEPS: Final = 80
_PAIR_SHIFT: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """`q = clip((v * multiplier + offset) >> shift, 0, levels)`, one row of parameters per channel.

    Attributes:
      multiplier, offset, shift: (C,), non-negative multipliers and shifts.
      table: (R, levels + 1): q is one more where v reaches `table[rows[c], q]`; None: q is right as it is.
      rows: (C,).
      sign: (C,): added to the product where v is not negative, subtracted where it is.
      reach: (C,): the largest magnitude of v.
    """

    multiplier: Integers
    offset: Integers
    shift: Integers
    levels: int
    table: Integers | None
    rows: Integers
    sign: Integers
    reach: Integers

    def of(self, v: Integers) -> Integers:
        """The levels of (C, n) integers."""
        q = self._affine(v)
        if self.table is None:
            return q
        return q + (v >= self.table[self.rows[:, None], q])

    def _affine(self, v: Integers) -> Integers:
        signed = v * self.multiplier[:, None] + np.where(v >= 0, self.sign[:, None], -self.sign[:, None])
        return np.asarray(np.clip((signed + self.offset[:, None]) >> self.shift[:, None], 0, self.levels))


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """The least integer of [low, high] that reaches each level above 0; `high + 1` where none does.

    Attributes:
      least: (C, count), ascending along levels.
      low, high: (C,).
    """

    least: Integers
    low: Integers
    high: Integers

    @property
    def reach(self) -> Integers:
        """The largest magnitude, per channel."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def count(self) -> int:
        """Levels above 0."""
        return int(self.least.shape[1])


def least_arguments(levels_of: Levels, low: Integers, high: Integers, count: int) -> Thresholds:
    """Thresholds of a monotone function from (C, n) integers to their levels, 0 to `count`.

    Args:
      low, high: (C,), the range to look at.
    """
    wanted = np.arange(1, count + 1)
    first = np.repeat(low[:, None], count, axis=1)
    last = np.repeat(high[:, None] + 1, count, axis=1)
    # One bisection for all channels and levels at once: log2 of the widest range steps.
    while np.any(first < last):
        middle = (first + last) >> 1
        reached = levels_of(np.minimum(middle, high[:, None])) >= wanted
        reached |= middle > high[:, None]
        first, last = np.where(reached, first, middle + 1), np.where(reached, middle, last)
    return Thresholds(first, low, high)


def least_floats(levels_of: Callable[[Any], npt.NDArray[Any]], levels: int) -> npt.NDArray[np.float32]:
    """The least float32 that reaches each level above 0, of a monotone function of one float; `(levels,)`."""

    def of_keys(keys: Integers) -> npt.NDArray[Any]:
        return levels_of(_float_of(keys[0]))[None]

    end = np.asarray([_key_of_largest()])
    return _float_of(least_arguments(of_keys, -end, end, levels).least[0])


def steps_of(
    levels: Thresholds, multiplier: Integers, offset: Integers, shift: Integers, sign: Integers
) -> Steps:
    """Steps without a table, one row of numbers per channel."""
    rows = np.zeros(len(multiplier), np.int64)
    return Steps(multiplier, offset, shift, levels.count, None, rows, sign, levels.reach)


def fit(levels: Thresholds, slope: Reals, known: Steps | None = None) -> Steps | None:
    """Steps with these thresholds for every integer of their range.

    Args:
      levels: what to reach.
      slope: (C,), about how many levels one integer is worth; positive.
      known: steps to take where they are right.

    Returns:
      None where 64 bits hold no such multiplication.
    """
    best = _affine_fit(levels, slope, known)
    poor = np.flatnonzero(~is_exact(best, levels))
    if not poor.size:
        return best
    guess = _guess(levels, slope)
    picked = _picked(best, guess, is_exact(best, levels))
    rows = picked.rows.copy()
    rows[poor] = np.arange(1, poor.size + 1)
    table = np.full((poor.size + 1, levels.count + 1), NEVER)
    least = levels.least[poor]
    table[1:, : levels.count] = np.where(least > levels.high[poor, None], NEVER, least)
    whole = replace(picked, table=table, rows=rows)
    return whole if np.all(is_exact(whole, levels)) else None


def is_exact(steps: Steps, levels: Thresholds) -> npt.NDArray[np.bool_]:
    """Per channel, whether the steps reach every level where they should: monotone, so nowhere else."""
    low, high, least = levels.low[:, None], levels.high[:, None], levels.least
    wanted = np.arange(1, levels.count + 1)
    # Both functions never fall, so they agree everywhere if each level is reached at its threshold and not
    # one integer earlier. Levels that no integer of the range reaches are seen at the two ends below.
    is_inside = (least > low) & (least <= high)
    at, before = steps.of(np.where(is_inside, least, low)), steps.of(np.where(is_inside, least - 1, low))
    result = np.all(~is_inside | ((at >= wanted) & (before < wanted)), axis=1)
    for end in (low, high):
        result &= steps.of(end)[:, 0] == np.sum(least <= end, axis=1)
    largest = steps.reach * steps.multiplier + np.abs(steps.offset) + steps.sign
    return np.asarray(result & (np.right_shift(largest, steps.shift) < _CLIPPED))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """`clip((a * multipliers[0] + b * multipliers[1] + offset) >> shift, 0, levels)`."""

    multipliers: tuple[int, int]
    offset: int
    shift: int


def fit_pairs(
    levels: Integers, a: Integers, b: Integers, slopes: tuple[float, float], top: int
) -> Pairs | None:
    """A sum of two scaled integers that gives these levels for every pair, proved by trying all.

    Args:
      levels: (A, B), 0 to `top`.
      a, b: the integers of each side, zero points gone.
      slopes: levels one step of each side is worth.
    """
    one, two = (round(slope * (1 << _PAIR_SHIFT)) for slope in slopes)
    # The sum is lifted above zero before it is divided: twice its reach has to fit.
    room = (1 << _PRODUCT_BITS - 1) - PAIR_REACH * (abs(one) + abs(two))
    if room < 0:
        return None
    total = a[:, None] * one + b[None, :] * two
    # A pair of level q needs total + offset in [q, q + 1) << shift: each pair bounds the offset from below
    # and from above, and any number between all bounds is right. The ends, cut by the clip, bound one side.
    least = np.where(levels > 0, (levels << _PAIR_SHIFT) - total, np.iinfo(np.int64).min).max()
    most = np.where(levels < top, ((levels + 1) << _PAIR_SHIFT) - total, np.iinfo(np.int64).max).min()
    if least >= most:
        return None
    offset = int(least) + (int(most) - int(least)) // 2
    if abs(offset) > room:
        return None
    is_right = np.array_equal(np.clip((total + offset) >> _PAIR_SHIFT, 0, top), levels)
    return Pairs((one, two), offset, _PAIR_SHIFT) if is_right else None


def _affine_fit(levels: Thresholds, slope: Reals, known: Steps | None) -> Steps:
    """The slope as given, then the one that leaves most room; 31 bits, then as many as there are."""
    found = _rounded(levels, slope, _MULTIPLIER_BITS[0])
    if known is not None:
        safe = _within_64_bits(known, found)
        found = _picked(safe, found, is_exact(safe, levels))
    for is_moved, bits in ((False, _MULTIPLIER_BITS[1]), *((True, bits) for bits in _MULTIPLIER_BITS)):
        is_right = is_exact(found, levels)
        if np.all(is_right):
            break
        moved = _roomiest(levels, slope) if is_moved else slope
        found = _picked(found, _rounded(levels, moved, bits), is_right)
    return found


def _within_64_bits(steps: Steps, other: Steps) -> Steps:
    """Steps whose sums could overflow replaced by others."""
    sums = steps.reach.astype(np.float64) * steps.multiplier + np.abs(steps.offset).astype(np.float64)
    return _picked(steps, other, sums + np.ldexp(1.0, steps.shift) < 2.0**_PRODUCT_BITS)


def _picked(one: Steps, two: Steps, is_one: npt.NDArray[np.bool_]) -> Steps:
    """Channels of one where it is right, else of the other."""
    return replace(
        one,
        multiplier=np.where(is_one, one.multiplier, two.multiplier),
        offset=np.where(is_one, one.offset, two.offset),
        shift=np.where(is_one, one.shift, two.shift),
        sign=np.where(is_one, one.sign, two.sign),
    )


def _rounded(levels: Thresholds, slope: Reals, bits: int, lead: float = 0.0) -> Steps:
    """Integers for a slope, the offset in the middle of its room, less a lead."""
    shift = _shift_for(levels, slope, bits)
    # A slope beyond all levels saturates at the first step, and so does the largest one that fits.
    most = np.minimum(2.0 ** _MULTIPLIER_BITS[1], np.floor(2.0 ** (_PRODUCT_BITS - 1) / (levels.reach + 1.0)))
    multiplier = np.clip(np.rint(np.ldexp(slope, shift)), 1, most).astype(np.int64)
    # The room is computed for the rounded multiplier, not for the slope: its error is paid by the offset.
    least, most = _room(levels, np.ldexp(multiplier.astype(np.float64), -shift))
    alone = np.where(np.isfinite(least), least + 0.5, np.where(np.isfinite(most), most - 0.5, 0.0))
    middle = np.where(np.isfinite(least) & np.isfinite(most), least / 2 + most / 2, alone) - lead
    offset = np.floor(np.ldexp(middle, shift)).astype(np.int64)
    return steps_of(levels, multiplier, offset, shift, np.zeros_like(offset))


def _guess(levels: Thresholds, slope: Reals) -> Steps:
    """Integers that give the level or one less."""
    return _rounded(levels, slope, _MULTIPLIER_BITS[0], lead=0.5)


def _shift_for(levels: Thresholds, slope: Reals, bits: int) -> Integers:
    """Shifts that give multipliers of `bits` bits whose products stay within 64."""
    exponent = np.frexp(slope)[1].astype(np.int64)
    reach = np.frexp(np.maximum(slope * (levels.reach + 1), levels.count + 1))[1].astype(np.int64)
    room = np.minimum(bits - exponent, _PRODUCT_BITS - 1 - reach)
    return np.asarray(np.clip(room, 0, _PRODUCT_BITS - 10))


def _room(levels: Thresholds, slope: Reals) -> tuple[Reals, Reals]:
    """The offsets, from least up to but not including most, that put every threshold where it is."""
    low, high, t = levels.low, levels.high, levels.least
    is_inside = (t > low[:, None]) & (t <= high[:, None])
    # Level n is reached at t and not at t - 1: n - slope * t <= offset < n - slope * (t - 1).
    at = np.arange(1.0, levels.count + 1) - slope[:, None] * t
    least = np.where(is_inside, at, -np.inf).max(axis=1, initial=-np.inf)
    most = np.where(is_inside, at + slope[:, None], np.inf).min(axis=1, initial=np.inf)
    first, last = np.sum(t <= low[:, None], axis=1), np.sum(t <= high[:, None], axis=1)
    least = np.maximum(least, np.where(first > 0, first - slope * low, -np.inf))
    most = np.minimum(most, np.where(last < levels.count, last + 1 - slope * high, np.inf))
    return least, most


def _roomiest(levels: Thresholds, slope: Reals) -> Reals:
    """The slope near the given one with the widest room; the width is concave in the slope."""
    left, right = slope * (1 - 2.0**-8), slope * (1 + 2.0**-8)
    # Ternary search: of a concave function the third beyond the lower inner point has not the maximum.
    for _ in range(_SEARCH_STEPS):
        third = (right - left) / 3
        one, two = left + third, right - third
        widths = [most - least for least, most in (_room(levels, a) for a in (one, two))]
        is_left = widths[0] >= widths[1]
        left, right = np.where(is_left, left, one), np.where(is_left, two, right)
    return np.asarray((left + right) / 2)


def _key_of_largest() -> int:
    return int(np.float32(np.finfo(np.float32).max).view(np.int32))


def _float_of(keys: Integers) -> npt.NDArray[np.float32]:
    """The float32 of an order-preserving integer key."""
    # The bits of positive floats, read as integers, ascend as the floats do.
    magnitude = np.abs(keys).astype(np.int32).view(np.float32)
    return np.where(keys < 0, -magnitude, magnitude).astype(np.float32)
