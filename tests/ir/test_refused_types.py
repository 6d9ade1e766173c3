"""Types that are none: each way to make one is refused, and the nearest one that is right is not."""

import math
import re

import pytest

from planner.errors import QTypeError
from planner.ir.types.qtypes import (
    AnyType,
    AtReaders,
    Calibrated,
    RowMax,
    Storage,
    Uniform,
    WidthRange,
    storage,
)
from planner.ir.types.scales import EXPRESSED, FORMATS, check_scales, held_scale, held_scales

I8, U8 = storage("i8"), storage("u8")
ONE = (1.0,)


def uniform(scales=ONE, zeros=None, store=I8, **more):
    return Uniform(store, scales, (0,) * len(scales) if zeros is None else zeros, **more)


GOOD = [
    lambda: uniform(zeros=(-128,)),
    lambda: uniform(zeros=(127,)),
    lambda: uniform((1.0, 2.0), axis=0),
    lambda: uniform((1.0, 2.0), blocks=((0, 1),), grid=(2,)),
    lambda: uniform((1.0,) * 4, blocks=((0, 1), (1, 3)), grid=(2, 2)),
    lambda: uniform((1.0, 2.0), axis=0, ranges=((-128, 126), (-127, 127))),
    lambda: uniform((1.0, 2.0), (-128, 127), axis=0, ranges=((-128, 126), (-127, 127))),
    lambda: AnyType(I8, "f32", uniform()),
    lambda: RowMax(0, -1.5, 1),
    lambda: WidthRange(1, 0.0, 0.0),
    lambda: AtReaders(1, -3.0),
    lambda: Calibrated((0.0,), (0.0,)),
    lambda: Calibrated((0.0, 1.0), (0.0, 1.0), axis=0),
    lambda: Calibrated((0.0,), (1.0,), row_max=(RowMax(0, 1.0), RowMax(1, 1.0))),
    lambda: Calibrated((0.0,), (1.0,), widths=(WidthRange(4, 0.0, 0.5), WidthRange(8, 0.0, 1.0))),
    lambda: Calibrated((0.0,), (1.0,), readers=(AtReaders(4, 1.0), AtReaders(8, 1.0))),
]
BAD = [
    (lambda: uniform((), ()), "0 scales for 0 zero points"),
    (lambda: uniform((1.0, 2.0), (0,), axis=0), "2 scales for 1 zero points"),
    (lambda: uniform(zeros=(-129,)), "zero point -129 lies outside the storage range -128:127 of i8"),
    (lambda: uniform(zeros=(128,)), "zero point 128 lies outside the storage range -128:127 of i8"),
    (lambda: uniform((1.0, 1.0), (0, 128), axis=0), "zero point 128 lies outside"),
    (lambda: uniform(store=Storage(8, False, 1, 9)), "zero point 0 lies outside the storage range 1:9 of u8"),
    (lambda: uniform((1.0, 2.0)), "2 scales need an axis, or blocks and a grid"),
    (lambda: uniform((1.0, 2.0), axis=-1), "quantized dimension -1 is negative"),
    (lambda: uniform((1.0, 2.0), axis=0, grid=(2,)), "a type along axis 0 has no blocks"),
    (lambda: uniform((1.0, 2.0), blocks=((0, 1),)), "2 scales need an axis, or blocks and a grid"),
    (lambda: uniform((1.0, 2.0), grid=(3,)), "2 scales do not fill a grid of [3]"),
    (lambda: uniform(ONE, grid=(1,) * 65), "scales nest 65 deep; at most"),
    (lambda: uniform((1.0, 2.0), blocks=((-1, 1),), grid=(2,)), "block -1:1: the axis must not be negative"),
    (lambda: uniform((1.0, 2.0), blocks=((0, 0),), grid=(2,)), "block 0:0: the axis must not be negative"),
    (lambda: uniform((1.0, 2.0), blocks=((1, 1),), grid=(2,)), "block axis 1 is beyond the scale list"),
    (lambda: uniform((1.0, 2.0), blocks=((0, 1), (0, 2)), grid=(2, 1)), "an axis has two block sizes"),
    (lambda: uniform((1.0, 2.0), blocks=((1, 1), (0, 2)), grid=(2, 1)), "an axis has two block sizes"),
    (lambda: uniform(ranges=((-128, 127),)), "1 storage ranges for 1 scales of slices"),
    (lambda: uniform((1.0, 2.0), axis=0, ranges=((-128, 127),)), "1 storage ranges for 2 scales of slices"),
    (
        lambda: uniform((1.0, 2.0), axis=0, ranges=((3, 3), (-128, 127))),
        "storage range 3:3 of a slice is empty",
    ),
    (
        lambda: uniform((1.0, 2.0), (0, 127), axis=0, ranges=((-127, 127), (-128, 126))),
        "zero point 127 lies outside the storage range -128:126 of its slice",
    ),
    (
        lambda: uniform((1.0, 2.0), (0, -128), axis=0, ranges=((-128, 127), (-127, 126))),
        "zero point -128 lies outside the storage range -127:126 of its slice",
    ),
    (
        lambda: uniform((1.0, 2.0), axis=0, ranges=((-128, 127),) * 2),
        "must be the hull of ranges that differ",
    ),
    (lambda: uniform((1.0, 2.0), axis=0, ranges=((-8, 7), (-4, 3))), "these span -8:7"),
    (lambda: AnyType(U8, "f32", uniform()), "is no type per tensor or axis in u8:f32"),
    (lambda: AnyType(I8, "f16", uniform()), "is no type per tensor or axis in i8:f16"),
    (
        lambda: AnyType(I8, "f32", uniform((1.0, 2.0), blocks=((0, 1),), grid=(2,))),
        "is no type per tensor or axis in i8:f32",
    ),
    (lambda: RowMax(-1, 0.0), "accepted: an axis of at least 0"),
    (lambda: RowMax(0, math.inf), "accepted: an axis of at least 0"),
    (lambda: RowMax(0, 0.0, 0), "accepted: an axis of at least 0"),
    (lambda: WidthRange(0, 0.0, 1.0), "a range for 0 bits"),
    (lambda: WidthRange(65, 0.0, 1.0), "a range for 65 bits"),
    (lambda: WidthRange(8, 1.0, 0.0), "accepted: two finite ends, min <= max"),
    (lambda: WidthRange(8, 0.0, math.inf), "accepted: two finite ends, min <= max"),
    (lambda: WidthRange(8, -math.inf, 0.0), "accepted: two finite ends, min <= max"),
    (lambda: AtReaders(0, 1.0), "dB at consumers"),
    (lambda: AtReaders(65, 1.0), "dB at consumers"),
    (lambda: AtReaders(8, math.nan), "dB at consumers"),
    (lambda: Calibrated((), ()), "0 minima and 0 maxima without an axis"),
    (lambda: Calibrated((0.0, 0.0), (1.0, 1.0)), "2 minima and 2 maxima without an axis"),
    (lambda: Calibrated((0.0, 0.0), (1.0,), axis=0), "2 minima and 1 maxima along axis 0"),
    (lambda: Calibrated((0.0,), (1.0,), axis=-1), "calibrated axis -1 is negative"),
    (lambda: Calibrated((math.nan,), (1.0,)), "calibrated range nan:1.0 must be finite"),
    (lambda: Calibrated((0.0,), (math.inf,)), "calibrated range 0.0:inf must be finite"),
    (lambda: Calibrated((1.0,), (0.0,)), "calibrated range 1.0:0.0 has min > max"),
    (lambda: Calibrated((0.0,), (1.0,), row_max=(RowMax(0, 1.0),) * 2), "row_max names an axis twice"),
    (
        lambda: Calibrated((0.0,), (1.0,), axis=0, widths=(WidthRange(8, 0.0, 1.0),)),
        "ranges for widths beside ranges along axis 0",
    ),
    (lambda: Calibrated((0.0,), (1.0,), widths=(WidthRange(8, 0.0, 1.0),) * 2), "ranges for [8, 8] bits"),
    (
        lambda: Calibrated((0.0,), (1.0,), widths=(WidthRange(8, 0.0, 1.0), WidthRange(4, 0.0, 1.0))),
        "ranges for [8, 4] bits",
    ),
    (
        lambda: Calibrated((0.0,), (1.0,), widths=(WidthRange(8, -0.5, 1.0),)),
        "leaves the observed one, 0.0:1.0",
    ),
    (
        lambda: Calibrated((0.0,), (1.0,), widths=(WidthRange(8, 0.0, 1.5),)),
        "leaves the observed one, 0.0:1.0",
    ),
    (lambda: Calibrated((0.0,), (1.0,), readers=(AtReaders(8, 1.0),) * 2), "dB at consumers at [8, 8] bits"),
    (lambda: uniform(expressed="f31"), "expressed type 'f31' is none of"),
    (lambda: Storage(0, True, 0, 1), "a storage has 1 to"),
    (lambda: Storage(65, True, 0, 1), "a storage has 1 to"),
]


