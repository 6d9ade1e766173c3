"""Labels: the pair (scale, zero point) for a range, where it can be stored, what it cuts off."""

from dataclasses import replace

import pytest

from planner.ir.types.qtypes import storage
from planner.ir.types.typetext import parse_type
from planner.propagation.solver.ways import pin_units
from planner.target.ports.labels import (
    clipped_share,
    forget_labels,
    label_for,
    label_of,
    log_units,
    storable,
    typed,
)
from tests.propagation.small import target_of

SPECS = {
    name: target_of(f"- {{kernel: k, in: {{x: {name}}}, out: {{y: {name}}}}}").rows["k"][0].inputs[0].type
    for name in ("a8", "u8", "n8", "a16", "p8", "z8", "s8")
}


@pytest.mark.parametrize(
    ("lo", "hi", "spec", "scale", "zero_point"),
    [
        (-1.0, 1.0, "a8", 2 / 255, -1),
        (-1.0, 1.0, "u8", 2 / 255, -1),  # one label, whatever the signedness
        (0.0, 2.55, "a8", 0.01, -128),
        (1.0, 2.55, "a8", 0.01, -128),  # widened to contain 0
        (-2.0, 1.0, "n8", 2 / 127, 0),
        (-1.0, 2.0, "a16", 2 / 32767, 0),
        (-1.0, 1.0, "p8", 2.0**-6, -64),
        (-2.0, 1.0, "z8", 2 / 128, 0),
        (-1.0, 2.0, "z8", 2 / 127, 0),
        (0.0, 0.0, "z8", 1.0, 0),
        (0.0, 0.0, "a8", 1.0, 0),
        (-1.0, 1.0, "s8", 0.1, None),  # as coarse as the device asks
        (-900.0, 900.0, "s8", 0.5, None),  # as coarse as it can, though it clips
    ],
)
def test_label_for(lo, hi, spec, scale, zero_point):
    label = label_for((lo, hi), SPECS[spec])
    assert label[0] == pytest.approx(scale, rel=1e-6)
    assert zero_point is None or label[1] == zero_point
    assert storable(label, SPECS[spec])


def test_one_bit_with_a_fixed_zero_point_holds_a_range():
    spec = replace(SPECS["p8"], storage=storage("u1"), zero_point=0)
    assert label_for((0.0, 0.3), spec) == (0.5, -1)


@pytest.mark.parametrize(
    ("label", "spec", "can"),
    [
        ((0.5, 127), "a8", True),
        ((0.5, 128), "a8", False),
        ((0.5, 127), "u8", True),
        ((0.5, -128), "n8", False),
        ((0.5, 3), "a16", False),  # symmetric
        ((0.3, 0), "p8", False),
        ((0.25, 7), "p8", True),
        ((0.25, 7), "z8", False),
        ((0.05, 0), "s8", False),
        ((0.75, 0), "s8", False),
    ],
)
def test_storable(label, spec, can):
    assert storable(label, SPECS[spec]) is can


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16"])
def test_a_label_is_the_same_in_every_storage(name):
    kind = typed((0.25, -3), storage(name))
    assert label_of(kind) == (0.25, -3)


@pytest.mark.parametrize(
    ("extent", "scale", "share"),
    [
        ((-128.0, 127.0), 1.0, 0.0),
        ((-128.5, 127.5), 1.0, 0.0),  # half a step at each end is free
        ((-138.5, 127.5), 1.0, 10 / 266),
        ((0.0, 254.5), 1.0, 127 / 254.5),
        ((200.0, 254.5), 1.0, 127 / 254.5),  # the share is of the range widened to 0
        ((0.0, 0.0), 1.0, 0.0),
    ],
)
def test_clipped_share(extent, scale, share):
    assert clipped_share(extent, (scale, 0), storage("i8")) == pytest.approx(share)


def test_log_units_round_half_to_even():
    assert (log_units(1.0), log_units(0.5), log_units(3.0)) == (0, -1024, 1623)


def test_units_of_a_per_axis_pin_are_the_mean():
    assert pin_units(parse_type("!quant.uniform<i8:f32:0, {1.0,4.0}>")) == 1024


def test_large_caches_are_emptied():
    forget_labels(0)
    for hi in range(1, 9):
        label_for((-1.0, float(hi)), SPECS["a8"])
    forget_labels(8)
    assert label_for.cache_info().currsize == 8
    forget_labels(7)
    assert label_for.cache_info().currsize == 0
