"""Fixed types that a device holds in a storage of its own: the same numbers, in another integer type.

A fixed type says which numbers a value has, in a storage that the device may lack: `u8` where all is `i8`, 5
bits where all are bytes. Another storage holds the very same numbers, all integers and the zero point shifted
by one number, in a part of its range if it is wider; so the user need not change the type. A format may have
fewer storages than the device, and some of them only around 0: there the nearest type that it has takes its
place. Source: docs/specification.md, section 3; LiteRT's quantize.cc, int16 (zero points 0).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from planner.ir.types.qtypes import Uniform
from planner.ir.types.ranges import around, uniform_from_range
from planner.ir.types.storages import Storage, full_range

Storages: TypeAlias = Collection[tuple[int, bool, str]] | None
"""Bits, sign and float of what a device stores; None is any."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Storages of activations in a format.

    Attributes:
      storages: bits, sign and float.
      centred: bits of those whose zero point is 0.
    """

    storages: frozenset[tuple[int, bool, str]]
    centred: frozenset[int]


STORES: Final[Mapping[str, Stores]] = {
    "litert": Stores(frozenset({(8, True, ""), (16, True, "")}), frozenset({16})),
}
"""Formats that replace a fixed type that they lack by another; others write floats, or refuse it."""


def storages_in(storages: Storages, formats: Sequence[str]) -> Storages:
    """Return the storages of a device that formats have too; the device's own where they share none."""
    for form in formats:
        if form in STORES:
            own = STORES[form].storages
            storages = own if storages is None else own.intersection(storages) or storages
    return storages


def centring(store: Storage, formats: Sequence[str]) -> str:
    """Return the first format that has a storage around 0 alone, "" if none."""
    widths = ((form, STORES[form].centred) for form in formats if form in STORES)
    return next((form for form, centred in widths if store.signed and store.bits in centred), "")


def has_storage(storages: Storages, store: Storage) -> bool:
    """Whether a device of these storages has one, whatever part of its range."""
    return storages is None or (store.bits, store.signed, store.float_name) in storages


def held(
    pin: Uniform, storages: Storages, made: Storage | None = None, formats: Sequence[str] = ()
) -> Uniform:
    """Return a fixed type in a storage of the device that has its numbers, in its own storage if that is one.

    It is the storage that the value's kernel gives, else the narrowest, of two such the one of the same sign.
    Integers stay as they are in a storage of the same sign. In one of the other sign they keep their place
    between its ends if it is as wide, or is unsigned; in a wider signed one the zero point is 0, which
    symmetric ports take too. If a format has only a storage around 0, the type is around 0 as well: with
    the same numbers if they fit, else with wider steps over the same range, at most twice as wide.

    Args:
      made: the storage that the value's kernel writes; None where that is float, or the model's.
      formats: that the plan has to be written in.
    """
    if pin.storage.float_name or pin.ranges:
        return pin
    found = _moved(pin, storages_in(storages, formats), made)
    return _centred(found) if centring(found.storage, formats) else found


def _moved(pin: Uniform, storages: Storages, made: Storage | None) -> Uniform:
    store = pin.storage
    if storages is None or has_storage(storages, store):
        return pin
    wider = [(bits, signed) for bits, signed, name in storages if not name and bits >= store.bits]
    if made is not None and (made.bits, made.signed) in wider and not made.float_name:
        bits, signed = made.bits, made.signed
    elif wider:
        bits, signed = min(wider, key=lambda one: (one[0], one[1] != store.signed))
    else:
        return pin
    shift = _shift(pin, bits, signed=signed)
    moved = Storage(bits, signed, store.qmin + shift, store.qmax + shift)
    return replace(pin, storage=moved, zero_points=tuple([zero + shift for zero in pin.zero_points]))


def _centred(pin: Uniform) -> Uniform:
    """A type of one signed storage around 0 that holds a fixed type's range, and clips where that does."""
    if not any(pin.zero_points) or not pin.is_per_tensor:
        return pin
    bits = pin.storage.bits
    same = around(pin, 0).storage
    low, high = full_range(bits, signed=True)
    if low <= same.qmin and same.qmax <= high:
        return replace(pin, storage=Storage(bits, True, same.qmin, same.qmax), zero_points=(0,))
    whole = uniform_from_range(
        pin.lo, pin.hi, Storage(bits, True, low, high), symmetric=True, expressed=pin.expressed
    )
    least, most = (min(max(round(end / whole.scale), low), high) for end in (pin.lo, pin.hi))
    return replace(whole, storage=Storage(bits, True, least, most))


def _shift(pin: Uniform, bits: int, *, signed: bool) -> int:
    own = pin.storage
    if signed == own.signed:
        return 0
    if not signed:
        return 1 << bits - 1
    if bits == own.bits:
        return -(1 << bits - 1)
    # Slices of several zero points have one shift.
    return -pin.zero_points[0] if len({*pin.zero_points}) == 1 else -(1 << own.bits - 1)


def same_numbers(a: Uniform, b: Uniform) -> bool:
    """Whether two types stand for the same real numbers, in whatever integers."""
    if a.storage.float_name or b.storage.float_name or a.ranges or b.ranges:
        return a == b
    shift = b.storage.qmin - a.storage.qmin
    layouts = [(kind.scales, kind.expressed, kind.axis, kind.blocks, kind.grid) for kind in (a, b)]
    zeros = tuple([zero + shift for zero in a.zero_points])
    return layouts[0] == layouts[1] and a.storage.steps == b.storage.steps and zeros == b.zero_points
