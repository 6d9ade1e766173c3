"""Components: classes linked through values, with the edges and the consuming uses their price depends on.

An edge is one value from one starting type to its uses; a pinned value is two edges, one to the pin and
one from it. Components that share a consuming use are solved together, as a `Unit`.
Source: design 01, section 5, the price, items 2 and 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.network.per_axis import given_units
from planner.propagation.network.ports import (
    CLASS,
    DERIVED,
    FLOAT,
    GIVEN,
    SETTLED,
    Interval,
    Network,
    Port,
    Value,
    present,
)
from planner.propagation.solver.classes import Label, LabelClass, label_for, log_units
from planner.target.records import PortType

GIVEN_USE: Final = -1
"""The class of a use whose type is known: `Use.goal`, None for float."""
NEVER: Final = -(1 << 40)
"""log2 of the coarsest scale of data that was never stored."""

Price = tuple[int, int, int]
"""(price in 1/1024, rescales, elements x bits lost in 1/1024): what labellings are compared by."""
Tolls = dict[int, dict[Label | None, Price]]


class Use(NamedTuple):
    """One use: its class and storage, or (`GIVEN_USE`) the type it wants.

    `outer`: a model output; `follows`: it takes whatever type its value is stored in, and what it wants only
    where that is float.
    """

    group: int
    store: Storage | None = None
    goal: Uniform | None = None
    trips: int = 1
    outer: bool = False
    follows: bool = False


@dataclass(slots=True)
class Edge:
    """One value and its uses, as the price sees them.

    Attributes:
      definition: (class, storage) of the port that defines it; None where `start` is its type.
      start: the type it starts from, None for float.
      inlet: whether it starts at a float model input.
    """

    value: int
    elements: int
    definition: tuple[int, Storage] | None
    start: Uniform | None
    uses: list[Use]
    inlet: bool = False

    def groups(self) -> list[int]:
        """Classes at its ends, the definition last, each once."""
        found = dict.fromkeys([use.group for use in self.uses if use.group >= 0])
        if self.definition is not None:
            found.setdefault(self.definition[0])
        return list(found)


@dataclass(slots=True)
class Loss:
    """One consuming use: what may have coarsened its data, and how fine it would like it.

    `upstream`: classes on the way; `constant`: coarsest log2 scale among the pins on the way; `times`: uses
    that are alike in all this.
    """

    value: int
    elements: int
    upstream: tuple[int, ...]
    constant: int
    own: int
    unavoidable: int = 0
    times: int = 1


@dataclass(slots=True)
class Part:
    """Some edges and losses.

    `tolls`: what classes pay by their label besides, for classes that were taken out (`tolls`).
    """

    edges: list[Edge] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    tolls: Tolls = field(default_factory=dict)


@dataclass(slots=True)
class Component:
    """Classes linked through values.

    `joined`: the classes around one value, for each value.
    """

    classes: list[int]
    edges: list[Edge] = field(default_factory=list)
    joined: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class Unit:
    """Components solved together: a consuming use of one lies behind movers of another."""

    components: list[Component]
    classes: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    tolls: Tolls = field(default_factory=dict)


class _Sets:
    """Union-find over ints; the least member is the root."""

    def __init__(self, count: int) -> None:
        self.root = list(range(count))

    def find(self, i: int) -> int:
        while self.root[i] != i:
            self.root[i] = self.root[self.root[i]]
            i = self.root[i]
        return i

    def join(self, members: Sequence[int]) -> None:
        for other in members[1:]:
            a, b = self.find(members[0]), self.find(other)
            self.root[max(a, b)] = min(a, b)


def components_of(network: Network, classes: Sequence[LabelClass]) -> tuple[list[Component], list[Edge]]:
    """Split the classes into components in topological order; also the edges that touch no class."""
    by_value = _edges(network)
    sets = _Sets(len(classes))
    around: list[tuple[list[int], list[Edge]]] = []
    for edges in by_value:
        stays_float = (
            network.values[edges[0].value].stays_float and network.values[edges[0].value].pin is None
        )
        parts = [[edge] for edge in edges] if stays_float else [edges]
        for part in parts:
            groups = list(dict.fromkeys(group for edge in part for group in edge.groups()))
            sets.join(groups)
            around.append((groups, part))
    members: dict[int, Component] = {}
    for entry in classes:
        members.setdefault(sets.find(entry.id), Component([])).classes.append(entry.id)
    loose: list[Edge] = []
    for groups, part in around:
        if not groups:
            loose += part
            continue
        home = members[sets.find(groups[0])]
        home.edges += part
        home.joined.append(groups)
    return list(members.values()), loose


def units_of(network: Network, components: Sequence[Component], count: int) -> list[Unit]:
    """Put components together that share a consuming use; `count`: number of classes."""
    home = [0] * count
    for i, component in enumerate(components):
        for c in component.classes:
            home[c] = i
    sets = _Sets(len(components))
    found = _losses(network)
    network.lost = {}
    for loss in found:
        if not loss.upstream:
            settled = max(0, loss.constant - loss.own, network.lost.get(loss.value, 0))
            network.lost[loss.value] = settled
    losses = [loss for loss in found if loss.upstream]
    for loss in losses:
        sets.join([home[c] for c in loss.upstream])
    units: dict[int, Unit] = {}
    for i, component in enumerate(components):
        unit = units.setdefault(sets.find(i), Unit([]))
        unit.components.append(component)
        unit.classes += component.classes
        unit.edges += component.edges
    for unit in units.values():
        unit.classes.sort()
    for loss in losses:
        units[sets.find(home[loss.upstream[0]])].losses.append(loss)
    return list(units.values())


def _edges(network: Network) -> list[list[Edge]]:
    """The edges of each value that is used: one, or two where it is pinned or stays float."""
    found = []
    for index, value in enumerate(network.values):
        if value.constant or value.settled or _has_no_price(network, value):
            continue
        uses = _uses(network, index)
        if not uses:
            continue
        definition, start = None, value.pin
        if value.definition >= 0:
            definition, start = _defined(network.ports[value.definition])
        if value.pin is None and not value.stays_float:
            inlet = value.definition < 0
            found.append([Edge(index, value.elements, definition, start, uses, inlet)])
            continue
        trips = max(use.trips for use in uses)
        behind = Use(GIVEN_USE, None, value.pin, trips)
        found.append(
            [
                Edge(index, value.elements, definition, start, [behind]),
                Edge(index, value.elements, None, value.pin, uses),
            ]
        )
    return found


def _has_no_price(network: Network, value: Value) -> bool:
    """Whether all ports around a value are settled, or float, so that nothing on its edges costs anything."""
    kinds = {network.ports[p].kind for p in value.uses}
    if value.definition >= 0:
        kinds.add(network.ports[value.definition].kind)
    if kinds <= {FLOAT}:
        return value.pin is None
    return kinds == {SETTLED} and value.definition >= 0 and not value.outputs


def _defined(port: Port) -> tuple[tuple[int, Storage] | None, Uniform | None]:
    if port.group >= 0 and isinstance(port.spec.storage, Storage):
        return (port.group, port.spec.storage), None
    return None, port.type if port.kind in (GIVEN, SETTLED) else None


def _uses(network: Network, index: int) -> list[Use]:
    value = network.values[index]
    uses = []
    for p in value.uses:
        port = network.ports[p]
        trips = network.kernels[port.kernel].choice.region.trip_count
        if port.group >= 0 and isinstance(port.spec.storage, Storage):
            uses.append(Use(port.group, port.spec.storage, None, trips))
        else:
            goal = port.type if port.kind in (GIVEN, SETTLED) else None
            uses.append(Use(GIVEN_USE, None, goal, trips))
    return uses + [Use(GIVEN_USE, None, value.pin, outer=True)] * len(value.outputs)


class _Trace(NamedTuple):
    """What data went through: classes, the coarsest pin, and the port type it was stored in last."""

    groups: tuple[int, ...] = ()
    constant: int = NEVER
    left: PortType | None = None


UNSTORED: Final = _Trace()


def _losses(network: Network) -> list[Loss]:
    """Every consuming use of data that was stored; those that no class has a say in have no `upstream`."""
    traces = [UNSTORED] * len(network.values)
    for index, value in enumerate(network.values):
        if value.definition < 0 and value.pin is not None and not value.constant:
            traces[index] = _Trace((), pin_units(value.pin), PortType(value.pin.storage))
    ended = {begin: end for end, begin in network.begins.items()}
    found = _follow(network, traces, ended)
    for _ in range(len(ended)):
        before = list(traces)
        found = _follow(network, traces, ended)
        if traces == before:
            break
    for index, value in enumerate(network.values):
        if value.outputs:
            found.append(_loss(network, index, traces[index], traces[index].left, value.range))
    return [loss for loss in found if loss is not None]


def _follow(network: Network, traces: list[_Trace], ended: Mapping[int, int]) -> list[Loss | None]:
    """Follow data through all kernels once; what a trip hands to the next is known from the time before."""
    found: list[Loss | None] = []
    for number, kernel in enumerate(network.kernels):
        ports = present(network, kernel.inputs)
        moved = UNSTORED
        if kernel.moves:
            read = ports
            if number in ended:
                end = network.kernels[ended[number]]
                read = [*ports, *present(network, end.inputs)]
            moved = _join([_through(traces[port.value], port) for port in read])
        else:
            found += [_consumed(network, port, traces[port.value]) for port in ports]
        for port in present(network, kernel.outputs):
            traces[port.value] = _made(moved, port, network.values[port.value].pin)
    return found


def _through(trace: _Trace, port: Port) -> _Trace:
    if port.kind == FLOAT:
        return trace
    if port.group < 0:
        return _Trace(trace.groups, max(trace.constant, _given_units(port)), trace.left)
    return _Trace((*trace.groups, port.group), trace.constant, trace.left)


def _made(moved: _Trace, port: Port, pin: Uniform | None) -> _Trace:
    if port.kind == FLOAT and pin is None:
        return moved
    groups, constant, left = moved
    if port.group >= 0:
        groups, left = tuple(dict.fromkeys((*groups, port.group))), port.spec
    elif port.kind == GIVEN:
        left = port.spec
    constant = max(constant, _given_units(port))
    if pin is not None:
        constant, left = max(constant, pin_units(pin)), PortType(pin.storage)
    return _Trace(groups, constant, left)


def _given_units(port: Port) -> int:
    return pin_units(port.type) if port.kind == GIVEN and port.type is not None else NEVER


def pin_units(pin: Uniform) -> int:
    """log2 of a type's scale in 1/1024, the mean over its slices."""
    total = sum(log_units(scale) for scale in pin.scales)
    return round(total / len(pin.scales))


