"""Hulls of what was observed of one value, and the ranges of single widths."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir.types.qtypes import AtReaders, Calibrated, RowMax, WidthRange
from planner.ir.types.ranges import hull_of_observed, ranges_by_width

ONE = Calibrated(
    (-1.0,), (2.0,), "f32", None,
    (RowMax(1, 0.5, 7), RowMax(2, 3.0)), False,
    (WidthRange(4, -0.5, 1.0), WidthRange(8, -1.0, 1.5)), (AtReaders(4, 10.0), AtReaders(8, 40.0)),
)  # fmt: skip
OTHER = Calibrated(
    (-3.0,), (1.0,), "f32", None,
    (RowMax(1, 0.25, 9), RowMax(3, 1.0)), False,
    (WidthRange(4, -2.0, 0.5),), (AtReaders(8, 30.0), AtReaders(16, 90.0)),
)  # fmt: skip


def test_a_hull_holds_both_and_promises_what_both_do():
    found = hull_of_observed([ONE, OTHER])
    assert (found.lo, found.hi) == (-3.0, 2.0)
    assert found.row_max == (RowMax(1, 0.25, 9),)
    # A width that one says nothing of holds all of that one's range.
    assert found.widths == (WidthRange(4, -2.0, 1.0), WidthRange(8, -3.0, 1.5))
    assert found.readers == (AtReaders(4, 10.0), AtReaders(8, 30.0), AtReaders(16, 90.0))
    assert hull_of_observed([OTHER, ONE]) == found
    assert hull_of_observed([ONE, ONE]) is ONE


@pytest.mark.parametrize(
    ("low", "high", "is_kept"), [(0.0, 1.0, True), (0.0, 2.0, False), (-1.0, 1.0, False)]
)
def test_two_values_stay_two_where_they_are_the_same(low, high, is_kept):
    bits = Calibrated((0.0,), (1.0,), two_values=True)
    other = Calibrated((low,), (high,), two_values=True, row_max=(RowMax(0, 1.0),))
    assert hull_of_observed([bits, other]).two_values == is_kept
    assert not hull_of_observed([bits, Calibrated((0.0,), (1.0,))]).two_values


ENDS = st.floats(-8, 8, width=16)


@given(st.lists(st.tuples(ENDS, ENDS), min_size=1, max_size=3))
def test_a_hull_is_the_least_range_around_all_in_any_order(pairs):
    observed = [Calibrated((min(pair),), (max(pair),)) for pair in pairs]
    found = {hull_of_observed(order) for order in permutations(observed)}
    assert found == {Calibrated((min(map(min, pairs)),), (max(map(max, pairs)),))}


@pytest.mark.parametrize(
    ("known", "stated", "moved", "found"),
    [
        (None, {8: (0.0, 1.0)}, {}, {}),
        ((-1.0, 1.0), {}, {}, {}),
        ((-1.0, 1.0), {8: (-1.0, 1.0)}, {}, {}),
        ((-1.0, 1.0), {8: (-0.5, 3.0)}, {}, {8: (-0.5, 1.0)}),
        ((-1.0, 1.0), {}, {4: (-2.0, 0.5)}, {4: (-1.0, 0.5)}),
        ((-1.0, 1.0), {8: (-0.5, 0.5)}, {8: (-0.25, 0.75)}, {8: (-0.25, 0.5)}),
        ((-1.0, 1.0), {8: (-0.5, 0.5)}, {4: (0.0, 1.0)}, {8: (-0.5, 0.5), 4: (0.0, 1.0)}),
    ],
)
def test_widths_hold_what_is_stated_and_handed_on_within_the_range(known, stated, moved, found):
    assert ranges_by_width(known, stated, moved) == found
