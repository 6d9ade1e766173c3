"""Observations: exact histograms, merging in any order equals one pass, NaN and infinity counted."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.observe import (
    MAX_BINS,
    bin_exponent,
    bin_of,
    merge,
    observe_histogram,
    observe_range,
)
from planner.calibration.statistics import from_observed

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
PARTS = st.lists(st.lists(FLOATS, max_size=12), min_size=1, max_size=5)


def array_of(numbers):
    return np.array(numbers, np.float32)


def key(seen):
    counts = None if seen.counts is None else tuple(seen.counts)
    return (seen.lo, seen.hi, seen.nan, seen.inf, seen.exponent, seen.first, counts)


@settings(max_examples=300, deadline=None)
@given(PARTS, st.randoms())
def test_any_grouping_and_order_equals_one_pass(parts, random):
    """Streaming loses nothing: shuffled and merged as a tree, the parts are the whole."""
    for observer in (observe_range, observe_histogram):
        whole = observer(array_of([number for part in parts for number in part]))
        seen = [observer(array_of(part)) for part in parts]
        random.shuffle(seen)
        while len(seen) > 1:
            at = random.randrange(len(seen) - 1)
            seen[at : at + 2] = [merge(seen[at], seen[at + 1])]
        assert key(seen[0]) == key(whole)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_element_lies_in_its_bin(numbers):
    """The float32 arithmetic of the fast path puts no element beside its bin."""
    seen = observe_histogram(array_of(numbers))
    expected = np.zeros(len(seen.counts), np.int64)
    for number in numbers:
        expected[bin_of(number, seen.exponent) - seen.first] += 1
    assert seen.counts.tolist() == expected.tolist()
    assert len(seen.counts) <= MAX_BINS
    assert seen.counts[0]
    assert seen.counts[-1]


@pytest.mark.parametrize(
    ("lo", "hi", "exponent"),
    [
        (0.0, 1.0, -11),  # 4097 bins of 2^-12 would be needed: 1.0 itself opens one more
        (0.0, 0.9999, -12),
        (-1.0, 1.0, -10),
        (0.0, 0.0, -149),  # as fine as float32
        (1.0, 1.0, -23),  # one bin, a float32 step wide
        (0.0, 65504.0, 4),
    ],
)
def test_bins_are_the_finest_that_fit(lo, hi, exponent):
    assert bin_exponent(lo, hi) == exponent


def test_nan_and_infinity_are_counted_and_left_out():
    seen = observe_histogram(array_of([np.nan, 1.0, -np.inf, np.inf, np.nan, -2.0]))
    assert (seen.lo, seen.hi, seen.nan, seen.inf, int(seen.counts.sum())) == (-2.0, 1.0, 2, 2, 2)


@pytest.mark.parametrize("numbers", [[], [np.nan], [np.inf, -np.inf]])
def test_nothing_finite_is_empty_and_merges_as_nothing(numbers):
    empty, other = observe_histogram(array_of(numbers)), observe_histogram(array_of([1.0, 2.0]))
    assert empty.is_empty
    for joined in (merge(empty, other), merge(other, empty)):
        assert key(joined)[:2] == (1.0, 2.0)
        assert joined.counts.sum() == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type_gives_the_same(dtype):
    numbers = np.arange(-8, 8, dtype=dtype).reshape(4, 4)
    assert key(observe_histogram(numbers.T)) == key(observe_histogram(numbers.astype(np.float32)))


def test_a_big_array_is_counted_whole():
    """More elements than one chunk."""
    numbers = np.random.default_rng(1).standard_normal(200_001).astype(np.float32)
    seen = observe_histogram(numbers)
    edges = np.ldexp(
        np.arange(seen.first, seen.first + len(seen.counts) + 1, dtype=np.float64), seen.exponent
    )
    assert seen.counts.tolist() == np.histogram(numbers.astype(np.float64), edges)[0].tolist()
    assert from_observed(reduce(merge, map(observe_histogram, np.array_split(numbers, 7)))) == from_observed(
        seen
    )
