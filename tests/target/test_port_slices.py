"""Types of slices and what ports accept: every range is held, by the finest scale that the port allows."""

import numpy as np
import pytest

from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, Uniform, uniform
from planner.ir.types.typetext import parse_storage as storage
from planner.target.ports.accepts import (
    BIAS_LIMIT,
    bias_room,
    bits_of,
    has_blocks_of,
    parameter_problem,
    usable,
)
from planner.target.ports.labels import clipped_share, clipped_shares, label_for, label_of
from planner.target.ports.slices import (
    HELD,
    OneSided,
    ends_observed,
    one_type,
    slices_of_axis,
    slices_of_blocks,
    with_pairs,
)
from planner.target.records import PortType, Row

LOS = np.array([-1.0, 0.0, -3.0, 0.5, -2.0, 0.0])
HIS = np.array([2.0, 1.0, 0.0, 4.0, -1.0, 0.0])
EXACT = 1e-6


def held_by(store, scale, zero, lo, hi):
    return clipped_share((lo, hi), (scale, zero - store.offset), store) == 0.0


@pytest.mark.parametrize("name", ["i8", "i8<-127:127>", "i4", "u8", "u4"])
@pytest.mark.parametrize("zero", [None, 0, 8, "end"])
@pytest.mark.parametrize("power", [False, True])
def test_slices_of_an_axis_lie_around_one_number_and_are_as_fine_as_they_can(name, zero, power):
    store = storage(name)
    zero = store.qmax if zero == "end" else zero
    spec = PortType(store, "axis", zero_point=zero, power_of_two=power)
    around = 0 if store.signed else 1 << store.bits - 1 if zero is None else zero
    both = np.array([-1.0, 1.0])
    if around in (store.qmin, store.qmax) and not store.signed:
        with pytest.raises(OneSided, match=f"around zero point {around} {name} holds numbers of one sign"):
            slices_of_axis(both[:1], both[1:], store, 1, spec)
        sign = 1 if around == 0 else -1
        los, his = (np.minimum(sign * abs(LOS), 0), np.maximum(sign * abs(HIS), 0))
    else:
        los, his = LOS, HIS
    kind = slices_of_axis(los, his, store, 1, spec)
    assert (kind.storage, kind.axis, set(kind.zero_points)) == (store, 1, {around})
    room = min(n for n in (around - store.qmin, store.qmax - around) if n)
    for scale, lo, hi in zip(kind.scales, los, his, strict=True):
        farthest = max(-lo, hi)
        if farthest:
            # As many steps on both sides: kernels negate, and the engine's own types do so.
            ratio = scale * room / farthest
            assert (1 - EXACT <= ratio < 2) if power else ratio == pytest.approx(1, rel=1e-5), (scale, lo, hi)
            assert not power or np.frexp(scale)[0] == 0.5


@pytest.mark.parametrize(
    "spec",
    [
        PortType(storage("u8"), "block"),
        PortType(storage("i4"), "block", symmetric=True),
        PortType(storage("u4"), "block", zero_point=8),
        PortType(storage("i8"), "block", symmetric=True, power_of_two=True),
        PortType(storage("i8"), "block", power_of_two=True),
        PortType(storage("i8"), "block", symmetric=True, scale_min=0.02),
        PortType(storage("u8"), "block", scale_max=0.01),
        PortType(storage("i4"), "block", symmetric=True, scales="f16"),
        PortType(storage("u4"), "block", scales="f16"),
    ],
    ids=str,
)
def test_blocks_have_the_types_that_each_would_have_alone_however_many_there_are(spec):
    store = spec.storage
    kind = slices_of_blocks(LOS, HIS, spec)
    often = HELD // len(LOS) + 1
    many = slices_of_blocks(np.tile(LOS, often), np.tile(HIS, often), spec)
    assert len(many.scales) == often * len(LOS) >= HELD
    assert kind.axis == many.axis == 0
    np.testing.assert_allclose(many.scales, np.tile(kind.scales, often), rtol=1e-6)
    assert (*many.zero_points,) == (*kind.zero_points,) * often
    assert parameter_problem(spec, kind) is None
    for scale, zero, lo, hi in zip(kind.scales, kind.zero_points, LOS, HIS, strict=True):
        if spec.scales == "f32":
            wanted, at = label_for((float(lo), float(hi)), spec)
            assert (scale, zero) == (pytest.approx(wanted), at + store.offset)
        if spec.scale_max is None:
            assert held_by(store, scale, zero, lo, hi)


