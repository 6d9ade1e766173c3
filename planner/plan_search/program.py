"""Program: the options of least work whose predicted noise keeps within bounds, by HiGHS.

One column for every option of a kernel, one for every value, storage it is rescaled to and price of that: a
consumer that needs a storage which the producer lacks needs that rescale. Noise is a sum over columns for
each part of the outputs. Numbers of rows are whole, noise in parts of 2^-20 of its bound.
Source: docs/search.md.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.ir.graph import BOUNDARY
from planner.plan_search.edges import Chosen, Edge, is_forbidden, wanted
from planner.plan_search.followers import Follower, settled
from planner.plan_search.forecast import Net
from planner.plan_search.options import FLOAT, Noise, Table
from planner.plan_search.weight_bytes import cheaper_options
from planner.propagation.solver.highs import Branching, Floats, least, rows_of

UNIT: Final = 1 << 20
NODES: Final = 200
SLACK: Final = 1 / 200
"""Share of the work that fewer bytes of weights may cost, where options that work alike differ in them."""

Row = tuple[int, list[int], list[int]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Options that the program found, and the least work that it proved any could have."""

    chosen: Chosen
    bound: float


@dataclass(slots=True)
class _Draft:
    """Columns and rows so far; `fixed` is what kernels with one option do anyway."""

    works: list[float] = field(default_factory=list)
    noises: list[Noise] = field(default_factory=list)
    bits: list[int] = field(default_factory=list)
    fixed_work: float = 0.0
    fixed_bits: int = 0
    fixed_noise: list[Noise] = field(default_factory=list)
    picks: dict[str, list[int]] = field(default_factory=dict)
    changes: dict[tuple[str, str, float], int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def column(self, work: float, noise: Noise, bits: int = 0) -> int:
        self.works.append(work)
        self.noises.append(noise)
        self.bits.append(bits)
        return len(self.works) - 1


def propose(
    table: Table,
    net: Net,
    bounds: Noise,
    start: Chosen,
    *,
    weight_bits: float = math.inf,
    nodes: int = NODES,
) -> Proposal | None:
    """Find the options of least work, or None where no options keep within the bounds.

    Args:
      bounds: noise at each part of the outputs, at most.
      start: options that keep within the bounds, where any are known; the answer is no worse.
      weight_bits: mean bits of numbers in constants, at most.
      nodes: of branch and bound, at most.
    """
    draft = _draft(table, net)
    width = len(draft.works)
    for at, bound in enumerate(bounds):
        fixed = math.fsum(noise[at] for noise in draft.fixed_noise)
        if not _add_bound(draft, [noise[at] if noise else 0.0 for noise in draft.noises], bound, fixed):
            return None
    if math.isfinite(weight_bits):
        most = weight_bits * table.weights
        if not _add_bound(draft, [float(bits) for bits in draft.bits], most, float(draft.fixed_bits)):
            return None
    if not width:
        return Proposal({}, draft.fixed_work)
    cost = np.asarray(draft.works)
    scale = float(cost.max(initial=0.0)) or 1.0
    known = _columns(table, net.edges, draft, settled(table, net.followers, start))
    whole = [column for own in draft.picks.values() for column in own]
    equal: list[Row] = [(1, own, [1] * len(own)) for own in draft.picks.values()]
    answer = least(cost / scale, rows_of(draft.rows), rows_of(equal), Branching(whole, known, nodes))
    if answer.values is None:
        return None
    chosen = _picked(draft, answer.values)
    bound = answer.bound * scale if math.isfinite(answer.bound) else 0.0
    if cheaper_options(table, chosen):
        known = _columns(table, net.edges, draft, settled(table, net.followers, chosen))
        most = float(cost @ np.asarray(known)) * (1 + SLACK)
        bits = np.asarray(draft.bits, float) + cost / scale
        if _add_bound(draft, draft.works, most, 0.0):
            branching = Branching(whole, known, nodes)
            smaller = least(bits / bits.max(), rows_of(draft.rows), rows_of(equal), branching)
            chosen = chosen if smaller.values is None else _picked(draft, smaller.values)
    return Proposal(chosen, draft.fixed_work + bound)


def _picked(draft: _Draft, values: Floats) -> dict[str, int]:
    """The option of each kernel at a point."""
    return {
        name: max(range(len(own)), key=lambda at, own=own: values[own[at]])  # type: ignore[misc]
        for name, own in draft.picks.items()
    }


def _draft(table: Table, net: Net) -> _Draft:
    draft = _Draft()
    for name, options in table.kernels.items():
        if len(options) == 1:
            draft.fixed_work += options[0].work
            draft.fixed_bits += options[0].weight_bits
            draft.fixed_noise.append(options[0].noise)
        else:
            draft.picks[name] = [
                draft.column(option.work, option.noise, option.weight_bits) for option in options
            ]
    for edge in net.edges:
        for reader in edge.readers:
            _add_reader(draft, table, edge, reader)
    for name, follower in net.followers.items():
        if name in draft.picks and follower.falls_to is not None:
            _add_follower(draft, table, name, follower)
    return draft


def _add_follower(draft: _Draft, table: Table, name: str, follower: Follower) -> None:
    """Rows that let a kernel follow where there is something to follow."""
    for column, option in zip(draft.picks[name], table.kernels[name], strict=True):
        wanted_here = {*option.stores.values()} - {FLOAT}
        if not option.follows or wanted_here & follower.ends:
            continue
        held = _holding(draft, table, follower, wanted_here)
        if held is not None:
            draft.rows.append((0, [*held, column], [1] * len(held) + [-1]))


def _holding(draft: _Draft, table: Table, follower: Follower, stores: AbstractSet[str]) -> list[int] | None:
    """Columns of options around a follower that store its values in some of the storages; None for always."""
    found: dict[int, None] = {}
    for name, value in follower.around:
        for store, columns in _stores(draft, table, name, value).items():
            if store in stores and columns is None:
                return None
            if store in stores:
                found.update(dict.fromkeys(columns or ()))
    return [*found]


def _add_reader(draft: _Draft, table: Table, edge: Edge, reader: str) -> None:
    """Rows that ask for a rescale wherever a reader wants what the writer has not."""
    stores = {edge.wanted: None} if reader == BOUNDARY else _stores(draft, table, reader, edge.value)
    held = {edge.held: None} if edge.held else _stores(draft, table, edge.writer, edge.value)
    for store, readers in stores.items():
        if store in held and held[store] is None:
            continue  # it is always stored so
        others = [name for name in held if name != store]
        if not others:
            continue
        own, picks = [*(held.get(store) or ())], [*(readers or ())]
        changes = {} if is_forbidden(table, edge, reader) else _changes(draft, edge, store, others)
        right = 0 if readers is not None else 1
        plus = [*own, *changes]
        draft.rows.append((right, [*plus, *picks], [1] * len(plus) + [-1] * len(picks)))
        for column, starts in changes.items() if len(changes) > 1 else ():
            # This price, where the writer has one of these storages and the reader wants the other.
            from_here = [pick for name in starts for pick in held[name] or ()]
            signs = [1] + [-1] * (len(from_here) + len(picks))
            draft.rows.append((right - 1, [column, *from_here, *picks], signs))


def _changes(draft: _Draft, edge: Edge, store: str, others: Sequence[str]) -> dict[int, list[str]]:
    """Columns of a rescale, one for each price, with the storages that it starts from."""
    found: dict[int, list[str]] = {}
    for name in others:
        price = edge.prices[name, store]
        key = (edge.value, store, price)
        if key not in draft.changes:
            draft.changes[key] = draft.column(edge.elements * price, edge.noise.get(store, ()))
        found.setdefault(draft.changes[key], []).append(name)
    return found


def _stores(draft: _Draft, table: Table, kernel: str, value: str) -> dict[str, list[int] | None]:
    """Columns by the storage that a kernel has a value in; None where it always has."""
    found: dict[str, list[int] | None] = {}
    columns = draft.picks.get(kernel)
    for at, option in enumerate(table.kernels[kernel]):
        store = option.stores.get(value, FLOAT)
        if columns is None:
            return {store: None}
        own = found.setdefault(store, [])
        if own is not None:
            own.append(columns[at])
    return dict.fromkeys(found) if len(found) == 1 else found


def _add_bound(draft: _Draft, amounts: Sequence[float], most: float, fixed: float) -> bool:
    """A row that keeps a sum within a bound; False where what is fixed exceeds it already."""
    room = most - fixed
    if room < 0:
        return False
    if not math.isfinite(room) or not any(amounts):
        return True
    # Rounded up; one that alone exceeds the room is cut, but stays far beyond the solver's tolerance.
    parts = [min(2 * UNIT, math.ceil(amount / room * UNIT)) if amount else 0 for amount in amounts]
    columns = [at for at, part in enumerate(parts) if part]
    draft.rows.append((-UNIT, columns, [-parts[at] for at in columns]))
    return True


def _columns(table: Table, edges: Sequence[Edge], draft: _Draft, chosen: Chosen) -> list[int]:
    """The point of some options."""
    found = [0] * len(draft.works)
    for name, own in draft.picks.items():
        found[own[chosen.get(name, 0)]] = 1
    options = {name: own[chosen.get(name, 0)] for name, own in table.kernels.items()}
    for edge in edges:
        held = edge.held or options[edge.writer].stores[edge.value]
        for _, store in wanted(edge, options):
            if store != held and (key := (edge.value, store, edge.prices[held, store])) in draft.changes:
                found[draft.changes[key]] = 1
    return found


def bounds_of(table: Table, sqnr: float) -> Noise:
    """Noise that leaves each part of the outputs an SQNR (dB)."""
    return tuple(signal / 10 ** (sqnr / 10) for signal in table.signal)
