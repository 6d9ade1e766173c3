"""Numbers: a sequence in little memory that is its tuple in every comparison."""

import copy

import numpy as np
import pytest

from planner.ir.types.many_numbers import compact
from planner.ir.types.parameter_texts import MANY
from planner.ir.types.typetext import parse_type

SCALES = tuple(np.random.default_rng(0).uniform(0.1, 1, 20_000).astype(np.float32).tolist())
ZEROS = tuple(range(-10_000, 10_000))


def test_they_are_the_tuple_they_stand_for():
    scales, zeros = compact(SCALES, ZEROS)
    for held, given in ((scales, SCALES), (zeros, ZEROS)):
        assert held == given
        assert given == held
        assert hash(held) == hash(given)
        assert held != given[:-1]
        assert held != (*given[:-1], 99)
        assert held != list(given)
        assert tuple(held) == given
        assert held[3] == given[3]
        assert type(held[3]) is type(given[3])
        assert held[5:9] == given[5:9]
        assert {held: 1}[given] == 1
        assert copy.deepcopy(held) == held
        assert held.count(given[7]) == 1


def test_numpy_sees_doubles_and_wide_integers():
    scales, zeros = compact(SCALES, ZEROS)
    assert np.asarray(scales).dtype == np.float64
    assert np.asarray(scales, np.float32).dtype == np.float32
    assert np.asarray(zeros).dtype == np.int64
    np.testing.assert_array_equal(np.asarray(scales), np.asarray(SCALES))


@pytest.mark.parametrize("scales", [(0.1, 0.2, 1e300), (0.1,) * 3])
def test_no_digit_is_lost(scales):
    held, zeros = compact(scales, (7,) * 3)
    assert held == scales
    assert zeros == (7, 7, 7)
    assert zeros.count(7) == 3


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize(("count", "is_kept"), [(MANY - 1, True), (MANY, False)])
def test_scales_are_kept_as_they_were_written_up_to_a_number(count, is_kept, space):
    """However the text is read: as it is printed, or with spaces in it."""
    kind = parse_type(f"!quant.uniform<i8:f32:0,{space} {{{','.join(['0.05'] * count)}}}>")
    assert len(kind.scales) == count
    assert ("0.05," in kind.written_text) == is_kept