@pytest.mark.parametrize("zero", [0, 255])
def test_blocks_around_an_end_hold_one_sign(zero):
    spec = PortType(storage("u8"), "block", zero_point=zero)
    sign = 1.0 if zero == 0 else -1.0
    one = np.array([0.0, 0.0]), np.array([1.0, 2.0])
    los, his = one if sign > 0 else (-one[1], -one[0])
    kind = slices_of_blocks(los, his, spec)
    assert kind.scales == pytest.approx([1 / 255, 2 / 255])
    assert kind.zero_points == (zero, zero)
    with pytest.raises(OneSided, match=f"around zero point {zero} u8 holds numbers of one sign only"):
        slices_of_blocks(-his, -los, spec)


def test_a_block_of_zeros_has_no_say_in_the_factor_of_all():
    spec = PortType(storage("i4"), "block", symmetric=True, scale_min=1e-9, scales="f8E4M3FN")
    alone = slices_of_blocks(np.array([-7.0, -14.0]), np.array([7.0, 14.0]), spec)
    beside = slices_of_blocks(np.array([-7.0, 0.0, -14.0]), np.array([7.0, 0.0, 14.0]), spec)
    assert (beside.scales[0], beside.scales[2]) == alone.scales
    assert beside.scales[1] == beside.scales[2]


@pytest.mark.parametrize(
    ("extent", "zero", "clip", "refused"),
    [
        ((-1.0, 1.0), 0, 0.0, True),
        ((-1.0, 1.0), 0, 0.6, False),
        ((0.0, 1.0), 0, 0.0, False),
        ((-1.0, 0.0), 255, 0.0, False),
        ((-1.0, 1.0), 255, 0.0, True),
        ((-1.0, 1.0), 128, 0.0, False),
        ((-1.0, 1.0), None, 0.0, False),
    ],
)
def test_one_type_of_numbers_of_both_signs(extent, zero, clip, refused):
    spec, store = PortType(zero_point=zero), storage("u8")
    if refused:
        with pytest.raises(OneSided, match=f"around zero point {zero} u8"):
            one_type(extent, store, spec, clip)
        return
    kind = one_type(extent, store, spec, clip)
    assert kind.zero_point in ((127, 128) if zero is None else (zero,))
    assert clipped_share(extent, label_of(kind), store) <= clip


def test_a_share_of_many_is_the_share_of_each():
    store = storage("i8")
    labels = [(0.01, -128), (0.02, 0), (0.5, 3), (0.001, 127)]
    scales = np.array([scale for scale, _ in labels])
    low, high = (np.array([end - zero for _, zero in labels]) for end in (store.qmin, store.qmax))
    for lo, hi in [(-1.0, 2.0), (0.5, 4.0), (-3.0, -1.0), (0.0, 0.0), (-1e-3, 1e-3)]:
        found = clipped_shares(lo, hi, scales, low, high)
        assert found == pytest.approx([clipped_share((lo, hi), label, store) for label in labels])


def test_an_observed_range_of_slices_goes_before_their_numbers_and_cuts_them():
    los, his = np.array([-4.0, -1.0]), np.array([1.0, 3.0])
    one = Calibrated((-2.0,), (2.0,), "f32")
    of_axis = Calibrated((-9.0, -8.0), (7.0, 6.0), "f32", 1)

    def ends(seen, **how):
        return [end.tolist() for end in ends_observed(seen, los, his, **how)]

    assert ends(None) == [[-4.0, -1.0], [1.0, 3.0]]
    assert ends(one) == ends(one, axis=1) == [[-2.0, -1.0], [1.0, 2.0]]
    assert ends(one, sliced=False) == [[-2.0], [2.0]]
    assert ends(of_axis, axis=1) == [[-9.0, -8.0], [7.0, 6.0]]
    assert ends(of_axis, axis=0) == ends(of_axis) == [[-4.0, -1.0], [1.0, 3.0]]
    assert ends(of_axis, axis=1, sliced=False) == [[-9.0], [7.0]]


@pytest.mark.parametrize("slices", [1, 3])
def test_ends_are_moved_out_until_neighbours_add_up_to_what_a_port_takes(slices):
    store, most = storage("i8<-127:127>"), 128
    los, his = np.array([-1.0, -0.5, 0.0])[:slices], np.array([0.5, 1.0, 1.0])[:slices]
    pairs = np.array([2.0, 1.0, 1.9])
    low, high = with_pairs((los, his), pairs, most, store)
    pairs_here = pairs if slices == 3 else pairs.max(keepdims=True)
    for at in range(slices):
        before, after = max(-los[at], his[at]), max(-low[at], high[at])
        # Each of two numbers is rounded by half a step.
        fits = pairs_here[at] / (before / 127) <= most - 1 + EXACT
        if fits:
            assert (low[at], high[at]) == (los[at], his[at])
        else:
            assert (low[at], high[at]) == (-after, after)
            assert pairs_here[at] / (after / 127) == pytest.approx(most - 1)
    for same in (None, pairs[: slices - 1]):
        assert with_pairs((los, his), same, most, store) == (los, his)


