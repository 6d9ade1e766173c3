"""Kinds of ports: what rows say of every port, column by column, before there is a network.

Kernels of one layout are of one kind, so a row is looked at once and not once per kernel. Nothing here looks
at a range or decides a type. Source: design 01, section 4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph
from planner.ir.types.qtypes import FloatType, Storage, Uniform
from planner.propagation.columns import Columns, Ints
from planner.propagation.network.build import build_network, moves_data
from planner.propagation.selection.row_layout import Layout
from planner.propagation.selection.rows import Choice
from planner.target.records import PortType, Target

FREE: Final = 0
"""A port whose type is its value's own affair."""
FLOATS: Final = 1
JOINED: Final = 2
"""A port of a mover that keeps one scale at all its ports."""
FIXED: Final = 3
"""A result whose type the row fixes."""
TIED: Final = 4
"""A port on which another rule, a fact or the data that a mover passes on has a say."""
CUTTING: Final = frozenset({"Relu", "Clip"})
BITS: Final = 32


@dataclass(slots=True)
class Kinds:
    """Kernels by what their ports are: of one layout, and movers or not.

    Attributes:
      specs: of ports that store integers, by number.
      fixed: (type, where the row says so) of FIXED ports, by number.
      codes, own, given: of all kinds' ports, one kind after the other: FREE to TIED; the numbers of the spec
        and of the fixed type, -1 for none.
      starts: of each kind, in these.
      closing: by kind, whether its kernels can be closed.
      of: by kernel, its kind.
      held_open: kernels that have facts of their own.
    """

    specs: list[PortType] = field(default_factory=list)
    fixed: list[tuple[Uniform, str]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    closing: list[bool] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    held_open: list[int] = field(default_factory=list)

    def at_ports(self, columns: Columns) -> "PortColumns":
        """What each port is."""
        kind = np.array(self.of, np.int64)[columns.kernel]
        place = np.array(self.starts, np.int64)[kind] + np.arange(len(kind)) - columns.first[columns.kernel]
        codes = np.array(self.codes, np.int64)[place]
        codes[np.isin(columns.kernel, self.held_open)] = TIED
        codes[columns.value < 0] = -1
        own, given = np.array(self.own, np.int64)[place], np.array(self.given, np.int64)[place]
        return PortColumns(codes, own, given, self.specs, self.fixed)

    def add(self, layout: Layout | None, ports: Sequence["PortKind"]) -> int:
        """A new kind."""
        self.starts.append(len(self.codes))
        calls = layout is not None and bool(layout.deriving or layout.calls)
        floats = layout is not None and any(port.code == FLOATS for port in ports)
        self.closing.append(not calls and not floats)
        for port in ports:
            self.codes.append(port.code)
            self.own.append(-1 if port.spec is None else _number(self.specs, port.spec))
            self.given.append(-1 if port.fixed is None else _number(self.fixed, port.fixed))
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True, eq=False)
class PortColumns:
    """By port: its code (-1 where it is absent), and the numbers of its spec and of its fixed type."""

    codes: Ints
    own: Ints
    given: Ints
    specs: Sequence[PortType]
    fixed: Sequence[tuple[Uniform, str]]


@dataclass(frozen=True, slots=True)
class PortKind:
    """What a row says of one port; `spec` where it stores integers that columns can count with."""

    code: int
    spec: PortType | None = None
    fixed: tuple[Uniform, str] | None = None


def kinds_of(choices: Sequence[Choice], graph: Graph, target: Target) -> Kinds:
    """Tell all kernels apart."""
    kinds = Kinds()
    known: dict[tuple[int, int, int], int] = {}
    moving: dict[int, int] = {}
    ends = {name for pair in carried_pairs(graph) for name in pair}
    for number, choice in enumerate(choices):
        region, layout = choice.region, choice.layout
        same = 0 if layout is None else id(layout)
        moves = TIED if region.name in ends else None if region.ops else moving.get(same)
        if moves is None:
            moves = _moving(choice, graph)
            if not region.ops:
                moving[same] = moves
        ports = len(region.inputs) + len(region.outputs)
        key = (same, ports, moves)
        kind = known.get(key)
        if kind is None:
            kind = known[key] = kinds.add(layout, _ports_of(choice, ports, moves, graph, target))
        kinds.of.append(kind)
        if region.input_facts or region.output_facts:
            kinds.held_open.append(number)
    return kinds


def _moving(choice: Choice, graph: Graph) -> int:
    """FREE for a kernel that computes, JOINED for a mover of one scale that cuts nothing, TIED for others."""
    if not moves_data(graph, choice):
        return FREE
    layout, row = choice.layout, choice.row
    if layout is None or row is None or not layout.joins_all or layout.fixing or layout.derived:
        return TIED
    if layout.calls or any(op.type in CUTTING for op in choice.region.ops):
        return TIED
    usual = ("hull", "both")
    rules = [rule.args for rule in row.rules if rule.kind == "same_scale"]
    alike = all((args.get("prefer", "hull"), args.get("direction", "both")) == usual for args in rules)
    return JOINED if alike else TIED


def _ports_of(choice: Choice, count: int, moves: int, graph: Graph, target: Target) -> list[PortKind]:
    """The ports of a kernel, absent ones too."""
    layout = choice.layout
    if moves == TIED:
        return [PortKind(TIED)] * count
    if layout is None:
        return [PortKind(FLOATS)] * count
    if moves == JOINED:
        return [_joined(pattern.type, target) for pattern in (*layout.inputs, *layout.outputs)]
    return list(_computing(choice, layout, graph, target))


def _joined(spec: PortType, target: Target) -> PortKind:
    """A mover's port; a wildcard takes the default's storage, and others around it must have that too."""
    if spec.storage is None:
        spec = replace(spec, storage=target.default_port.storage)
    return PortKind(JOINED, spec) if _is_by_range(spec) else PortKind(TIED)


def _computing(choice: Choice, layout: Layout, graph: Graph, target: Target) -> Iterator[PortKind]:
    fixed = {rule.args["port"] for rule in layout.fixing}
    types = _fixed_types(choice, graph, target) if fixed else {}
    for side, patterns in (("in", layout.inputs), ("out", layout.outputs)):
        for i, pattern in enumerate(patterns):
            spec, place = pattern.type, (side, i)
            if isinstance(spec.storage, FloatType):
                yield PortKind(FLOATS)
            elif layout.calls or place in layout.joined or place in layout.derived or not _is_by_range(spec):
                yield PortKind(TIED)
            elif pattern.name in fixed:
                held = side == "out" and place in types and not spec.symmetric and not spec.power_of_two
                yield PortKind(FIXED, spec, types[place]) if held else PortKind(TIED)
            else:
                yield PortKind(FREE, spec)


def _fixed_types(choice: Choice, graph: Graph, target: Target) -> dict[tuple[str, int], tuple[Uniform, str]]:
    """The types that a row fixes, by port, and where it says so."""
    network = build_network(replace(graph, inputs=(), outputs=(), constants={}, scopes={}), [choice], target)
    return {port.side: (port.fixed, port.fixed_source) for port in network.ports if port.fixed is not None}


def _is_by_range(spec: PortType) -> bool:
    """Whether a range alone makes the type, and in numbers that arrays hold."""
    bounds = (spec.zero_point, spec.scale_min, spec.scale_max)
    narrow = isinstance(spec.storage, Storage) and spec.storage.bits <= BITS
    return narrow and bounds == (None, None, None) and spec.granularity != "block"


def _number(known: list[Any], item: object) -> int:
    if item not in known:
        known.append(item)
    return known.index(item)
