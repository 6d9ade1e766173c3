"""Ranges of constants: of all numbers and of slices, read once where no number can change."""

import numpy as np
import pytest

from planner.ir.graph import Constant
from planner.propagation.network.constant_ranges import constant_range, slice_ranges

NUMBERS = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -8.0]], np.float32)


def held(*, writeable):
    array = NUMBERS.copy()
    array.flags.writeable = writeable
    return Constant(array)


@pytest.mark.parametrize(
    ("axis", "los", "his"), [(0, [-2.0, -8.0], [3.0, 0.5]), (1, [0.5, -2.0, -8.0], [1.0, 0.25, 3.0])]
)
@pytest.mark.parametrize("writeable", [False, True])
def test_ends_of_slices(axis, los, his, writeable):
    constant = held(writeable=writeable)
    for _ in range(2):
        found = slice_ranges(constant, axis)
        assert [ends.tolist() for ends in found] == [los, his]
        assert constant_range(constant) == (-8.0, 3.0)


def test_numbers_that_can_change_are_read_again():
    constant = held(writeable=True)
    assert constant_range(constant) == (-8.0, 3.0)
    constant.array[0, 0] = 100.0
    assert constant_range(constant) == (-8.0, 100.0)
    assert slice_ranges(constant, 0)[1].tolist() == [100.0, 0.5]
    fixed = held(writeable=False)
    assert slice_ranges(fixed, 1)[0] is slice_ranges(fixed, 1)[0]


def test_what_is_infinite_or_empty():
    assert constant_range(Constant(np.array([1.0, np.inf], np.float32))) is None
    assert constant_range(Constant(np.zeros((0, 2), np.float32))) == (0.0, 0.0)
    assert constant_range(Constant(lo=(-1.0, -3.0), hi=(2.0, 1.0))) == (-3.0, 2.0)
    assert constant_range(Constant()) is None
    assert [ends.tolist() for ends in slice_ranges(Constant(np.zeros((2, 0), np.float32)), 0)] == [[0, 0]] * 2