@pytest.mark.parametrize(
    ("spec", "scale", "zero", "problem"),
    [
        (PortType(symmetric=True), 0.375, 0, None),
        (PortType(symmetric=True), 0.375, 1, "its zero point is not 0"),
        (PortType(zero_point=3), 0.375, 3, None),
        (PortType(zero_point=3), 0.375, 0, "its zero point is not 3"),
        (PortType(power_of_two=True), 0.25, 5, None),
        (PortType(power_of_two=True), 0.375, 5, "its scale is no power of two"),
        (PortType(scale_min=0.25), 0.25, 0, None),
        (PortType(scale_min=0.25), 0.125, 0, "its scale is below 0.25"),
        (PortType(scale_min=0.1), float(np.float32(0.1)), 0, None),
        (PortType(scale_max=0.25), 0.25, 0, None),
        (PortType(scale_max=0.25), 0.5, 0, "its scale is above 0.25"),
        (PortType(scales="f16"), 0.25, 0, None),
        (PortType(scales="f16"), float(np.float32(0.1)), 0, "its scales are no values of f16"),
    ],
)
def test_a_port_refuses_parameters_of_any_slice(spec, scale, zero, problem):
    assert parameter_problem(spec, uniform(storage("i8"), scale, zero)) == problem
    for place in range(3):
        scales, zeros = [0.25] * 3, [spec.zero_point or 0] * 3
        scales[place], zeros[place] = scale, zero
        kind = Uniform(storage("i8"), tuple(scales), tuple(zeros), "f32", 0)
        assert parameter_problem(spec, kind) == problem


@pytest.mark.parametrize(
    ("name", "bits", "expected"),
    [
        ("i8", 7, "i8<-63:63>"),
        ("i8<-20:100>", 7, "i8<-20:63>"),
        ("i8<-100:20>", 7, "i8<-63:20>"),
        ("i8", 8, "i8"),
        ("i8", None, "i8"),
        ("u8", 7, "u8"),
        ("i4", 7, "i4"),
    ],
)
def test_the_part_of_a_storage_that_arithmetic_may_use(name, bits, expected):
    assert usable(storage(name), PortType(weight_bits_effective=bits)) == storage(expected)


def test_a_bias_has_room_in_its_storage_and_in_the_accumulator():
    def room(name, accumulator=None):
        held = storage(accumulator) if accumulator else None
        return bias_room(storage(name), Row("k", (), (), accumulator=held))

    assert room("i32") == room("i32", "i32") == room("i32", "i40") == BIAS_LIMIT == 2.0**30
    assert room("i16") == room("i32", "i16") == room("i16", "i32") == 32767 / 2
    assert room("i8", "i16") == 127 / 2


@pytest.mark.parametrize(
    ("blocks", "sizes", "has"),
    [
        (((0, 32),), (32,), True),
        (((0, 32),), (16, 32), True),
        (((0, 32), (1, 1)), (32,), True),
        (((0, 32), (1, 16)), (32,), False),
        (((0, 32), (1, 16)), (16, 32), True),
        (((0, 1),), (32,), False),
        (((0, 1),), (1,), True),
        (((0, 32),), (), False),
    ],
)
def test_some_blocks_are_of_a_size_of_the_port_and_others_of_one_index(blocks, sizes, has):
    kind = Uniform(storage("i4"), (0.5,), (0,), "f32", None, blocks, (1,) * (blocks[-1][0] + 1))
    assert has_blocks_of(PortType(storage("i4"), "block", block_size=sizes), kind) is has


def test_the_widest_fact_says_the_bits():
    facts = [
        AnyType(storage("i4"), None),
        Bipolar("f32", 0.5),
        uniform(storage("u8"), 0.5),
        uniform(storage("i16"), 0.5),
    ]
    assert [bits_of((fact,)) for fact in facts] == [4, 1, 8, 16]
    assert [bits_of(tuple(facts[:count])) for count in range(5)] == [0, 4, 4, 8, 16]
    assert bits_of((*facts[::-1], Calibrated((0.0,), (1.0,), "f32"))) == 16
