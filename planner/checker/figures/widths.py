"""Ranges that calibration chose for single widths, for the checker: what storages of a width are to hold.

Source: docs/accuracy.md, "Ranges".
"""

from collections.abc import Mapping, Sequence

from planner.ir.graph import Facts
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Bipolar, Calibrated, Storage

ByWidth = Mapping[int, Interval]


def chosen(facts: Facts) -> ByWidth:
    """The ranges that facts say of a value, by bits."""
    seen = next((fact for fact in facts if isinstance(fact, Calibrated)), None)
    if seen is None or any(isinstance(fact, Bipolar) for fact in facts):
        return {}
    return {width.bits: (width.lo, width.hi) for width in seen.widths}


def narrowed(own: Interval | None, parts: Sequence[ByWidth]) -> ByWidth:
    """By width, a value's own range cut to each part in turn; widths that hold all of it are left out."""
    found: dict[int, Interval] = {}
    for bits in {bits for part in parts for bits in part} if own is not None else ():
        low, high = own or (0.0, 0.0)
        for ends in (part[bits] for part in parts if bits in part):
            low, high = (min(max(end, low), high) for end in ends)
        if (low, high) != own:
            found[bits] = low, high
    return found


def held(own: Interval | None, narrow: ByWidth, store: Storage | None) -> Interval | None:
    """The range that a storage is to hold: the one of its width where there is one; None is float."""
    return own if store is None or store.float_name else narrow.get(store.bits, own)
