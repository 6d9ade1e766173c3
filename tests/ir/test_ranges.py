"""Parameters from a range, against tables worked out by hand with design 01, section 2."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import QTypeError
from planner.ir.qtypes import storage
from planner.ir.ranges import uniform_from_range, uniform_per_axis
from planner.ir.typetext import parse_storage


def f32(value: float) -> float:
    return float(np.float32(value))


@pytest.mark.parametrize(
    ("lo", "hi", "store", "scale", "zero_point"),
    [
        (-1.0, 1.0, "i8", f32(2 / 255), -1),  # the f32 scale is a hair above: -128 + 127.49999
        (0.0, 2.55, "u8", f32(0.01), 0),
        (0.0, 2.55, "i8", f32(0.01), -128),
        (1.0, 2.55, "u8", f32(0.01), 0),  # widened to contain 0
        (-2.55, -1.0, "u8", f32(0.01), 255),
        (-0.5, 1.0, "u8", f32(1.5 / 255), 85),
        (-3.0, 12.0, "i4", 1.0, -5),
        (-1.0, 3.0, "i8<-127:127>", f32(4 / 254), -63),  # and here a hair below: -127 + 63.5000002
        (0.0, 0.0, "u8", 1.0, 0),
        (0.0, 0.0, "i8", 1.0, 0),
        (0.0, 65535.0, "u16", 1.0, 0),
    ],
)
def test_asymmetric(lo, hi, store, scale, zero_point):
    """Reals in [lo, hi] map onto the whole of the storage, and 0.0 is exact."""
    kind = uniform_from_range(lo, hi, parse_storage(store))
    assert (kind.scale, kind.zero_point) == (scale, zero_point)


@pytest.mark.parametrize(
    ("lo", "hi", "store", "scale"),
    [
        (-1.0, 0.5, "i8", f32(1 / 127)),
        (-0.5, 1.0, "i8<-127:127>", f32(1 / 127)),
        (0.0, 7.0, "i4", 1.0),
        (-8.0, 0.0, "i4", f32(8 / 7)),
        (0.0, 0.0, "i8", 1.0),
    ],
)
def test_symmetric(lo, hi, store, scale):
    kind = uniform_from_range(lo, hi, parse_storage(store), symmetric=True)
    assert (kind.scale, kind.zero_point) == (scale, 0)


@pytest.mark.parametrize(
    ("hi", "scale"), [(1.0, 2.0**-6), (127 / 64, 2.0**-6), (2.0, 2.0**-5), (127.0, 1.0), (128.0, 2.0)]
)
def test_power_of_two_is_rounded_up(hi, scale):
    kind = uniform_from_range(-hi, hi, storage("i8"), symmetric=True, power_of_two=True)
    assert kind.scale == scale


@pytest.mark.parametrize(
    ("lo", "hi", "message"),
    [
        (1.0, -1.0, "range 1.0:-1.0 has min > max"),
        (math.nan, 1.0, "range nan:1.0 must be finite"),
        (0.0, math.inf, "range 0.0:inf must be finite"),
    ],
)
def test_what_is_no_range(lo, hi, message):
    with pytest.raises(QTypeError) as caught:
        uniform_from_range(lo, hi, storage("i8"))
    assert str(caught.value) == message


def test_symmetric_needs_signed_storage():
    with pytest.raises(QTypeError, match="a symmetric type needs signed storage around 0, u8 is not"):
        uniform_from_range(-1.0, 1.0, storage("u8"), symmetric=True)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from(["i8", "u8", "i16", "i4", "i8<-127:127>"]))
def test_the_range_is_held_and_zero_is_exact(a, b, name):
    lo, hi = sorted((a, b))
    kind = uniform_from_range(lo, hi, parse_storage(name))
    # The zero point is rounded, so each end may lie half a step inside; f32 rounding adds a little.
    slack = 0.5 * kind.scale * (1 + 1e-4)
    assert kind.lo - slack <= min(lo, 0.0)
    assert kind.hi + slack >= max(hi, 0.0)
    assert kind.storage.qmin <= kind.zero_point <= kind.storage.qmax
    assert kind.scale == float(np.float32(kind.scale))


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=5))
def test_per_axis_is_the_symmetric_formula_slice_by_slice(tops):
    los, his = np.minimum(tops, 0.0), np.maximum(tops, 0.0)
    kind = uniform_per_axis(los, his, storage("i8", -127, 127), 0)
    alone = [
        uniform_from_range(lo, hi, storage("i8", -127, 127), symmetric=True)
        for lo, hi in zip(los, his, strict=True)
    ]
    assert kind.scales == tuple(one.scale for one in alone)
    assert kind.zero_points == (0,) * len(tops)
