"""Large neighbourhood search: some dozens of classes at once get their least labels, all others keep theirs.

The rest of a unit around a few classes is a small unit of its own: ends of edges at other classes are
given types, other classes on the way to a use are a given level. So the exact methods take it as it is.
Nothing is proven of the whole. Limits are counts, never wall time.
Source: Shaw, "Using constraint programming and local search methods to solve vehicle routing" (1998).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.solver.classes import Labels, Offered
from planner.propagation.solver.components import GIVEN_USE, Edge, Unit, Use
from planner.propagation.solver.elimination import SMALL, eliminate
from planner.propagation.solver.linear_program import solve_exactly
from planner.propagation.solver.price import CostModel, price_of_labels
from planner.propagation.solver.ways import Way, level_of
from planner.target.ports.labels import Label, typed

TOGETHER: Final = 60
"""Classes that are labelled at once."""
NEAR: Final = 8
"""Of an edge's classes those that are near each other; a hub has thousands."""


def relabel(
    unit: Unit, offered: Offered, cost_model: CostModel, start: Labels, order: Sequence[int]
) -> Labels:
    """A labelling no more expensive than the one to start from: each class was once in a neighbourhood.

    Args:
      offered: the labels that are tried; those of `start` are among them.
      order: of the unit's classes, that hangs on no names; the first one that is in no neighbourhood yet is
        where the next begins.
    """
    state = _State(unit, {c: start[c] for c in unit.classes}, cost_model.single_consumer)
    for members in _neighbourhoods(unit, [c for c in order if len(offered[c]) > 1]):
        mine = {c: offered[c] for c in members}
        part = state.part(mine)
        found = eliminate(part, mine, cost_model, SMALL)
        if found is None:
            known = {c: state.labels[c] for c in members}
            found, _ = solve_exactly(part, mine, cost_model, known)
        if found is None:
            continue
        if price_of_labels(part, found, cost_model) < price_of_labels(part, state.labels, cost_model):
            state.keep(found)
    return state.labels


def _neighbourhoods(unit: Unit, order: Sequence[int]) -> Iterator[list[int]]:
    """Classes that are close to each other, found by a breadth-first walk; each of these is in one."""
    left = set(order)
    beside: dict[int, list[Sequence[int]]] = {c: [] for c in order}
    for edge in unit.edges:
        near = [c for c in edge.groups()[-NEAR:] if c in left]
        for c in near:
            beside[c].append(near)
    seeds = iter(order)
    found: list[int] = []
    walked = 0
    while left:
        if walked == len(found):
            # Nothing around those found is left, so another walk goes along.
            found.append(next(c for c in seeds if c in left))
            left.remove(found[-1])
        for other in itertools.chain.from_iterable(beside[found[walked]]):
            if other in left and len(found) < TOGETHER:
                left.remove(other)
                found.append(other)
        walked += 1
        if len(found) == TOGETHER or not left:
            yield found
            found, walked = [], 0


@dataclass(slots=True)
class _State:
    """A labelling, with the level of each class and way under it, and what stands beside each.

    Attributes:
      ways, losses: by class or way: the ways and (by index) losses that know its level.
    """

    unit: Unit
    labels: dict[int, Label | None]
    single_consumer: bool
    levels: dict[int, int] = field(default_factory=dict)
    edges: dict[int, dict[int, Edge]] = field(default_factory=dict)
    ways: dict[int, list[int]] = field(default_factory=dict)
    losses: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels |= {c: level_of(label) for c, label in self.labels.items()}
        for number, edge in enumerate(self.unit.edges):
            for c in edge.groups():
                self.edges.setdefault(c, {})[number] = edge
        for number, (members, constant) in self.unit.ways.items():
            self.levels[number] = max([constant, *(self.levels[member] for member in members)])
            for member in members:
                self.ways.setdefault(member, []).append(number)
        for index, loss in enumerate(self.unit.losses):
            for member in loss.upstream:
                self.losses.setdefault(member, []).append(index)

    def part(self, offered: Offered) -> Unit:
        """The unit of some classes: its prices are the whole's, less what their labels do not change."""
        numbers = sorted({number for c in offered for number in self.edges.get(c, ())})
        edges = [self._edge(self.unit.edges[number], offered) for number in numbers]
        # The coarsest level that each may get. A way that is as coarse by others keeps its level, and so do
        # those made of it: of a long chain of data movement few are left.
        most = {c: max(map(level_of, labels)) for c, labels in offered.items()}
        ways: dict[int, Way] = {}
        for number, ready in self._made_of(offered):
            members, constant = self._settled(*self.unit.ways[number], most)
            coarsest = max(most[member] for member in members)
            if coarsest > constant:
                ways[number], most[number] = Way(members, constant), coarsest
                ready(number)
        losses = []
        for index in sorted({index for one in most for index in self.losses.get(one, ())}):
            loss = self.unit.losses[index]
            upstream, constant = self._settled(loss.upstream, loss.constant, most)
            if max(most[member] for member in upstream) > constant:
                losses.append(replace(loss, upstream=upstream, constant=constant))
        return Unit([], [*offered], edges, losses, ways)

    def keep(self, found: Labels) -> None:
        """Make labels final."""
        self.labels |= found
        self.levels |= {c: level_of(label) for c, label in found.items()}
        for number, ready in self._made_of(found):
            members, constant = self.unit.ways[number]
            level = max([constant, *(self.levels[member] for member in members)])
            if level != self.levels[number]:
                self.levels[number] = level
                ready(number)

    def _made_of(self, classes: Iterable[int]) -> Iterator[tuple[int, Callable[[int], None]]]:
        """Ways made of some classes, or of a way that the caller says is changed: each after its members."""
        waiting: list[int] = []

        def ready(member: int) -> None:
            for number in self.ways.get(member, ()):
                heappush(waiting, -number)

        for c in classes:
            ready(c)
        last = 0
        while waiting:
            number = heappop(waiting)
            if number != last:
                yield -number, ready
            last = number

    def _settled(
        self, members: Sequence[int], constant: int, open_: Collection[int]
    ) -> tuple[tuple[int, ...], int]:
        """The members whose level may change, and the coarsest level of all others."""
        known = [self.levels[member] for member in members if member not in open_]
        return tuple([member for member in members if member in open_]), max([constant, *known])

    def _edge(self, edge: Edge, mine: Collection[int]) -> Edge:
        uses = [self._use(use, mine) for use in edge.uses]
        # Uses of one given type share a rescale, so one stands for all, and a hub is as small as its part.
        if not self.single_consumer:
            uses = [*dict.fromkeys(uses)]
        if edge.definition is None or edge.definition[0] in mine:
            return replace(edge, uses=uses)
        return replace(edge, definition=None, start=self._type(*edge.definition), uses=uses)

    def _use(self, use: Use, mine: Collection[int]) -> Use:
        if use.group < 0 or use.group in mine:
            return use
        return use._replace(group=GIVEN_USE, goal=self._type(use.group, use.store))

    def _type(self, c: int, store: Storage | None) -> Uniform | None:
        label = self.labels[c]
        return None if label is None or store is None else typed(label, store)
