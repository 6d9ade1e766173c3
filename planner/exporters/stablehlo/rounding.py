"""Rounding: a sum of scaled integers rounded half to even, exactly, in 64-bit integer operations.

The scales are float32, so each ratio is a fraction P / Q with one Q for all. A multiplication and a shift
give a quotient q that is at most one off; the remainder `v P - q Q` says which way. Products wrap around
2^64, and the remainder, smaller than Q, does not: that makes it exact for every v. Where Q does not fit in 64
bits the remainder is kept in two limbs. Source: design 01, section 8, `exact_even`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.exporters.stablehlo.operations import binary, broadcast, clamp, compare, convert
from planner.exporters.stablehlo.program import Array, Program
from planner.exporters.stablehlo.tensors import Tensor

_SUM_BITS: Final = 61
_MAX_SHIFT: Final = 62
_LIMB_BITS: Final = 30
_ONE_LIMB: Final = 1 << 62
_TWO_LIMBS: Final = 1 << 90
_WORD: Final = 1 << 64


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Integers and what one of them is worth in steps of the result.

    Attributes:
      tensor: integers of any width.
      ratio: Fractions, of a shape that broadcasts to the tensor's.
      reach: the largest magnitude of the integers.
    """

    tensor: Tensor
    ratio: Array
    reach: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Where results go: ends and zero point in stored units, element type."""

    low: int
    high: int
    zero_point: int
    element: str


def rounded(p: Program, terms: Sequence[Term], grid: Grid, added: Array | None = None) -> Tensor:
    """Stored integers: the sum, rounded half to even, plus the zero point, between the ends.

    Args:
      terms: of one shape.
      added: Fractions in steps of the result, added to the sum; of a shape that broadcasts.

    Raises:
      UnsupportedExport: ratios so fine or so coarse that 64 bits do not hold the sum.
    """
    shape = terms[0].tensor.shape
    values = [convert(p, term.tensor, "i64") for term in terms]
    ratios = [term.ratio for term in terms]
    reaches = [np.asarray(term.reach, object) for term in terms]
    if added is not None:
        values.append(_spread(p, np.asarray(1, np.int64), shape))
        ratios.append(added)
        reaches.append(np.asarray(1, object))
    q_scale = _common_denominator(ratios)
    low, high = grid.low - grid.zero_point, grid.high - grid.zero_point
    if q_scale == 1:
        return _placed(p, _dot(p, values, [_integers(ratio) for ratio in ratios]), grid)
    if len(values) == 1:
        levels = max(abs(low), abs(high)) + 2
        values[0], reaches[0] = _narrowed(p, values[0], ratios[0], terms[0].reach, levels)
    quotient = _quotient(p, values, ratios, reaches)
    near = clamp(p, _number(p, low - 1), quotient, _number(p, high + 1))
    tops = [np.asarray(ratio * q_scale, object) for ratio in ratios]
    has_ties = q_scale % 2 == 0 and _may_tie(ratios, reaches)
    ends = _ends(p, values, tops, near, q_scale, has_ties=has_ties)
    raised = binary(p, "add", near, convert(p, ends[0], "i64"))
    return _placed(p, binary(p, "subtract", raised, convert(p, ends[1], "i64")), grid)


def _narrowed(p: Program, value: Tensor, ratio: Array, reach: int, levels: int) -> tuple[Tensor, Array]:
    """Integers cut to what the result can tell apart, where their products would not fit; their reaches."""
    bits = math.ceil(reach * max(ratio.flat)).bit_length() + reach.bit_length()
    if bits < _SUM_BITS - 2 and reach < 1 << 32:
        return value, np.asarray(reach, object)
    bounds = np.asarray([min(reach, math.ceil(levels / item)) for item in ratio.flat], object).reshape(
        ratio.shape
    )
    high, low = (_spread(p, _integers(end), value.shape) for end in (bounds, -bounds))
    return binary(p, "maximum", low, binary(p, "minimum", value, high)), bounds


def _quotient(p: Program, values: list[Tensor], ratios: list[Array], reaches: list[Array]) -> Tensor:
    """At most three quarters from the exact sum."""
    pairs = zip(reaches, ratios, strict=True)
    sums = [np.asarray(reach * ratio, object) for reach, ratio in pairs]
    most = sum(max(math.ceil(abs(item)) for item in total.flat) for total in sums)
    widest = sum(max(reach.flat) for reach in reaches)
    shift = min(_SUM_BITS - most.bit_length(), _MAX_SHIFT)
    if shift < 1 or widest >= 1 << (shift - 1):
        raise UnsupportedExport(
            f"{p.place}: results up to {most} steps from integers up to {widest} do not fit in 64 bits",
            hint="use scales that are closer to each other",
        )
    factors = [np.asarray([round(item * (1 << shift)) for item in ratio.flat]) for ratio in ratios]
    shaped = [factor.reshape(ratio.shape) for factor, ratio in zip(factors, ratios, strict=True)]
    half = _spread(p, np.asarray(1 << shift - 1), values[0].shape)
    total = binary(p, "add", _dot(p, values, shaped), half)
    return binary(p, "shift_right_arithmetic", total, _number(p, shift))


def _ends(
    p: Program, values: list[Tensor], tops: list[Array], near: Tensor, q_scale: int, *, has_ties: bool
) -> tuple[Tensor, Tensor]:
    """Whether the remainder is above half of Q, and whether below minus half."""
    half = q_scale // 2
    odd = binary(p, "and", near, _number(p, 1)) if has_ties else None
    if q_scale < _ONE_LIMB:
        products = _dot(p, values, [_integers(top) for top in tops])
        rest = binary(p, "subtract", products, binary(p, "multiply", near, _number(p, q_scale)))
        up = rest if odd is None else binary(p, "add", rest, odd)
        down = rest if odd is None else binary(p, "subtract", rest, odd)
        return compare(p, up, _number(p, half), "GT"), compare(p, down, _number(p, -half), "LT")
    if q_scale >= _TWO_LIMBS:
        raise UnsupportedExport(
            f"{p.place}: its scales give steps of 1/{q_scale}, finer than 64-bit remainders tell apart",
            hint="use scales that are closer to each other",
        )
    mask = (1 << _LIMB_BITS) - 1
    lower = _dot(p, values, [_low_limb(top) for top in tops])
    lower = binary(p, "subtract", lower, binary(p, "multiply", near, _number(p, q_scale & mask)))
    upper = _dot(p, values, [_integers(_shifted(top)) for top in tops])
    upper = binary(p, "subtract", upper, binary(p, "multiply", near, _number(p, q_scale >> _LIMB_BITS)))
    up = _is_beyond(p, upper, lower if odd is None else binary(p, "add", lower, odd), half, "GT")
    down = _is_beyond(p, upper, lower if odd is None else binary(p, "subtract", lower, odd), -half, "LT")
    return up, down


def _is_beyond(p: Program, upper: Tensor, lower: Tensor, end: int, direction: str) -> Tensor:
    """Compare `upper * 2^30 + lower` with an end."""
    bits = _number(p, _LIMB_BITS)
    top = binary(p, "add", upper, binary(p, "shift_right_arithmetic", lower, bits))
    bottom = binary(p, "and", lower, _number(p, (1 << _LIMB_BITS) - 1))
    end_top, end_bottom = _number(p, end >> _LIMB_BITS), _number(p, end & ((1 << _LIMB_BITS) - 1))
    is_same = compare(p, top, end_top, "EQ")
    decided = binary(p, "and", is_same, compare(p, bottom, end_bottom, direction))
    return binary(p, "or", compare(p, top, end_top, direction), decided)


def _placed(p: Program, q: Tensor, grid: Grid) -> Tensor:
    """Moved by the zero point, between the ends, in its element type."""
    low, high = grid.low - grid.zero_point, grid.high - grid.zero_point
    cut = clamp(p, _number(p, low), q, _number(p, high))
    moved = binary(p, "add", cut, _number(p, grid.zero_point)) if grid.zero_point else cut
    return convert(p, moved, grid.element)


def _dot(p: Program, values: list[Tensor], factors: list[Array]) -> Tensor:
    parts = [
        value if np.all(factor == 1) else binary(p, "multiply", value, _spread(p, factor, value.shape))
        for value, factor in zip(values, factors, strict=True)
    ]
    total = parts[0]
    for item in parts[1:]:
        total = binary(p, "add", total, item)
    return total


def _common_denominator(ratios: Sequence[Array]) -> int:
    found = 1
    for ratio in ratios:
        for item in ratio.flat:
            found = math.lcm(found, Fraction(item).denominator)
    return found


def _may_tie(ratios: Sequence[Array], reaches: Sequence[Array]) -> bool:
    """Whether some integer gets half way between two results; a fraction needs a multiple of half its Q."""
    if len(ratios) > 1:
        return True
    halves = [
        Fraction(item).denominator // 2 for item in ratios[0].flat if Fraction(item).denominator % 2 == 0
    ]
    return any(half <= max(reaches[0].flat) for half in halves)


def _integers(array: Array) -> Array:
    """Whole numbers modulo 2^64 as int64."""
    wrapped = [(int(item) + _WORD // 2) % _WORD - _WORD // 2 for item in array.flat]
    return np.asarray(wrapped, np.int64).reshape(array.shape)


def _low_limb(array: Array) -> Array:
    mask = (1 << _LIMB_BITS) - 1
    return np.asarray([int(item) & mask for item in array.flat], np.int64).reshape(array.shape)


def _shifted(array: Array) -> Any:
    return np.asarray([int(item) >> _LIMB_BITS for item in array.flat], object).reshape(array.shape)


def _number(p: Program, value: int) -> Tensor:
    return p.constant(np.asarray(value, np.int64), "i64")


def _spread(p: Program, array: Array, shape: tuple[int, ...]) -> Tensor:
    """A constant broadcast to a shape: a number, a vector along one axis, or more."""
    if array.size == 1:
        return broadcast(p, p.constant(array.reshape(()), "i64"), shape, ())
    start = len(shape) - array.ndim
    axes = tuple(i for i, n in enumerate(array.shape) if n > 1)
    held = p.constant(array.reshape([array.shape[i] for i in axes]), "i64")
    return broadcast(p, held, shape, tuple(start + i for i in axes))
