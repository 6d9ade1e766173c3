"""Folding: readers whose label follows from others' are taken out of a unit before any search.

A kernel that computes loses by the coarsest scale on the way to it, so where it may read what its value is
stored in, nothing is cheaper (readers that follow); and readers of one value that differ in nothing take the
same label (twins). The price stays what it is. Of labels that cost such a reader the same it gets the finest.
Source: design 01, section 5, the price, items 4 to 6.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.propagation.solver.classes import Label, Labels, Offered, label_of, log_units, typed
from planner.propagation.solver.components import GIVEN_USE, Component, Edge, Loss, Unit, Use
from planner.propagation.solver.price import CostModel

Ways = dict[int, list[Loss]]


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


def fold(unit: Unit, offered: Offered, cost_model: CostModel) -> Folded:
    """Take out the readers that follow, and of twins all but the first.

    Where each consumer pays for a rescale of its own there are no twins.
    """
    readers = _readers(unit, offered)
    if not readers:
        return Folded(unit, {}, {})
    ways: Ways = {use.group: [] for _, uses in readers for use in uses}
    for loss in unit.losses:
        for c in loss.upstream:
            if c in ways:
                ways[c].append(loss)
    followers: dict[int, Edge] = {}
    twins: dict[int, int] = {}
    casts: dict[int, Use] = {}
    for edge, mine in readers:
        defined = edge.definition[0] if edge.definition is not None else -1
        stored = {label for label in offered[defined] if label is not None}
        able = [use for use in mine if all(defined in loss.upstream for loss in ways[use.group])]
        able = [use for use in able if stored.issubset(offered[use.group])]
        if None not in offered[defined]:
            followers |= {use.group: edge for use in able}
        elif not cost_model.single_consumer:
            cast = _cast(edge, able, offered, ways)
            if cast is None:
                twins |= _twins(able, offered, ways)
            else:
                followers |= {use.group: edge for use in able}
                casts[id(edge)] = cast
    if not followers and not twins:
        return Folded(unit, {}, {})
    return Folded(_without(unit, twins, {*followers, *twins}, casts), followers, twins)


def unfold(folded: Folded, whole: Unit, offered: Offered, cost_model: CostModel, labels: Labels) -> Labels:
    """The labels of a whole unit by those of what is left of it."""
    found = dict(labels)
    for c in whole.classes:
        if c in folded.followers:
            found[c] = _finest(c, folded.followers[c], offered[c], cost_model, found)
    for c, first in folded.twins.items():
        found[c] = found[first]
    return found


def _readers(unit: Unit, offered: Offered) -> list[tuple[Edge, list[Use]]]:
    """Edges with uses by classes of one port: of kernels that compute and could read what is stored there."""
    met = Counter(use.group for edge in unit.edges for use in edge.uses)
    met.update(edge.definition[0] for edge in unit.edges if edge.definition is not None)
    found = []
    for edge in unit.edges:
        store = None if edge.definition is None else edge.definition[1]
        uses = [use for use in edge.uses if use.group >= 0 and use.store == store]
        uses = [use for use in uses if met[use.group] == 1 and None not in offered[use.group]]
        if uses:
            found.append((edge, uses))
    return found


def _cast(edge: Edge, readers: Sequence[Use], offered: Offered, ways: Ways) -> Use | None:
    """The use that stands for the readers of a value that may be float; None where more has to be known.

    They share one cast to their own label then: if they agree on it, if it is as fine as they want, and if
    nothing else reads the value stored.
    """
    own = {offered[use.group][0] for use in readers}
    label = next(iter(own)) if len(own) == 1 else None
    others = [use for use in edge.uses if use not in readers]
    if label is None or any(use.group >= 0 or use.goal is not None for use in others):
        return None
    if any(log_units(label[0]) > loss.own for use in readers for loss in ways[use.group]):
        return None
    store, trips = readers[0].store, max(use.trips for use in readers)
    return None if store is None else Use(GIVEN_USE, store, typed(label, store), trips, follows=True)


def _twins(readers: Sequence[Use], offered: Offered, ways: Ways) -> dict[int, int]:
    """Of readers of one value that are alike, the first one for each of the others."""
    firsts: dict[object, int] = {}
    found = {}
    for use in readers:
        c = use.group
        told = sorted(_way(loss, c) for loss in ways[c])
        first = firsts.setdefault((use.trips, tuple(offered[c]), tuple(told)), c)
        if first != c:
            found[c] = first
    return found


def _way(loss: Loss, c: int) -> tuple[object, ...]:
    others = tuple(sorted(other for other in loss.upstream if other != c))
    return loss.value, loss.elements, others, loss.constant, loss.own, loss.unavoidable, loss.times


def _without(unit: Unit, twins: Mapping[int, int], gone: set[int], casts: Mapping[int, Use]) -> Unit:
    kept: dict[int, Edge] = {}
    for edge in unit.edges:
        uses = [use for use in edge.uses if use.group not in gone]
        uses += [casts[id(edge)]] if id(edge) in casts else []
        kept[id(edge)] = edge if gone.isdisjoint(edge.groups()) else replace(edge, uses=uses)
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


def _finest(
    c: int, edge: Edge, offered: Sequence[Label | None], cost_model: CostModel, labels: Labels
) -> Label | None:
    """The finest label that a reader gets for nothing: its value's own, or one that others have it in."""
    mine = next(use for use in edge.uses if use.group == c)
    given = labels[edge.definition[0]] if edge.definition is not None else None
    if given is None:
        return offered[0]
    if cost_model.single_consumer:
        return given
    paid: set[Label | None] = {given}
    for use in edge.uses:
        if use.trips < mine.trips or cost_model.is_free(edge, use) != cost_model.is_free(edge, mine):
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
