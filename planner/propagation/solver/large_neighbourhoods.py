"""Large neighbourhood search: some dozens of classes at once get their least labels, all others keep theirs.

The rest of a unit around a few classes is a small unit of its own: ends of edges at other classes are
given types, other classes on the way to a use are a given level. So the exact methods take it as it is.
Nothing is proven of the whole. Limits are counts, never wall time.
Source: Shaw, "Using constraint programming and local search methods to solve vehicle routing" (1998).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.solver.classes import Labels, Offered
from planner.propagation.solver.components import GIVEN_USE, Edge, Unit, Use
from planner.propagation.solver.elimination import SMALL, eliminate
from planner.propagation.solver.linear_program import solve_exactly
from planner.propagation.solver.price import CostModel, price_of_labels
from planner.propagation.solver.ways import Loss, Way, level_of
from planner.target.ports.labels import Label, typed

TOGETHER: Final = 40
"""Classes that are labelled at once."""
NEAR: Final = 8
"""Of an edge's classes those that are near each other; a hub has thousands."""


def relabel(unit: Unit, offered: Offered, cost_model: CostModel, start: Labels) -> Labels:
    """A labelling no more expensive than the one to start from: each class was once in a neighbourhood.

    Args:
      offered: the labels that are tried; those of `start` are among them.
    """
    state = _State(unit, {c: start[c] for c in unit.classes})
    for members in _neighbourhoods(unit):
        part = state.part(members)
        mine = {c: offered[c] for c in members}
        found = eliminate(part, mine, cost_model, SMALL)
        if found is None:
            known = {c: state.labels[c] for c in members}
            found, _ = solve_exactly(part, mine, cost_model, known)
        if found is None:
            continue
        if price_of_labels(part, found, cost_model) < price_of_labels(part, state.labels, cost_model):
            state.keep(found)
    return state.labels


def _neighbourhoods(unit: Unit) -> Iterator[list[int]]:
    """Classes that are close to each other, found by a breadth-first walk; each class is in one."""
    beside: dict[int, list[Sequence[int]]] = {c: [] for c in unit.classes}
    for edge in unit.edges:
        near = edge.groups()[-NEAR:]
        for c in near:
            beside[c].append(near)
    # In the unit's order, which is canonical, so that neighbourhoods do not hang on names.
    left = dict.fromkeys(unit.classes)
    while left:
        found = [next(iter(left))]
        del left[found[0]]
        for c in found:
            for other in (other for near in beside[c] for other in near):
                if other in left and len(found) < TOGETHER:
                    del left[other]
                    found.append(other)
        yield found


@dataclass(slots=True)
class _State:
    """A labelling, with the level of each class and way under it, and what stands beside each.

    Attributes:
      readers: by class or way: ways and (by index) losses that are notified of its level.
    """

    unit: Unit
    labels: dict[int, Label | None]
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

    def part(self, members: Sequence[int]) -> Unit:
        """The unit of some classes: its prices are the whole's, less what their labels do not change."""
        mine = set(members)
        numbers = sorted({number for c in members for number in self.edges.get(c, ())})
        edges = [self._edge(self.unit.edges[number], mine) for number in numbers]
        behind = self._behind(members)
        open_ = mine | behind
        # Ways are listed each after those it is made of, and stay so.
        ways = {n: Way(*self._settled(*self.unit.ways[n], open_)) for n in sorted(behind, reverse=True)}
        indices = sorted({index for one in open_ for index in self.losses.get(one, ())})
        return Unit([], [*members], edges, [self._loss(self.unit.losses[i], open_) for i in indices], ways)

    def keep(self, found: Labels) -> None:
        """Make labels final."""
        self.labels |= found
        self.levels |= {c: level_of(label) for c, label in found.items()}
        for number in sorted(self._behind([*found]), reverse=True):
            members, constant = self.unit.ways[number]
            self.levels[number] = max([constant, *(self.levels[member] for member in members)])

    def _behind(self, members: Sequence[int]) -> set[int]:
        """The ways whose level some classes may change."""
        found, waiting = set[int](), [*members]
        while waiting:
            for number in self.ways.get(waiting.pop(), ()):
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return found

    def _settled(
        self, members: Sequence[int], constant: int, open_: Collection[int]
    ) -> tuple[tuple[int, ...], int]:
        """The members whose level may change, and the coarsest level of all others."""
        known = [self.levels[member] for member in members if member not in open_]
        return tuple([member for member in members if member in open_]), max([constant, *known])

    def _loss(self, loss: Loss, open_: Collection[int]) -> Loss:
        upstream, constant = self._settled(loss.upstream, loss.constant, open_)
        return replace(loss, upstream=upstream, constant=constant)

    def _edge(self, edge: Edge, mine: Collection[int]) -> Edge:
        uses = [self._use(use, mine) for use in edge.uses]
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
