"""Candidates: the labels a class may take, by the candidates of its component and what is legal for it.

Candidates are pins, fixed types, own labels, and hulls of neighbours and of all. A component of very many
classes is gone through in windows: its classes get the candidates from around them.
Source: design 01, section 5, the price, items 2 and 3.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.ir.types.qtypes import Storage
from planner.propagation.network.ports import Interval, Network
from planner.propagation.solver.classes import (
    Label,
    LabelClass,
    clipped_shares,
    hull_of,
    label_for,
    label_of,
    legal,
    storable,
)
from planner.propagation.solver.components import Component
from planner.target.records import PortType

JOINED: Final = 64
FEW: Final = 8  # candidates that are looked at one by one
WHOLE: Final = 4_000  # classes of a component that share all candidates
WINDOW: Final = 200

Masks = dict[PortType, NDArray[np.bool_]]


def offer_labels(
    component: Component, classes: Sequence[LabelClass], network: Network, max_clip: float
) -> None:
    """Give every class of a component its legal labels, finest first (float last).

    A class that no label serves within `max_clip` keeps its own: it has no finer choice.
    """
    free = [c for c in component.classes if classes[c].fixed is None]
    for c in component.classes:
        entry = classes[c]
        if entry.fixed is not None:
            entry.labels = [label_of(entry.fixed)]
    for served, around in _windows(component, free) if free else ():
        order = sorted(_candidates(around, classes, network))
        board = _Board(order, max_clip) if len(order) > FEW else None
        for c in served:
            entry = classes[c]
            found: list[Label | None]
            found = [label for label in order if legal(label, entry, max_clip)] if board is None else []
            found += board.legal(entry) if board is not None else []
            if not found and entry.own is not None:
                found = [entry.own]
            entry.labels = [*found, None] if entry.may_float else found


def is_whole(component: Component) -> bool:
    """Whether every class was offered the candidates of all of them."""
    return len(component.classes) <= WHOLE


def _windows(component: Component, free: Sequence[int]) -> Iterator[tuple[Sequence[int], Component]]:
    """Slices of the free classes, each with the part of the component around it."""
    if is_whole(component):
        yield free, component
        return
    block = {c: i // WINDOW for i, c in enumerate(component.classes)}
    parts: dict[int, Component] = {}
    for c in component.classes:
        parts.setdefault(block[c], Component([])).classes.append(c)
    for edge in component.edges:
        for number in {block[c] for c in edge.groups()}:
            parts[number].edges.append(edge)
    for joined in component.joined:
        for number in {block[c] for c in joined}:
            parts[number].joined.append(joined)
    served: dict[int, list[int]] = {}
    for c in free:
        served.setdefault(block[c], []).append(c)
    for number, mine in served.items():
        near = [parts[n] for n in (number - 1, number, number + 1) if n in parts]
        yield (
            mine,
            Component(
                [c for part in near for c in part.classes],
                [edge for part in near for edge in part.edges],
                [joined for part in near for joined in part.joined],
            ),
        )


class _Board:
    """Many candidates as arrays: legality of all of them for one class at a time, as `legal` has it."""

    def __init__(self, order: Sequence[Label], max_clip: float) -> None:
        self.order, self.max_clip = order, max_clip
        self.scales = np.array([scale for scale, _ in order])
        self.zero_points = np.array([zero_point for _, zero_point in order], np.float64)
        self.storable: Masks = {}

    def legal(self, entry: LabelClass) -> list[Label]:
        """The candidates that a class without a fixed type may take."""
        mask = np.ones(len(self.order), bool)
        for spec in dict.fromkeys(port.spec for port in entry.ports):
            if spec not in self.storable:
                self.storable[spec] = np.array([storable(label, spec) for label in self.order])
            mask &= self.storable[spec]
        for port in entry.entering:
            if port.required is not None and isinstance(port.spec.storage, Storage):
                store = port.spec.storage
                zeros = self.zero_points + store.offset
                low, high = store.qmin - zeros, store.qmax - zeros
                with np.errstate(divide="ignore"):  # of what is not storable all may be cut off
                    mask &= clipped_shares(*port.required, self.scales, low, high) <= self.max_clip
        return list(itertools.compress(self.order, mask))


def _candidates(component: Component, classes: Sequence[LabelClass], network: Network) -> set[Label]:
    members = [classes[c] for c in component.classes]
    labels = {entry.own for entry in members if entry.own is not None}
    if len(labels) == 1 and not any(network.values[e.value].pin for e in component.edges):
        wanted = {(port.spec, port.required) for entry in members for port in entry.ports}
        if len(wanted) == 1:
            return labels
    for edge in component.edges:
        pin = network.values[edge.value].pin
        if pin is not None and pin.is_per_tensor:
            labels.add(label_of(pin))
    near = dict.fromkeys(itertools.chain(component.classes, *component.joined))
    extents = {c: hull_of([classes[c]]) for c in near}
    specs = {id(port.spec): port.spec for c in near for port in classes[c].ports}
    of = {c: {id(port.spec) for port in classes[c].ports} for c in near}
    asked: set[tuple[Interval, int]] = set()
    for groups in component.joined:
        for a, b in itertools.combinations(groups[:JOINED], 2):
            hull = _hull(extents[a], extents[b])
            if hull is not None:
                asked.update((hull, spec) for spec in of[a] | of[b])
    whole = hull_of(members)
    if len(members) > 1 and whole is not None:
        asked.update((whole, spec) for c in component.classes for spec in of[c])
    return labels.union(label_for(hull, specs[spec]) for hull, spec in asked)


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a[0], b[0]), max(a[1], b[1])
