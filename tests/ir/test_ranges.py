"""Parameters from a range, against tables worked out by hand with docs/specification.md, section 2."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import QTypeError
from planner.ir.types.qtypes import storage
from planner.ir.types.ranges import uniform_columns, uniform_from_range, uniform_per_axis, uniform_per_block
from planner.ir.types.scales import common_factor, held_in, holds_scales, nearest
from planner.ir.types.typetext import parse_storage


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
    ("expressed", "scale", "zero_point"),
    [
        ("bf16", 129 / 2**13, 64),  # 4.03 / 255 is 129.47 of its 2^-13; 1 / scale = 63.504
        ("f16", 1036 / 2**16, 63),  # 1035.73 of 2^-16; 63.259
        ("tf32", 1036 / 2**16, 63),  # as many digits as f16
        ("f32", f32(4.03 / 255), 63),  # 63.275
        ("f64", (3.03 + 1.0) / 255, 63),
        ("f80", (3.03 + 1.0) / 255, 63),
    ],
)
def test_the_zero_point_follows_the_scale_of_the_expressed_type(expressed, scale, zero_point):
    kind = uniform_from_range(-1.0, 3.03, storage("u8"), expressed=expressed)
    assert (kind.scale, kind.zero_point, kind.expressed) == (scale, zero_point, expressed)
    slices = uniform_per_axis(
        np.array([-1.0, 0.0]), np.array([3.03, 0.0]), storage("u8"), 3, symmetric=False, expressed=expressed
    )
    assert (slices.scales, slices.zero_points) == ((scale, 1.0), (zero_point, 0))


@pytest.mark.parametrize(
    ("expressed", "scale"),
    [
        ("bf16", 146 / 2**10),  # 1 / 7 is 146.29 of 2^-10
        ("f16", 1170 / 2**13),  # 1170.29 of 2^-13
        ("tf32", 1170 / 2**13),
        ("f32", f32(1 / 7)),
        ("f64", 1 / 7),
        ("f80", 1 / 7),
    ],
)
def test_symmetric_scales_of_every_expressed_type(expressed, scale):
    kind = uniform_from_range(-0.25, 1.0, storage("i4"), symmetric=True, expressed=expressed)
    assert (kind.scale, kind.zero_point) == (scale, 0)
    pair = uniform_from_range(
        -0.25, 1.0, storage("i4"), symmetric=True, power_of_two=True, expressed=expressed
    )
    assert pair.scale == 0.25


@pytest.mark.parametrize(
    ("expressed", "tiny"),
    [("f16", 2.0**-14), ("bf16", 2.0**-126), ("tf32", 2.0**-126), ("f32", 2.0**-126), ("f64", 2.0**-1022)],
)
def test_no_scale_is_below_the_least_normal_number(expressed, tiny):
    for power_of_two in (False, True):
        kind = uniform_from_range(
            -5e-324, 5e-324, storage("i8"), symmetric=True, power_of_two=power_of_two, expressed=expressed
        )
        assert kind.scale == tiny


def test_a_scale_beyond_the_expressed_type_is_refused():
    with pytest.raises(QTypeError, match=r"^scale 7874015\.7\d* is beyond f16$"):
        uniform_from_range(-1e9, 1e9, storage("i8"), symmetric=True, expressed="f16")
    with pytest.raises(QTypeError, match=r"^range -1\.7e\+308:1\.7e\+308 needs a scale beyond f64$"):
        uniform_from_range(-1.7e308, 1.7e308, storage("i8"), expressed="f64")


def test_a_power_of_two_just_missed_is_rounded_up():
    """log2 would say exactly -6."""
    above = float(np.nextafter(127 / 64, 2))
    kind = uniform_from_range(-above, above, storage("i8"), symmetric=True, power_of_two=True)
    slices = uniform_per_axis(
        np.array([-above]), np.array([above]), storage("i8"), 0, power_of_two=True, expressed="f64"
    )
    assert (kind.scale, slices.scales) == (2.0**-5, (2.0**-5,))


def test_blocks_have_a_range_each():
    los = np.array([[-1.0, 0.0], [-0.5, -7.0]])
    his = np.array([[3.0, 0.0], [7.0, 1.0]])
    kind = uniform_per_block(los, his, storage("i4"), {1: 16, 0: 1})
    assert str(kind) == (
        "!quant.uniform<i4:f32:{0:1, 1:16}, {{0.4285714328289032, 1.0}, {1.0, 1.0}}>"  # 3/7, 0, 7/7, 7/7
    )
    kind = uniform_per_block(los, his, storage("u4"), {0: 1, 1: 16}, symmetric=False)
    assert kind.zero_points == (4, 0, 1, 13)  # 15 * 1/4 = 3.75; none; 1; 15 * 7/8 = 13.125


@pytest.mark.parametrize(
    ("lo", "hi", "message"),
    [
        (math.nan, 1.0, "slice 1: range nan:1.0 must be finite"),
        (0.0, math.inf, "slice 1: range 0.0:inf must be finite"),
        (1.0, 0.5, "slice 1: range 1.0:0.5 has min > max"),
    ],
)
def test_the_slice_without_a_range_is_named(lo, hi, message):
    with pytest.raises(QTypeError) as caught:
        uniform_per_axis(np.array([0.0, lo]), np.array([1.0, hi]), storage("i8"), 0)
    assert str(caught.value) == message


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
    # The zero point is rounded, so each end may lie half a step inside; so is the scale of every step.
    slack = kind.scale * (0.5 + kind.storage.steps * 2.0**-23)
    assert kind.lo - slack <= min(lo, 0.0)
    assert kind.hi + slack >= max(hi, 0.0)
    assert kind.storage.qmin <= kind.zero_point <= kind.storage.qmax
    assert kind.scale == float(np.float32(kind.scale))


@given(
    st.lists(st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)), min_size=1, max_size=5),
    st.sampled_from(["i8", "u8", "i4", "i33", "u64", "i8<-127:127>", "i8<-128:-100>"]),
    st.sampled_from(["f16", "bf16", "tf32", "f32", "f64"]),
    st.booleans(),
)
def test_slices_are_chosen_as_tensors_are(pairs, name, expressed, power_of_two):
    store = parse_storage(name)
    pairs = [tuple(sorted(pair)) for pair in pairs]
    los, his = (np.array(ends) for ends in zip(*pairs, strict=True))
    kind = uniform_per_axis(
        los, his, store, 0, symmetric=False, power_of_two=power_of_two, expressed=expressed
    )
    alone = [
        uniform_from_range(lo, hi, store, power_of_two=power_of_two, expressed=expressed) for lo, hi in pairs
    ]
    assert kind.scales == tuple(one.scale for one in alone)
    assert kind.zero_points == tuple(one.zero_point for one in alone)


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


@given(
    st.lists(st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)), min_size=1, max_size=5),
    st.sampled_from(("i8", "i4", "i8<-127:127>", "i16")),
    st.booleans(),
    st.booleans(),
)
def test_columns_are_chosen_as_slices_are(pairs, name, symmetric, power_of_two):
    """The arrays of `uniform_columns` are the type of `uniform_per_axis`."""
    los, his = ([float(np.float32(end(pair))) for pair in pairs] for end in (min, max))
    given = {"symmetric": symmetric, "power_of_two": power_of_two}
    columns = uniform_columns(los, his, parse_storage(name), **given)
    assert columns == uniform_per_axis(los, his, parse_storage(name), 0, **given)


@pytest.mark.parametrize("held", ["e8m0", "f8E4M3FN", "f16", "bf16"])
def test_columns_have_scales_that_a_file_holds(held):
    los, his = np.array([-1.0, 0.0, -3.0, 0.0]), np.array([0.5, 0.0, 7.0, 1e-4])
    kind = uniform_columns(los, his, storage("i8"), held=held)
    assert holds_scales(kind.scales, held)
    assert not any(kind.zero_points)
    exact = np.maximum(-los, his) / 127
    busy = exact > 0
    step = {"e8m0": 1.0, "f8E4M3FN": 1 / 8, "f16": 1 / 512, "bf16": 1 / 128}[held]
    np.testing.assert_allclose(np.asarray(kind.scales)[busy][:2], exact[busy][:2], rtol=step)
    with pytest.raises(QTypeError, match=r"slice 1: range nan:1\.0 must be finite"):
        uniform_columns([0.0, math.nan], [1.0, 1.0], storage("i8"), held=held)


def test_scales_of_one_factor_are_found_and_others_are_not():
    """NVFP4: each scale is a value of f8E4M3FN times one float32."""
    exact = np.array([448.0, 3.25, 0.017, 2e-9]) * 1.7
    scales = [float(np.float32(scale)) for scale in held_in(exact, "f8E4M3FN")]
    factor = common_factor(scales)
    assert factor == pytest.approx(exact[0] / 448, rel=1e-5)
    times = np.asarray(scales) / factor
    assert np.array_equal(nearest(times, "f8E4M3FN"), times.round(12))
    np.testing.assert_allclose(times[:3], [448, 3.25, 1.125 * 2**-6], rtol=1e-6)
    assert common_factor([1.0, 1.0 + 2**-10]) is None
    assert common_factor([float(k) for k in range(1, 200)]) is None
    assert not holds_scales([1.0, 1.0 + 2**-10], "f8E4M3FN")
    with pytest.raises(QTypeError, match="is beyond e8m0"):
        held_in(np.array([2.0**128]), "e8m0")
    assert held_in(np.array([2.0**127, 2.0**-130]), "e8m0").tolist() == [2.0**127, 2.0**-126]
