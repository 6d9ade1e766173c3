"""Candidates: the labels a class may take, of those of its component that are legal for it.

Candidates are fixed types of values and ports, own labels, and hulls of neighbours and of all. If that makes
too many labels, a component is cut into neighbourhoods of a few classes each, which get the candidates from
around them: a label is worth sharing with neighbours. Some labels from over the whole range of scales, and
the hull of all, are offered everywhere: neighbourhoods that agree on one need no rescales between them.
Source: docs/specification.md, section 5, the price, items 2 and 3.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Storage
from planner.propagation.network.ports import Ranged, base_of
from planner.propagation.solver.classes import LabelClass, Offers, hull_of, legal
from planner.propagation.solver.components import Component, Edge
from planner.target.ports.labels import Label, clipped_shares, label_for, label_of, storable
from planner.target.records import PortType

JOINED: Final = 64
"""Classes at one value whose hulls, two by two, are candidates."""
FEW: Final = 8  # candidates that are looked at one by one
MOST: Final = 1_000_000
"""Classes times candidates of a component that share all candidates."""
SHARED: Final = 400
"""Candidates of such a component."""
NEAR: Final = 12
"""Classes of a neighbourhood, where they are too many for that."""
FINEST: Final = 24
"""Labels of a class there: the finest that are legal."""

SPREAD: Final = 16
"""Labels that every class of a component is offered there, as far as they are legal."""

Masks = dict[PortType, NDArray[np.bool_]]
Asked = set[tuple[Interval, int]]


def offer_labels(
    component: Component, classes: Sequence[LabelClass], network: Ranged, max_clip: float
) -> tuple[Offers, bool]:
    """The legal labels of every class of a component, finest first (float last).

    A class that no label serves within `max_clip` keeps its own: it has no finer choice.

    Returns:
      the labels of each class, and whether every class was offered the candidates of all.
    """
    free = [c for c in component.classes if classes[c].fixed is None]
    # Fixed types always win, and are the only label of their class even where they clip
    # (docs/specification.md, section 5, item 3).
    offered: Offers = {
        c: [label_of(fixed)] for c in component.classes if (fixed := classes[c].fixed) is not None
    }
    if not free:
        return offered, True
    found = _Candidates(component, classes, network)
    every = found.of(component.classes, component.edges, component.joined)
    # Whole is exact: every class may take any label that is legal for it. The product is what offering,
    # dominance and programs take in work, so it is bounded whatever the shape.
    if len(every) <= SHARED and len(every) * len(free) <= MOST:
        return offered | _legal_labels(free, sorted(every), classes, max_clip), True
    spread = frozenset(_towards_coarsest(sorted(every)))
    for served, around, edges, joined in _neighbourhoods(component):
        order = sorted({*found.of(around, edges, joined), *spread})
        free = [c for c in served if classes[c].fixed is None]
        offered |= _legal_labels(free, order, classes, max_clip, FINEST, kept=spread)
    return offered, False


def _towards_coarsest(in_order: Sequence[Label]) -> list[Label]:
    """Some labels, ever closer together towards the coarsest: the coarser, the more classes may take it."""
    count = len(in_order)
    return [in_order[at] for at in sorted({count - max(1, count >> k) for k in range(SPREAD)})]


def _legal_labels(
    served: Sequence[int],
    order: Sequence[Label],
    classes: Sequence[LabelClass],
    max_clip: float,
    most: int | None = None,
    *,
    kept: Collection[Label] = (),
) -> Offers:
    """Of the candidates, in order, those legal for each class; `most`: the finest, and those `kept`."""
    offered: Offers = {}
    board = _Board(order, max_clip) if len(order) > FEW else None
    # Legality depends on nothing but what ports store and have to hold, and classes alike are many.
    alike: dict[object, list[Label | None]] = {}
    for c in served:
        entry = classes[c]
        # Two classes whose ports have the same specs and hold the same ranges take the same labels.
        told = (
            *(id(port.spec) for port in entry.ports),
            *((id(port.spec), entry.required[port.id]) for port in entry.entering),
        )
        found = alike.get(told)
        if found is None:
            found = [label for label in order if legal(label, entry, max_clip)] if board is None else []
            found += board.legal(entry) if board is not None else []
            alike[told] = found
        # The coarsest legal label is kept as well: it is the hull of all, the one label a whole chain can
        # share.
        labels = found
        if most is not None and len(found) > most:
            labels = [*found[: most - 1], *(one for one in found[most - 1 : -1] if one in kept), found[-1]]
        # A class can always have its own label: whatever its neighbours do, a rescale on each side serves it.
        own = entry.own
        cut_short = most is not None and own not in labels
        if own is not None and (not found or (cut_short and legal(own, entry, max_clip))):
            labels = sorted([*labels, own])  # type: ignore[type-var]
        offered[c] = [*labels, None] if entry.may_float else list(labels)
    return offered


def _neighbourhoods(
    component: Component,
) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[Edge], Sequence[list[int]]]]:
    """Classes that are close to each other, all that share a value with them, and what is around those.

    A breadth-first walk over values takes up to `NEAR` classes into each; a hub's consumers fill several.
    """
    at: dict[int, list[int]] = {c: [] for c in component.classes}
    for number, joined in enumerate(component.joined):
        for c in joined:
            at[c].append(number)
    edges_at: dict[int, list[Edge]] = {}
    for edge in component.edges:
        for c in edge.groups():
            edges_at.setdefault(c, []).append(edge)
    # In topological order, so that neighbourhoods are the same for the same net (laws of
    # docs/specification.md, section 5).
    left = dict.fromkeys(component.classes)
    while left:
        served = [next(iter(left))]
        del left[served[0]]
        for c in served:
            for number in at[c]:
                for other in component.joined[number][:JOINED]:
                    if other in left and len(served) < NEAR:
                        del left[other]
                        served.append(other)
        numbers = dict.fromkeys(number for c in served for number in at[c])
        # Of a hub's readers only the first few: all of them would make each neighbourhood as large as the
        # hub.
        values = [component.joined[number][:NEAR] for number in numbers]
        around = dict.fromkeys([*served, *itertools.chain.from_iterable(values)])
        edges = {id(edge): edge for c in served for edge in edges_at.get(c, ())}
        yield served, [*around], [*edges.values()], values


class _Candidates:
    """The candidates that classes of one component make, each hull and label once."""

    def __init__(self, component: Component, classes: Sequence[LabelClass], network: Ranged) -> None:
        self._classes, self._network = classes, network
        near = dict.fromkeys(itertools.chain(component.classes, *component.joined))
        self._extents = {c: hull_of([classes[c]]) for c in near}
        self._specs = {id(port.spec): port.spec for c in near for port in classes[c].ports}
        self._of = {c: {id(port.spec) for port in classes[c].ports} for c in near}
        # A split has a class of thousands of ports, and stands in the neighbourhood of each of its readers.
        self._wanted: dict[int, set[tuple[PortType, Interval | None]]] = {}
        members = [classes[c] for c in component.classes]
        self._whole: Asked = set()
        whole = hull_of(members)
        if len(members) > 1 and whole is not None:
            self._whole = {
                (whole, spec) for spec in {spec for c in component.classes for spec in self._of[c]}
            }

    def _held(self, c: int) -> set[tuple[PortType, Interval | None]]:
        """The specs of a class's ports with what each has to hold."""
        if c not in self._wanted:
            self._wanted[c] = {
                (port.spec, self._network.required[port.id]) for port in self._classes[c].ports
            }
        return self._wanted[c]

    def of(
        self, members: Sequence[int], edges: Sequence[Edge], joined: Sequence[Sequence[int]]
    ) -> set[Label]:
        """Own labels of classes, fixed types at edges, hulls of every two joined classes, the hull of all."""
        entries = [self._classes[c] for c in members]
        labels = {entry.own for entry in entries if entry.own is not None}
        pins = [base_of(self._network, self._network.values[edge.value]) for edge in edges]
        if len(labels) == 1 and not any(pins):
            held = [self._held(c) for c in members]
            # Ports all alike that hold one range: no hull can be another label.
            if all(len(one) == 1 for one in held) and len(set().union(*held)) == 1:
                return labels
        labels.update(label_of(pin) for pin in pins if pin is not None and pin.is_per_tensor)
        asked = set(self._whole)
        # The hull of two classes at one value is what both could share without a rescale between them.
        for groups in joined:
            for a, b in itertools.combinations(groups[:JOINED], 2):
                hull = _hull(self._extents[a], self._extents[b])
                if hull is not None:
                    asked.update((hull, spec) for spec in self._of[a] | self._of[b])
        return labels.union(label_for(hull, self._specs[spec]) for hull, spec in asked)


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
            store, extent = port.spec.storage, entry.required[port.id]
            if extent is not None and isinstance(store, Storage):
                zeros = self.zero_points + store.offset
                low, high = store.qmin - zeros, store.qmax - zeros
                # A label whose storage does not reach zero has a width of nothing; it is not storable and
                # masked anyway.
                with np.errstate(divide="ignore"):  # of what is not storable all may be cut off
                    mask &= clipped_shares(*extent, self.scales, low, high) <= self.max_clip
        return list(itertools.compress(self.order, mask))


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a[0], b[0]), max(a[1], b[1])
