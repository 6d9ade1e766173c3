"""Observing tensors: range and histogram of one array, and how two observations become one.

Streaming is `merge` over the arrays; order and grouping never change a result. A histogram's bin width
is the power of two that its range asks for and nothing else, so bins of a part split into the bins of
the whole. NaN and infinities are counted and left out. Nothing here knows models or files.
Source: docs/formats.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Counts: TypeAlias = NDArray[np.int64]
Observer: TypeAlias = Callable[[Array], "Observed"]

MAX_BINS: Final = 4096
# Bins are never finer than a float32: not than its smallest number, nor its step at the largest one.
MIN_EXPONENT: Final = -149
MANTISSA: Final = 24
# Within these, multiplying a float32 by 2^-exponent neither overflows nor underflows.
_EXACT_IN_F32: Final = range(-100, 1)
# Elements worked on at a time, so that temporaries stay in the cache.
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Observations of one tensor.

    Attributes:
      lo, hi: extremes of the finite elements, reals; +inf and -inf where there were none.
      nan, inf: number of elements that were NaN, and +inf or -inf.
      below: whether one was -inf.
      exponent, first, counts: bin k holds the reals in `[(first + k), (first + k + 1)) * 2^exponent`;
        counts is None without a histogram, shape `(n_bins,)` int64 otherwise.
    """

    lo: float = math.inf
    hi: float = -math.inf
    nan: int = 0
    inf: int = 0
    exponent: int = 0
    first: int = 0
    counts: Counts | None = None
    below: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no finite element was seen."""
        return self.lo > self.hi


def observe_range(array: Array) -> Observed:
    """Observe the extremes of a float array of any shape."""
    return _finite(array)[0]


def observe_histogram(array: Array) -> Observed:
    """Observe the extremes and the histogram of a float array of any shape."""
    seen, finite = _finite(array)
    if seen.is_empty:
        return seen
    exponent = bin_exponent(seen.lo, seen.hi)
    first = bin_of(seen.lo, exponent)
    n_bins = bin_of(seen.hi, exponent) - first + 1
    return replace(seen, exponent=exponent, first=first, counts=_count(finite, exponent, first, n_bins))


def merge(a: Observed, b: Observed) -> Observed:
    """Join two observations of one kind; the finer histogram is brought to the coarser bins."""
    if b.counts is None and a.lo <= b.lo and b.hi <= a.hi and not (b.nan or b.inf):
        return a
    lo, hi, nan, inf = min(a.lo, b.lo), max(a.hi, b.hi), a.nan + b.nan, a.inf + b.inf
    below = a.below or b.below
    if a.counts is None or b.counts is None:
        only = b if a.counts is None else a
        return Observed(lo, hi, nan, inf, only.exponent, only.first, only.counts, below)
    exponent = max(a.exponent, b.exponent, bin_exponent(lo, hi))
    parts = (
        coarsened(a.counts, a.first, exponent - a.exponent),
        coarsened(b.counts, b.first, exponent - b.exponent),
    )
    first = min(start for start, _ in parts)
    counts = np.zeros(max(start + len(part) for start, part in parts) - first, np.int64)
    for start, part in parts:
        counts[start - first : start - first + len(part)] += part
    return Observed(lo, hi, nan, inf, exponent, first, counts, below)


def bin_exponent(lo: float, hi: float) -> int:
    """Exponent of the finest bins of which at most `MAX_BINS` span the reals [lo, hi].

    It only grows with the range, which makes merging exact.
    """
    top, width = max(abs(lo), abs(hi)), hi / MAX_BINS - lo / MAX_BINS
    exponent = MIN_EXPONENT
    if top:
        exponent = max(exponent, math.frexp(top)[1] - MANTISSA)
    if width:
        exponent = max(exponent, math.frexp(width)[1] - 2)
    while bin_of(hi, exponent) - bin_of(lo, exponent) >= MAX_BINS:
        exponent += 1
    return exponent


def bin_of(real: float, exponent: int) -> int:
    """Index of the bin, counted from 0.0, that holds a real."""
    index = math.floor(math.ldexp(real, -exponent))
    # A tiny negative number underflows to -0.0, and still lies left of zero.
    return -1 if index == 0 and real < 0 else index


def _finite(array: Array) -> tuple[Observed, Array]:
    """Range and counts, and the elements that are finite, float32 or float64."""
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32)
    if not array.size:
        return Observed(), array
    lo, hi = float(array.min()), float(array.max())
    if math.isfinite(lo) and math.isfinite(hi):
        return Observed(lo, hi), array
    nan = int(np.count_nonzero(np.isnan(array)))
    finite = array[np.isfinite(array)]
    inf = array.size - finite.size - nan
    below = bool((array == -np.inf).any())
    if not finite.size:
        return Observed(nan=nan, inf=inf, below=below), finite
    return Observed(float(finite.min()), float(finite.max()), nan, inf, below=below), finite


def _count(array: Array, exponent: int, first: int, n_bins: int) -> Counts:
    """Histogram of finite elements; the arithmetic is exact, so an element never strays into a neighbour."""
    wide = array.dtype == np.float64 or exponent not in _EXACT_IN_F32
    kind = np.float64 if wide else np.float32
    scale, offset = kind(math.ldexp(1.0, -exponent)), kind(first)
    counts = np.zeros(n_bins, np.int64)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        scaled = np.multiply(flat[start : start + _CHUNK], scale, dtype=kind)
        np.floor(scaled, out=scaled)
        scaled -= offset
        counts += np.bincount(scaled.astype(np.intp), minlength=n_bins)
    return counts


def coarsened(counts: Counts, first: int, shift: int) -> tuple[int, Counts]:
    """First bin and counts with bins 2^shift as wide."""
    if shift == 0:
        return first, counts
    coarse = first >> shift
    starts = [0, *range(((coarse + 1) << shift) - first, len(counts), 1 << shift)]
    return coarse, np.add.reduceat(counts, starts)


OBSERVERS: Final[Mapping[str, Observer]] = {
    "entropy": observe_histogram,
    "minmax": observe_range,
    "mse": observe_histogram,
    "percentile": observe_histogram,
}
