"""The price of a labelling, so that "least" is a number.

A component is the classes linked through values. Its price is a sum of rescales (one per value and
type wanted) and of bits lost at consuming uses beyond what is unavoidable. Prices are integers in
1/1024 of an element-rescale. Source: design 01, section 5, the price, items 4 and 5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.ir.qtypes import Storage, Uniform
from planner.plans.rescales import kind_of, price_of
from planner.propagation.labels import Label, LabelClass, label_for, typed
from planner.propagation.network import CLASS, DERIVED, FLOAT, Network
from planner.target.records import Costs

UNIT = 1024
FLOAT_USE = -1
Assignment = Sequence[Label | None]


def log_units(scale: float) -> int:
    """log2 of a scale, rounded half to even to 1/1024."""
    return round(math.log2(scale) * UNIT)


@dataclass(slots=True)
class Edge:
    """One value and its uses, as the price sees them.

    Attributes:
      definition: (class, storage) of the port that defines it, None where it is defined in float.
      base: what uses start from: "definition", a pin, or None for float.
      uses: (class, storage) of each use; class `FLOAT_USE` for a float use.
    """

    value: int
    elements: int
    definition: tuple[int, Storage] | None
    pinned: bool
    base: Uniform | None
    uses: list[tuple[int, Storage | None]]
    trips: int = 1


@dataclass(slots=True)
class Loss:
    """One consuming use: what may have coarsened its data, and how fine it would like it.

    `upstream`: classes on the way; `constant`: coarsest log2 scale among pins and other components.
    """

    value: int
    elements: int
    upstream: tuple[int, ...]
    constant: int
    own: int
    unavoidable: int = 0


@dataclass(slots=True)
class Component:
    """Classes linked through values, with everything their price depends on."""

    classes: list[int]
    edges: list[Edge] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


@dataclass(slots=True)
class Market:
    """Prices of one target and the cache of pairwise costs."""

    costs: Costs
    single_consumer: bool
    pairs: dict[tuple[Uniform | None, Uniform | None], tuple[int, int]] = field(default_factory=dict)

    def pair(self, source: Uniform | None, wanted: Uniform | None) -> tuple[int, int]:
        """(price per element in 1/1024, 1 if it counts as a rescale) of a change of type."""
        found = self.pairs.get((source, wanted))
        if found is None:
            kind = kind_of(source, wanted, self.costs)
            if kind is None:
                found = (0, 0)
            else:
                price = round(price_of(kind, self.costs) * UNIT)
                found = (price, int(kind not in ("quantize", "dequantize")))
            self.pairs[source, wanted] = found
        return found


def edge_price(edge: Edge, assignment: Mapping[int, Label | None], market: Market) -> tuple[int, int]:
    """Price and number of the rescales of one value."""
    defined = None
    if edge.definition is not None:
        label = assignment[edge.definition[0]]
        defined = None if label is None else typed(label, edge.definition[1])
    base = edge.base if edge.pinned else defined
    price = count = 0
    if edge.pinned and base != defined:
        price, count = market.pair(defined, base)
    wanted = []
    for group, store in edge.uses:
        label = None if group == FLOAT_USE else assignment[group]
        kind = None if label is None or store is None else typed(label, store)
        if kind != base and (market.single_consumer or kind not in wanted):
            wanted.append(kind)
    for kind in wanted:
        one, is_rescale = market.pair(base, kind)
        price += one
        count += is_rescale
    return price * edge.elements * edge.trips, count


def loss_units(loss: Loss, assignment: Mapping[int, Label | None]) -> int:
    """Bits lost at one consuming use, in 1/1024, at least 0."""
    coarsest = loss.constant
    for group in loss.upstream:
        label = assignment[group]
        if label is not None:
            coarsest = max(coarsest, log_units(label[0]))
    return max(0, coarsest - loss.own)


def loss_price(loss: Loss, lost: int, costs: Costs) -> int:
    """Price of bits lost at one use beyond what is unavoidable and free."""
    paid = lost - loss.unavoidable - round(costs.free_bits * UNIT)
    return round(loss.elements * costs.bit_price * paid) if paid > 0 else 0


def component_price(
    component: Component, assignment: Mapping[int, Label | None], market: Market
) -> tuple[int, int, int]:
    """(price, rescales, elements x bits lost), the first in 1/1024: what solutions are compared by."""
    price = count = lost_total = 0
    for edge in component.edges:
        one, n = edge_price(edge, assignment, market)
        price += one
        count += n
    limit = market.costs.max_bits_lost
    for loss in component.losses:
        lost = loss_units(loss, assignment)
        price += loss_price(loss, lost, market.costs)
        lost_total += loss.elements * lost
        if limit is not None and lost - loss.unavoidable > limit * UNIT:
            price += 1 << 60
    return price, count, lost_total


def components_of(network: Network, classes: list[LabelClass]) -> list[Component]:
    """Split the classes into components, each with its edges and losses, in topological order."""
    edges = _edges(network)
    root = list(range(len(classes)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for edge in edges:
        linked = [group for group, _ in edge.uses if group != FLOAT_USE]
        if edge.definition is not None:
            linked.append(edge.definition[0])
        for other in linked[1:]:
            a, b = find(linked[0]), find(other)
            root[max(a, b)] = min(a, b)
    members: dict[int, Component] = {}
    for entry in classes:
        members.setdefault(find(entry.id), Component([])).classes.append(entry.id)
    for edge in edges:
        linked = [group for group, _ in edge.uses if group != FLOAT_USE]
        linked += [edge.definition[0]] if edge.definition else []
        if linked:
            members[find(linked[0])].edges.append(edge)
    for home, loss in _losses(network):
        if home >= 0:
            members[find(home)].losses.append(loss)
    return list(members.values())


def _edges(network: Network) -> list[Edge]:
    edges = []
    for index, value in enumerate(network.values):
        if value.constant:
            continue
        definition = None
        if value.definition >= 0:
            port = network.ports[value.definition]
            if port.group >= 0 and isinstance(port.spec.storage, Storage):
                definition = (port.group, port.spec.storage)
        pinned = value.pin is not None or value.stays_float
        uses: list[tuple[int, Storage | None]] = []
        trips = 1
        for p in value.uses:
            port = network.ports[p]
            trips = max(trips, network.kernels[port.kernel].choice.region.trip_count)
            store = port.spec.storage
            if port.group >= 0 and isinstance(store, Storage):
                uses.append((port.group, store))
            elif port.kind == FLOAT:
                uses.append((FLOAT_USE, None))
        if value.pin is None:
            uses += [(FLOAT_USE, None)] * len(value.outputs)
        if definition is None and value.definition < 0 and value.pin is not None:
            edges.append(Edge(index, value.elements, None, False, value.pin, uses, trips))
            edges[-1].pinned = True
            continue
        edges.append(Edge(index, value.elements, definition, pinned, value.pin, uses, trips))
    return edges


def _losses(network: Network) -> list[tuple[int, Loss]]:
    """Every consuming use with what is upstream of it, and a class of its component (-1: none)."""
    upstream: list[tuple[tuple[int, ...], int]] = [((), _NEVER)] * len(network.values)
    left: list[int] = [-1] * len(network.values)
    for index, value in enumerate(network.values):
        if value.definition < 0 and value.pin is not None and not value.constant:
            upstream[index] = ((), log_units(value.pin.scale))
    result: list[tuple[int, Loss]] = []
    for kernel in network.kernels:
        moved: tuple[tuple[int, ...], int] = ((), _NEVER)
        left_by = -1
        if kernel.moves:
            sources = [network.ports[p].value for p in kernel.inputs if p >= 0]
            moved = _join([upstream[v] for v in sources])
            left_by = next((left[v] for v in sources if left[v] >= 0), -1)
            for p in kernel.inputs:
                if p >= 0 and network.ports[p].group >= 0:
                    moved = _join([moved, ((network.ports[p].group,), _NEVER)])
        else:
            for p in kernel.inputs:
                if p >= 0:
                    result += _consuming(network, p, upstream, left)
        for p in kernel.outputs:
            if p < 0:
                continue
            port = network.ports[p]
            value = network.values[port.value]
            own: tuple[tuple[int, ...], int] = ((port.group,) if port.group >= 0 else (), _NEVER)
            if value.pin is not None:
                own = (own[0], log_units(value.pin.scale))
            upstream[port.value] = _join([moved, own])
            left[port.value] = p if port.group >= 0 else left_by
    for index, value in enumerate(network.values):
        if value.outputs and value.pin is None:
            result += _float_use(network, index, upstream[index], left[index], value.range)
    return result


_NEVER = -(1 << 40)


def _join(parts: Sequence[tuple[tuple[int, ...], int]]) -> tuple[tuple[int, ...], int]:
    if len(parts) < 2:
        return parts[0] if parts else ((), _NEVER)
    groups = dict.fromkeys(group for part in parts for group in part[0])
    return tuple(groups), max(part[1] for part in parts)


def _consuming(
    network: Network, p: int, upstream: list[tuple[tuple[int, ...], int]], left: list[int]
) -> list[tuple[int, Loss]]:
    port = network.ports[p]
    value = network.values[port.value]
    if value.constant or port.required is None:
        return []
    if port.kind == FLOAT:
        return _float_use(network, port.value, upstream[port.value], left[port.value], port.required)
    if port.kind not in (CLASS, DERIVED) or port.group < 0:
        return []
    groups, constant = upstream[port.value]
    own = log_units(label_for(port.required, port.spec)[0])
    everything = tuple(dict.fromkeys((*groups, port.group)))
    return [(port.group, Loss(port.value, value.elements, everything, constant, own))]


def _float_use(
    network: Network,
    index: int,
    upstream: tuple[tuple[int, ...], int],
    left: int,
    extent: tuple[float, float] | None,
) -> list[tuple[int, Loss]]:
    groups, constant = upstream
    if not groups or left < 0 or extent is None:
        return []
    own = log_units(label_for(extent, network.ports[left].spec)[0])
    home = network.ports[left].group
    return [(home, Loss(index, network.values[index].elements, groups, constant, own))]


def settle_losses(
    component: Component,
    classes: Sequence[LabelClass],
    solved: Mapping[int, Label | None],
) -> None:
    """Fold what other components contribute into constants, and fill in the unavoidable loss."""
    inside = set(component.classes)
    finest = {c: _finest(classes[c]) for c in component.classes}
    for loss in component.losses:
        outer = [solved.get(c, classes[c].own) for c in loss.upstream if c not in inside]
        known = [log_units(label[0]) for label in outer if label is not None]
        loss.constant = max([loss.constant, *known])
        loss.upstream = tuple(c for c in loss.upstream if c in inside)
        coarsest = max([loss.constant, *(finest[c] for c in loss.upstream)])
        loss.unavoidable = max(0, coarsest - loss.own)


def _finest(entry: LabelClass) -> int:
    scales = [label[0] for label in entry.labels if label is not None]
    return log_units(min(scales)) if scales else _NEVER
