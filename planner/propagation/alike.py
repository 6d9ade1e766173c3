"""Tied components that one label serves: their price, in columns, and whether nothing can be cheaper.

One label for all needs no rescale, so another labelling pays for a change of label at least; where one label
pays less than that beyond what nobody can avoid, it is the cheapest, and of such labels the finest is
(`solve` says the same unit by unit). What is not decided so is left to the network.
Source: design 01, section 5, the price, items 4 to 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.ir.graph import Graph
from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.columns import Bools, Columns, Floats, Ints
from planner.propagation.portkinds import FIXED, FLOATS, FREE, PortColumns
from planner.propagation.solver.classes import UNIT
from planner.propagation.tied import Tied, numbered, tied_of
from planner.propagation.tiedlabels import Board, board_of, finest, log_units
from planner.target.records import Costs

REFUSED: Final = 3
"""Other labels whose prices the log tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """Consuming uses of stored data.

    Attributes:
      at: by use, its value.
      own: log2 of the scale it would have of its own, in 1/1024, as all of these are.
      fixed: the coarsest fixed type on the way to it.
      free: whether there is any other class on the way.
      unavoidable: bits lost if every class on the way had its finest label.
    """

    at: Ints
    own: Floats
    fixed: Floats
    free: Bools
    unavoidable: Floats

    def lost(self, units: Floats) -> Floats:
        """Bits lost if classes that no row fixes had a label of this log2 scale, by use."""
        return np.maximum(0.0, np.maximum(self.fixed, np.where(self.free, units, -np.inf)) - self.own)


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """What one label was found for.

    Attributes:
      tied, board, uses: the components looked at.
      chosen: by component, its label; -1 where it was left.
      kinds: by component, the type of its ports.
      sources: by component, where the row says so whose type that is; "" where none does.
      lost: by value, bits lost in its worst use, in 1/1024.
      paid: by component, the price of its casts, in 1/1024.
      loss: price of all bits lost, in 1/1024.
      shares: by class, whether its label is not its own.
      elements: by value.
      trips: by port, of its kernel.
      costs: what all was priced by.
    """

    tied: Tied
    board: Board
    uses: Uses
    chosen: Ints
    kinds: Sequence[Uniform | None]
    sources: Sequence[str]
    lost: Ints
    paid: Ints
    loss: int
    shares: Bools
    elements: Ints
    trips: Ints
    costs: Costs