def _join(traces: Sequence[_Trace]) -> _Trace:
    traces = [trace for trace in traces if trace is not UNSTORED]
    if not traces:
        return UNSTORED
    groups = dict.fromkeys(group for trace in traces for group in trace.groups)
    left = next((trace.left for trace in traces if trace.left is not None), None)
    return _Trace(tuple(groups), max(trace.constant for trace in traces), left)


def _consumed(network: Network, port: Port, trace: _Trace) -> Loss | None:
    if network.values[port.value].constant:
        return None
    if port.kind == FLOAT:
        stored = trace is not UNSTORED
        return _loss(network, port.value, trace, trace.left, port.required) if stored else None
    if port.kind == GIVEN and port.type is not None:
        coarsest, elements = max(trace.constant, pin_units(port.type)), network.values[port.value].elements
        return Loss(port.value, elements, trace.groups, coarsest, given_units(network, port, port.type))
    if port.kind not in (CLASS, DERIVED) or port.group < 0:
        return None
    groups = tuple(dict.fromkeys((*trace.groups, port.group))) if trace.groups else (port.group,)
    through = _Trace(groups, trace.constant, trace.left)
    return _loss(network, port.value, through, port.spec, port.required)


def _loss(
    network: Network, index: int, trace: _Trace, spec: PortType | None, extent: Interval | None
) -> Loss | None:
    if spec is None or extent is None or not (trace.groups or trace.constant > NEVER):
        return None
    own = log_units(label_for(extent, spec)[0])
    return Loss(index, network.values[index].elements, trace.groups, trace.constant, own)


def settle_losses(unit: Unit, classes: Sequence[LabelClass], max_bits_lost: float | None) -> None:
    """Fill in the unavoidable loss, and drop the labels that lose more than `max_bits_lost` beyond it."""
    finest = {c: _finest(classes[c].labels) for c in unit.classes}
    for loss in unit.losses:
        coarsest = max([loss.constant, *(finest[c] for c in loss.upstream)])
        loss.unavoidable = max(0, coarsest - loss.own)
    if max_bits_lost is None:
        return
    for loss in unit.losses:
        limit = loss.own + loss.unavoidable + max_bits_lost * 1024
        for c in loss.upstream:
            entry = classes[c]
            entry.labels = [label for label in entry.labels if label is None or log_units(label[0]) <= limit]


def _finest(labels: Sequence[Label | None]) -> int:
    scales = [label[0] for label in labels if label is not None]
    return log_units(min(scales)) if scales else NEVER
