"""Folding: readers whose label follows from others' are taken out of a unit before any search.

A kernel that computes loses by the coarsest scale on the way to it, so where it may read what its value is
stored in, nothing is cheaper (readers that follow); and readers of one value that differ in nothing take the
same label (twins). The price stays what it is. Of labels that cost such a reader the same it gets the finest.
Source: design 01, section 5, the price, items 4 to 6.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.propagation.components import Component, Edge, Loss, Unit, Use
from planner.propagation.labels import Label, label_of
from planner.propagation.price import Market

Offered = Mapping[int, Sequence[Label | None]]
Labels = dict[int, Label | None]


@dataclass(frozen=True, slots=True)
class Folded:
    """A unit without some of its readers.

    Attributes:
      unit: what is left.
      followers: of readers that follow, the edge that each of them reads.
      twins: of the others, the class each of them is alike with.
    """

    unit: Unit
    followers: Mapping[int, Edge]
    twins: Mapping[int, int]


def fold(unit: Unit, offered: Offered, market: Market) -> Folded:
    """Take out the readers that follow, and of twins all but the first.

    Where each consumer pays for a rescale of its own there are no twins.
    """
    readers = _readers(unit, offered)
    if not readers:
        return Folded(unit, {}, {})
    ways: dict[int, list[Loss]] = {c: [] for c in readers}
    for loss in unit.losses:
        for c in loss.upstream:
            if c in ways:
                ways[c].append(loss)
    followers: dict[int, Edge] = {}
    twins: dict[int, int] = {}
    firsts: dict[object, int] = {}
    sets: dict[int, set[Label | None]] = {}
    for c, (edge, use) in readers.items():
        defined = edge.definition[0] if edge.definition is not None else -1
        if any(defined not in loss.upstream for loss in ways[c]):
            continue
        if defined not in sets:
            sets[defined] = set(offered[defined])
        if sets[defined].issubset(offered[c]):
            followers[c] = edge
            continue
        if market.single_consumer:
            continue
        told = sorted(_way(loss, c) for loss in ways[c])
        first = firsts.setdefault((id(edge), use.trips, tuple(offered[c]), tuple(told)), c)
        if first != c:
            twins[c] = first
    if not followers and not twins:
        return Folded(unit, {}, {})
    return Folded(_without(unit, twins, {*followers, *twins}), followers, twins)


def unfold(folded: Folded, whole: Unit, offered: Offered, market: Market, labels: Labels) -> Labels:
    """The labels of a whole unit by those of what is left of it."""
    found = dict(labels)
    for c in whole.classes:
        if c in folded.followers:
            found[c] = _finest(c, folded.followers[c], offered[c], market, found)
    for c, first in folded.twins.items():
        found[c] = found[first]
    return found


def _readers(unit: Unit, offered: Offered) -> dict[int, tuple[Edge, Use]]:
    """Classes that are one port alone: a kernel that computes reads a value there as it is stored."""
    met = Counter(use.group for edge in unit.edges for use in edge.uses)
    met.update(edge.definition[0] for edge in unit.edges if edge.definition is not None)
    return {
        use.group: (edge, use)
        for edge in unit.edges
        if edge.definition is not None
        for use in edge.uses
        if use.group >= 0
        and met[use.group] == 1
        and use.store == edge.definition[1]
        and None not in offered[use.group]
    }


def _way(loss: Loss, c: int) -> tuple[object, ...]:
    others = tuple(sorted(other for other in loss.upstream if other != c))
    return loss.value, loss.elements, others, loss.constant, loss.own, loss.unavoidable, loss.times


def _without(unit: Unit, twins: Mapping[int, int], gone: set[int]) -> Unit:
    kept = {id(edge): edge if gone.isdisjoint(edge.groups()) else _reduced(edge, gone) for edge in unit.edges}
    components = [
        Component(
            [c for c in part.classes if c not in gone],
            [kept[id(edge)] for edge in part.edges if kept[id(edge)].uses],
        )
        for part in unit.components
    ]
    losses: dict[tuple[object, ...], Loss] = {}
    for loss in unit.losses:
        upstream = tuple(twins.get(c, c) for c in loss.upstream if c in twins or c not in gone)
        key = (loss.elements, upstream, loss.constant, loss.own, loss.unavoidable)
        if key in losses:
            losses[key].times += loss.times
        else:
            losses[key] = replace(loss, upstream=upstream)
    classes = [c for c in unit.classes if c not in gone]
    edges = [edge for edge in kept.values() if edge.uses]
    return Unit(components, classes, edges, list(losses.values()))


def _reduced(edge: Edge, gone: set[int]) -> Edge:
    return replace(edge, uses=[use for use in edge.uses if use.group not in gone])


def _finest(
    c: int, edge: Edge, offered: Sequence[Label | None], market: Market, labels: Labels
) -> Label | None:
    """The finest label that a reader gets for nothing: its value's own, or one that others have it in."""
    mine = next(use for use in edge.uses if use.group == c)
    given = labels[edge.definition[0]] if edge.definition is not None else None
    if market.single_consumer:
        return given
    paid = {given}
    for use in edge.uses:
        if use.trips < mine.trips or market.is_free(edge, use) != market.is_free(edge, mine):
            continue
        if (
            use.group < 0
            and use.goal is not None
            and use.goal.is_per_tensor
            and use.goal.storage == mine.store
        ):
            paid.add(label_of(use.goal))
        elif use.store == mine.store and use.group in labels:
            paid.add(labels[use.group])
    return next(label for label in offered if label in paid)
