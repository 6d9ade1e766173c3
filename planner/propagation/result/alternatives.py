"""Alternatives: what a class could have taken instead, and what that would have cost, for whom.

For a class beside a rescale these are the labels at the other ends, and for one that shares a label its own.
The class alone takes it, or all that share its label, and it is priced by what that changes: rescales on
their edges, bits lost by consumers that their data reaches. If those are very many, or the plan is large,
there is no price, so that a log takes no more than its length in work.
"""

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from planner.ir.types.qtypes import Storage
from planner.plans.records import Refused
from planner.propagation.network.ports import Port
from planner.propagation.parameters.typed import Typed
from planner.propagation.solver.classes import LabelClass, Labels, legal
from planner.propagation.solver.components import Edge, Sets, Unit
from planner.propagation.solver.price import CostModel, edge_price, loss_price
from planner.propagation.solver.ways import Loss, coarsest, level_of
from planner.target.ports.labels import UNIT, Label, clipped_share, label_of, storable, typed

MOST: Final = 3
"""Alternatives of one class."""
NAMED: Final = 2
"""Values named whose consumers lose by it."""
NEAR: Final = 64
"""Classes, uses, ways and losses that an alternative may concern; with more it is not priced."""
SMALL: Final = 2_000
"""Kernels of a plan whose alternatives are priced: the log of a larger one takes no longer for them."""

Classes = tuple[int, ...]


class Alternatives:
    """The alternatives of the classes of an outcome; what lies around them is found once for each unit."""

    def __init__(self, outcome: Typed) -> None:
        request, target = outcome.chosen.request, outcome.target
        self._outcome = outcome
        # A part of a plan has the depths of the whole, so that a replan has the log of a plan from scratch.
        self._is_small = len(request.depths or outcome.kernels) <= SMALL
        self._cost_model = CostModel(request.costs, target.rescale_single_consumer, target.rescale_allowed)
        units = outcome.labelled.units if self._is_small else ()
        self._units = {c: unit for unit in units for c in unit.classes}
        self._around: dict[int, _Around | None] = {}
        self._changes: dict[tuple[Classes, Label | None], _Change | None] = {}

    def of(self, entry: LabelClass, port: Port) -> tuple[Refused, ...]:
        """Return the labels that a class could have taken, in words of one of its ports."""
        around = self._around_of(entry.id) if self._is_small else None
        if around is None:
            return ()
        found = []
        for label in islice(_others(entry, around), MOST):
            illegal = _illegal(entry, label, self._cost_model.costs.max_clip)
            found += [Refused(_text(label, port), math.inf, illegal)] if illegal else []
            for members in around.moved(entry.id):
                change = self._change(around, members, label)
                if change is not None:
                    found.append(self._refused(entry, members, change, _text(label, port)))
        return tuple(found)

    def _refused(self, entry: LabelClass, members: Classes, change: "_Change", text: str) -> Refused:
        price = self._outcome.labelled.solutions[entry.id].price + change.price
        together = "with all that share its type, " if len(members) > 1 else ""
        return Refused(text, price / UNIT, together + _why(self._outcome, change))

    def _around_of(self, c: int) -> "_Around | None":
        """The surroundings of a unit's classes; None where all have their own labels and nothing costs."""
        unit = self._units[c]
        key = id(unit)
        if key not in self._around:
            solution, classes = self._outcome.labelled.solutions[c], self._outcome.labelled.classes
            labels = dict(solution.labels)
            plain = not solution.price and all(classes[one].own == labels[one] for one in unit.classes)
            self._around[key] = None if plain else _Around.of(unit, labels, self._cost_model)
        return self._around[key]

    def _change(self, around: "_Around", members: Classes, label: Label | None) -> "_Change | None":
        """The effect of a label on classes; None where one may not have it, or too much depends on it."""
        key = members, label
        if key not in self._changes:
            classes, max_clip = self._outcome.labelled.classes, self._cost_model.costs.max_clip
            allowed = all(
                classes[c].may_float if label is None else legal(label, classes[c], max_clip) for c in members
            )
            self._changes[key] = _changed(around, members, label, self._cost_model) if allowed else None
        return self._changes[key]


