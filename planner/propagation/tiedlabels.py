"""Labels of tied components in columns: the candidates, and which of them classes and components may take.

As `offers` has it for components of the network: own labels, hulls of two classes at a value, hulls of all;
a label serves what enters a class if it cuts off at most `max_clip`. Candidates are in order, the finest
first; what may be taken is searched from the first that is fine enough to be worth a look.
Source: design 01, section 5, the price, items 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import affine_columns, symmetric_steps
from planner.plans.rescales import SAME_SCALE
from planner.propagation.columns import Bools, Floats, Ints
from planner.propagation.portkinds import FIXED
from planner.propagation.solver.classes import UNIT, clipped_shares
from planner.propagation.tied import Tied, numbered
from planner.target.records import PortType

NEARLY: Final = 1 - 1e-6
LEAST: Final = 1e-30
"""Scales below are rounded too coarsely for a bound to be made of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """Candidates of all components.

    Attributes:
      home, scales, zeros: by candidate, its component, its scale, and its zero point in the storage.
      first, end: by component, its candidates.
      low, high: by component, the ends of its storage.
      own, own_zeros: by class, the label of what enters it, or its fixed type's.
      value_scales: by value, the scale of its own range.
      near: by component, whether two of its candidates have scales that count as one.
    """

    home: Ints
    scales: Floats
    zeros: Ints
    first: Ints
    end: Ints
    low: Ints
    high: Ints
    own: Floats
    own_zeros: Ints
    value_scales: Floats
    near: Bools

    def cut_off(self, candidate: Ints, lo: Floats, hi: Floats) -> Floats:
        """Share of each range that a candidate cuts off."""
        home, zeros = self.home[candidate], self.zeros[candidate]
        low, high = self.low[home] - zeros, self.high[home] - zeros
        return clipped_shares(lo, hi, self.scales[candidate], low, high)

    def first_legal(self, start: Ints, end: Ints, held: "Held", max_clip: float) -> Ints:
        """For each of some groups its first candidate from `start` on that holds its ranges; else `end`."""
        at = start.copy()
        group, lo, hi = held
        here = at[group] < end[group]
        group, lo, hi = group[here], lo[here], hi[here]
        while len(group):
            failed = np.zeros(len(at), bool)
            failed[group[self.cut_off(at[group], lo, hi) > max_clip]] = True
            at[failed] += 1
            again = (failed & (at < end))[group]
            group, lo, hi = group[again], lo[again], hi[again]
        return at

    def place(self, home: Ints, scales: Floats, zeros: Ints) -> Ints:
        """The numbers of candidates that are known by component, scale and zero point."""
        at = self.from_scale(home, scales)
        while (behind := self.zeros[at] != zeros).any():
            at[behind] += 1
        return at

    def from_scale(self, home: Ints, scales: Floats) -> Ints:
        """The first candidate of a component that is at least as coarse as a scale."""
        known = len(self.scales)
        order = np.lexsort(
            (
                np.repeat([1, 0], [known, len(home)]),
                np.concatenate([self.scales, scales]),
                np.concatenate([self.home, home]),
            )
        )
        before = np.cumsum(order < known)
        place = np.empty(known + len(home), np.int64)
        place[order] = before
        found: Ints = place[known:]
        return found


Held = tuple[Ints, Floats, Floats]
"""(group, lo, hi) of ranges that groups have to hold."""


def board_of(tied: Tied, specs: Sequence[PortType], fixed: Sequence[Uniform]) -> Board:
    """All candidates of all components."""
    lo, hi, home = _hulls(tied)
    scales, zeros = _labels(tied, specs, lo, hi, home)
    held = np.flatnonzero(tied.class_fixed)
    given = tied.fixed[tied.class_home[held]]
    scales[held] = np.array([kind.scale for kind in fixed])[given]
    zeros[held] = np.array([kind.zero_point for kind in fixed], np.int64)[given]
    many = len(tied.class_home)
    own, own_zeros = scales[:many].copy(), zeros[:many].copy()
    order = np.lexsort((zeros, scales, home))
    home, scales, zeros = home[order], scales[order], zeros[order]
    same = (home[1:] == home[:-1]) & (scales[1:] == scales[:-1]) & (zeros[1:] == zeros[:-1])
    kept = np.concatenate([[True], ~same])
    home, scales, zeros = home[kept], scales[kept], zeros[kept]
    counts = np.bincount(home, minlength=len(tied.ok))
    end = np.cumsum(counts)
    near = np.zeros(len(tied.ok), bool)
    close = (home[1:] == home[:-1]) & (scales[1:] - scales[:-1] <= SAME_SCALE * scales[1:])
    near[home[1:][close]] = True
    stores = [spec.storage for spec in specs]
    low, high = (
        np.array([getattr(store, name, 0) for store in stores], np.int64)[tied.spec]
        for name in ("qmin", "qmax")
    )
    values, _ = _labels(tied, specs, tied.lo, tied.hi, tied.home)
    return Board(home, scales, zeros, end - counts, end, low, high, own, own_zeros, values, near)


