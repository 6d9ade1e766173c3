"""Classes: the ports of one kernel that a `same_scale` rule joins (often a single port), which share a label.

Source: docs/specification.md, section 5, the price, items 2 and 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from planner.errors import Conflict
from planner.ir.graph import port_address
from planner.ir.types.intervals import Interval, hull
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import power_of_two_from, power_of_two_to
from planner.propagation.network.ports import (
    CLASS,
    CONSTANT,
    DERIVED,
    FLOAT,
    Kernel,
    Port,
    Ranged,
    base_of,
    ports_of,
)
from planner.propagation.selection.conflicts import Concession
from planner.target.ports.labels import Label, clipped_share, label_for, label_of, storable
from planner.target.records import PortType, Row

Labels = dict[int, Label | None]
"""A label for each class, by its number; None is float."""
Offered = Mapping[int, Sequence[Label | None]]
"""The labels that each class may take, the finest first, float last."""
Offers = dict[int, list[Label | None]]
"""The same, where labels are taken away."""


@dataclass(frozen=True, slots=True)
class LabelClass:
    """Ports that carry one label.

    Attributes:
      id: its number, that of its ports in `Classed.groups`.
      kernel: the number of its kernel.
      entering: ports whose required ranges the label has to hold.
      required: of each port of the network, what it has to hold.
      may_float: whether it may run in float: data movement only, no fixed type and no Any near.
      fixed: the type that its kernel fixes, or a fact of a port, with the reason's source.
      own: the label of its own ranges; None where it has none.
      depth: kernels on the longest way from the model's inputs to its kernel.
      content: what its kernel is, names left out.
    """

    id: int
    kernel: int
    ports: tuple[Port, ...]
    entering: tuple[Port, ...]
    required: Sequence[Interval | None]
    may_float: bool
    fixed: Uniform | None = None
    fixed_source: str = ""
    own: Label | None = None
    depth: int = 0
    content: str = ""


def legal(label: Label, entry: LabelClass, max_clip: float) -> bool:
    """Whether a class may take a label. A fixed class takes its own only."""
    if entry.fixed is not None:
        return label == label_of(entry.fixed)
    for port in entry.ports:
        if not storable(label, port.spec):
            return False
    for port in entry.entering:
        store, extent = port.spec.storage, entry.required[port.id]
        if extent is None or not isinstance(store, Storage):
            continue
        if clipped_share(extent, label, store) > max_clip:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Classed(Ranged):
    """A network whose ports are in classes.

    Attributes:
      settled: types of ports that are not searched, as only their value's range has a say.
      groups: of each port, the number of its class; -1 for none.
      classes: by number, in topological order.
    """

    settled: Mapping[int, Uniform]
    groups: Sequence[int]
    classes: Sequence[LabelClass]


def build_classes(
    network: Ranged, settled: Mapping[int, Uniform], depths: Sequence[int], max_clip: float
) -> Classed:
    """Join ports by the rows' `same_scale` rules; every other searched port is a class of its own.

    Args:
      settled: types of ports that are not searched.
      depths: of kernels: how many are on the longest way from the model's inputs, each itself counted.
      max_clip: the share of a range that a label may cut off.
    """
    classes: list[LabelClass] = []
    groups = [-1] * len(network.ports)
    for index, kernel in enumerate(network.kernels):
        layout = kernel.choice.layout
        if layout is None:
            continue
        present = ports_of(network, kernel)
        for group in layout.groups:
            members = [port for port in present if port.side in group and port.kind in (CLASS, CONSTANT)]
            # Constants join for their label's sake, but alone they are typed by their own numbers.
            if any(port.kind == CLASS for port in members):
                _add_class(network, classes, groups, members, depths[index])
        for port in present:
            searched = port.kind == CLASS and port.id not in settled
            derived = port.kind == DERIVED and not network.values[port.value].constant
            if groups[port.id] < 0 and (searched or derived):
                classes.append(_class(network, len(classes), groups, [port], depths[index]))
    found = [replace(entry, own=own_label(network, entry, max_clip)) for entry in classes]
    own = {each.name: getattr(network, each.name) for each in fields(Ranged)}
    own["visits"] += len(network.kernels)
    return Classed(**own, settled=settled, groups=groups, classes=found)


def _add_class(
    network: Ranged, classes: list[LabelClass], groups: list[int], members: Sequence[Port], depth: int
) -> None:
    """Append a class of these ports; where a carried value leaves its loop, that of its entry grows."""
    newest = _class(network, len(classes), groups, members, depth)
    begin = network.begins.get(newest.kernel)
    entry = [groups[p] for p in network.kernels[begin].outputs] if begin is not None else []
    if not entry or entry[0] < 0:
        classes.append(newest)
        return
    # The loop's input, body argument, body result and loop result are one class (tests/cases, case 40): a
    # rescale between two trips would be paid every trip.
    first = classes[entry[0]]
    for port in members:
        groups[port.id] = first.id
    known = first if first.fixed is not None else newest
    if newest.fixed is not None and newest.fixed != known.fixed:
        ports = [next(p for p in e.ports if p.fixed or p.pin) for e in (first, newest)]
        raise _disagree(network, ports[0], ports[1])
    classes[first.id] = replace(
        first,
        ports=(*first.ports, *newest.ports),
        entering=(*first.entering, *newest.entering),
        may_float=first.may_float and newest.may_float,
        fixed=known.fixed,
        fixed_source=known.fixed_source,
    )


def _class(network: Ranged, ident: int, groups: list[int], members: Sequence[Port], depth: int) -> LabelClass:
    """A class of ports of one kernel; its own label is found when all its ports are known."""
    kernel = network.kernels[members[0].kernel]
    for port in members:
        groups[port.id] = ident
    reads = any(port.side[0] == "in" for port in members)
    # Data movement writes what it read, so only its inputs bring ranges; a kernel that computes on one scale
    # brings its result's as well.
    entering = [port for port in members if port.side[0] == "in" or not (kernel.moves and reads)]
    if len(members) > 1:
        entering = preferred(kernel.choice.row, members, entering, network.required)
    given = [(port, kind) for port in members if (kind := port.fixed or port.pin) is not None]
    first, fixed = given[0] if given else (members[0], None)
    for port, kind in given:
        if fixed is not None and label_of(kind) != label_of(fixed):
            raise _disagree(network, first, port)
    may_float = kernel.moves and kernel.wanted is None
    return LabelClass(
        id=ident,
        kernel=members[0].kernel,
        ports=tuple(members),
        entering=tuple(entering),
        required=network.required,
        may_float=may_float and _may_float(network, kernel, groups, members),
        fixed=fixed,
        fixed_source=(first.fixed_source or "model") if fixed is not None else "",
        depth=depth,
        content=f"{kernel.choice.region.kernel} {layout.key if (layout := kernel.choice.layout) else ''}",
    )


def _disagree(network: Ranged, first: Port, other: Port) -> Conflict:
    """Two ports of one class that facts or the row fix to different scales."""
    choice = network.kernels[first.kernel].choice
    row = choice.row.source if choice.row is not None else ""
    fixed = {port_address(choice.region.name, *port.side): port for port in (first, other)}
    facts = [f"port {address}: {port.fixed or port.pin}" for address, port in fixed.items()]
    left_out = [(address, port.pin) for address, port in fixed.items() if port.pin]
    return Conflict(
        f"{' and '.join(fixed)} share a scale, and are {first.fixed or first.pin} and "
        f"{other.fixed or other.pin}",
        facts=(*facts, f"same_scale of {row}"),
        hint="drop one of them",
        concession=Concession(facts=tuple(left_out[-1:])),
        about=network.values[first.value].name,
    )


def preferred(
    row: Row | None, members: Sequence[Port], entering: list[Port], required: Sequence[Interval | None]
) -> list[Port]:
    """The ports whose ranges a class has to hold: those that its rule's `direction` and `prefer` leave."""
    names = {port.name for port in members}
    for rule in row.rules if row is not None else ():
        prefer, direction = rule.args.get("prefer", "hull"), rule.args.get("direction", "both")
        if rule.kind != "same_scale" or (prefer, direction) == ("hull", "both"):
            continue
        if names.isdisjoint(rule.args["ports"]):  # of another class of this row
            continue
        if direction != "both":
            side = "in" if direction == "from_inputs" else "out"
            entering = [port for port in members if port.side[0] == side] or entering
        known = [port for port in entering if required[port.id] is not None]
        if prefer == "widest" and known:
            entering = [max(known, key=lambda port: width(required[port.id]))]
        if prefer == "first" and known:
            order = {name: i for i, name in enumerate(rule.args["ports"])}
            entering = [min(known, key=lambda port: order.get(port.name, len(order)))]
    return entering


