"""Parameters from a range: scale and zero point that hold the reals of [lo, hi]; and the ranges of types.

Ranges are widened to contain 0; a range of zero width gives scale 1.0, zero point 0. A scale is rounded to
a value of the expressed type, the zero point computed from that. Source: docs/specification.md, section 2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError
from planner.ir.types.intervals import ALL, Interval, cut_to
from planner.ir.types.many_numbers import compact
from planner.ir.types.qtypes import AtReaders, Calibrated, RowMax, Storage, Uniform, WidthRange
from planner.ir.types.scales import F32_TINY, FORMATS, HELD, TWO_STEPS, held_in, round_scale, round_scales

Reals = npt.NDArray[np.float64]
NEAR: Final = 1e-6
"""Share of a range that rounding in statistics may make of its ends."""
HALF: Final = 0.5 + 1e-4
"""Half a step, and what rounding a scale to float32 adds to it."""
NO_WIDTHS: Final[Mapping[int, Interval]] = {}


def uniform_from_range(
    lo: float,
    hi: float,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> Uniform:
    """Choose the per-tensor type whose range covers the reals [lo, hi].

    Raises:
      QTypeError: NaN, infinity, lo > hi, or a symmetric type on unsigned storage.
    """
    scale, zero_point = affine(
        lo, hi, store, symmetric=symmetric, power_of_two=power_of_two, expressed=expressed
    )
    return Uniform(store, (scale,), (zero_point,), expressed)


def affine(
    lo: float,
    hi: float,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> tuple[float, int]:
    """Scale (real) and zero point (stored units) for the reals [lo, hi]; see `uniform_from_range`."""
    check_range(lo, hi)
    # Zero must be exact: padding, Relu and absent elements are stored as the zero point (gemmlowp).
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if lo == hi:
        return 1.0, 0 if store.qmin <= 0 <= store.qmax else store.qmin
    exact = max(-lo, hi) / symmetric_steps(store) if symmetric else (hi - lo) / store.steps
    # A subnormal scale loses digits, and engines that flush subnormals would divide by 0.
    exact = max(exact, FORMATS[expressed].tiny)
    if power_of_two and math.isfinite(exact):
        exact = power_of_two_from(exact)  # a smaller scale would clip
    if not math.isfinite(exact):
        raise QTypeError(f"range {lo}:{hi} needs a scale beyond {expressed}")
    # Rounded first: a zero point of the exact scale could be off by one for the scale that kernels use.
    scale = round_scale(exact, expressed)
    if symmetric:
        return scale, 0
    # Python rounds half to even, as the formula asks.
    zero_point = round(store.qmin - lo / scale)
    return scale, min(max(zero_point, store.qmin), store.qmax)


def power_of_two_from(scale: float) -> float:
    """The least power of two that is no smaller than a positive scale."""
    fraction, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - (fraction == 0.5))


def power_of_two_to(scale: float) -> float:
    """The greatest power of two that is no greater than a positive scale."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1)


def around(kind: Uniform, zero: int) -> Uniform:
    """A type of the same reals around one zero point, in the fewest bits: u4 around 3 is i5 around 0.

    The type itself where that is its zero point, and a float storage, which has none.
    """
    if kind.storage.float_name or set(kind.zero_points) == {zero}:
        return kind
    ends = np.asarray(kind.slice_ranges) - np.asarray(kind.zero_points)[:, None] + zero
    low, high = int(ends.min()), int(ends.max())
    signed = low < 0
    bits = max(high.bit_length(), (-low - 1).bit_length() if signed else 0) + signed
    zeros = (zero,) * len(kind.scales)
    return replace(kind, storage=Storage(bits, signed, low, high), zero_points=zeros, ranges=())