@dataclass(frozen=True, slots=True)
class _Around:
    """A unit, seen from its classes.

    Attributes:
      edges: of each class, with what they cost.
      parents: ways that each class or way is a part of.
      losses: those that ask for each class or way.
      levels: log2 of the coarsest scale of each, in 1/1024.
      regions: classes that edges lead to without a change of label, by each of them.
    """

    unit: Unit
    labels: Labels
    edges: Mapping[int, Sequence[tuple[Edge, int]]]
    parents: Mapping[int, Sequence[int]]
    losses: Mapping[int, Sequence[Loss]]
    levels: dict[int, int]
    regions: Mapping[int, Classes]

    @classmethod
    def of(cls, unit: Unit, labels: Labels, cost_model: CostModel) -> "_Around":
        edges: dict[int, list[tuple[Edge, int]]] = {}
        for edge in unit.edges:
            paid = edge_price(edge, labels, cost_model)[0]
            for group in edge.groups():
                edges.setdefault(group, []).append((edge, paid))
        parents: dict[int, list[int]] = {}
        for way, (members, _) in unit.ways.items():
            for member in members:
                parents.setdefault(member, []).append(way)
        losses: dict[int, list[Loss]] = {}
        levels: dict[int, int] = {}
        for loss in unit.losses:
            coarsest(loss, unit.ways, labels, levels)
            for member in loss.upstream:
                losses.setdefault(member, []).append(loss)
        return cls(unit, labels, edges, parents, losses, levels, _regions(unit, labels))

    def moved(self, c: int) -> list[Classes]:
        """Return the groups that may take another label: the class alone, or all that share its label."""
        region = self.regions[c]
        return [(c,), region] if 1 < len(region) <= NEAR else [(c,)]


def _regions(unit: Unit, labels: Labels) -> Mapping[int, Classes]:
    number = {c: i for i, c in enumerate(unit.classes)}
    alike = Sets(len(number))
    for edge in unit.edges:
        if edge.definition is not None:
            made = edge.definition[0]
            alike.join([number[made], *(number[c] for c in edge.groups() if labels[c] == labels[made])])
    found: dict[int, list[int]] = {}
    for c, i in number.items():
        found.setdefault(alike.find(i), []).append(c)
    return {c: region for region in map(tuple, found.values()) for c in region}


@dataclass(frozen=True, slots=True)
class _Change:
    """The effect of another label; prices in 1/1024.

    Attributes:
      rescales: what they cost more.
      losses: price, and bits in 1/1024, that each loss has more.
    """

    rescales: int
    losses: Sequence[tuple[int, int, Loss]]

    @property
    def price(self) -> int:
        return self.rescales + sum(price for price, _, _ in self.losses)


def _others(entry: LabelClass, around: _Around) -> Iterator[Label | None]:
    """Labels at the other ends of edges with a rescale, and the class's own, each once."""
    known = {around.labels[entry.id]}
    for label in (*_at_other_ends(entry.id, around), entry.own):
        if label not in known and (label is not None or entry.may_float):
            known.add(label)
            yield label


def _at_other_ends(c: int, around: _Around) -> Iterator[Label | None]:
    for edge, paid in around.edges.get(c, ()):
        if not paid:
            continue
        ends = [(edge.definition[0] if edge.definition is not None else -1, edge.start)]
        if ends[0][0] == c:
            ends = [(use.group, use.goal) for use in islice(edge.uses, NEAR)]
        for group, kind in ends:
            if group >= 0:
                yield around.labels[group]
            elif kind is None or kind.is_per_tensor:
                yield None if kind is None else label_of(kind)


