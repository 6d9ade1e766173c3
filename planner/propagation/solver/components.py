"""Components: classes linked through values, with the edges and the consuming uses their price depends on.

An edge is one value from one starting type to its uses; a value of fixed type is two edges, one to that type
and one from it. Components that share a consuming use are solved together, as a `Unit`.
Source: docs/specification.md, section 5, the price, items 2 and 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.network.ports import (
    FLOAT,
    Port,
    Value,
    base_of,
)
from planner.propagation.solver.classes import Classed, LabelClass
from planner.propagation.solver.ways import Loss, Way, behind, losses_of

GIVEN_USE: Final = -1
"""The class of a use whose type is known: `Use.goal`, None for float."""

Lost = tuple[int, int, int]
"""Bits lost, in 1/1024, at uses that no class has a say in: value, bits, elements."""
Price = tuple[int, int, int]
"""(price in 1/1024, rescales, elements x bits lost in 1/1024): what labellings are compared by."""


class Use(NamedTuple):
    """One use: its class and storage, or (`GIVEN_USE`) the type it wants.

    `outer`: a model output.
    """

    group: int
    store: Storage | None = None
    goal: Uniform | None = None
    trips: int = 1
    outer: bool = False


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
class Part:
    """Some edges and losses, and the ways that the losses know."""

    edges: list[Edge] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    ways: dict[int, Way] = field(default_factory=dict)


@dataclass(slots=True)
class Component:
    """Classes linked through values.

    `joined`: the classes around one value, for each value; `whole`: whether every class was offered the
    candidates of all.
    """

    classes: list[int]
    edges: list[Edge] = field(default_factory=list)
    joined: list[list[int]] = field(default_factory=list)
    whole: bool = True


@dataclass(slots=True)
class Unit:
    """Components solved together: a consuming use of one lies behind data movement of another."""

    components: list[Component]
    classes: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    ways: dict[int, Way] = field(default_factory=dict)


class Sets:
    """Union-find over ints; the least member is the root."""

    def __init__(self, count: int) -> None:
        self.root = list(range(count))

    def find(self, i: int) -> int:
        """The least member of the set of `i`."""
        while self.root[i] != i:
            # Path halving; joined by the least member, so that roots do not depend on the order of joins.
            self.root[i] = self.root[self.root[i]]
            i = self.root[i]
        return i

    def join(self, members: Sequence[int]) -> None:
        """Make one set of the sets of all these."""
        for other in members[1:]:
            a, b = self.find(members[0]), self.find(other)
            self.root[max(a, b)] = min(a, b)


def components_of(network: Classed, classes: Sequence[LabelClass]) -> tuple[list[Component], list[Edge]]:
    """Split the classes into components in topological order; also the edges that touch no class."""
    by_value = _edges(network)
    sets = Sets(len(classes))
    around: list[tuple[list[int], list[Edge]]] = []
    for edges in by_value:
        # A value that stays float is cast on both sides, so its two edges have no label to agree on.
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


def units_of(network: Classed, components: Sequence[Component]) -> tuple[list[Unit], list[Lost]]:
    """Put components together that share a consuming use; also what is lost where no class has a say."""
    home = {c: i for i, component in enumerate(components) for c in component.classes}
    sets = Sets(len(components))
    found, ways = losses_of(network)
    # No class has a say: what is lost here is lost in every labelling and is only told.
    lost = [
        (loss.value, max(0, loss.constant - loss.own), loss.elements) for loss in found if not loss.upstream
    ]
    losses = [loss for loss in found if loss.upstream]
    # Ways that no use asks for tie nothing together.
    used = behind(losses, ways)
    for way in used:  # those it is made of come first, so their homes are known
        members = ways[way].members
        sets.join([home[member] for member in members])
        home[way] = home[members[0]]
    for loss in losses:
        sets.join([home[member] for member in loss.upstream])
    units: dict[int, Unit] = {}
    for i, component in enumerate(components):
        unit = units.setdefault(sets.find(i), Unit([]))
        unit.components.append(component)
        unit.classes += component.classes
        unit.edges += component.edges
    for unit in units.values():
        unit.classes.sort()
    for way in used:
        units[sets.find(home[way])].ways[way] = ways[way]
    for loss in losses:
        units[sets.find(home[loss.upstream[0]])].losses.append(loss)
    return list(units.values()), lost


def _edges(network: Classed) -> list[list[Edge]]:
    """The edges of each value that is used: one, or two where it has a fixed type or is kept in float."""
    found = []
    for index, value in enumerate(network.values):
        if value.constant or _has_no_price(network, value):
            continue
        uses = _uses(network, index)
        if not uses:
            continue
        base = base_of(network, value)
        definition, start = None, base
        if value.definition >= 0:
            definition, start = _defined(network, network.ports[value.definition])
        if value.pin is None and not value.stays_float:
            inlet = value.definition < 0
            found.append([Edge(index, value.elements, definition, start, uses, inlet)])
            continue
        trips = max(use.trips for use in uses)
        # A pin is a type of the value itself: its kernel may yield another (one rescale right behind it), and
        # its readers start from the pin.
        leaves = all(use.outer for use in uses)  # changed around the device, not between its kernels
        behind = Use(GIVEN_USE, None, base, trips, leaves)
        found.append(
            [
                Edge(index, value.elements, definition, start, [behind]),
                Edge(index, value.elements, None, base, uses),
            ]
        )
    return found


def _has_no_price(network: Classed, value: Value) -> bool:
    """Whether all ports around a value are settled, or float, so that nothing on its edges costs anything."""
    around = {*value.uses, value.definition} if value.definition >= 0 else {*value.uses}
    if network.settled.keys() >= around and around:
        return value.definition >= 0 and not value.outputs
    return {network.ports[p].kind for p in around} <= {FLOAT} and value.pin is None


def _defined(network: Classed, port: Port) -> tuple[tuple[int, Storage] | None, Uniform | None]:
    group = network.groups[port.id]
    if group >= 0 and isinstance(port.spec.storage, Storage):
        return (group, port.spec.storage), None
    return None, port.given or network.settled.get(port.id)


def _uses(network: Classed, index: int) -> list[Use]:
    value = network.values[index]
    uses = []
    for p in value.uses:
        port = network.ports[p]
        trips = network.kernels[port.kernel].choice.region.trip_count
        group = network.groups[p]
        if group >= 0 and isinstance(port.spec.storage, Storage):
            uses.append(Use(group, port.spec.storage, None, trips))
        else:
            uses.append(Use(GIVEN_USE, None, port.given or network.settled.get(p), trips))
    return uses + [Use(GIVEN_USE, None, value.pin, outer=True)] * len(value.outputs)
