"""Labels: pairs (scale, zero point) in reals, the zero point counted as for signed storage.

So one label can be stored signed, unsigned or wider. Source: docs/specification.md, section 5, the price,
items 2 and 3.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import affine
from planner.target.records import PortType

Floats = NDArray[np.float64]
Steps = Floats | NDArray[np.int64]
Label = tuple[float, int]
UNIT: Final = 1024
"""Prices and bits are integers in 1/1024."""


def label_of(kind: Uniform) -> Label:
    """The label of a per-tensor type."""
    return kind.scale, kind.zero_point - kind.storage.offset


@lru_cache(maxsize=1 << 17)
def log_units(scale: float) -> int:
    """log2 of a scale, rounded half to even to 1/1024."""
    return round(math.log2(scale) * UNIT)


@lru_cache(maxsize=1 << 17)
def typed(label: Label, store: Storage) -> Uniform:
    """A label in a storage. Call only where `storable` holds."""
    return Uniform(store, (label[0],), (label[1] + store.offset,))


def forget_labels(most: int) -> None:
    """Empty each cache of more than `most` entries: a server plans for years, and models differ."""
    for known in (log_units, typed, label_for):
        if known.cache_info().currsize > most:
            known.cache_clear()


def storable(label: Label, spec: PortType) -> bool:
    """Whether the port can hold this label at all."""
    store = spec.storage
    if not isinstance(store, Storage) or not store.qmin <= label[1] + store.offset <= store.qmax:
        return False
    if spec.symmetric and label[1] + store.offset != 0:
        return False
    if spec.zero_point is not None and label[1] + store.offset != spec.zero_point:
        return False
    if spec.scale_min is not None and label[0] < spec.scale_min:
        return False
    if spec.scale_max is not None and label[0] > spec.scale_max:
        return False
    return not spec.power_of_two or math.frexp(label[0])[0] == 0.5


@lru_cache(maxsize=1 << 17)
def label_for(extent: Interval, spec: PortType) -> Label:
    """The label that holds a range of reals in a port's storage, by the port's own wishes."""
    store = spec.storage
    if not isinstance(store, Storage):
        raise TypeError(f"a port of type {spec} has no label")
    lo, hi = extent
    # A wildcard that is symmetric may have found a storage without signs: around 0 it has one side.
    if spec.zero_point is not None or (spec.symmetric and store.qmin >= 0):
        return _label_at(lo, hi, store, spec)
    if spec.even and not spec.symmetric and store.steps % 2 and store.steps > 1:
        # Of an odd number of steps around 0 none ends where the range does.
        store = replace(store, qmax=store.qmax - 1)
    scale, zero_point = affine(lo, hi, store, symmetric=spec.symmetric, power_of_two=spec.power_of_two)
    # A bound on the scale moves it, and with it the zero point that keeps 0 exact.
    bounded = bounded_scale(scale, spec)
    if bounded != scale:
        scale = bounded
        zero_point = 0 if spec.symmetric else min(max(round(store.qmin - lo / scale), store.qmin), store.qmax)
    return scale, zero_point - store.offset


def bounded_scale(scale: float, spec: PortType) -> float:
    """A scale as near as the port's bounds let it be."""
    return min(max(scale, spec.scale_min or 0.0), spec.scale_max or math.inf)


def _label_at(lo: float, hi: float, store: Storage, spec: PortType) -> Label:
    """The finest label with the port's own zero point."""
    zero = spec.zero_point or 0
    up = hi / (store.qmax - zero) if store.qmax > zero else 0.0
    down = -lo / (zero - store.qmin) if zero > store.qmin else 0.0
    widest = max(up, down, 0.0)
    if widest == 0.0:
        return bounded_scale(1.0, spec), zero - store.offset
    bits = max(store.bits, 2)  # of one bit with signs no symmetric range is left
    most = (1 << bits - 1) - 1
    top, even = widest * most, Storage(bits, True, -most, most)
    scale, _ = affine(-top, top, even, symmetric=True, power_of_two=spec.power_of_two)
    return bounded_scale(scale, spec), zero - store.offset


def clipped_share(extent: Interval, label: Label, store: Storage) -> float:
    """Share of a range (widened to contain 0) that a label cuts off, half a step taken off at each end."""
    lo, hi = min(extent[0], 0.0), max(extent[1], 0.0)
    scale, zero_point = label
    shift = zero_point + store.offset
    below = (store.qmin - shift) * scale - 0.5 * scale - lo
    above = hi - (store.qmax - shift) * scale - 0.5 * scale
    # Half a step at each end is lost to rounding anyway, so it does not count as cut off
    # (docs/specification.md, section 5, item 3).
    cut = max(below, 0.0) + max(above, 0.0)
    if cut <= 0.0:
        return 0.0
    return cut / (hi - lo)


def clipped_shares(lo: Floats | float, hi: Floats | float, scales: Floats, low: Steps, high: Steps) -> Floats:
    """`clipped_share` of many at once; `low` and `high`: the storage's ends in steps from the zero points."""
    lo, hi = np.minimum(lo, 0.0), np.maximum(hi, 0.0)
    below = low * scales - 0.5 * scales - lo
    above = hi - high * scales - 0.5 * scales
    cut = np.maximum(below, 0.0) + np.maximum(above, 0.0)
    width = np.where(cut > 0.0, hi - lo, 1.0)
    return np.where(cut > 0.0, cut / width, 0.0)
