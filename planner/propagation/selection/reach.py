"""Reach: whether a port can hold what facts say of its range, whatever scale it takes.

A zero point at the end of the storage leaves no number on one side of zero, and a greatest scale bounds both.
Rows choose, and wildcards take a storage, by it; scales are no matter here. Source: docs/specification.md,
section 4.
"""

from math import inf, isnan

from planner.ir.graph import Graph
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Calibrated, Storage, Uniform
from planner.target.records import PortType

Reals = tuple[float, float]


def ends(spec: PortType, store: Storage) -> Reals:
    """The least and the greatest real that a port may hold in a storage; both infinite where it is free."""
    coarsest = inf if spec.scale_max is None else spec.scale_max
    zero = 0 if spec.symmetric else spec.zero_point
    if zero is None:
        # Its zero point moves with its range, so either end may be as far as all steps are long.
        width = coarsest * (store.qmax - store.qmin)
        return -width, width
    below, above = store.qmin - zero, store.qmax - zero
    return (below * coarsest if below < 0 else 0.0), (above * coarsest if above > 0 else 0.0)


def may_fall_short(spec: PortType) -> bool:
    """Whether there is a range that a port of this type holds at no scale."""
    store = spec.storage
    return isinstance(store, Storage) and not store.float_name and ends(spec, store) != (-inf, inf)


def holds(spec: PortType, store: Storage, extent: Reals, max_clip: float) -> bool:
    """Whether a port with this storage holds a range but for the share that may be cut off."""
    lo, hi = min(extent[0], 0.0), max(extent[1], 0.0)
    low, high = ends(spec, store)
    free = spec.zero_point is None and not spec.symmetric
    cut = max(hi - lo - high, 0.0) if free else max(low - lo, 0.0) + max(hi - high, 0.0)
    return cut <= max_clip * (hi - lo)


def known_range(graph: Graph, name: str) -> Reals | None:
    """A value's range from facts: the observed one, cut to its fixed type; a constant's own numbers."""
    facts = graph.values[name].facts
    known = [(fact.lo, fact.hi) for fact in facts if isinstance(fact, Calibrated | Uniform)]
    if known:
        lo, hi = max(lo for lo, _ in known), min(hi for _, hi in known)
        return (lo, hi) if lo <= hi else None
    constant = graph.constants.get(name)
    if constant is None or (constant.array is None and not constant.lo):
        return None
    if constant.array is None:
        return min(constant.lo), max(constant.hi)
    lo, hi = (constant.array.min(), constant.array.max()) if constant.array.size else (0.0, 0.0)
    let_go(constant.array)
    # A number that is none says nothing.
    return None if isnan(lo) or isnan(hi) else (float(lo), float(hi))
