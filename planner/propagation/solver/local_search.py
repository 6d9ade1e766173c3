"""Local search: change one class at a time, or all that are linked and alike, while the price falls.

A class follows a neighbour, takes its finest label, or stays float, and a region takes the finest label that
its classes have in common: any other costs as many rescales and loses more. Sweeps are counted.
Source: design 01, section 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.plans.rescales import same_scale
from planner.propagation.solver.classes import Label, Labels, Offered, label_of
from planner.propagation.solver.components import Edge, Part, Price, Unit
from planner.propagation.solver.price import CostModel, price_of_labels

SWEEPS: Final = 20


@dataclass(slots=True)
class _Around(Part):
    """What a class takes part in, the other classes there, and the labels given there."""

    linked: dict[int, None] = field(default_factory=dict)
    given: dict[Label, None] = field(default_factory=dict)


def descend(unit: Unit, offered: Offered, cost_model: CostModel, start: Labels) -> tuple[Price, Labels]:
    """Return a labelling that no change of one class improves (or the last of `SWEEPS`), and its price."""
    around = _around(unit)
    labels = {c: start[c] if start[c] in offered[c] else offered[c][0] for c in unit.classes}
    changed = dict.fromkeys(unit.classes)
    for _ in range(SWEEPS):
        waiting, changed = changed, {}
        for c in unit.classes:
            if c in waiting and _improve(c, labels, offered[c], around[c], cost_model):
                changed |= around[c].linked
        if not changed:
            changed = _improve_regions(labels, offered, around, cost_model)
        if not changed:
            break
    return price_of_labels(unit, labels, cost_model), labels


def _improve(
    c: int, labels: Labels, offered: Sequence[Label | None], around: _Around, cost_model: CostModel
) -> bool:
    before = kept = labels[c]
    trials = [label for label in _trials(offered, labels, around) if label != before]
    here = price_of_labels(around, labels, cost_model) if trials else (0, 0, 0)
    for label in trials:
        labels[c] = label
        price = price_of_labels(around, labels, cost_model)
        if price < here:
            here, kept = price, label
    labels[c] = kept
    return kept != before


def _improve_regions(
    labels: Labels,
    offered: Offered,
    around: Mapping[int, _Around],
    cost_model: CostModel,
) -> dict[int, None]:
    """Give regions of one label the finest that they have in common; return what is around those changed."""
    changed: dict[int, None] = {}
    waiting = dict.fromkeys(around)
    while waiting:
        region = _region(next(iter(waiting)), labels, around)
        for c in region:
            waiting.pop(c, None)  # a region changed before may be linked to it now
        common = set.intersection(*(set(offered[c]) for c in region))
        label = next(label for label in offered[region[0]] if label in common)
        if label not in (None, labels[region[0]]) and _relabel(region, label, labels, around, cost_model):
            for c in region:
                changed |= {c: None, **around[c].linked}
    return changed


def _region(start: int, labels: Labels, around: Mapping[int, _Around]) -> list[int]:
    """A class and all of its label that share values with it or with each other."""
    found = {start: None}
    region = [start]
    for c in region:
        for other in (other for edge in around[c].edges for other in edge.groups()):
            if other not in found and labels[other] == labels[start]:
                found[other] = None
                region.append(other)
    return region


def _relabel(
    region: Sequence[int],
    label: Label | None,
    labels: Labels,
    around: Mapping[int, _Around],
    cost_model: CostModel,
) -> bool:
    """Give a region a finer label if that costs no more: of equal prices the finer labels win."""
    edges = {id(edge): edge for c in region for edge in around[c].edges}
    losses = {id(loss): loss for c in region for loss in around[c].losses}
    tolls = {c: toll for c in region for toll in around[c].tolls.values()}
    part = Part([*edges.values()], [*losses.values()], tolls)
    before, price = labels[region[0]], price_of_labels(part, labels, cost_model)
    labels |= dict.fromkeys(region, label)
    if price_of_labels(part, labels, cost_model) <= price:
        return True
    labels |= dict.fromkeys(region, before)
    return False


def _trials(
    offered: Sequence[Label | None], labels: Mapping[int, Label | None], around: _Around
) -> Iterator[Label | None]:
    near = {label[0] for other in around.linked if (label := labels[other]) is not None}
    near |= {label[0] for label in around.given}
    for i, label in enumerate(offered):
        if i == 0 or label is None or label[0] in near or any(same_scale(label[0], x) for x in near):
            yield label


def _around(unit: Unit) -> dict[int, _Around]:
    found = {c: _Around() for c in unit.classes}
    for edge in unit.edges:
        groups = edge.groups()
        given = _given(edge)
        for c in groups:
            found[c].edges.append(edge)
            found[c].given.update(given)
            found[c].linked.update(dict.fromkeys(groups))
    for loss in unit.losses:
        for c in loss.upstream:
            found[c].losses.append(loss)
            found[c].linked.update(dict.fromkeys(loss.upstream))
    for c, toll in unit.tolls.items():
        found[c].tolls[c] = toll
    for c in unit.classes:
        found[c].linked.pop(c, None)
    return found


def _given(edge: Edge) -> dict[Label, None]:
    kinds = (edge.start, *(use.goal for use in edge.uses if not use.follows))
    return dict.fromkeys(label_of(kind) for kind in kinds if kind is not None and kind.is_per_tensor)
