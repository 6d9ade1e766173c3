"""Ways: what data went through, from the kernel that computed it to the use that consumes it.

A use loses bits by the coarsest scale its data had on the way, so a loss has to know every class that moved
the data. Data-movement kernels follow each other by the thousand, branch and join again; listing all classes
at every use would be quadratic. So a way is a node: a few classes and earlier ways, each with the coarsest
fixed type met. Ways are visited once, earlier ones first, with one "coarsest so far" each.
Source: docs/specification.md, section 5, the price, item 4.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from planner.ir.types.intervals import Interval, cut_to
from planner.ir.types.qtypes import Uniform
from planner.propagation.network.per_axis import given_units
from planner.propagation.network.ports import CLASS, DERIVED, FLOAT, GIVEN, Port, base_of, present, range_in
from planner.propagation.solver.classes import Classed, Offered, Offers
from planner.target.ports.labels import Label, label_for, log_units
from planner.target.records import PortType

NEVER: Final = -(1 << 40)
"""log2 of the coarsest scale of data that was never stored."""
SHORT: Final = 2
"""Members that a way may have besides the classes of the kernel at hand; more become a node."""
BRANCHES: Final = 8
"""Members of one node; more are split over several, so that a change at one notifies few."""


class Way(NamedTuple):
    """A node: classes (from 0 up) and earlier ways (`FIRST_WAY` and below) that data went through.

    `constant`: log2 of the coarsest scale there besides, in 1/1024.
    """

    members: tuple[int, ...]
    constant: int = NEVER


FIRST_WAY: Final = -2
Ways = Mapping[int, Way]
"""Ways by number, each after those it is made of."""


@dataclass(slots=True)
class Loss:
    """One consuming use: what may have coarsened its data, and how fine it would like it.

    `upstream`: classes and ways that the data went through; `constant`: coarsest log2 scale of fixed types;
    `times`: uses that are alike in all this.
    """

    value: int
    elements: int
    upstream: tuple[int, ...]
    constant: int
    own: int
    unavoidable: int = 0
    times: int = 1


def level_of(label: Label | None) -> int:
    """log2 of a label's scale in 1/1024; float loses nothing."""
    return NEVER if label is None else log_units(label[0])


def coarsest(loss: Loss, ways: Ways, labels: Mapping[int, Label | None], known: dict[int, int]) -> int:
    """The coarsest scale that the data of a use had, as log2 in 1/1024.

    Args:
      known: levels of classes and ways met before, under these labels; filled in here.
    """
    most = loss.constant
    for member in loss.upstream:
        level = known.get(member)
        if level is None:
            level = _level(member, ways, labels, known)
        most = max(most, level)
    return most


def _level(member: int, ways: Ways, labels: Mapping[int, Label | None], known: dict[int, int]) -> int:
    # A stack and no recursion: a chain of data movement may be as long as the model.
    waiting = [member]
    while waiting:
        one = waiting[-1]
        if one >= 0:
            known[waiting.pop()] = level_of(labels[one])
            continue
        missing = [other for other in ways[one].members if other not in known]
        if not missing:
            known[waiting.pop()] = max([ways[one].constant, *map(known.__getitem__, ways[one].members)])
        waiting += missing
    return known[member]


def behind(losses: Iterable[Loss], ways: Ways) -> list[int]:
    """The ways that these losses are reached by, directly or through others, in the order of `ways`."""
    met = {member for loss in losses for member in loss.upstream if member <= FIRST_WAY}
    # Later ways are made of earlier ones: backwards, each is met before its members are asked.
    for way in reversed([*ways]):
        if way in met:
            met.update(member for member in ways[way].members if member <= FIRST_WAY)
    return [way for way in ways if way in met]


class _Trace(NamedTuple):
    """The classes and ways of some data, the coarsest fixed type, and the last port type that stored it."""

    members: tuple[int, ...] = ()
    constant: int = NEVER
    left: PortType | None = None


UNSTORED: Final = _Trace()


