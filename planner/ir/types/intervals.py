"""Intervals of reals: ranges of values, and what is kept of them. Data and three functions, no types.

Source: docs/specification.md, section 5.
"""

import math
from collections.abc import Iterable
from typing import Final, TypeAlias

Interval: TypeAlias = tuple[float, float]
ALL: Final[Interval] = (-math.inf, math.inf)


def hull(extents: Iterable[Interval | None]) -> Interval | None:
    """The smallest interval around all that are known; None where none is."""
    known = [extent for extent in extents if extent is not None]
    if len(known) < 2:
        return known[0] if known else None
    return min(lo for lo, _ in known), max(hi for _, hi in known)


def cut_to(extent: Interval, to: Interval) -> Interval:
    """Both ends moved to the nearest real of `to`."""
    return min(max(extent[0], to[0]), to[1]), min(max(extent[1], to[0]), to[1])