def width(extent: Interval | None) -> float:
    """How wide a range is, widened to contain 0; 0 where there is none."""
    return max(extent[1], 0.0) - min(extent[0], 0.0) if extent is not None else 0.0


def _may_float(network: Ranged, kernel: Kernel, groups: Sequence[int], members: Sequence[Port]) -> bool:
    """Whether a data-movement class is all its kernel stores, and no fixed type and no Any touches it."""
    values, ident = [network.values[port.value] for port in members], groups[members[0].id]
    return (
        all(groups[port.id] == ident or port.kind == FLOAT for port in ports_of(network, kernel))
        and not any(value.pin or value.has_any for value in values)
        and not any(port.pin for port in members)
    )


def own_label(network: Ranged, entry: LabelClass, max_clip: float) -> Label | None:
    """The label of the class's own ranges: its fixed type, that of the one value entering, the hull.

    A value's fixed type is a class's own only where it is legal for it: in a narrower storage its scale would
    cut the range off, and the hull of that range is what the class needs (docs/specification.md, section 5,
    item 2).
    """
    if entry.fixed is not None:
        return label_of(entry.fixed)
    entering = {port.value for port in entry.entering}
    # One pinned value and nothing else: its users start from the pin, and the class is free to keep it.
    if len(entering) == 1:
        pin = base_of(network, network.values[next(iter(entering))])
        if pin is not None and pin.is_per_tensor and legal(label_of(pin), entry, max_clip):
            return label_of(pin)
    whole = hull_of([entry])
    if whole is None:
        return None
    first = entry.ports[0].spec
    if all(port.spec is first for port in entry.ports):
        return label_for(whole, first)
    # Ports of one class may have several storages; a label has to be storable in each, and to hold there what
    # enters: one port's own label, or one that all their wishes leave.
    specs = [*dict.fromkeys(port.spec for port in entry.ports)]
    labels = [label_for(whole, spec) for spec in (*specs, *_with_all_wishes(specs))]
    held = [label for label in labels if all(storable(label, spec) for spec in specs)]
    return next((label for label in held if legal(label, entry, max_clip)), (held or labels)[0])