def uniform_per_axis(
    los: Reals,
    his: Reals,
    store: Storage,
    axis: int,
    *,
    symmetric: bool = True,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> Uniform:
    """Choose the type along an axis from the range of each slice; symmetric, as weights are, by default.

    Args:
      los: smallest reals, (n_slices,).
      his: largest reals, (n_slices,).
      store: storage of the stored integers.
      axis: the quantized dimension.
      symmetric: zero points 0.
      power_of_two: scales rounded up to powers of two.
      expressed: the type whose values the scales are.

    Raises:
      QTypeError: NaN, infinity, a minimum above its maximum, or a symmetric type on unsigned storage.
    """
    scales, zeros = _affine_slices(
        los, his, store, symmetric=symmetric, power_of_two=power_of_two, expressed=expressed
    )
    return Uniform(store, scales, zeros, expressed, axis)


def uniform_columns(
    los: Reals,
    his: Reals,
    store: Storage,
    *,
    symmetric: bool = True,
    power_of_two: bool = False,
    held: str = "f32",
) -> Uniform:
    """Return the types of `uniform_per_axis` along axis 0 with scales in f32, values of `held`, as arrays."""
    low, high = np.asarray(los, np.float64), np.asarray(his, np.float64)
    _check_ranges(low, high)
    scales, zeros = affine_columns(
        low, high, store, symmetric=symmetric, power_of_two=power_of_two, held=held
    )
    return Uniform(store, *compact(scales, zeros), "f32", 0)


def uniform_per_block(
    los: Reals,
    his: Reals,
    store: Storage,
    blocks: Mapping[int, int],
    *,
    symmetric: bool = True,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> Uniform:
    """Choose the sub-channel type from the range of each block; see `uniform_per_axis`.

    Args:
      los: smallest reals; their shape is the grid of blocks, one entry per dimension of the tensor.
      his: largest reals, of the same shape.
      store: storage of the stored integers.
      blocks: axis -> block size; an axis not named is one block.
      symmetric: zero points 0.
      power_of_two: scales rounded up to powers of two.
      expressed: the type whose values the scales are.
    """
    scales, zeros = _affine_slices(
        np.ravel(los),
        np.ravel(his),
        store,
        symmetric=symmetric,
        power_of_two=power_of_two,
        expressed=expressed,
    )
    return Uniform(store, scales, zeros, expressed, None, tuple(sorted(blocks.items())), np.shape(los))


def _affine_slices(
    los: Reals,
    his: Reals,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """`affine` of each slice, at once, of any storage and expressed type."""
    low, high = np.asarray(los, np.float64), np.asarray(his, np.float64)
    _check_ranges(low, high)
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    tiny = FORMATS[expressed].tiny
    exact = _exact_scales(low, high, store, tiny, symmetric=symmetric, power_of_two=power_of_two)
    scales = round_scales(exact.tolist(), expressed)
    if symmetric:
        return scales, (0,) * len(scales)
    middle = 0 if store.qmin <= 0 <= store.qmax else store.qmin
    # Python's integers: a zero point of a 64-bit storage is no double.
    zeros = (
        min(max(round(store.qmin - lo / scale), store.qmin), store.qmax) if lo < hi else middle
        for lo, hi, scale in zip(low.tolist(), high.tolist(), scales, strict=True)
    )
    return scales, tuple(zeros)


def affine_columns(
    los: Reals,
    his: Reals,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    held: str = "f32",
) -> tuple[Reals, npt.NDArray[np.int64]]:
    """`affine` of each range, as arrays: of storages of at most 32 bits, and ranges whose widths are f32.

    Args:
      held: what the scales are values of (`scales.HELD`).

    Raises:
      QTypeError: a scale beyond it.
    """
    low, high = np.minimum(los, 0.0), np.maximum(his, 0.0)
    tiny = F32_TINY if held == TWO_STEPS else HELD[held].tiny
    exact = _exact_scales(low, high, store, tiny, symmetric=symmetric, power_of_two=power_of_two)
    if held == TWO_STEPS and np.any(low < high):
        # A block of zeros has no say in the factor of all.
        exact = np.where(low < high, exact, exact[low < high].max())
    scales = held_in(exact, held)
    if symmetric:
        return scales, np.zeros(len(scales), np.int64)
    middle = 0 if store.qmin <= 0 <= store.qmax else store.qmin
    zeros = np.clip(np.rint(store.qmin - low / scales), store.qmin, store.qmax)
    return scales, np.where(low < high, zeros, middle).astype(np.int64)


def _exact_scales(
    low: Reals, high: Reals, store: Storage, tiny: float, *, symmetric: bool, power_of_two: bool
) -> Reals:
    """Scales before they are rounded to the expressed type, of ranges that contain 0."""
    with np.errstate(over="ignore"):
        exact = np.maximum(-low, high) / symmetric_steps(store) if symmetric else (high - low) / store.steps
    exact = np.where(low < high, np.maximum(exact, tiny), 1.0)
    if power_of_two:
        fraction, exponent = np.frexp(exact)
        exact = np.ldexp(1.0, exponent - (fraction == 0.5))
    return exact


def _check_ranges(los: Reals, his: Reals) -> None:
    off = np.flatnonzero(~(np.isfinite(los) & np.isfinite(his) & (los <= his)))
    if off.size:
        i = int(off[0])
        try:
            check_range(float(los[i]), float(his[i]))
        except QTypeError as error:
            raise QTypeError(f"slice {i}: {error.message}") from None


def symmetric_steps(store: Storage) -> int:
    """Steps from 0 to the nearer end of a storage.

    Raises:
      QTypeError: unsigned, or a range that does not reach both ways.
    """
    # The nearer end: `i8` has 127 steps on both sides, so -128 stays unused by content.
    steps = min(-store.qmin, store.qmax) if store.signed else 0
    if steps <= 0:
        raise QTypeError(f"a symmetric type needs signed storage around 0, {store} is not")
    return steps


def check_range(lo: float, hi: float) -> None:
    """Refuse an invalid range.

    Raises:
      QTypeError: NaN, infinity or lo > hi.
    """
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise QTypeError(f"range {lo}:{hi} must be finite")
    if lo > hi:
        raise QTypeError(f"range {lo}:{hi} has min > max")


def hull_of_observed(observed: Sequence[Calibrated]) -> Calibrated:
    """The range around ranges observed of what is one value, and the row maxima that hold for all of them."""
    if len(set(observed)) == 1:
        return observed[0]
    rows: dict[int, list[RowMax]] = {}
    for one in observed:
        for row in one.row_max:
            rows.setdefault(row.axis, []).append(row)
    joined = tuple(
        RowMax(
            axis,
            min(row.least for row in seen),
            max((row.entries for row in seen if row.entries is not None), default=None),
        )
        for axis, seen in sorted(rows.items())
        if len(seen) == len(observed)
    )
    lo, hi = min(one.lo for one in observed), max(one.hi for one in observed)
    two_values = all(one.two_values and (one.lo, one.hi) == (lo, hi) for one in observed)
    widths = tuple(
        WidthRange(bits, min(one.at(bits)[0] for one in observed), max(one.at(bits)[1] for one in observed))
        for bits in sorted({width.bits for one in observed for width in one.widths})
    )
    told = [at for one in observed for at in one.readers]
    readers = tuple(
        AtReaders(bits, min(at.db for at in told if at.bits == bits))
        for bits in sorted({at.bits for at in told})
    )
    return Calibrated((lo,), (hi,), observed[0].expressed, None, joined, two_values, widths, readers)


def range_of_type(kind: Uniform, seen: Interval | None) -> Interval:
    """The range of a fixed type, with the ends of what was seen that lie within half a step of its own.

    Rounding the zero point moves the ends of a type by half a step at most, which cuts nothing off: fixing a
    value to the type it has changes nothing.
    """
    if seen is None or not kind.is_per_tensor:
        return kind.lo, kind.hi
    half = HALF * kind.scale
    return (
        seen[0] if kind.lo - half <= seen[0] <= kind.lo else kind.lo,
        seen[1] if kind.hi <= seen[1] <= kind.hi + half else kind.hi,
    )


def within_types(seen: Interval | None, *kinds: Uniform | None) -> Interval | None:
    """Return the observed range of a value, clipped to the types that are fixed for it."""
    extent = seen
    for kind in kinds:
        if kind is not None:
            own = range_of_type(kind, seen)
            extent = own if extent is None else cut_to(extent, own)
    return extent


def ranges_by_width(
    known: Interval | None, stated: Mapping[int, Interval], moved: Mapping[int, Interval]
) -> Mapping[int, Interval]:
    """The ranges of single widths: stated ones and those that data movement hands on, both within `known`.

    Widths that hold all of it are left out.
    """
    if known is None or not (stated or moved):
        return NO_WIDTHS
    found: dict[int, Interval] = {}
    for bits in stated.keys() | moved.keys():
        extent = cut_to(stated.get(bits, known), known)
        extent = cut_to(moved.get(bits, extent), extent)
        if extent != known:
            found[bits] = extent
    return found


def cutting(needed: Interval | None, extent: Interval | None) -> Interval | None:
    """Return the needed part of a range; None where that is all of it but for the rounding of its ends."""
    if needed is None or extent is None:
        return needed
    near = NEAR * (max(extent[1], 0.0) - min(extent[0], 0.0))
    lo = needed[0] if needed[0] > extent[0] + near else -math.inf
    hi = needed[1] if needed[1] < extent[1] - near else math.inf
    return None if (lo, hi) == ALL else (lo, hi)


def farthest(kind: Uniform) -> int:
    """The farthest a stored number is from its zero point."""
    ends = zip(kind.slice_ranges, kind.zero_points, strict=False)
    return max(max(zero - low, high - zero) for (low, high), zero in ends)
