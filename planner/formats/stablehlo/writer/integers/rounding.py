"""Rounding: a sum of scaled integers rounded half to even, exactly, in 64-bit integer operations.

The scales are float32, so each ratio is a fraction P / Q with one Q for all. A multiplication and a shift
give a quotient q that is at most one off; the remainder `v P - q Q` says which way. Products wrap around
2^64, and the remainder, smaller than Q, does not: that makes it exact for every v. The remainder is kept in
two limbs where Q does not fit in 64 bits. Source: docs/specification.md, section 8, `exact_even`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.operations import binary, broadcast, clamp, compare, convert
from planner.formats.stablehlo.writer.tensors import Tensor

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
    """The grid of results: ends and zero point in stored units, element type."""

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
    values = [convert(p, term.tensor, "i64") for term in terms]
    # Of integers that are all 0 (weights below half a step) the factor says nothing, and may be any.
    ratios = [np.where(np.any(term.reach), term.ratio, _full(0)) for term in terms]
    reaches = [term.reach for term in terms]
    if added is not None:
        values.append(_spread(p, np.asarray(1, np.int64), terms[0].tensor.shape))
        ratios.append(added)
        reaches.append(1)
    whole = math.lcm(*(item.denominator for ratio in ratios for item in ratio.flat))
    tops = [_counted(ratio, whole) for ratio in ratios]
    if whole == 1:
        return _placed(p, _dot(p, values, [_integers(top) for top in tops]), grid)
    low, high = grid.low - grid.zero_point, grid.high - grid.zero_point
    parts = [_Part(value, top, _full(reach)) for value, top, reach in zip(values, tops, reaches, strict=True)]
    has_ties = whole % 2 == 0 and (len(parts) > 1 or _may_tie(ratios[0], reaches[0]))
    if len(parts) == 1:
        parts = [_narrowed(p, parts[0], whole, max(abs(low), abs(high)) + 2)]
    # The quotient is at most three quarters off, so the result is it or a neighbour: the remainder says.
    quotient = _quotient(p, parts, whole)
    near = clamp(p, _number(p, low - 1), quotient, _number(p, high + 1))
    ends = _ends(p, parts, near, whole, has_ties=has_ties)
    raised = binary(p, "add", near, convert(p, ends[0], "i64"))
    return _placed(p, binary(p, "subtract", raised, convert(p, ends[1], "i64")), grid)


def fits(terms: Sequence[Term]) -> bool:
    """Whether 64 bits hold the sum of per-tensor terms, so that `rounded` does not refuse it."""
    ratios = [term.ratio for term in terms]
    whole = math.lcm(*(item.denominator for ratio in ratios for item in ratio.flat))
    if whole >= _TWO_LIMBS:
        return False
    tops, reaches = [_counted(ratio, whole) for ratio in ratios], [_full(term.reach) for term in terms]
    return _shift_of(tops, reaches, whole)[0] > 0


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """64-bit integers, what one is worth in 1/Q, and their largest magnitudes; the latter two as Python's."""

    value: Tensor
    top: Array
    reach: Array


def _counted(ratio: Array, whole: int) -> Array:
    """Fractions as whole numbers of `1 / whole`."""
    items = [item.numerator * (whole // item.denominator) for item in ratio.flat]
    return _full(items).reshape(ratio.shape)


def _full(items: Array | int | list[int]) -> Array:
    return np.asarray(items, object)


def _narrowed(p: Program, part: _Part, whole: int, levels: int) -> _Part:
    """Integers cut to what the result can tell apart, where their products would not fit."""
    reach, most = int(part.reach), max(part.top.flat)
    if (reach * most // whole + 1).bit_length() + reach.bit_length() < _SUM_BITS - 2 and reach < 1 << 32:
        return part
    ends = [min(reach, levels * whole // item + 1) for item in part.top.flat]
    bounds = _full(ends).reshape(part.top.shape)
    high, low = (_spread(p, _integers(end), part.value.shape) for end in (bounds, _full(-bounds)))
    return _Part(binary(p, "maximum", low, binary(p, "minimum", part.value, high)), part.top, bounds)


def _shift_of(tops: Sequence[Array], reaches: Sequence[Array], whole: int) -> tuple[int, int, int]:
    """Bits to shift by, 0 where none do, the largest sum in steps, and the largest sum of the integers."""
    pairs = zip(tops, reaches, strict=True)
    most = sum(int(np.max(np.abs(_full(reach * top)))) // whole + 1 for top, reach in pairs)
    widest = sum(int(np.max(reach)) for reach in reaches)
    shift = min(_SUM_BITS - most.bit_length(), _MAX_SHIFT)
    return (shift if shift > 0 and widest < 1 << shift - 1 else 0), most, widest


def _quotient(p: Program, parts: list[_Part], whole: int) -> Tensor:
    """At most three quarters from the exact sum."""
    shift, most, widest = _shift_of([part.top for part in parts], [part.reach for part in parts], whole)
    if not shift:
        raise UnsupportedExport(
            f"{p.place}: results up to {most} steps from integers up to {widest} do not fit in 64 bits",
            hint="use scales that are closer to each other",
        )
    factors = [_full((part.top * (1 << shift + 1) + whole) // (2 * whole)).astype(np.int64) for part in parts]
    half = _spread(p, np.asarray(1 << shift - 1), parts[0].value.shape)
    total = binary(p, "add", _dot(p, [part.value for part in parts], factors), half)
    return binary(p, "shift_right_arithmetic", total, _number(p, shift))


def _ends(
    p: Program, parts: list[_Part], near: Tensor, q_scale: int, *, has_ties: bool
) -> tuple[Tensor, Tensor]:
    """Whether the remainder is above half of Q, and whether below minus half."""
    values, tops = [part.value for part in parts], [part.top for part in parts]
    half = q_scale // 2
    # A tie goes to the even neighbour: an odd result gets 1 more on the side that leaves it. Remainders are
    # whole numbers, so 1 decides ties and nothing else.
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
    # The remainder may need 90 bits: two limbs, each a difference of products. Products may wrap around 2^64;
    # their differences are small, so the wrapping cancels.
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


def _may_tie(ratio: Array, reach: int) -> bool:
    """Whether some integer gets half way between two results: it is a multiple of half its fraction's Q."""
    return any(item.denominator % 2 == 0 and item.denominator // 2 <= reach for item in ratio.flat)


def _integers(array: Array) -> Array:
    """Whole numbers modulo 2^64 as int64."""
    wrapped = [(int(item) + _WORD // 2) % _WORD - _WORD // 2 for item in array.flat]
    return np.asarray(wrapped, np.int64).reshape(array.shape)


def _low_limb(array: Array) -> Array:
    return _full(array & ((1 << _LIMB_BITS) - 1)).astype(np.int64)


def _shifted(array: Array) -> Array:
    return _full(array >> _LIMB_BITS)


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