def _labels(tied: Tied, specs: Sequence[PortType], lo: Floats, hi: Floats, home: Ints) -> tuple[Floats, Ints]:
    """Scales and zero points of ranges, by the specs of their components."""
    scales, zeros = np.ones(len(home)), np.zeros(len(home), np.int64)
    for number in sorted(set(tied.spec.tolist())):
        spec, store = specs[number], specs[number].storage
        if isinstance(store, Storage):
            mine = tied.spec[home] == number
            scales[mine], zeros[mine] = affine_columns(
                lo[mine], hi[mine], store, symmetric=spec.symmetric, power_of_two=spec.power_of_two
            )
    return scales, zeros


def _hulls(tied: Tied) -> tuple[Floats, Floats, Ints]:
    """(lo, hi, component) of all candidates: of every class, of each two at a value, of every component."""
    stored = tied.group >= 0
    pairs = np.sort(tied.at[stored] * len(tied.class_home) + tied.group[stored])
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
    value, group = np.divmod(pairs, len(tied.class_home))
    ones: list[Ints] = []
    others: list[Ints] = []
    apart = 1
    while len(met := np.flatnonzero(value[apart:] == value[:-apart])):
        ones.append(group[met])
        others.append(group[met + apart])
        apart += 1
    a, b = (np.concatenate([np.zeros(0, np.int64), *part]) for part in (ones, others))
    whole_lo, whole_hi = np.full(len(tied.ok), np.inf), np.full(len(tied.ok), -np.inf)
    np.minimum.at(whole_lo, tied.class_home, tied.class_lo)
    np.maximum.at(whole_hi, tied.class_home, tied.class_hi)
    lo = np.concatenate([tied.class_lo, np.minimum(tied.class_lo[a], tied.class_lo[b]), whole_lo])
    hi = np.concatenate([tied.class_hi, np.maximum(tied.class_hi[a], tied.class_hi[b]), whole_hi])
    return lo, hi, np.concatenate([tied.class_home, tied.class_home[a], np.arange(len(tied.ok))])


def finest(tied: Tied, board: Board, specs: Sequence[PortType], max_clip: float) -> tuple[Ints, Ints]:
    """The finest candidate that serves each class, and the finest that serves all classes of each component.

    A fixed class has its own, and so has its component; where nothing serves, the end of the component's.
    """
    enters = np.flatnonzero(tied.entering & (tied.code != FIXED))
    at, group = tied.at[enters], tied.group[enters]
    bound = _bounds(tied, board, specs, max_clip)
    least = np.zeros(len(tied.ok))
    np.maximum.at(least, tied.class_home, bound)
    home, end = tied.class_home, board.end
    start = board.from_scale(home, bound)
    serving = board.first_legal(start, end[home], (group, tied.lo[at], tied.hi[at]), max_clip)
    held, _ = numbered(at, len(tied.values))
    start = board.from_scale(np.arange(len(tied.ok)), least)
    given = np.flatnonzero(tied.class_fixed)
    start[home[given]] = board.place(home[given], board.own[given], board.own_zeros[given])
    stop = np.where(tied.fixed >= 0, start + 1, end)
    all_of = board.first_legal(start, stop, (tied.home[held], tied.lo[held], tied.hi[held]), max_clip)
    serving[given] = start[home[given]]
    return serving, np.where(all_of < stop, all_of, end)


def _bounds(tied: Tied, board: Board, specs: Sequence[PortType], max_clip: float) -> Floats:
    """By class, a scale that is too fine for it, unless 0: it cuts off 1 % and half a step at either end."""
    steps, factor = np.ones(len(tied.ok)), np.ones(len(tied.ok))
    for number in sorted(set(tied.spec.tolist())):
        spec, store = specs[number], specs[number].storage
        if isinstance(store, Storage):
            mine = tied.spec == number
            steps[mine] = symmetric_steps(store) if spec.symmetric else store.steps
            factor[mine] = 0.5 if spec.power_of_two else 1.0
    home = tied.class_home
    kept = NEARLY * max(0.0, 1 - 2 * max_clip) * factor * steps / (steps + 1)
    empty = (tied.class_lo >= 0.0) & (tied.class_hi <= 0.0)
    return np.where(empty | tied.class_fixed | (board.own < LEAST), 0.0, board.own * kept[home])


def log_units(scales: Floats) -> Floats:
    """log2 of scales, rounded half to even to 1/1024."""
    units: Floats = np.rint(np.log2(scales) * UNIT)
    return units
