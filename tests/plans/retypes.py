"""Wrong types: each makes of a port's right type one that is not."""

from collections.abc import Callable

import numpy as np

from planner.ir.types.qtypes import FloatType, Storage, Uniform, storage
from tests.plans.planned import altered

Retype = Callable[[Uniform], Uniform | FloatType | None]


def times(factor: float) -> Retype:
    return lambda kind: altered(kind, scales=tuple(float(np.float32(s * factor)) for s in kind.scales))


def next_scale(kind: Uniform) -> Uniform:
    return altered(kind, scales=tuple(float(np.nextafter(np.float32(s), np.float32(9))) for s in kind.scales))


def inexact(kind: Uniform) -> Uniform:
    return altered(kind, scales=tuple(s * (1 + 2**-40) for s in kind.scales))


def zeros(shift: int) -> Retype:
    return lambda kind: altered(kind, zero_points=tuple(z + shift for z in kind.zero_points))


def outside(kind: Uniform) -> Uniform:
    return altered(kind, zero_points=(kind.storage.qmax + 1,) * len(kind.scales))


def other_sign(kind: Uniform) -> Uniform:
    store = kind.storage
    shift = 1 << store.bits - 1
    other = storage(f"{'u' if store.signed else 'i'}{store.bits}")
    moved = shift if store.signed else -shift
    return altered(kind, storage=other, zero_points=tuple(z + moved for z in kind.zero_points))


def stored(store: Storage) -> Retype:
    return lambda kind: altered(kind, storage=store)


def narrow(kind: Uniform) -> Uniform:
    store = kind.storage
    return altered(kind, storage=Storage(store.bits, store.signed, store.qmin, store.qmax - 1))


def full(kind: Uniform) -> Uniform:
    return altered(kind, storage=storage(kind.storage.name))


def per_tensor(kind: Uniform) -> Uniform:
    return altered(kind, scales=(max(kind.scales),), zero_points=(0,), axis=None)


def on_axis(axis: int) -> Retype:
    return lambda kind: altered(kind, axis=axis)


def one_less(kind: Uniform) -> Uniform:
    if len(kind.scales) == 1:
        return kind
    return altered(kind, scales=kind.scales[:-1], zero_points=kind.zero_points[:-1])


def one_channel(factor: float) -> Retype:
    def change(kind: Uniform) -> Uniform:
        middle = len(kind.scales) // 2
        scales = [float(np.float32(s * (factor if i == middle else 1))) for i, s in enumerate(kind.scales)]
        return altered(kind, scales=tuple(scales))

    return change


def split(kind: Uniform) -> Uniform:
    return altered(kind, scales=kind.scales * 2, zero_points=kind.zero_points * 2, axis=0)


def in_blocks(kind: Uniform) -> Uniform:
    return altered(kind, axis=None, blocks=((0, 1),), grid=(len(kind.scales),))