@pytest.mark.parametrize("make", GOOD, ids=range(len(GOOD)))
def test_what_just_fits_is_a_type(make):
    kind = make()
    assert kind == make()
    assert hash(kind) == hash(make())


@pytest.mark.parametrize(("make", "said"), BAD, ids=range(len(BAD)))
def test_what_just_does_not_fit_is_refused(make, said):
    with pytest.raises(QTypeError) as raised:
        make()
    assert said in raised.value.message


@pytest.mark.parametrize("expressed", EXPRESSED)
def test_scales_end_where_the_floats_do(expressed):
    """The least and the greatest are scales, alone and beside others; what lies beyond is none."""
    kept = FORMATS[expressed]
    least, most = kept.step, kept.most
    check_scales((least,), expressed)
    check_scales((most, least), expressed)
    assert held_scale(least, expressed) == least
    assert held_scale(most, expressed) == most
    assert held_scales([least, most], expressed) == (least, most)
    beyond = [0.0, -1.0, math.inf, math.nan, math.nextafter(most, math.inf), math.nextafter(least, 0)]
    for scale in beyond:
        for refuse in (
            lambda scale: check_scales((scale,), expressed),
            lambda scale: check_scales((1.0, scale), expressed),
            lambda scale: held_scale(scale, expressed),
            lambda scale: held_scales([1.0, scale], expressed),
        ):
            with pytest.raises(QTypeError, match=re.escape(f"scale {scale!r} ")):
                refuse(scale)