def settle_alike(columns: Columns, ports: PortColumns, graph: Graph, costs: Costs) -> Alike | None:
    """Decide what tied components one label can serve, and no other labelling cheaper."""
    change = round(min(costs.requantize, costs.quantize, costs.dequantize) * UNIT)
    if costs.max_bits_lost is not None or costs.requantize < costs.zero_point or change <= 0:
        return None
    types = [kind for kind, _ in ports.fixed]
    tied = tied_of(columns, ports, np.array([(kind.lo, kind.hi) for kind in types]).reshape(-1, 2))
    if tied is None:
        return None
    board = board_of(tied, ports.specs, types)
    serving, chosen = finest(tied, board, ports.specs, costs.max_clip)
    ok = tied.ok & (chosen < board.end)
    ok[tied.class_home[serving >= board.end[tied.class_home]]] = False
    last = len(board.scales) - 1
    serving, chosen = np.minimum(serving, last), np.minimum(chosen, last)
    uses, endless = _uses(tied, board, columns, log_units(board.scales[serving]))
    names = columns.names
    elements = np.array([graph.values[names[v]].elements for v in tied.values.tolist()], np.int64)
    lost = uses.lost(log_units(board.scales[chosen])[tied.home[uses.at]])
    prices = _loss_prices(uses, lost, elements, costs)
    trips = columns.trips[columns.kernel[tied.ports]]
    paid, beyond = _casts(tied, columns, trips, elements, costs)
    np.add.at(beyond, tied.home[uses.at], prices)
    least = np.full(len(ok), np.iinfo(np.int64).max // change)
    np.minimum.at(least, tied.home, elements)
    cheap = np.where(board.near, (beyond == 0) & (tied.fixed < 0), beyond < change * least)
    ok &= cheap & ~endless
    worst = np.zeros(len(tied.values), np.int64)
    np.maximum.at(worst, uses.at, lost.astype(np.int64))
    label = chosen[tied.class_home]
    shares = (board.own != board.scales[label]) | (board.own_zeros != board.zeros[label])
    loss = int(prices[ok[tied.home[uses.at]]].sum())
    chosen = np.where(ok, chosen, -1)
    kinds = _kinds(tied, board, chosen, ports)
    sources = [ports.fixed[n][1] if n >= 0 else "" for n in tied.fixed.tolist()]
    return Alike(tied, board, uses, chosen, kinds, sources, worst, paid, loss, shares, elements, trips, costs)


def _kinds(tied: Tied, board: Board, chosen: Ints, ports: PortColumns) -> list[Uniform | None]:
    found: list[Uniform | None] = [None] * len(chosen)
    scales, zeros = board.scales[chosen].tolist(), board.zeros[chosen].tolist()
    for c in np.flatnonzero(chosen >= 0).tolist():
        store = ports.specs[tied.spec[c]].storage
        if tied.fixed[c] >= 0:
            found[c] = ports.fixed[tied.fixed[c]][0]
        elif isinstance(store, Storage):
            found[c] = Uniform(store, (scales[c],), (zeros[c],))
    return found


def _uses(tied: Tied, board: Board, columns: Columns, units: Floats) -> tuple[Uses, Bools]:
    """All consuming uses of data that was stored, and components with too long chains of movers.

    Args:
      units: log2 of the scale of the finest label of each class.
    """
    made = np.flatnonzero(tied.result & ((tied.code == FREE) | (tied.code == FIXED)))
    given = made[tied.code[made] == FIXED]
    way, fixed, free = (np.full(len(tied.values), -np.inf) for _ in range(3))
    way[tied.at[made]] = units[tied.group[made]]
    fixed[tied.at[given]] = units[tied.group[given]]
    free[tied.at[made[tied.code[made] == FREE]]] = 0.0
    way, endless = tied.through(way, units)
    fixed, _ = tied.through(fixed, np.full(len(units), -np.inf))
    free, _ = tied.through(free, np.zeros(len(units)))
    stored = np.flatnonzero((tied.code == FREE) & ~tied.result)
    floats = np.flatnonzero((tied.code == FLOATS) & ~tied.result)
    outer = np.flatnonzero(columns.results[tied.values] > 0)
    at = np.concatenate([tied.at[stored], tied.at[floats], outer])
    best = way[at]
    best[: len(stored)] = np.maximum(best[: len(stored)], units[tied.group[stored]])
    itself = np.arange(len(at)) < len(stored)
    told = best > -np.inf
    at, best, itself = at[told], best[told], itself[told]
    own = log_units(board.value_scales)[at]
    unavoidable = np.maximum(0.0, best - own)
    return Uses(at, own, fixed[at], itself | (free[at] > -np.inf), unavoidable), endless


def _loss_prices(uses: Uses, lost: Floats, elements: Ints, costs: Costs) -> Ints:
    """By use, as `loss_price` has it."""
    paid = np.maximum(0.0, lost - uses.unavoidable - round(costs.free_bits * UNIT))
    prices: Ints = np.rint(elements[uses.at] * costs.bit_price * paid).astype(np.int64)
    return prices


def _casts(tied: Tied, columns: Columns, trips: Ints, elements: Ints, costs: Costs) -> tuple[Ints, Ints]:
    """By component, the price of its casts if all is stored, and what of it a labelling may do without."""
    reads = ~tied.result
    stored = _most(tied, trips, reads & (tied.code != FLOATS))
    sure = _most(tied, trips, reads & (tied.code == FREE))
    floats = np.maximum(_most(tied, trips, reads & (tied.code == FLOATS)), columns.results[tied.values] > 0)
    made, moved = (np.zeros(len(tied.values), bool) for _ in range(2))
    made[tied.at[tied.result & (tied.code != FLOATS)]] = True
    moved[tied.at[tied.moved]] = True
    quantize, dequantize = round(costs.quantize * UNIT), round(costs.dequantize * UNIT)
    price = elements * np.where(made, dequantize * floats, quantize * stored)
    floor = elements * np.where(made, dequantize * np.where(moved, 0, floats), quantize * sure)
    paid, beyond = np.zeros(len(tied.ok), np.int64), np.zeros(len(tied.ok), np.int64)
    np.add.at(paid, tied.home, price)
    np.add.at(beyond, tied.home, price - floor)
    return paid, beyond


def _most(tied: Tied, trips: Ints, ports: Bools) -> Ints:
    """By value, the most trips of the kernels at some ports; 0 for none."""
    found = np.zeros(len(tied.values), np.int64)
    np.maximum.at(found, tied.at[ports], trips[ports])
    return found


def refusals(alike: Alike) -> dict[int, tuple[tuple[Uniform, int], ...]]:
    """By component, other labels for all its classes alike, the finest first, with their prices."""
    tied, board, costs = alike.tied, alike.board, alike.costs
    enters = np.flatnonzero(tied.entering & (tied.code != FIXED))
    values, _ = numbered(tied.at[enters], len(tied.values))
    held = tied.home[values], tied.lo[values], tied.hi[values]
    made = np.flatnonzero(tied.code == FIXED)
    changed = np.zeros(len(tied.ok), np.int64)
    reads = ~tied.result & (tied.code != FLOATS)
    stored = _most(tied, alike.trips, reads)[tied.at[made]]
    one = round(costs.requantize * UNIT) * alike.elements[tied.at[made]]
    np.add.at(changed, tied.home[tied.at[made]], one * stored)
    first = np.full(len(tied.ok), len(tied.class_home) - 1)
    np.minimum.at(first, tied.class_home, np.arange(len(tied.class_home)))
    free = ~tied.class_fixed[first]  # an option is told by the label of the first class
    found: dict[int, list[tuple[Uniform, int]]] = {}
    at = np.where(tied.fixed >= 0, board.first, alike.chosen + 1)
    stop = np.where((alike.chosen >= 0) & free, board.end, 0)
    for _ in range(REFUSED + 1):
        at = board.first_legal(at, stop, held, costs.max_clip)
        live = np.flatnonzero(at < stop)
        units = np.zeros(len(tied.ok))
        units[live] = log_units(board.scales[at[live]])
        lost = alike.uses.lost(units[tied.home[alike.uses.at]])
        price = alike.paid + changed
        np.add.at(price, tied.home[alike.uses.at], _loss_prices(alike.uses, lost, alike.elements, costs))
        for c in live.tolist():
            mine = found.setdefault(c, [])
            kind, i = alike.kinds[c], at[c]
            if kind is not None and i != alike.chosen[c] and len(mine) < REFUSED:
                label = Uniform(kind.storage, (float(board.scales[i]),), (int(board.zeros[i]),))
                mine.append((label, int(price[c])))
        at = at + 1
    return {c: tuple(mine) for c, mine in found.items()}
