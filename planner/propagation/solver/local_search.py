"""Local search: change one class at a time, or all that are linked and alike, while the price falls.

A class follows a neighbour, takes its finest label, or turns float, and a region takes the finest label that
its classes have in common: any other costs as many rescales and loses more. A change is priced by what it
changes: uses are counted by the type they want, ways keep their level, and what turns out worse is taken
back from a journal. Sweeps and steps are counted, so that no unit takes more than its size in work.
Source: docs/specification.md, section 5.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final

from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import same_scale
from planner.propagation.solver.classes import Labels, Offered
from planner.propagation.solver.components import Edge, Price, Unit, Use
from planner.propagation.solver.price import CostModel, edge_price, loss_price
from planner.propagation.solver.ways import Loss, coarsest, level_of
from planner.target.ports.labels import Label, typed

SWEEPS: Final = 20
STEPS: Final = 2_000
"""Changed uses, ways and losses that are looked at, for each class."""
NEIGHBOURS: Final = 8
"""Types that uses at one edge require and a class there tries to follow; a hub has thousands."""

Wanted = tuple[Uniform | None, bool, int]
"""A type that uses want; whether the device changes types there; the use, where each pays for its own."""


def descend(unit: Unit, offered: Offered, cost_model: CostModel, start: Labels) -> tuple[Price, Labels]:
    """Return a labelling that no change of one class improves (or where work ran out), and its price."""
    state = _State(
        unit,
        cost_model,
        {c: start[c] if start[c] in offered[c] else offered[c][0] for c in unit.classes},
    )
    changed: Iterable[int] = unit.classes
    # Each sweep looks only at classes around what changed in the one before.
    for _ in range(SWEEPS):
        waiting, found = set(changed), dict[int, None]()
        for c in unit.classes:
            if c in waiting and state.steps > 0 and _improve(c, state, offered[c]):
                found |= dict.fromkeys(state.linked(c))
        # Only where no single class can improve: a region's classes hold each other on their label.
        if not found and state.steps > 0:
            found = _improve_regions(unit, state, offered)
        if not found:
            break
        changed = found
    return state.price, state.labels


def _improve(c: int, state: "_State", offered: Sequence[Label | None]) -> bool:
    """Give a class the label that makes the price least; whether that is another than it had."""
    if len(offered) == 1:
        return False
    before, best, here = state.labels[c], state.labels[c], (0, 0, 0)
    near = sorted(state.scales_near(c))
    for label in _trials(offered, near):
        if label == before:
            continue
        price = state.change([c], label, here)
        # Price first, then rescales, then bits lost: the order in which labellings are compared everywhere.
        if price < here:
            here, best = price, label
        state.take_back()
    if best == before:
        return False
    # Trials were taken back, so the best one is made once more.
    state.change([c], best, None)
    state.keep()
    return True


def _trials(offered: Sequence[Label | None], near: Sequence[float]) -> Iterator[Label | None]:
    """The finest label, float, and the labels of scales nearby (ascending)."""
    for i, label in enumerate(offered):
        at = bisect_left(near, label[0]) if i and label is not None else 0
        if i == 0 or label is None or any(same_scale(label[0], x) for x in near[max(0, at - 1) : at + 1]):
            yield label


def _improve_regions(unit: Unit, state: "_State", offered: Offered) -> dict[int, None]:
    """Give regions of one label the finest that they have in common; return what is around those changed."""
    changed: dict[int, None] = {}
    waiting = dict.fromkeys(unit.classes)
    while waiting and state.steps > 0:
        region = state.region(next(iter(waiting)))
        for c in region:
            waiting.pop(c, None)  # a region changed before may be linked to it now
        common = set(offered[region[0]])
        for c in region:
            common.intersection_update(offered[c])
        label = next(label for label in offered[region[0]] if label in common)
        if label in (None, state.labels[region[0]]):
            continue
        # Of equal prices the finer labels win.
        if state.change(region, label, (0, 0, 1)) <= (0, 0, 0):
            state.keep()
            for c in region:
                changed |= {c: None, **dict.fromkeys(state.linked(c))}
        else:
            state.take_back()
    return changed


class _State:
    """A labelling with the price of each of its parts, and a journal of what was changed and is not yet kept.

    Edges, ways and losses are numbers here. Every container is written through `_set`, so that a change
    can be taken back wherever it stops.
    """

    def __init__(self, unit: Unit, cost_model: CostModel, labels: Labels) -> None:
        self.labels, self.steps = labels, STEPS * len(unit.classes)
        self._unit, self._cost_model = unit, cost_model
        self._journal: list[tuple[Any, Any, Any]] = []
        self._total = [0, 0, 0]
        self._read_at: dict[int, list[tuple[int, Use, bool, int]]] = {c: [] for c in unit.classes}
        self._made_at: dict[int, list[int]] = {c: [] for c in unit.classes}
        self._base: list[Uniform | None] = []
        self._wanted: list[dict[Wanted, int]] = []
        self._trips: list[int] = []
        for number, edge in enumerate(unit.edges):
            self._add_edge(number, edge)
        self._levels = {c: level_of(label) for c, label in labels.items()}
        self._parents: dict[int, list[int]] = {}
        for way, (members, constant) in unit.ways.items():
            self._levels[way] = max([constant, *(self._levels[member] for member in members)])
            for member in members:
                self._parents.setdefault(member, []).append(way)
        self._losses_at: dict[int, list[int]] = {}
        self._lost: list[tuple[int, int]] = []
        for number, loss in enumerate(unit.losses):
            for member in loss.upstream:
                self._losses_at.setdefault(member, []).append(number)
            self._lost.append(self._loss(loss))
            self._add(self._lost[-1][0], 0, self._lost[-1][1])
        self.keep()

    @property
    def price(self) -> Price:
        """Of the labelling."""
        price, rescales, lost = self._total
        return price, rescales, lost

    def _add_edge(self, number: int, edge: Edge) -> None:
        trips = {use.trips for use in edge.uses}
        # Uses of several trip counts share a rescale at the most of them: such an edge is priced as a whole.
        self._trips.append(trips.pop() if len(trips) == 1 else 0)
        self._base.append(self._start(edge))
        wanted: dict[Wanted, int] = {}
        for n, use in enumerate(edge.uses):
            free, slot = self._cost_model.is_free(edge, use), n if self._cost_model.single_consumer else 0
            # What uses want is counted, not listed: a reader that changes among thousands costs two counts.
            key = (self._kind(use, None if use.group < 0 else self.labels[use.group]), free, slot)
            wanted[key] = wanted.get(key, 0) + 1
            if use.group >= 0:
                self._read_at[use.group].append((number, use, free, slot))
        self._wanted.append(wanted)
        if edge.definition is not None:
            self._made_at[edge.definition[0]].append(number)
        self._add(*edge_price(edge, self.labels, self._cost_model), 0)

    def _start(self, edge: Edge) -> Uniform | None:
        if edge.definition is None:
            return edge.start
        group, store = edge.definition
        label = self.labels[group]
        return None if label is None else typed(label, store)

    def _kind(self, use: Use, label: Label | None) -> Uniform | None:
        if use.group < 0:
            return use.goal
        return None if label is None or use.store is None else typed(label, use.store)

    def _loss(self, loss: Loss) -> tuple[int, int]:
        lost = max(0, coarsest(loss, self._unit.ways, self.labels, self._levels) - loss.own)
        return loss_price(loss, lost, self._cost_model.costs), loss.elements * lost * loss.times

    # What a class is beside.

    def linked(self, c: int) -> Iterator[int]:
        """Classes that share an edge with a class: all, but of a hub's consumers only the hub."""
        for number in self._made_at[c]:
            yield from (use.group for use in self._unit.edges[number].uses if use.group >= 0)
        for number, *_ in self._read_at[c]:
            edge = self._unit.edges[number]
            if edge.definition is not None:
                yield edge.definition[0]
            yield from (use.group for use in edge.uses[: NEIGHBOURS + 1] if use.group >= 0)

    def scales_near(self, c: int) -> set[float]:
        """Scales of the types at the edges of a class."""
        found: set[float] = set()
        for number in self._made_at[c]:
            found.update(self._scales(number))
        for number, *_ in self._read_at[c]:
            base = self._base[number]
            if base is not None and base.is_per_tensor:
                found.add(base.scale)
            found.update(self._scales(number))
        return found

    def _scales(self, number: int) -> Iterator[float]:
        kinds = (kind for (kind, *_), count in self._wanted[number].items() if count and kind is not None)
        return (kind.scale for kind in islice(kinds, NEIGHBOURS) if kind.is_per_tensor)

    def region(self, start: int) -> list[int]:
        """A class and all of its label that share values with it or with each other."""
        label, met = self.labels[start], set[int]()
        found = {start: None}
        region = [start]
        for c in region:
            for number in (*self._made_at[c], *(number for number, *_ in self._read_at[c])):
                if number in met:
                    continue
                met.add(number)
                for other in self._unit.edges[number].groups():
                    if other not in found and self.labels[other] == label:
                        found[other] = None
                        region.append(other)
        return region

    # Changes.

    def change(self, classes: Sequence[int], label: Label | None, worse: Price | None) -> Price:
        """Give classes a label; return what the price grows by.

        Args:
          worse: a change that costs more than this is not priced to its end; it has to be taken back.
        """
        price, rescales, lost = self._total
        for c in classes:
            self._relabel(c, label)
        self._lose(classes, label, None if worse is None else worse[0] + price)
        return self._total[0] - price, self._total[1] - rescales, self._total[2] - lost

    def keep(self) -> None:
        """Make the changes since the last call final."""
        self._journal.clear()

    def take_back(self) -> None:
        """Undo the changes since the last call."""
        while self._journal:
            container, key, value = self._journal.pop()
            container[key] = value

    def _set(self, container: Any, key: Any, before: Any, value: Any) -> None:
        self._journal.append((container, key, before))
        container[key] = value
        self.steps -= 1

    def _add(self, price: int, rescales: int, lost: int) -> None:
        for i, more in enumerate((price, rescales, lost)):
            if more:
                self._set(self._total, i, self._total[i], self._total[i] + more)

    def _relabel(self, c: int, label: Label | None) -> None:
        before = self.labels[c]
        # Edges that start at this class change all their prices, and those of mixed trips share rescales in
        # ways
        # that counts do not tell: both are priced anew, others by the difference.
        whole = {number for number, *_ in self._read_at[c] if not self._trips[number]}
        whole.update(self._made_at[c])
        for number in whole:
            price, count = edge_price(self._unit.edges[number], self.labels, self._cost_model)
            self._add(-price, -count, 0)
        self._set(self.labels, c, before, label)
        for number, use, free, slot in self._read_at[c]:
            old, new = (self._kind(use, before), free, slot), (self._kind(use, label), free, slot)
            self._count(number, old, -1, whole)
            self._count(number, new, 1, whole)
        for number in whole:
            edge = self._unit.edges[number]
            self._set(self._base, number, self._base[number], self._start(edge))
            price, count = edge_price(edge, self.labels, self._cost_model)
            self._add(price, count, 0)

    def _count(self, number: int, key: Wanted, more: int, whole: set[int]) -> None:
        """One use more or less that wants a type; the first one pays for it, or the last one no longer."""
        wanted = self._wanted[number]
        before = wanted.get(key, 0)
        self._set(wanted, key, before, before + more)
        kind, free, _ = key
        base = self._base[number]
        # Only the first use that wants a type pays for the rescale, and only the last one saves it.
        if number not in whole and (before == 0 or before + more == 0) and kind is not base and kind != base:
            price, is_rescale = self._cost_model.pair(base, kind, free=free)
            times = more * self._trips[number] * self._unit.edges[number].elements
            self._add(price * times, more * is_rescale, 0)

    def _lose(self, classes: Sequence[int], label: Label | None, most: int | None) -> None:
        """Bring levels up to date and price losses again; where these can only grow, as far as `most`."""
        level, coarser = level_of(label), True
        changed: list[int] = []
        for c in classes:
            before = self._levels[c]
            if level != before:
                self._set(self._levels, c, before, level)
                coarser = coarser and level > before
                changed.append(c)
        ready: list[int] = []
        while True:
            for member in changed:
                for number in self._losses_at.get(member, ()):
                    self._price_again(number)
                for way in self._parents.get(member, ()):
                    heappush(ready, -way)
            # Where labels only got coarser losses only grow: a change that costs too much already stops here.
            if not ready or (most is not None and coarser and self._total[0] > most):
                return
            # Ways are numbered downwards, each below what it is made of: the highest is final when it comes.
            changed, way = [], -heappop(ready)
            members, constant = self._unit.ways[way]
            now = max(constant, *(self._levels[member] for member in members))
            self.steps -= len(members)
            if now != self._levels[way]:
                self._set(self._levels, way, self._levels[way], now)
                changed.append(way)

    def _price_again(self, number: int) -> None:
        loss = self._unit.losses[number]
        before, now = self._lost[number], self._loss(loss)
        if now != before:
            self._set(self._lost, number, before, now)
            self._add(now[0] - before[0], 0, now[1] - before[1])
