"""Pins that a device holds in a storage of its own: the same numbers, stored in integers that it has.

A pin says which numbers a value has, in a storage that the device may lack: `u8` where all is `i8`, 5 bits
where all are bytes. Another storage holds the very same numbers, all integers and the zero point shifted by
one number, in a part of its range where it has more of them; so nobody has to change the type for the pin.
Source: design 01, section 3.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import Storage

Storages: TypeAlias = Collection[tuple[int, bool, str]] | None
"""Bits, sign and float of what a device stores; None is any."""


def has_storage(storages: Storages, store: Storage) -> bool:
    """Whether a device of these storages has one, whatever part of its range."""
    return storages is None or (store.bits, store.signed, store.float_name) in storages


def held(pin: Uniform, storages: Storages, made: Storage | None = None) -> Uniform:
    """A pin in a storage of the device that has its numbers; the pin itself where the device has its own.

    It is the storage that the value's kernel gives, else the narrowest, of two such the one with the pin's
    sign. Integers stay as they are in a storage of the same sign. In one of the other sign they keep their
    place between its ends if it is as wide, or is unsigned; in a wider signed one the zero point is 0, which
    symmetric ports take too.

    Args:
      made: what the kernel that writes the value stores it in; None where that is float, or the model's.
    """
    store = pin.storage
    if store.float_name or pin.ranges or storages is None or has_storage(storages, store):
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