def _with_all_wishes(specs: Sequence[PortType]) -> list[PortType]:
    """Each of the port types, asking for what any of them asks: a zero point, powers of two, bounds."""
    stores = [(spec, spec.storage) for spec in specs if isinstance(spec.storage, Storage)]
    asked = [(0 if spec.symmetric else spec.zero_point, store.offset) for spec, store in stores]
    zeros = {zero - offset for zero, offset in asked if zero is not None}
    if len(zeros) > 1:
        return []
    zero, powers = next(iter(zeros), None), any(spec.power_of_two for spec in specs)
    low = max((spec.scale_min for spec in specs if spec.scale_min is not None), default=None)
    high = min((spec.scale_max for spec in specs if spec.scale_max is not None), default=None)
    if powers:
        low = None if low is None else power_of_two_from(low)
        high = None if high is None else power_of_two_to(high)
    return [
        replace(
            spec,
            symmetric=False,  # said by the zero point
            zero_point=None if zero is None else zero + store.offset,
            power_of_two=powers,
            scale_min=low,
            scale_max=high,
        )
        for spec, store in stores
    ]


def hull_of(entries: Sequence[LabelClass]) -> Interval | None:
    """Hull of all required ranges entering these classes."""
    return hull(entry.required[port.id] for entry in entries for port in entry.entering)
