"""Ranges for a width: the ends that a histogram's elements lose least between, in a storage of so many bits.

`mse` weighs rounding against clipping in mean square error; `entropy` asks which ends leave the distribution
most alike once its bins are merged into levels (Kullback-Leibler). Ends are borders of bins or the observed
extremes. Work is in bins, counted from 0.0, so no range is too large or small. Sources: Banner, Nahshan and
Soudry, "Post training 4-bit quantization", 2019, section 3 (mse); Migacz, "8-bit inference with TensorRT",
2017, and onnxruntime's `HistogramCollector.get_entropy_threshold` (entropy).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.calibration.observe import Counts, Observed, bin_exponent, coarsened

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Ends = tuple[float, float]

TRIED: Final = 128
"""Thresholds that `entropy` looks at: for 8 bits 2 per cent apart."""
GRID: Final = 32
"""Borders at each side of the first grid that `mse` looks at; the next ones, `FINER`, are around the `KEPT`
best pairs."""
KEPT: Final = 4
FINER: Final = 4


class Histogram(NamedTuple):
    """Observations of a tensor, in bins from 0.0.

    Attributes:
      first: the number of the first bin; bin k of `counts` holds `[first + k, first + k + 1)`.
      counts: elements, shape `(n_bins,)`.
      lo, hi: the least and the greatest element.
    """

    first: int
    counts: Counts
    lo: float
    hi: float


def ends_of(seen: Observed, method: str, widths: Iterable[int]) -> dict[int, Ends]:
    """The ends that a method chooses for each width, reals within the observed range.

    Args:
      seen: with a histogram; something finite was seen.
      method: of `CHOOSERS`.
      widths: of storages, in bits.
    """
    if seen.counts is None:
        return {}
    # Types hold 0. Of numbers far from it, finer bins than one would have from 0 on say nothing.
    exponent = bin_exponent(min(seen.lo, 0.0), max(seen.hi, 0.0))
    first, counts = coarsened(seen.counts, seen.first, exponent - seen.exponent)
    lo, hi = (math.ldexp(end, -exponent) for end in (seen.lo, seen.hi))
    known = {lo: seen.lo, hi: seen.hi}
    chosen = {bits: CHOOSERS[method](Histogram(first, counts, lo, hi), bits) for bits in widths}
    return {
        bits: (known.get(low, math.ldexp(low, exponent)), known.get(high, math.ldexp(high, exponent)))
        for bits, (low, high) in chosen.items()
    }


def mse_ends(seen: Histogram, bits: int) -> Ends:
    """The ends of least mean square error: what is cut off, and what rounding loses of the rest.

    An element that rounds to 0 loses itself, any other one step^2 / 12. So the zeros of a Relu cost nothing,
    and small numbers beside a far outlier cost no more than they are. 0 is always held, as types widen their
    ranges to it. Borders are looked at on a grid, then on ever finer ones around the best.

    Returns:
      The two ends, in bins.
    """
    borders = np.arange(len(seen.counts) + 1, dtype=np.float64)
    edges = seen.first + borders
    edges[0], edges[-1] = seen.lo, seen.hi
    sums = _sums(seen.counts, edges)
    number, _, squares = sums.T
    cut_low, cut_high = _beyond(sums, edges), _beyond(sums[-1] - sums, edges)
    # What a storage holds besides 0: borders up to 0 on one side, from 0 on the other.
    n_left, n_right = (max(int(np.count_nonzero(side)), 1) for side in (edges <= 0.0, edges >= 0.0))
    low, high = np.minimum(edges, 0.0), np.maximum(edges, 0.0)

    def loss(left: Indices, right: Indices) -> Floats:
        """By the places of the borders, both from the outermost one inwards."""
        right = len(edges) - 1 - right
        step = (high[right] - low[left]) / float((1 << bits) - 1)
        below, above = (
            np.clip(end - seen.first, borders[left], borders[right]) for end in (-step / 2, step / 2)
        )
        rounded = number[right] - number[left] - _between(number, below, above)
        cut = cut_low[left] + cut_high[right]
        return np.asarray(cut + rounded * step**2 / 12.0 + _between(squares, below, above))

    i, j = _least(loss, n_left, n_right)
    return float(edges[i]), float(edges[len(edges) - 1 - j])


def _sums(counts: Counts, edges: Floats) -> Floats:
    """Number, sum and sum of squares of the elements below each edge, even within a bin: (n_edges, 3)."""
    middle, spread = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) ** 2 / 12
    sums = np.cumsum([counts, counts * middle, counts * (middle**2 + spread)], axis=1).T
    return np.concatenate([np.zeros((1, 3)), sums])


def _beyond(sums: Floats, ends: Floats) -> Floats:
    """Sum of the squared distances to each end of the elements beyond it."""
    number, total, squares = sums.T
    return np.asarray(np.maximum(squares - 2.0 * ends * total + ends**2 * number, 0.0))


def _between(sums: Floats, low: Floats, high: Floats) -> Floats:
    """A sum over the elements between places, counted in bins from the first one; even within a bin."""
    bins = [np.minimum(place.astype(np.int64), len(sums) - 2) for place in (low, high)]
    parts = [
        sums[k] + (sums[k + 1] - sums[k]) * (place - k) for k, place in zip(bins, (low, high), strict=True)
    ]
    return np.asarray(parts[1] - parts[0])


def _least(loss: Callable[[Indices, Indices], Floats], n_left: int, n_right: int) -> tuple[int, int]:
    """The pair of places of the least loss, the outermost of equal ones."""
    stride = -(-max(n_left, n_right) // GRID)
    i, j = (part.ravel() for part in np.mgrid[0:n_left:stride, 0:n_right:stride])
    while True:
        # A narrow peak makes the loss jump: the best pair may lie beside one that is not the best here.
        best = np.argsort(loss(i, j), kind="stable")[:KEPT]
        i, j = i[best], j[best]
        if stride == 1:
            return int(i[0]), int(j[0])
        reach, stride = stride, -(-stride // FINER)
        away = np.mgrid[-reach : reach + 1 : stride, -reach : reach + 1 : stride].reshape(2, 1, -1)
        i = np.clip(i[:, None] + away[0], 0, n_left - 1).ravel()
        j = np.clip(j[:, None] + away[1], 0, n_right - 1).ravel()


def entropy_ends(seen: Histogram, bits: int) -> Ends:
    """The ends of least divergence of the distribution from itself in 2^bits levels.

    Thresholds T from as many bins as levels up to the whole range, on both sides: [-T, T] as far as there is
    data, and half of the elements at least. P has what lies beyond in its last bins; Q has the elements of
    each level spread over the bins that P has there. The bin that begins at 0 counts at most as its greater
    neighbour: a Relu's zeros would decide alone.

    Returns:
      The two ends, in bins; all that was seen where there are no more bins than levels.
    """
    levels = 1 << bits
    low, high = min(seen.first, 0), max(seen.first + len(seen.counts), 0)
    if high - low <= levels:
        return seen.lo, seen.hi
    counts = np.zeros(high - low)
    counts[seen.first - low : seen.first - low + len(seen.counts)] = seen.counts
    if 0 <= -low < len(counts):
        counts[-low] = min(counts[-low], max(counts[k] for k in (-low - 1, -low + 1) if 0 <= k < len(counts)))
    reach = max(-low, high)
    least = next(t for t in range(1, reach + 1) if min(t, -low) + min(t, high) >= levels)
    tried = np.unique(np.geomspace(least, reach, TRIED).round().astype(np.int64))
    starts, stops = np.maximum(-tried, low) - low, np.minimum(tried, high) - low
    best = int(np.argmin(_divergence(counts, starts, stops, levels)))
    return max(float(starts[best] + low), seen.lo), min(float(stops[best] + low), seen.hi)


def _divergence(counts: Floats, starts: Indices, stops: Indices, levels: int) -> Floats:
    """Kullback-Leibler divergence of each window [start, stop) of bins from the same in levels; inf: none."""
    before, bins, logs = (
        np.concatenate([[0.0], np.cumsum(part)]) for part in (counts, counts > 0, _times_log(counts))
    )
    total = before[-1]
    borders = starts[:, None] + (stops - starts)[:, None] * np.arange(levels + 1) // levels
    inside, filled = np.diff(before[borders]), np.diff(bins[borders])
    mass, entropy = inside.copy(), logs[stops] - logs[starts]
    for level, ends, beyond in ((0, starts, before[starts]), (-1, stops - 1, total - before[stops])):
        own = counts[ends]
        mass[:, level] += beyond
        filled[:, level] += (own == 0) & (beyond > 0)
        entropy += _times_log(own + beyond) - _times_log(own)
    # A level that holds nothing of its own, but what was cut off, is infinitely unlike.
    unlike = ((mass > 0) & (inside == 0)).any(axis=1) | (2 * inside.sum(axis=1) < total)
    each = mass * np.log(np.maximum(inside, 1.0) / np.maximum(filled, 1.0))
    found = (entropy - each.sum(axis=1)) / total + np.log(np.maximum(inside.sum(axis=1), 1.0) / total)
    return np.where(unlike, np.inf, found)


def _times_log(counts: Floats) -> Floats:
    """Of each count c, c log c; 0 of none."""
    return np.asarray(counts * np.log(np.maximum(counts, 1.0)))


CHOOSERS: Final[Mapping[str, Callable[[Histogram, int], Ends]]] = {
    "entropy": entropy_ends,
    "mse": mse_ends,
}
"""Methods that know the width they choose for."""
