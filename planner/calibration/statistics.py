"""Statistics: observations of every value, and the range that each method makes of them.

Frozen records and pure functions; their text is read by `statsjson`, observing is `observe`.
Source: docs/formats.md.
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.calibration import sizes_seen
from planner.calibration.observe import OBSERVERS, Observed
from planner.calibration.observe import merge as merge_observed
from planner.calibration.rows_seen import RowsSeen, Seen, join
from planner.calibration.sizes_seen import AllSizes, SizesSeen
from planner.calibration.width_ranges import CHOOSERS, ends_of
from planner.errors import StatsError
from planner.ir.graph import Graph, model_digest
from planner.ir.types.qtypes import AtReaders, WidthRange
from planner.notebook import html_of, html_table

FORMAT: Final = "qplan.stats/2"
PERCENTILE: Final = Fraction("99.99")
ACCEPTED: Final = "minmax, percentile, percentile:99.9, mse, entropy"
_NUMBER: Final = re.compile(r"[0-9.]{1,20}(e[+-]?[0-9]{1,2})?(/[0-9]{1,20})?", re.ASCII)
"""Texts that are read as fractions: one of a large exponent takes hours."""
WIDTHS: Final = (2, 3, 4, 5, 6, 7, 8)
"""Widths of storages, in bits, that `mse` and `entropy` choose a range for: with more, cutting never pays."""


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram: bin k holds the reals in `[(first + k), (first + k + 1)) * 2^exponent`."""

    exponent: int
    first: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mean:
    """Means of the slices of `axis`, reals: averages over the samples of each sample's own mean."""

    axis: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ValueStats:
    """One value: extremes in reals, one per tensor or one per slice of `axis`.

    `nan` and `inf` count the elements left out, and `below` says whether one was -inf. `bins` exist per
    tensor only, `mean` where a linear op reads the value and it was finite throughout. `rows`: along each
    axis of a softmax that reads the value. `two_values`: whether every number was the least or the greatest,
    of a value that a constant scales. `readers`: the dB at the consumers' results after rounding the value
    to a width, where that was measured.
    """

    los: tuple[float, ...]
    his: tuple[float, ...]
    nan: int = 0
    inf: int = 0
    bins: Bins | None = None
    axis: int | None = None
    mean: Mean | None = None
    rows: tuple[RowsSeen, ...] = ()
    two_values: bool = False
    readers: tuple[AtReaders, ...] = ()
    below: bool = False

    @property
    def lo(self) -> float:
        """Smallest real, over all slices."""
        return min(self.los)

    @property
    def hi(self) -> float:
        """Largest real, over all slices."""
        return max(self.his)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a model's values over a set of samples.

    Attributes:
      model: digest of the model without its facts.
      method: `minmax`, `percentile` or `percentile:99.9` (per cent of the elements kept), `mse`, `entropy`.
      samples: number of runs.
      values: by value name; a value of which nothing finite was seen is missing.
      sizes: of values whose shapes leave some open, by name.
      trips: runs of the bodies of loops in one run of the model, the most that a sample took, by path.
    """

    model: str
    method: str
    samples: int
    values: Mapping[str, ValueStats]
    sizes: Mapping[str, SizesSeen] = field(default_factory=dict)
    trips: Mapping[str, int] = field(default_factory=dict)

    def by(self, method: str) -> "Statistics":
        """The same observations under another method, which then chooses the ranges.

        Rounding at consumers was measured within the ranges of the old one, and is dropped.

        Raises:
          StatsError: an unknown method, or one that needs histograms where none were taken (`minmax`).
        """
        percentile_of(method)
        if self.method == "minmax" and method != "minmax":
            raise StatsError(
                f"statistics taken by minmax have no histograms for {method}",
                hint="calibrate with percentile, mse or entropy: their histograms serve every method",
            )
        return self if method == self.method else replace(without_readers(self), method=method)

    def to_json(self) -> str:
        """The text of a file, `qplan.stats/2`: one line a value; `statsjson` reads it."""
        head: dict[str, Any] = {
            "format": FORMAT,
            "model": self.model,
            "method": self.method,
            "samples": self.samples,
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(_entry(item))}" for name, item in self.values.items()]
        body = "\n" + ",\n".join(lines) + "\n" if lines else ""
        if self.sizes:
            head["sizes"] = {name: _sizes_entry(seen) for name, seen in sorted(self.sizes.items())}
        if self.trips:
            head["trips"] = dict(sorted(self.trips.items()))
        return f'{json.dumps(head)[:-1]}, "values": {{{body}}}}}\n'

    def save(self, path: str | Path) -> None:
        """Write a file that `load_statistics` reads.

        Raises:
          StatsError: a path that cannot be written.
        """
        try:
            Path(path).write_bytes(self.to_json().encode())  # "\n" on every system
        except OSError as error:
            raise StatsError(f"{path}: cannot write statistics: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"<Statistics of {len(self.values)} values over {self.samples} samples, {self.method}>"

    def _repr_html_(self) -> str:
        """The notebook view: each value with the range that the method keeps and the extremes."""
        rows = []
        for name, seen in self.values.items():
            los, his = range_of(seen, self.method)
            ends = (min(los), max(his), seen.lo, seen.hi)
            rows.append((name, *(f"{end:.6g}" for end in ends), seen.nan + seen.inf or ""))
        title = f"Statistics of {len(self.values)} values over {self.samples} samples, {self.method}"
        head = ("value", "range from", "to", "least seen", "largest seen", "NaN, infinite")
        return html_of(title, html_table(head, rows))


def percentile_of(method: str) -> Fraction | None:
    """Per cent of the elements that a method keeps; None where it goes by something else.

    Raises:
      StatsError: a method that is none, or a percentile outside (50, 100].
    """
    name, colon, text = method.partition(":")
    if name not in OBSERVERS or (colon and name != "percentile"):
        raise StatsError(f"unknown calibration method {method!r}", hint=ACCEPTED)
    if name != "percentile":
        return None
    if not colon:
        return PERCENTILE
    percentile = Fraction(0)
    with suppress(ValueError, ZeroDivisionError):
        percentile = Fraction(text) if _NUMBER.fullmatch(text) else percentile
    if not 50 < percentile <= 100:
        raise StatsError(
            f"calibration method {method!r}: {text!r} is no percentile above 50 and up to 100",
            hint="a decimal number such as percentile:99.9",
        )
    return percentile


def range_of(stats: ValueStats, method: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Choose the reals to keep, one pair per slice, always within the observed range.

    A percentile p cuts off at most (100 - p) / 2 per cent of the elements at each end, up to the border of a
    bin. Values without a histogram keep everything.

    Returns:
      Lower ends and upper ends.
    """
    percentile = percentile_of(method)
    if percentile is None or stats.bins is None:
        return stats.los, stats.his
    counts = stats.bins.counts
    # Fractions: with doubles, 99.9 per cent of a round number of elements might lose one more.
    cut = math.floor(sum(counts) * (100 - percentile) / 200)
    below = next(k for k, seen in enumerate(accumulate(counts)) if seen > cut)
    above = next(k for k, seen in enumerate(accumulate(reversed(counts))) if seen > cut)
    lo = math.ldexp(stats.bins.first + below, stats.bins.exponent)
    hi = math.ldexp(stats.bins.first + len(counts) - above, stats.bins.exponent)
    return (max(lo, stats.lo),), (min(hi, stats.hi),)


