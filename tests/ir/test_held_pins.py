"""Pins in storages of a device: the same real numbers, in integers that the device has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir.types.held_pins import held, same_numbers
from planner.ir.types.qtypes import Storage, storage
from planner.ir.types.storages import full_range
from planner.ir.types.typetext import parse_type

BYTES = frozenset({(8, True, ""), (8, False, "")})
SIGNED = frozenset({(8, True, ""), (16, True, "")})
UNSIGNED = frozenset({(8, False, ""), (16, False, "")})


@pytest.mark.parametrize(
    ("pin", "storages", "made", "wanted"),
    [
        ("u8:f32, 0.5:3", None, None, "u8:f32, 0.5:3"),  # a device that has any
        ("u8:f32, 0.5:3", BYTES, "i8", "u8:f32, 0.5:3"),  # its own
        ("i8<-127:127>:f32, 0.5", SIGNED, None, "i8<-127:127>:f32, 0.5"),  # whatever part of its range
        ("u8:f32, 0.5:3", SIGNED, "i8", "i8:f32, 0.5:-125"),
        ("i8:f32, 0.5:-3", UNSIGNED, None, "u8:f32, 0.5:125"),
        ("u5:f32, 0.5", BYTES, None, "u8<0:31>:f32, 0.5"),  # the pin's sign where there are both
        ("u5:f32, 0.5", BYTES, "i8", "i8<0:31>:f32, 0.5"),  # that of the kernel that writes it
        ("u8:f32, 0.5:128", SIGNED, "i16", "i16<-128:127>:f32, 0.5"),
        ("i4:f32, 0.5:-2", UNSIGNED, "i8", "u8<120:135>:f32, 0.5:126"),  # which is none of the device's
        ("i4<-7:7>:f32, 0.5", UNSIGNED, "f8E4M3FN", "u8<121:135>:f32, 0.5:128"),
        ("i1:f32, 0.5", SIGNED, None, "i8<-1:0>:f32, 0.5"),
        ("u16:f32, 0.5:9", SIGNED, "i8", "i16:f32, 0.5:-32759"),  # too many numbers for a byte
        ("u17:f32, 0.5:9", SIGNED, "i16", "u17:f32, 0.5:9"),  # and for all there is
        ("u8:f32:1, {0.5:3, 0.25:255}", SIGNED, None, "i8:f32:1, {0.5:-125,0.25:127}"),
        ("u4:f32:1, {0.5:3, 0.25:3}", SIGNED, None, "i8<-3:12>:f32:1, {0.5,0.25}"),
        ("u4:f32:1, {0.5:3, 0.25:5}", SIGNED, None, "i8<-8:7>:f32:1, {0.5:-5,0.25:-3}"),
        ("f8E4M3FN:f32, 0.5", SIGNED, "i8", "f8E4M3FN:f32, 0.5"),
        ("u5:f32, 0.5", frozenset({(8, True, "f8E4M3FN")}), None, "u5:f32, 0.5"),
        ("u5:f32, 0.5", frozenset(), None, "u5:f32, 0.5"),
    ],
)
def test_a_pin_has_a_storage_of_the_device(pin, storages, made, wanted):
    kind = parse_type(f"!quant.uniform<{pin}>")
    found = held(kind, storages, storage(made) if made else None)
    assert str(found) == f"!quant.uniform<{wanted}>"
    assert same_numbers(kind, found)
    assert held(found, storages) == found  # planned again, it stays


LITERT = ("litert",)


@pytest.mark.parametrize(
    ("pin", "storages", "made", "wanted"),
    [
        ("i16:f32, 0.5", SIGNED, "i16", "i16:f32, 0.5"),
        ("u8:f32, 0.5:3", SIGNED, "i8", "i8:f32, 0.5:-125"),  # bytes have zero points
        ("i12:f32, 0.5:100", SIGNED, "i16", "i16<-2148:1947>:f32, 0.5"),  # the same numbers around 0
        ("i16<-3:300>:f32, 0.5:100", SIGNED, "i16", "i16<-103:200>:f32, 0.5"),
        ("u16<0:32767>:f32, 0.5", SIGNED, "i16", "i16<0:32767>:f32, 0.5"),
        ("u16<0:4000>:f32, 0.5:1", SIGNED, None, "i16<-1:3999>:f32, 0.5"),
        ("u8:f32, 0.5:128", None, None, "i8:f32, 0.5"),  # the device has any storage, the format has not
        ("u8:f32, 0.5:128", UNSIGNED | SIGNED, None, "i8:f32, 0.5"),
        ("u8:f32, 0.5:128", UNSIGNED, None, "u8:f32, 0.5:128"),  # nothing that both have
        ("i16:f32:1, {0.5:3, 0.25:5}", SIGNED, None, "i16:f32:1, {0.5:3,0.25:5}"),  # refused, by name
    ],
)
def test_a_format_has_fewer_storages(pin, storages, made, wanted):
    kind = parse_type(f"!quant.uniform<{pin}>")
    found = held(kind, storages, storage(made) if made else None, LITERT)
    assert str(found) == f"!quant.uniform<{wanted}>"
    assert same_numbers(kind, found)
    assert held(found, storages, formats=LITERT) == found


@given(st.sampled_from(["i16", "u16"]), st.integers(0, 65535), st.floats(2**-20, 1e3, width=32))
def test_steps_around_0_are_at_most_twice_as_wide(store, zero, scale):
    """A pin of all 16 bits: its range is kept, and what it cuts off, a Relu say, is cut off."""
    zero -= 0 if store == "u16" else 32768
    pin = parse_type(f"!quant.uniform<{store}:f32, {scale!r}:{zero}>")
    found = held(pin, SIGNED, None, LITERT)
    assert found.zero_points == (0,)
    assert pin.scale <= found.scale <= pin.scale * 2.0001
    assert abs(found.lo - pin.lo) <= found.scale / 2 * 1.01
    assert abs(found.hi - pin.hi) <= found.scale / 2 * 1.01
    assert pin.lo < 0 or found.lo == 0
    assert pin.hi > 0 or found.hi == 0
    assert held(found, SIGNED, None, LITERT) == found


@given(st.data())
def test_the_numbers_are_the_same(data):
    bits, signed = data.draw(st.integers(1, 16)), data.draw(st.booleans())
    low, high = full_range(bits, signed=signed)
    qmin = data.draw(st.integers(low, high - 1))
    qmax = data.draw(st.integers(qmin + 1, high))
    zero = data.draw(st.integers(qmin, qmax))
    kind = parse_type(f"!quant.uniform<{Storage(bits, signed, qmin, qmax)}:f32, 0.5:{zero}>")
    sorts = st.tuples(st.integers(1, 20), st.booleans(), st.just(""))
    storages = data.draw(st.frozensets(sorts, max_size=4))
    made = data.draw(
        st.sampled_from([None, *(Storage(b, s, *full_range(b, signed=s)) for b, s, _ in storages)])
    )
    found = held(kind, storages, made)
    assert same_numbers(kind, found)
    assert (found.lo, found.hi) == (kind.lo, kind.hi)
    store = found.storage
    assert found == kind or (store.bits, store.signed, "") in storages
    if (bits, signed, "") in storages:
        assert found == kind


@pytest.mark.parametrize(
    ("other", "are"),
    [
        ("i8:f32, 0.5:-125", True),
        ("u8:f32, 0.5:3", True),
        ("u8<1:255>:f32, 0.5:3", False),
        ("u8:f32, 0.5:4", False),
        ("u8:f32, 0.25:3", False),
        ("u8:bf16, 0.5:3", False),
        ("u9:f32, 0.5:3", False),
        ("u9<0:255>:f32, 0.5:3", True),
        ("f8E4M3FN:f32, 0.5", False),
    ],
)
def test_which_types_have_the_same_numbers(other, are):
    kind = parse_type("!quant.uniform<u8:f32, 0.5:3>")
    assert same_numbers(kind, parse_type(f"!quant.uniform<{other}>")) is are
