"""Dominated labels: what no cheapest labelling needs is taken off the classes before any search.

Take labels of one scale, and a group of classes linked by values that may carry one of them. If one
label that is as fine is legal in the whole group, every class with such a label can switch to it: no use
loses more, what was equal stays equal, and what differs costs a requantize at most, as before.
Source: docs/specification.md, section 5, the price, items 3 to 5; dead-end elimination.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.plans.rescales import SAME_SCALE
from planner.propagation.solver.classes import Offers
from planner.propagation.solver.components import Component
from planner.target.ports.labels import Label, label_of
from planner.target.records import Costs

ROUNDS: Final = 3
NEAR: Final = 1.0 + 1.1 * SAME_SCALE
"""Factor within which two scales may count as the same."""


@dataclass(slots=True)
class _Masks:
    """Labels as bits, the finest first.

    Attributes:
      offered: by class.
      given: by class, the labels that edges here start from or want.
      linked: by class, the classes it shares values with.
      scales: the labels whose scales count as the same, the finest first.
      holders: for each of these, the classes that are offered one of them at first.
    """

    offered: dict[int, int]
    given: dict[int, int]
    linked: dict[int, list[frozenset[int]]]
    scales: list[int]
    holders: list[list[int]]


def drop_dominated(component: Component, offered: Offers, costs: Costs) -> None:
    """Take dominated labels off what a component's classes are offered; the least price stays what it is."""
    # The argument needs that differing scales cost at least what differing zero points do.
    if costs.requantize < costs.zero_point:
        return
    given = _given(component)
    every = {label for c in component.classes for label in offered[c] if label is not None}
    labels = sorted(every.union(*given.values()))
    bit = {label: 1 << i for i, label in enumerate(labels)}
    scales = _scales(labels)
    masks = _Masks(
        {c: sum(bit[label] for label in offered[c] if label is not None) for c in component.classes},
        {c: sum(bit[label] for label in here) for c, here in given.items()},
        _linked(component),
        scales,
        _holders(component, offered, labels, scales),
    )
    before = dict(masks.offered)
    # What one round drops may split a region, so that a finer label is common to its parts.
    for _ in range(ROUNDS):
        if not _drop_once(masks):
            break
    for c, mask in masks.offered.items():
        if mask != before[c]:
            offered[c] = [label for label in offered[c] if label is None or mask & bit[label]]


def _given(component: Component) -> dict[int, set[Label]]:
    found: dict[int, set[Label]] = {}
    for edge in component.edges:
        kinds = (edge.start, *(use.goal for use in edge.uses))
        labels = {label_of(kind) for kind in kinds if kind is not None and kind.is_per_tensor}
        for c in edge.groups() if labels else ():
            found.setdefault(c, set()).update(labels)
    return found


def _linked(component: Component) -> dict[int, list[frozenset[int]]]:
    found: dict[int, list[frozenset[int]]] = {c: [] for c in component.classes}
    for edge in component.edges:
        groups = frozenset(edge.groups())
        for c in groups if len(groups) > 1 else ():
            found[c].append(groups)
    return found


def _scales(labels: Sequence[Label]) -> list[int]:
    found: list[int] = []
    # Scales within 1e-6 count as one (tests/cases, case 45), so they are dropped or kept together.
    last = -1.0
    for i, (scale, _) in enumerate(labels):
        if scale > last * NEAR:
            found.append(0)
        found[-1] |= 1 << i
        last = scale
    return found


def _holders(
    component: Component, offered: Offers, labels: Sequence[Label], scales: Sequence[int]
) -> list[list[int]]:
    place: dict[Label | None, int] = {}
    at = 0
    for number, scale in enumerate(scales):
        for label in labels[at : at + scale.bit_count()]:
            place[label] = number
        at += scale.bit_count()
    found: list[list[int]] = [[] for _ in scales]
    for c in component.classes:
        for number in {place[label] for label in offered[c] if label is not None}:
            found[number].append(c)
    return found


def _drop_once(masks: _Masks) -> bool:
    dropped = False
    offered = masks.offered
    single = {c for c, mask in offered.items() if mask and not mask & (mask - 1)}
    for scale, at_first in zip(masks.scales, masks.holders, strict=True):
        holders = {c for c in at_first if offered[c] & scale}
        # Where every holder has this one label there is nothing to drop.
        if holders <= single:
            continue
        while holders:
            region = _region(holders, masks.linked)
            keep = _keep(masks, region, scale)
            for c in region if keep else ():
                rest = offered[c] & (~scale | keep)
                dropped = dropped or rest != offered[c]
                offered[c] = rest
    return dropped


def _region(holders: set[int], linked: Mapping[int, list[frozenset[int]]]) -> list[int]:
    """Take classes linked through each other out of `holders`."""
    stack = [holders.pop()]
    region = []
    while stack:
        c = stack.pop()
        region.append(c)
        for groups in linked[c]:
            near = groups & holders  # as long as the fewer of the two: a hub has thousands of readers
            holders -= near
            stack += near
    return region


def _keep(masks: _Masks, region: Sequence[int], scale: int) -> int:
    """The finest label that the region has in common, no coarser than this scale; 0 if there is none.

    If edges start from or want a label of this scale, only that one will do.
    """
    # Bits up to the coarsest of this scale: labels that are finer, or as fine.
    common = (1 << scale.bit_length()) - 1
    wanted = 0
    for c in region:
        common &= masks.offered[c]
        wanted |= masks.given.get(c, 0)
    wanted &= scale
    # An edge that starts from or wants this very scale would pay for any other; of two such labels
    # neither is known to be the better one, so nothing is dropped.
    if wanted:
        return common & wanted if not wanted & (wanted - 1) else 0
    # The lowest bit is the finest label: no use loses more by it than by any other of the region.
    return common & -common