def width_ranges(stats: ValueStats, method: str) -> tuple[WidthRange, ...]:
    """The ranges that a method chooses for single widths, where they are less than all that was seen.

    None for values of two numbers, which any width holds, nor for values without a histogram.
    """
    if method not in CHOOSERS or stats.bins is None or stats.two_values:
        return ()
    ends = ends_of(to_observed(stats), method, WIDTHS)
    whole = stats.lo, stats.hi
    return tuple(WidthRange(bits, *ends[bits]) for bits in WIDTHS if ends[bits] != whole)


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Join statistics of two sets of samples; the order makes no difference, but to the last bit of a mean.

    Rounding at consumers was measured within the ranges of one part, so it is dropped: measure it on the
    whole.

    Raises:
      StatsError: another model or method, or a value with slices along different axes.
    """
    for what, left, right in (("model", a.model, b.model), ("method", a.method, b.method)):
        if left != right:
            raise StatsError(f"statistics of different {what}s do not merge: {left!r} and {right!r}")
    # A value that one part saw nothing finite of may have had other numbers there.
    alone = a.values.keys() ^ b.values.keys()
    a, b = without_readers(a), without_readers(b)
    values = {
        name: replace(seen, two_values=False) if name in alone and a.samples and b.samples else seen
        for name, seen in {**a.values, **b.values}.items()
    }
    weights = (a.samples, b.samples)
    for name in a.values.keys() & b.values.keys():
        one, other = a.values[name], b.values[name]
        mean = _merged_mean(one.mean, other.mean, weights)
        values[name] = with_seen(
            replace(_merged(name, one, other), mean=mean), join(seen_of(one), seen_of(other))
        )
    sizes = sizes_seen.join(AllSizes(a.sizes, a.trips), AllSizes(b.sizes, b.trips))
    return Statistics(a.model, a.method, a.samples + b.samples, values, sizes.sizes, sizes.trips)


def without_readers(stats: Statistics) -> Statistics:
    """The statistics without the measurements at consumers."""
    if not any(seen.readers for seen in stats.values.values()):
        return stats
    return replace(stats, values={name: replace(seen, readers=()) for name, seen in stats.values.items()})


def calibration_digest(graph: Graph) -> str:
    """Digest of a model without facts and what is asked of kernels: annotating keeps statistics valid."""
    looked = any(value.facts or value.seen is not None for value in graph.values.values())
    if not graph.wanted and not looked and not any(scope.ran for scope in graph.scopes.values()):
        return model_digest(graph)
    bare = {
        name: replace(value, facts=(), seen=None, varies=())
        if value.facts or value.seen is not None
        else value
        for name, value in graph.values.items()
    }
    scopes = {path: replace(scope, ran=0) for path, scope in graph.scopes.items()}
    return model_digest(replace(graph, values=bare, scopes=scopes, wanted={}))


def from_observed(seen: Observed) -> ValueStats:
    """Freeze observations; something finite must have been seen."""
    bins = None
    if seen.counts is not None:
        bins = Bins(seen.exponent, seen.first, tuple(seen.counts.tolist()))
    return ValueStats((seen.lo,), (seen.hi,), seen.nan, seen.inf, bins, below=seen.below)


def to_observed(stats: ValueStats) -> Observed:
    """Thaw per-tensor statistics, to observe or merge more."""
    if stats.bins is None:
        return Observed(stats.lo, stats.hi, stats.nan, stats.inf, below=stats.below)
    counts = np.asarray(stats.bins.counts, np.int64)
    bins = stats.bins
    return Observed(
        stats.lo, stats.hi, stats.nan, stats.inf, bins.exponent, bins.first, counts, below=stats.below
    )


def seen_of(stats: ValueStats) -> Seen:
    """Observations besides the range."""
    numbers = frozenset((stats.lo, stats.hi)) if stats.two_values else None
    return Seen({rows.axis: rows for rows in stats.rows}, numbers)


def with_seen(stats: ValueStats, seen: Seen | None) -> ValueStats:
    """Statistics with observations besides the range."""
    if seen is None:
        return stats
    rows = tuple(seen.rows[axis] for axis in sorted(seen.rows))
    return replace(stats, rows=rows, two_values=seen.numbers is not None)


def _merged(name: str, a: ValueStats, b: ValueStats) -> ValueStats:
    if (a.axis, len(a.los)) != (b.axis, len(b.los)):
        raise StatsError(
            f"statistics of {name!r} do not merge: {_slices(a)} in one, {_slices(b)} in the other"
        )
    if a.axis is None:
        return from_observed(merge_observed(to_observed(a), to_observed(b)))
    los = tuple(min(pair) for pair in zip(a.los, b.los, strict=True))
    his = tuple(max(pair) for pair in zip(a.his, b.his, strict=True))
    return ValueStats(los, his, a.nan + b.nan, a.inf + b.inf, axis=a.axis, below=a.below or b.below)


def _merged_mean(a: Mean | None, b: Mean | None, weights: tuple[int, int]) -> Mean | None:
    """The mean of all samples; None where one part has none, or one of other slices."""
    if a is None or b is None or (a.axis, len(a.values)) != (b.axis, len(b.values)) or not sum(weights):
        return None
    left, right = (np.asarray(mean.values) * n for mean, n in zip((a, b), weights, strict=True))
    return Mean(a.axis, tuple(((left + right) / sum(weights)).tolist()))


def _slices(stats: ValueStats) -> str:
    return "one range" if stats.axis is None else f"{len(stats.los)} ranges along axis {stats.axis}"


def _sizes_entry(seen: SizesSeen) -> dict[str, list[int]]:
    """Sizes; their ends too where samples differ."""
    entry = {"sizes": list(seen.sizes)}
    return entry | {"least": list(seen.least), "most": list(seen.most)} if seen.varies else entry


def _entry(stats: ValueStats) -> dict[str, Any]:
    if stats.axis is not None:
        entry: dict[str, Any] = {"axis": stats.axis, "min": list(stats.los), "max": list(stats.his)}
    else:
        entry = {"min": stats.lo, "max": stats.hi}
    entry |= {"nan": stats.nan, "inf": stats.inf}
    if stats.bins is not None:
        bins = stats.bins
        entry["bins"] = {"exponent": bins.exponent, "first": bins.first, "counts": list(bins.counts)}
    if stats.mean is not None:
        entry["mean"] = {"axis": stats.mean.axis, "values": list(stats.mean.values)}
    if stats.rows:
        entry["row_max"] = [asdict(rows) for rows in stats.rows]
    if stats.two_values:
        entry["two_values"] = True
    if stats.below:
        entry["below"] = True
    if stats.readers:
        entry["readers"] = {str(at.bits): at.db for at in stats.readers}
    return entry
