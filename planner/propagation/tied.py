"""Tied values in columns: components of values that movers join or kernels fix, with their ranges.

A component is here if rows, facts and the target leave nothing to decide in it but one label: all its ports
are of one spec, or float, and every range is known. `tiedlabels` says which labels it may take, `alike`
whether one label for all of it is the cheapest. Everything else is left to the network.
Source: design 01, section 5, the price, items 1 and 2.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.propagation.columns import Bools, Columns, Floats, Ints
from planner.propagation.portkinds import FIXED, FLOATS, FREE, JOINED, TIED, PortColumns
from planner.propagation.solver.candidates import JOINED as CLASSES_AT_VALUE
from planner.propagation.solver.candidates import WHOLE

DEEP: Final = 64
"""Movers behind each other; longer chains are left to the network."""
WIDEST: Final = 1e38
"""Ranges beyond are left open: their scale may be none."""


@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """Components by number, and their values, ports and classes by number.

    Attributes:
      values: by value, its column.
      home: by value, its component.
      lo, hi: by value, its range.
      ok: by component, whether it may be decided here; of others nothing else holds.
      spec, fixed: by component, the numbers of its ports' spec and of its fixed type, -1 for none.
      ports: by port, its column; the ports of constants are not here.
      at, code, result, group: by port, its value, its code, whether it is an output, its class (-1: float).
      class_home, class_lo, class_hi: by class, its component, and the hull of what enters it.
      class_fixed: by class, whether its row fixes it.
    """

    values: Ints
    home: Ints
    lo: Floats
    hi: Floats
    ok: Bools
    spec: Ints
    fixed: Ints
    ports: Ints
    at: Ints
    code: Ints
    result: Bools
    group: Ints
    class_home: Ints
    class_lo: Floats
    class_hi: Floats
    class_fixed: Bools

    @property
    def entering(self) -> Bools:
        """By port, whether its class has to hold the range of its value."""
        found: Bools = (self.code == FREE) | (self.code == FIXED) | self.reading
        return found

    @property
    def reading(self) -> Bools:
        """By port, whether it is what a mover reads."""
        found: Bools = (self.code == JOINED) & ~self.result
        return found

    @property
    def moved(self) -> Bools:
        """By port, whether it is what a mover writes."""
        found: Bools = (self.code == JOINED) & self.result
        return found

    def through(self, at_values: Floats, at_classes: Floats) -> tuple[Floats, Bools]:
        """Hand the largest number met on the way on to what movers write; also where that never ends.

        Args:
          at_values: by value, known of what no mover writes; -inf elsewhere.
          at_classes: by class, met at the movers.
        """
        reading, moved = self.reading, self.moved
        last = np.zeros(len(self.ok), bool)
        for _ in range(DEEP):
            most = at_classes.copy()
            np.maximum.at(most, self.group[reading], at_values[self.at[reading]])
            new = most[self.group[moved]]
            last[:] = False
            last[self.home[self.at[moved]][new != at_values[self.at[moved]]]] = True
            at_values[self.at[moved]] = new
            if not last.any():
                break
        return at_values, last


def tied_of(columns: Columns, ports: PortColumns, fixed_ranges: Floats) -> Tied | None:
    """Find the components that movers or fixed results tie; None where there are none.

    Args:
      fixed_ranges: (lo, hi) in reals of each fixed type.
    """
    codes = ports.codes
    chosen = _chosen(columns, ports)
    if chosen is None:
        return None
    component, good = chosen
    values = np.flatnonzero(good[component])
    number = np.full(len(columns.names), -1)
    number[values] = np.arange(len(values))
    homes, home = numbered(component[values], len(columns.names))
    here = np.flatnonzero((codes >= 0) & (number[np.maximum(columns.value, 0)] >= 0))
    at, code = number[columns.value[here]], codes[here]
    stored = code != FLOATS
    # A mover's ports are one class, named by its first; every other port is a class of its own.
    key = np.where(code == JOINED, columns.first[columns.kernel[here]], here)
    classes, group = numbered(key[stored], len(codes))
    groups = np.full(len(here), -1)
    groups[stored] = group
    given = np.full(len(homes), -1)
    given[home[at[code == FIXED]]] = ports.given[here[code == FIXED]]
    spec = np.zeros(len(homes), np.int64)
    spec[home[at[stored]]] = ports.own[here[stored]]
    class_home = np.zeros(len(classes), np.int64)
    class_home[group] = home[at[stored]]
    class_fixed = np.zeros(len(classes), bool)
    class_fixed[groups[code == FIXED]] = True
    tied = Tied(
        values=values,
        home=home,
        lo=_known(columns.lo[values], -np.inf),
        hi=_known(columns.hi[values], np.inf),
        ok=np.bincount(class_home, minlength=len(homes)) <= WHOLE,
        spec=spec,
        fixed=given,
        ports=here,
        at=at,
        code=code,
        result=columns.result[here],
        group=groups,
        class_home=class_home,
        class_lo=np.full(len(classes), np.inf),
        class_hi=np.full(len(classes), -np.inf),
        class_fixed=class_fixed,
    )
    _fill_ranges(tied, fixed_ranges)
    return tied


def _chosen(columns: Columns, ports: PortColumns) -> tuple[Ints, Bools] | None:
    """The component of each value, by its least; and which of those are looked at."""
    codes, at, count = ports.codes, np.maximum(columns.value, 0), len(columns.names)
    joined, fixed = codes == JOINED, codes == FIXED
    if not (joined.any() or fixed.any()):
        return None
    anchor = np.zeros(len(columns.trips), np.int64)
    anchor[columns.kernel[joined][::-1]] = columns.value[joined][::-1]
    component = components(count, columns.value[joined], anchor[columns.kernel[joined]])
    off = ~columns.unbound | columns.constant | (columns.reads + columns.results == 0)
    off[at[codes == TIED]] = True
    stored = joined | fixed | (codes == FREE)
    good = np.zeros(count, bool)
    good[component[at[joined | fixed]]] = True
    computes = np.zeros(count, bool)
    computes[component[at[stored & ~joined]]] = True
    good &= computes
    good[component[off]] = False
    good &= _of_one(component[at[stored]], ports.own[stored], count)
    good &= _of_one(component[at[fixed]], ports.given[fixed], count)
    crowded = np.bincount(at[stored], minlength=count) > CLASSES_AT_VALUE
    good[component[crowded]] = False
    return (component, good) if good.any() else None


def components(count: int, a: Ints, b: Ints) -> Ints:
    """The least of what each of `count` things is linked to, by pairs of links, itself counted."""
    root = np.arange(count)
    while True:
        one, other = root[a], root[b]
        apart = one != other
        if not apart.any():
            return root
        np.minimum.at(root, np.maximum(one, other)[apart], np.minimum(one, other)[apart])
        while True:
            up = root[root]
            if np.array_equal(up, root):
                break
            root = up


def numbered(items: Ints, limit: int) -> tuple[Ints, Ints]:
    """The different items below a limit, ascending, and the place of each item among them."""
    met = np.zeros(limit, bool)
    met[items] = True
    place: Ints = np.cumsum(met) - 1
    return np.flatnonzero(met), place[items]


def _of_one(homes: Ints, numbers: Ints, count: int) -> Bools:
    """By component, whether all the numbers in it are one."""
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, homes, numbers)
    np.maximum.at(most, homes, numbers)
    alike: Bools = (most < 0) | (least == most)
    return alike


def _known(ends: Floats, otherwise: float) -> Floats:
    return np.where(np.isnan(ends), otherwise, ends)


def _fill_ranges(tied: Tied, fixed_ranges: Floats) -> None:
    """Cut ranges to fixed types and to what movers read, and tell each class what enters it."""
    fixed = np.flatnonzero(tied.code == FIXED)
    if len(fixed):
        own = fixed_ranges[tied.fixed[tied.home[tied.at[fixed]]]]
        _cut(tied, tied.at[fixed], own[:, 0], own[:, 1])
    reading, moved = tied.reading, np.flatnonzero(tied.moved)
    base = tied.lo.copy(), tied.hi.copy()
    written = tied.at[moved]
    for _ in range(DEEP):
        before = tied.lo[written], tied.hi[written]
        low, high = np.full(len(tied.class_home), np.inf), np.full(len(tied.class_home), -np.inf)
        np.minimum.at(low, tied.group[reading], tied.lo[tied.at[reading]])
        np.maximum.at(high, tied.group[reading], tied.hi[tied.at[reading]])
        tied.lo[written], tied.hi[written] = base[0][written], base[1][written]
        _cut(tied, written, low[tied.group[moved]], high[tied.group[moved]])
        new = (tied.lo[written] != before[0]) | (tied.hi[written] != before[1])
        if not new.any():
            break
    else:
        tied.ok[tied.home[written[new]]] = False
    with np.errstate(invalid="ignore"):
        tied.ok[tied.home[~(tied.hi - tied.lo < WIDEST)]] = False
    tied.lo[~tied.ok[tied.home]] = tied.hi[~tied.ok[tied.home]] = 0.0
    enters = tied.entering
    np.minimum.at(tied.class_lo, tied.group[enters], tied.lo[tied.at[enters]])
    np.maximum.at(tied.class_hi, tied.group[enters], tied.hi[tied.at[enters]])


def _cut(tied: Tied, values: Ints, low: Floats, high: Floats) -> None:
    """The part of ranges inside others; where they do not meet, the nearest point."""
    lo, hi = tied.lo[values], tied.hi[values]
    point = np.where(hi < low, low, high)
    inside = np.maximum(lo, low) <= np.minimum(hi, high)
    tied.lo[values] = np.where(inside, np.maximum(lo, low), point)
    tied.hi[values] = np.where(inside, np.minimum(hi, high), point)
