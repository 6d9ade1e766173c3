"""Dominated labels: what no cheapest labelling needs is taken off the classes before any search.

Take labels of one scale, and a group of classes linked by values that may carry one of them. Where one
label that is as fine is legal in the whole group, every class with such a label can switch to it: no use
loses more, what was equal stays equal, and what differs costs a requantize at most, as before.
Source: design 01, section 5, the price, items 3 to 5; dead-end elimination.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.plans.rescales import SAME_SCALE
from planner.propagation.components import Component
from planner.propagation.labels import Label, label_of
from planner.target.records import Costs

ROUNDS: Final = 3
NEAR: Final = 1.0 + 1.1 * SAME_SCALE

Offered = dict[int, list[Label | None]]


@dataclass(slots=True)
class _Around:
    """By class: the classes it shares values with, and the labels that edges here start from or want."""

    linked: dict[int, list[list[int]]]
    given: dict[int, set[Label]]


def drop_dominated(component: Component, offered: Offered, costs: Costs) -> None:
    """Take dominated labels off what a component's classes are offered; the least price stays what it is."""
    if costs.requantize < costs.zero_point:
        return
    around = _around(component)
    for _ in range(ROUNDS):
        if not _drop_once(component, offered, around):
            return


def _around(component: Component) -> _Around:
    around = _Around({c: [] for c in component.classes}, {})
    for edge in component.edges:
        groups = edge.groups()
        types = [kind for kind in (edge.start, *(use.goal for use in edge.uses)) if kind is not None]
        labels = [label_of(kind) for kind in types if kind.is_per_tensor]
        for c in groups:
            if len(groups) > 1:
                around.linked[c].append(groups)
            if labels:
                around.given.setdefault(c, set()).update(labels)
    return around


def _drop_once(component: Component, offered: Offered, around: _Around) -> bool:
    rank = _ranked({label for c in component.classes for label in offered[c] if label is not None})
    holders: dict[int, dict[int, None]] = {}
    for c in component.classes:
        for label in offered[c]:
            if label is not None:
                holders.setdefault(rank[label], {})[c] = None
    dropped = False
    for scale in sorted(holders):
        for region in _regions(holders[scale], around.linked):
            keep = _serves_all(region, offered, around.given, rank, scale)
            if keep is not None:
                for c in region:
                    before = offered[c]
                    offered[c] = [one for one in before if one in (None, keep) or rank[one] != scale]
                    dropped = dropped or len(offered[c]) < len(before)
    return dropped


def _ranked(labels: Iterable[Label]) -> dict[Label, int]:
    """Labels whose scales count as the same have one rank; a finer scale has a lower one."""
    rank: dict[Label, int] = {}
    last, number = -1.0, -1
    for label in sorted(labels):
        number += label[0] > last * NEAR
        rank[label] = number
        last = label[0]
    return rank


def _regions(holders: Iterable[int], linked: Mapping[int, list[list[int]]]) -> list[list[int]]:
    """Split classes into those linked through each other."""
    waiting = dict.fromkeys(holders)
    found = []
    while waiting:
        stack = [next(iter(waiting))]
        del waiting[stack[0]]
        region = []
        while stack:
            c = stack.pop()
            region.append(c)
            for groups in linked[c]:
                for other in groups:
                    if other in waiting:
                        del waiting[other]
                        stack.append(other)
        found.append(region)
    return found


def _serves_all(
    region: Sequence[int],
    offered: Offered,
    given: Mapping[int, set[Label]],
    rank: Mapping[Label, int],
    scale: int,
) -> Label | None:
    """The finest label that the whole region may carry, if it is as fine as this scale."""
    common = {label for label in offered[region[0]] if label is not None and rank[label] <= scale}
    for c in region[1:]:
        if not common:
            return None
        common.intersection_update(offered[c])
    if not common:
        return None
    mine = next(label for label in offered[region[0]] if label and rank[label] == scale)
    near = {
        label
        for c in region
        for label in given.get(c, ())
        if math.isclose(label[0], mine[0], rel_tol=(len(rank) + 1) * (NEAR - 1.0))
    }
    if near:
        common &= near if len(near) == 1 else set()
    return min(common, default=None)
