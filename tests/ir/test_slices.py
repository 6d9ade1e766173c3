"""Extents of slices: what any type's slices hold, beside a loop over each number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir.arithmetic.slices import slice_extents, slice_sums
from planner.ir.types.qtypes import Uniform, storage

I4 = storage("i4")


def slice_of(place, kind, shape, axis):
    """The number of the slice that a place lies in."""
    if kind.blocks:
        sizes = dict(kind.blocks)
        at = [i // sizes.get(k, shape[k]) for k, i in enumerate(place)]
        return int(np.ravel_multi_index(at, kind.grid))
    own = axis if kind.axis is None else kind.axis
    return 0 if own is None else place[own]


def counted(array, kind, axis, cut):
    """Least and greatest real and the sum of |stored| of each slice, number by number."""
    count = len(kind.scales)
    if count == 1 and axis is not None and not kind.blocks:
        count = array.shape[axis]
    lows, highs, sums = np.zeros(count), np.zeros(count), np.zeros(count)
    for place in np.ndindex(array.shape):
        one, real = slice_of(place, kind, array.shape, axis), array[place]
        scale = kind.scales[one if len(kind.scales) > 1 else 0]
        stored = abs(np.rint(np.float32(real) / np.float32(scale)))
        lows[one], highs[one] = min(lows[one], real), max(highs[one], real)
        sums[one] += min(stored, 8) if cut else stored
    return lows, highs, sums


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    way = draw(st.sampled_from(("whole", "axis", "given", "blocks")))
    axis = draw(st.integers(0, len(shape) - 1))
    scales = [2.0**-k for k in range(8)]
    if way == "whole":
        return shape, Uniform(I4, (0.25,), (0,)), None
    if way == "given":
        return shape, Uniform(I4, (0.25,), (0,)), axis
    if way == "axis":
        count = shape[axis]
        return shape, Uniform(I4, tuple(scales[:count]), (0,) * count, "f32", axis), None
    blocks = {k: draw(st.integers(1, size)) for k, size in enumerate(shape) if draw(st.booleans())}
    blocks = blocks or {axis: shape[axis]}
    grid = tuple(-(-size // blocks.get(k, size)) for k, size in enumerate(shape))
    count = int(np.prod(grid))
    each = tuple(scales[k % 8] for k in range(count))
    return shape, Uniform(I4, each, (0,) * count, "f32", None, tuple(blocks.items()), grid), None


@given(cases(), st.booleans(), st.integers(0, 99))
def test_every_slice_is_what_a_loop_over_its_numbers_finds(case, cut, seed):
    shape, kind, axis = case
    array = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    found = slice_extents(array, kind, axis, cut=cut)
    for mine, wanted in zip((found.lo, found.hi, found.sums), counted(array, kind, axis, cut), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    np.testing.assert_array_equal(slice_sums(array, kind, axis, cut=cut), found.sums)


def test_rows_of_a_long_array_are_brought_together():
    """More numbers than one band holds, in slices across its rows."""
    array = np.arange(-70000, 70000, dtype=np.float32).reshape(14, 10000)
    found = slice_extents(array, Uniform(I4, (0.5,) * 10, (0,) * 10, "f32", None, ((1, 1000),), (1, 10)))
    np.testing.assert_array_equal(found.lo, array.reshape(14, 10, 1000).min((0, 2)))
    np.testing.assert_array_equal(found.hi, array.reshape(14, 10, 1000).max((0, 2)))
    np.testing.assert_array_equal(found.sums, 2 * np.abs(array.reshape(14, 10, 1000)).sum((0, 2), np.float64))


@pytest.mark.parametrize(
    ("shape", "kind", "axis"),
    [
        ((2, 3), Uniform(I4, (1.0, 2.0), (0, 0), "f32", 2), None),
        ((2, 3), Uniform(I4, (1.0,), (0,)), 2),
        ((2, 3), Uniform(I4, (1.0,), (0,)), -1),
        ((2, 5), Uniform(I4, (1.0, 2.0), (0, 0), "f32", None, ((1, 2),), (1, 2)), None),
        ((0, 4), Uniform(I4, (1.0, 2.0), (0, 0), "f32", None, ((1, 2),), (1, 2)), None),
    ],
)
def test_a_type_of_another_array_has_no_slices_of_this_one(shape, kind, axis):
    assert slice_extents(np.ones(shape, np.float32), kind, axis) is None
    assert slice_sums(np.ones(shape, np.float32), kind, axis) is None


def test_an_empty_array_has_empty_slices():
    found = slice_extents(np.ones((2, 0), np.float32), Uniform(I4, (1.0, 2.0), (0, 0), "f32", 0))
    assert [part.tolist() for part in (found.lo, found.hi, found.sums)] == [[0, 0]] * 3
