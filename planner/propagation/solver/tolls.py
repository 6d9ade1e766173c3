"""Tolls: who writes a value for one class alone is taken out of a unit; that class pays for it by its label.

A kernel whose value one class reads, besides readers that follow, stores it in that class's label or in its
own finest: any other is as dear to rescale and loses more. And nothing behind the reader hears of it: it is
no coarser than the reader, and the finest where that is float. So what the writer costs is known by the
reader's label. The price stays what it is; of what costs the same the writer takes the finer label.
Source: design 01, section 5, the price, items 4 to 6; elimination of leaves.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from planner.propagation.solver.classes import Label, Labels, Offered, log_units
from planner.propagation.solver.components import GIVEN_USE, NEVER, Component, Edge, Loss, Price, Tolls, Unit
from planner.propagation.solver.dominance import NEAR
from planner.propagation.solver.price import CostModel, edge_price, loss_price


@dataclass(frozen=True, slots=True)
class Charged:
    """A unit without some of its writers: their readers, and their labels by those of the readers."""

    unit: Unit
    writers: Mapping[int, tuple[int, Mapping[Label | None, Label | None]]]


def charge(unit: Unit, offered: Offered, cost_model: CostModel) -> Charged:
    """Take out the writers that one class reads."""
    if cost_model.costs.requantize < cost_model.costs.zero_point:
        return Charged(unit, {})
    met = Counter(c for edge in unit.edges for c in edge.groups())
    ways: dict[int, list[Loss]] = {c: [] for c in unit.classes}
    for loss in unit.losses:
        for c in loss.upstream:
            ways[c].append(loss)
    tolls = dict(unit.tolls)
    writers = {}
    for edge in unit.edges:
        ends = _ends(edge, offered)
        if ends is None or met[ends[0]] > 1:
            continue
        c, reader = ends
        mine = [loss for loss in ways[c] if reader not in loss.upstream]
        if all(loss.upstream == (c,) for loss in mine):
            paid = _by_reader(edge, ends, mine, offered, cost_model)
            writers[c] = reader, {label: own for label, (_, own) in paid.items()}
            before = tolls.get(reader)
            tolls[reader] = {x: _sum(before[x], price) if before else price for x, (price, _) in paid.items()}
    if not writers:
        return Charged(unit, {})
    return Charged(_without(unit, writers, offered, tolls), writers)


def with_writers(charged: Charged, labels: Labels) -> Labels:
    """The labels of what is left of a unit, and those of its writers."""
    return labels | {c: picks[labels[reader]] for c, (reader, picks) in charged.writers.items()}


def _ends(edge: Edge, offered: Offered) -> tuple[int, int] | None:
    """A writer that is stored for sure and the one class that reads it, which may take its labels only.

    None where there is no such class, or where two of the writer's scales are nearly the same.
    """
    if edge.definition is None or None in offered[edge.definition[0]]:
        return None
    writer, store = edge.definition
    reader = max(use.group for use in edge.uses)
    if reader in (GIVEN_USE, writer):
        return None
    for use in edge.uses:
        if use.group == reader and use.store == store:
            continue
        if use.group != GIVEN_USE or (use.goal is not None and not use.follows):
            return None
    own = [label for label in offered[writer] if label is not None]
    if any(b[0] < a[0] * NEAR for a, b in pairwise(own)):
        return None
    return (writer, reader) if set(offered[reader]).issubset([*own, None]) else None


def _by_reader(
    edge: Edge, ends: tuple[int, int], losses: Sequence[Loss], offered: Offered, cost_model: CostModel
) -> dict[Label | None, tuple[Price, Label | None]]:
    """What a writer costs, and its label, by its reader's."""
    writer, reader = ends
    finest = offered[writer][0]
    floated, alike, apart = (
        (*edge_price(edge, {writer: finest, reader: label}, cost_model), 0)
        for label in (None, finest, next((x for x in offered[reader] if x not in (None, finest)), finest))
    )
    own = _lost(losses, finest, cost_model)
    found: dict[Label | None, tuple[Price, Label | None]] = {}
    for label in offered[reader]:
        if label is None or label == finest:
            found[label] = _sum(own, floated if label is None else alike), finest
        else:
            rescaled, shared = _sum(own, apart), _sum(_lost(losses, label, cost_model), alike)
            found[label] = (rescaled, finest) if rescaled <= shared else (shared, label)
    return found


def _lost(losses: Sequence[Loss], label: Label | None, cost_model: CostModel) -> Price:
    """What is lost at uses that nothing but this label decides."""
    price = total = 0
    level = NEVER if label is None else log_units(label[0])
    for loss in losses:
        lost = max(0, max(loss.constant, level) - loss.own)
        price += loss_price(loss, lost, cost_model.costs)
        total += loss.elements * lost * loss.times
    return price, 0, total


def _sum(a: Price, b: Price) -> Price:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _without(unit: Unit, writers: Mapping[int, object], offered: Offered, tolls: Tolls) -> Unit:
    kept = [edge for edge in unit.edges if edge.definition is None or edge.definition[0] not in writers]
    here = {id(edge) for edge in kept}
    components = [
        Component(
            [c for c in part.classes if c not in writers], [edge for edge in part.edges if id(edge) in here]
        )
        for part in unit.components
    ]
    losses = []
    for loss in unit.losses:
        left = tuple(c for c in loss.upstream if c not in writers)
        levels = [_finest(offered[c]) for c in loss.upstream if c in writers]
        if left:
            losses.append(replace(loss, upstream=left, constant=max([loss.constant, *levels])))
    return Unit(components, [c for c in unit.classes if c not in writers], kept, losses, tolls)


def _finest(offered: Sequence[Label | None]) -> int:
    """log2 of the scale of the first label, which is stored."""
    return next(log_units(label[0]) for label in offered if label is not None)
