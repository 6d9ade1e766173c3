"""Pins that a device holds in a storage of its own: the same numbers, stored in integers that it has.

A pin says which numbers a value has, in a storage that the device may lack: `u8` where all is `i8`, 5 bits
where all are bytes. Another storage holds the very same numbers, shifted by the difference of the zero
points, in a part of its range where it has more of them; so nobody has to change the type for the pin.
Source: design 01, section 3.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import Storage

Storages: TypeAlias = Collection[tuple[int, bool, str]] | None
"""Bits, sign and float of what a device stores; None is any."""


def is_held(store: Storage, storages: Storages) -> bool:
    """Whether the device has a storage, whatever part of its range."""
    return storages is None or (store.bits, store.signed, store.float_name) in storages


def held(pin: Uniform, storages: Storages, made: Storage | None = None) -> Uniform:
    """A pin in a storage of the device that has its numbers; the pin itself where the device has its own.

    It is the storage that the value's kernel gives, else the narrowest, of two such the one with the pin's
    sign.

    Args:
      made: what the kernel that writes the value stores it in; None where that is float, or the model's.
    """
    store = pin.storage
    if store.float_name or pin.ranges or storages is None or is_held(store, storages):
        return pin
    wider = [(bits, signed) for bits, signed, name in storages if not name and bits >= store.bits]
    if made is not None and (made.bits, made.signed) in wider and not made.float_name:
        bits, signed = made.bits, made.signed
    elif wider:
        bits, signed = min(wider, key=lambda one: (one[0], one[1] != store.signed))
    else:
        return pin
    # Numbers of the signed format are those of the unsigned one less half of its range.
    shift = 0 if signed == store.signed else -(1 << bits - 1) if signed else 1 << bits - 1
    moved = Storage(bits, signed, store.qmin + shift, store.qmax + shift)
    return replace(pin, storage=moved, zero_points=tuple([zero + shift for zero in pin.zero_points]))


def same_numbers(a: Uniform, b: Uniform) -> bool:
    """Whether two types stand for the same real numbers, in whatever integers."""
    if a.storage.float_name or b.storage.float_name or a.ranges or b.ranges:
        return a == b
    shift = b.storage.qmin - a.storage.qmin
    layouts = [(kind.scales, kind.expressed, kind.axis, kind.blocks, kind.grid) for kind in (a, b)]
    zeros = tuple([zero + shift for zero in a.zero_points])
    return layouts[0] == layouts[1] and a.storage.steps == b.storage.steps and zeros == b.zero_points
