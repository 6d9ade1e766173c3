"""Ranges for a width: mse against all pairs of borders and real rounding, entropy against its definition."""

import itertools
from dataclasses import replace
from functools import reduce
from math import inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector

import planner
from planner.calibration.observe import coarsened, merge, observe_histogram
from planner.calibration.statistics import WIDTHS, ValueStats, from_observed, range_of, width_ranges
from planner.calibration.width_ranges import CHOOSERS, Histogram, _divergence, ends_of, entropy_ends, mse_ends
from planner.errors import StatsError
from planner.ir.types.qtypes import WidthRange, storage
from planner.ir.types.ranges import affine
from tests.calibration.graphs import branchy
from tests.calibration.test_run import draw

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
PARTS = st.lists(st.lists(FLOATS, max_size=30), min_size=1, max_size=5)
METHODS = tuple(CHOOSERS)


def drawn(kind, size=20_000, seed=0):
    rng = np.random.default_rng(seed)
    numbers = {
        "normal": lambda: rng.standard_normal(size),
        "laplace": lambda: rng.laplace(size=size),
        "heavy": lambda: rng.standard_t(2.5, size=size),
        "relu": lambda: np.maximum(rng.standard_normal(size), 0.0),
        "uniform": lambda: rng.uniform(-1, 3, size),
        "positive": lambda: rng.uniform(3, 5, size),
        "negative": lambda: -rng.gamma(2.0, size=size) - 1.0,
        "outlier": lambda: np.append(rng.standard_normal(size), 1000.0),
        "two peaks": lambda: np.append(rng.normal(-4, 0.1, size), rng.normal(9, 2, size // 50)),
    }
    return numbers[kind]().astype(np.float32)


KINDS = ("normal", "laplace", "heavy", "relu", "uniform", "positive", "negative", "outlier", "two peaks")


def rounded_in(numbers, extent, bits):
    """The numbers as a storage of so many bits holds them."""
    store = storage(f"i{bits}")
    scale, zero = affine(min(extent[0], 0.0), max(extent[1], 0.0), store)
    return (np.clip(np.rint(numbers / scale) + zero, store.qmin, store.qmax) - zero) * scale


@settings(max_examples=150, deadline=None)
@given(PARTS, st.randoms(), st.sampled_from(METHODS))
def test_order_and_shards_do_not_matter(parts, random, method):
    """Ranges are of integer counts in bins that the whole range alone decides."""
    whole = observe_histogram(np.array([number for part in parts for number in part], np.float32))
    seen = [observe_histogram(np.array(part, np.float32)) for part in parts]
    random.shuffle(seen)
    joined = reduce(merge, seen)
    if whole.is_empty:
        assert joined.is_empty
        return
    found = ends_of(whole, method, WIDTHS)
    assert found == ends_of(joined, method, WIDTHS)
    for lo, hi in found.values():
        assert whole.lo <= lo <= hi <= whole.hi


def loss_of_all(counts, first, lefts, rights, bits):
    """Loss of each pair of borders, element by element: 16 of them spread evenly over each bin."""
    n = 16
    places = first + (np.arange(len(counts) * n) + 0.5) / n
    weights = np.repeat(counts / n, n)
    found = np.empty((len(lefts), len(rights)))
    for (i, left), (j, right) in itertools.product(enumerate(lefts), enumerate(rights)):
        step = (max(right, 0.0) - min(left, 0.0)) / ((1 << bits) - 1)
        beyond = np.maximum(left - places, 0.0) + np.maximum(places - right, 0.0)
        inner = np.where(np.abs(places) < step / 2, places**2, step**2 / 12)
        found[i, j] = (weights * np.where(beyond > 0, beyond**2, inner)).sum()
    return found


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_mse_is_the_best_of_all_pairs_of_borders(kind, bits):
    """More borders than one grid of the search has, and no pair is better by more than a thousandth."""
    seen = observe_histogram(drawn(kind, size=4000))
    first, counts = coarsened(seen.counts, seen.first, 4)
    assert len(counts) > 64
    lo, hi = first, first + len(counts)
    edges = np.arange(lo, hi + 1, dtype=float)
    lefts = edges[edges <= 0.0] if lo <= 0 else edges[:1]
    rights = edges[edges >= 0.0] if hi >= 0 else edges[-1:]
    chosen = mse_ends(Histogram(first, counts, lo, hi), bits)
    # Every third pair is enough to tell, and the search does not know which.
    best = loss_of_all(counts, first, lefts[::3], rights[::3], bits).min()
    assert loss_of_all(counts, first, chosen[:1], chosen[1:], bits).item() <= best * 1.001


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_mse_rounds_real_numbers_about_as_well_as_any_range(kind, bits):
    """As good as the best of 900 ranges, by numbers rounded in earnest, but for where levels lie by luck."""
    numbers = drawn(kind).astype(np.float64)
    seen = observe_histogram(numbers.astype(np.float32))
    chosen = ends_of(seen, "mse", [bits])[bits]

    def error(extent):
        return float(((numbers - rounded_in(numbers, extent, bits)) ** 2).mean())

    parts = np.geomspace(0.02, 1.0, 30)
    lows = [seen.lo] if seen.lo >= 0 else seen.lo * parts
    highs = [seen.hi] if seen.hi <= 0 else seen.hi * parts
    best, whole = (
        min(error(extent) for extent in itertools.product(lows, highs)),
        error((seen.lo, seen.hi)),
    )
    assert error(chosen) <= (1.2 * whole if kind == "two peaks" else best * (1.2 if bits < 8 else 1.1))
    if kind in ("normal", "laplace", "heavy", "relu") and bits < 8:
        assert error(chosen) < 0.7 * whole


def divergence(counts, start, stop, levels):
    """By the definition, bin by bin: P with what lies beyond in its end bins, Q evenly over the bins of P."""
    inside = list(counts[start:stop])
    p = list(inside)
    p[0] += sum(counts[:start])
    p[-1] += sum(counts[stop:])
    q = [0.0] * len(p)
    borders = [k * len(p) // levels for k in range(levels + 1)]
    for low, high in itertools.pairwise(borders):
        filled = [k for k in range(low, high) if p[k]]
        for k in filled:
            q[k] = sum(inside[low:high]) / len(filled)
    pairs = [(a / sum(p), b / sum(q)) for a, b in zip(p, q, strict=True) if a]
    return sum(a * log(a / b) if b else inf for a, b in pairs)


@pytest.mark.parametrize("levels", [4, 16, 100])
@pytest.mark.parametrize("kind", ["normal", "heavy", "relu"])
def test_the_divergence_is_that_of_the_definition(kind, levels):
    seen = observe_histogram(drawn(kind, size=3000))
    _, counts = coarsened(seen.counts, seen.first, 4)
    counts = counts.astype(float)
    middle = len(counts) // 2
    for reach in {max(levels // 2, middle // 2), middle * 3 // 4, middle}:
        found = _divergence(counts, np.array([middle - reach]), np.array([middle + reach]), levels)
        kept = counts[middle - reach : middle + reach].sum()
        wanted = (
            divergence(counts, middle - reach, middle + reach, levels) if 2 * kept >= counts.sum() else inf
        )
        assert found.item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("bits", [3, 4, 5])
@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_entropy_is_close_to_onnxruntimes(kind, bits):
    """Its windows are odd, so that a last bin belongs to no level: it keeps more, and is no better for it."""
    seen = observe_histogram(drawn(kind, size=200_000))
    first, counts = coarsened(seen.counts, seen.first, 2)
    reach = max(-first, first + len(counts))
    full = np.zeros(2 * reach, np.int64)
    full[first + reach : first + reach + len(counts)] = counts
    levels = 1 << bits
    collector = HistogramCollector("entropy", True, 2 * reach, levels, 99.9, "same")
    edges = np.arange(-reach, reach + 1, dtype=float)
    _, theirs = collector.get_entropy_threshold((full, edges, -float(reach), float(reach), reach), levels)
    lo, hi = first, first + len(counts)
    _, ours = entropy_ends(Histogram(first, counts, lo, hi), bits)
    assert 0.7 < ours / theirs < 1.1
    both = [divergence(full.tolist(), reach - int(t), reach + int(t), levels) for t in (ours, theirs)]
    assert both[0] <= both[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "numbers",
    [
        [0.0],
        [0.0, 0.0, 0.0],
        [5.0, 5.0],
        [-5.0],
        [1e-45, 1e-45],  # the least float32
        [-1e-45, 2e-45],
        [3.4e38, -3.4e38],
        [0.0, 3.4e38],
        [1e7, 1e7 + 1, 1e7 + 100],  # far from 0: no bins from there on
        [-1e-3, -1e-3, -1e38],
    ],
)
def test_boundaries(method, numbers):
    """Within what was seen, finite, and a type can be made of it."""
    seen = observe_histogram(np.array(numbers, np.float32))
    for bits, (lo, hi) in ends_of(seen, method, WIDTHS).items():
        assert seen.lo <= lo <= hi <= seen.hi
        assert affine(lo, hi, storage(f"i{bits}"))[0] > 0
    if seen.lo == seen.hi:
        assert set(ends_of(seen, method, WIDTHS).values()) == {(seen.lo, seen.hi)}


@pytest.mark.parametrize("method", METHODS)
def test_doubles_beyond_a_float32(method):
    seen = observe_histogram(np.array([1e300, -2e300, 0.0] * 5))
    for lo, hi in ends_of(seen, method, (4, 8)).values():
        assert -2e300 <= lo <= hi <= 1e300


@pytest.mark.parametrize("method", METHODS)
def test_nan_and_infinity_do_not_count(method):
    numbers = drawn("heavy")
    odd = np.concatenate([numbers, np.array([np.nan, np.inf, -np.inf], np.float32)])
    assert ends_of(observe_histogram(odd), method, WIDTHS) == ends_of(
        observe_histogram(numbers), method, WIDTHS
    )


@pytest.mark.parametrize("kind", ["laplace", "relu", "positive"])
def test_mirrored_numbers_have_mirrored_ranges(kind):
    """Nearly: a number on the border of two bins belongs to the right one."""
    numbers = drawn(kind)
    one, other = (ends_of(observe_histogram(part), "mse", (4, 8)) for part in (numbers, -numbers))
    for bits in (4, 8):
        assert one[bits] == pytest.approx((-other[bits][1], -other[bits][0]), rel=0.05, abs=1e-3)


def test_powers_of_two_scale_ranges_exactly():
    for method in METHODS:
        numbers = drawn("laplace")
        one, other = (ends_of(observe_histogram(part), method, WIDTHS) for part in (numbers, numbers * 1024))
        assert {bits: (lo * 1024, hi * 1024) for bits, (lo, hi) in one.items()} == other


def test_entropy_keeps_all_where_bins_are_no_more_than_levels():
    seen = observe_histogram(drawn("heavy"))
    assert ends_of(seen, "entropy", [16])[16] == (seen.lo, seen.hi)


def test_zeros_of_a_relu_do_not_decide():
    """Nine of ten numbers are 0, and the ranges are nearly those of the others."""
    numbers = np.abs(drawn("normal"))
    many = np.concatenate([numbers, np.zeros(9 * numbers.size, np.float32)])
    for method in METHODS:
        few, more = (ends_of(observe_histogram(part), method, (4, 8)) for part in (numbers, many))
        for bits in (4, 8):
            assert more[bits][1] == pytest.approx(few[bits][1], rel=0.1)


def test_widths_that_keep_everything_are_left_out():
    stats = from_observed(observe_histogram(drawn("heavy")))
    for method in METHODS:
        found = width_ranges(stats, method)
        assert [width.bits for width in found] == sorted({width.bits for width in found})
        assert all((width.lo, width.hi) != (stats.lo, stats.hi) for width in found)
        assert {2, 3, 4} <= {width.bits for width in found}
        assert range_of(stats, method) == (stats.los, stats.his)
        # Fewer bits, a narrower range.
        ends = {width.bits: width.hi for width in found}
        assert ends[2] < ends[4] < ends[8]
        assert width_ranges(replace(stats, two_values=True), method) == ()
        assert width_ranges(ValueStats((-1.0,), (1.0,)), method) == ()
    assert width_ranges(stats, "minmax") == width_ranges(stats, "percentile") == ()


def test_one_calibration_serves_every_method():
    graph, samples = branchy(), draw(3)
    once = planner.calibrate(graph, samples, method="mse")
    for method in ("minmax", "percentile:99", "entropy", "mse"):
        again = planner.calibrate(graph, samples, method=method)
        ready = [planner.annotate(graph, stats=stats) for stats in (once.by(method), again)]
        assert ready[0].values == ready[1].values
    facts = [fact for value in planner.annotate(graph, stats=once).values.values() for fact in value.facts]
    assert any(isinstance(width, WidthRange) for fact in facts for width in fact.widths)


def test_minmax_has_no_histograms_for_the_others():
    stats = planner.calibrate(branchy(), draw(1))
    assert stats.by("minmax") == stats
    with pytest.raises(StatsError) as caught:
        stats.by("mse")
    assert str(caught.value) == (
        "statistics taken by minmax have no histograms for mse "
        "(calibrate with percentile, mse or entropy: their histograms serve every method)"
    )
    with pytest.raises(StatsError, match="unknown calibration method 'kl'"):
        stats.by("kl")


def test_a_file_keeps_the_method_and_its_ranges(tmp_path):
    stats = planner.calibrate(branchy(), draw(2), method="entropy")
    stats.save(tmp_path / "stats.json")
    read = planner.load_statistics(tmp_path / "stats.json")
    assert read == stats
    assert planner.annotate(branchy(), stats=read).values == planner.annotate(branchy(), stats=stats).values
    with pytest.raises(StatsError, match=r"no/such.json: cannot write statistics: No such file"):
        stats.save(tmp_path / "no" / "such.json")