RANGES = ((-123, 126), (-8, 126))


@pytest.mark.parametrize(("lo", "hi", "kind"), [
    (-128.0, 127.0, uniform()),
    (-256.0, 254.0, uniform((1.0, 2.0), axis=0)),
    (-156.0, 354.0, uniform((1.0, 2.0), (-98, -50), axis=0)),
    (-256.0, 252.0, uniform((1.0, 2.0), axis=0, ranges=((-127, 127), (-128, 126)))),
    (-125.0, 250.0, uniform((1.0, 2.0), (2, 1), Storage(8, True, -123, 126), axis=0, ranges=RANGES)),
])  # fmt: skip
def test_the_ends_of_a_type_are_those_of_its_widest_slice(lo, hi, kind):
    assert (kind.lo, kind.hi) == (lo, hi)
    assert len(kind.slice_ranges) == len(kind.scales)


def test_a_width_holds_its_own_range_and_another_all():
    seen = Calibrated((-1.0,), (2.0,), widths=(WidthRange(4, -0.5, 1.0),), readers=(AtReaders(8, 30.0),))
    assert [seen.at(bits) for bits in (4, 8)] == [(-0.5, 1.0), (-1.0, 2.0)]
    assert [seen.at_readers(bits) for bits in (4, 8)] == [None, 30.0]