class _Nodes:
    """The ways made so far; equal ones are one."""

    def __init__(self) -> None:
        self.ways: dict[int, Way] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def shortened(self, members: tuple[int, ...], own: set[int]) -> tuple[int, ...]:
        """The same members, with nodes for those that are not the kernel's own where they are many."""
        # The kernel's own classes stay outside: they change with every kernel, and nodes are to be shared.
        # So members have one order, whatever order data came in.
        before = sorted(member for member in members if member not in own)
        if len(before) <= SHORT:
            return members
        # A tree of nodes where there are many: to change one member then asks for a few nodes, not for all.
        while len(before) > 1:
            parts = range(0, len(before), BRANCHES)
            before = [self._node(tuple(before[i : i + BRANCHES])) for i in parts]
        return (*before, *(member for member in members if member in own))

    def classes_behind(self, members: Iterable[int], without: Collection[int]) -> tuple[int, ...]:
        """The classes that these members are made of, without some members and what these are made of."""
        found: dict[int, None] = {}
        waiting = [*members]
        met = set(without)
        while waiting:
            member = waiting.pop()
            if member in met:
                continue
            met.add(member)
            if member <= FIRST_WAY:
                waiting += self.ways[member].members
            else:
                found[member] = None
        return tuple(sorted(found))

    def _node(self, members: tuple[int, ...]) -> int:
        if len(members) == 1:
            return members[0]
        number = self._numbers.setdefault(members, FIRST_WAY - len(self._numbers))
        self.ways.setdefault(number, Way(members))
        return number


def losses_of(network: Classed) -> tuple[list[Loss], dict[int, Way]]:
    """Every consuming use of stored data, and the ways; `upstream` is () where no class has a say."""
    traces = [UNSTORED] * len(network.values)
    nodes = _Nodes()
    for index, value in enumerate(network.values):
        if value.definition < 0 and value.pin is not None and not value.constant:
            traces[index] = _Trace((), pin_units(value.pin), PortType(value.pin.storage))
    found = [loss for losses in _follow(network, traces, nodes) for loss in losses]
    for index, value in enumerate(network.values):
        if value.outputs:
            found.append(_loss(network, index, traces[index], traces[index].left, network.ranges[index]))
    return [loss for loss in found if loss is not None], nodes.ways


def _follow(network: Classed, traces: list[_Trace], nodes: _Nodes) -> list[list[Loss | None]]:
    """Follow data through all kernels; return the losses of each."""
    found: list[list[Loss | None]] = [[] for _ in network.kernels]
    carried: dict[int, _Trace] = {}
    number = 0
    while number < len(network.kernels):
        found[number] = _step(network, number, traces, nodes, carried.get(number, UNSTORED))
        begin = network.begins.get(number)
        number += 1
        if begin is not None:
            more = _carried_on(network, begin, number - 1, traces, nodes)
            # A trip hands data to the next, so the loop is followed again until that is known.
            if more != carried.get(begin, UNSTORED):
                carried[begin] = more
                number = begin
    return found


def _carried_on(network: Classed, begin: int, end: int, traces: Sequence[_Trace], nodes: _Nodes) -> _Trace:
    """The trace of data in a trip and before, from `end` back to what `begin` had from without."""
    entered = {
        member
        for port in present(network, network.kernels[begin].inputs)
        for member in traces[port.value].members
    }
    ports = present(network, network.kernels[end].inputs)
    through = _join([_through(network, traces[port.value], port) for port in ports])
    # Classes, no nodes: a node made of what the last trip handed on would be another one each time.
    return through._replace(members=nodes.classes_behind(through.members, entered))


def _step(
    network: Classed,
    number: int,
    traces: list[_Trace],
    nodes: _Nodes,
    carried: _Trace,
) -> list[Loss | None]:
    """Follow data through one kernel; `carried`: what its last trip hands to it. Return its losses."""
    kernel = network.kernels[number]
    ports = present(network, kernel.inputs)
    found = []
    # A kernel that computes makes new numbers: its results were never stored before.
    moved = UNSTORED
    if kernel.moves:
        moved = _join([*(_through(network, traces[port.value], port) for port in ports), carried])
        if len(moved.members) > SHORT:
            own = {network.groups[port.id] for port in ports}
            moved = moved._replace(members=nodes.shortened(moved.members, own))
    else:
        found = [_consumed(network, port, traces[port.value]) for port in ports]
    for port in present(network, kernel.outputs):
        traces[port.value] = _made(
            moved, port, network.groups[port.id], base_of(network, network.values[port.value])
        )
    return found