def _illegal(entry: LabelClass, label: Label | None, max_clip: float) -> str:
    """Why a class may not take a label; "" where it may."""
    if label is None or legal(label, entry, max_clip):
        return ""
    if not all(storable(label, port.spec) for port in entry.ports):
        return "not all of its ports can store that"
    shares = [
        clipped_share(extent, label, port.spec.storage)
        for port in entry.entering
        if (extent := entry.required[port.id]) is not None and isinstance(port.spec.storage, Storage)
    ]
    return f"that cuts off {max(shares):.1%} of its range"


def _changed(around: _Around, members: Classes, label: Label | None, cost_model: CostModel) -> _Change | None:
    """The effect of a label for some classes; None where too much depends on it."""
    edges = {id(edge): (edge, paid) for c in members for edge, paid in around.edges.get(c, ())}.values()
    levels = _levels(around, members, label)
    if levels is None or sum(len(edge.uses) for edge, _ in edges) > NEAR:
        return None
    reached = {id(loss): loss for member in levels for loss in around.losses.get(member, ())}.values()
    if len(reached) > NEAR:
        return None
    moved: Labels = dict.fromkeys(members, label)
    labels = ChainMap(moved, around.labels)
    rescales = sum(edge_price(edge, labels, cost_model)[0] - paid for edge, paid in edges)
    losses = []
    for loss in reached:
        old, new = (
            max(0, max([loss.constant, *(at.get(m, around.levels[m]) for m in loss.upstream)]) - loss.own)
            for at in ({}, levels)
        )
        more = loss_price(loss, new, cost_model.costs) - loss_price(loss, old, cost_model.costs)
        if new != old:
            losses.append((more, new - old, loss))
    return _Change(rescales, losses)


def _levels(around: _Around, members: Classes, label: Label | None) -> dict[int, int] | None:
    """log2 in 1/1024 of the coarsest scales of classes and of the ways that change; None where many do."""
    found = dict.fromkeys(members, level_of(label))
    # Ways count down from the first: those that others are made of come first.
    waiting = [-way for c in members for way in around.parents.get(c, ())]
    heapify(waiting)
    while waiting:
        way = -heappop(waiting)
        if way in found or way not in around.levels:
            continue
        inside, constant = around.unit.ways[way]
        level = max([constant, *(found.get(m, around.levels.get(m, constant)) for m in inside)])
        if level == around.levels[way]:
            continue
        found[way] = level
        if len(found) > 2 * NEAR:
            return None
        for parent in around.parents.get(way, ()):
            heappush(waiting, -parent)
    return found


def _why(outcome: Typed, change: _Change) -> str:
    """Say which rescales and losses make the difference, and for whom."""
    parts = []
    for sign in (1, -1):
        losses = [(price, bits, loss) for price, bits, loss in change.losses if bits * sign > 0]
        if losses:
            names = list(dict.fromkeys(repr(outcome.values[loss.value].name) for *_, loss in losses))
            shown = [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]
            most, paid = max(abs(bits) for _, bits, _ in losses), sum(price for price, _, _ in losses)
            lost = f"consumers of {' and '.join(shown)} lose up to {most / UNIT:.2f} bits {_word(sign)}"
            parts.append(
                f"{lost}, which costs {abs(paid) / UNIT:g} {_word(paid)}" if paid else f"{lost} for free"
            )
    if change.rescales:
        parts.append(f"rescales cost {abs(change.rescales) / UNIT:g} {_word(change.rescales)}")
    head = f"{abs(change.price) / UNIT:g} {_word(change.price)}" if change.price else "as much"
    return f"{head}: {'; '.join(parts)}" if parts else head


def _word(change: int) -> str:
    return "less" if change < 0 else "more"


def _text(label: Label | None, port: Port) -> str:
    if label is None:
        return "float"
    store = port.spec.storage
    if isinstance(store, Storage) and storable(label, port.spec):
        return str(typed(label, store))
    return f"scale {label[0]}"