def _through(network: Classed, trace: _Trace, port: Port) -> _Trace:
    if port.kind == FLOAT:
        return trace
    group = network.groups[port.id]
    if group < 0:
        return _Trace(trace.members, max(trace.constant, _given_units(port)), trace.left)
    return _Trace((*trace.members, group), trace.constant, trace.left)


def _made(moved: _Trace, port: Port, group: int, pin: Uniform | None) -> _Trace:
    if port.kind == FLOAT and pin is None:
        return moved
    members, constant, left = moved
    if group >= 0:
        members, left = tuple(dict.fromkeys((*members, group))), port.spec
    elif port.kind == GIVEN:
        left = port.spec
    constant = max(constant, _given_units(port))
    if pin is not None:
        constant, left = max(constant, pin_units(pin)), PortType(pin.storage)
    return _Trace(members, constant, left)


def _given_units(port: Port) -> int:
    return NEVER if port.given is None else pin_units(port.given)


def pin_units(pin: Uniform) -> int:
    """log2 of a type's scale in 1/1024, the mean over its slices."""
    total = sum(log_units(scale) for scale in pin.scales)
    return round(total / len(pin.scales))


def _join(traces: Sequence[_Trace]) -> _Trace:
    traces = [trace for trace in traces if trace is not UNSTORED]
    if not traces:
        return UNSTORED
    members = dict.fromkeys(member for trace in traces for member in trace.members)
    left = next((trace.left for trace in traces if trace.left is not None), None)
    return _Trace(tuple(members), max(trace.constant for trace in traces), left)


def _consumed(network: Classed, port: Port, trace: _Trace) -> Loss | None:
    if network.values[port.value].constant:
        return None
    if port.kind == FLOAT:
        stored = trace is not UNSTORED
        return _loss(network, port.value, trace, trace.left, network.required[port.id]) if stored else None
    if port.given is not None:
        coarser, elements = max(trace.constant, pin_units(port.given)), network.values[port.value].elements
        return Loss(port.value, elements, trace.members, coarser, given_units(network, port, port.given))
    group = network.groups[port.id]
    if port.kind not in (CLASS, DERIVED) or group < 0:
        return None
    members = tuple(dict.fromkeys((*trace.members, group))) if trace.members else (group,)
    through = _Trace(members, trace.constant, trace.left)
    return _loss(network, port.value, through, port.spec, network.required[port.id])


def _loss(
    network: Classed, index: int, trace: _Trace, spec: PortType | None, extent: Interval | None
) -> Loss | None:
    held = None if spec is None else range_in(network, index, spec)
    if spec is None or extent is None or held is None or not (trace.members or trace.constant > NEVER):
        return None
    # What a float use keeps is more than the storage it left was to hold, where a width has a range.
    own = log_units(label_for(cut_to(extent, held), spec)[0])
    return Loss(index, network.values[index].elements, trace.members, trace.constant, own)


def settle_losses(
    losses: Sequence[Loss], ways: Ways, offered: Offered, max_bits_lost: float | None
) -> Offers:
    """Fill in the unavoidable loss; return the labels that do not lose more than `max_bits_lost` beyond it.

    Args:
      offered: the labels of all classes that the losses and ways know.
    """
    finest = {c: _finest(labels) for c, labels in offered.items()}
    for loss in losses:
        loss.unavoidable = max(0, coarsest(loss, ways, {}, finest) - loss.own)
    if max_bits_lost is None:
        return {}
    limits: dict[int, float] = {}
    for loss in losses:
        limit = loss.own + loss.unavoidable + max_bits_lost * 1024
        _tighten(limits, loss.upstream, limit)
    for way in reversed([*ways]):  # what a way may have is what its members may have: later ways first
        if way in limits:
            _tighten(limits, ways[way].members, limits[way])
    return {
        c: [label for label in labels if label is None or log_units(label[0]) <= limits[c]]
        for c, labels in offered.items()
        if c in limits
    }


def _tighten(limits: dict[int, float], members: Iterable[int], limit: float) -> None:
    for member in members:
        limits[member] = min(limit, limits.get(member, limit))


def _finest(labels: Sequence[Label | None]) -> int:
    # A class that may run in float is exact: a loss that float avoids is avoidable, and is paid for.
    return NEVER if None in labels else min(log_units(label[0]) for label in labels if label is not None)
