"""Settle: what needs no search is decided for all kernels at once, before there is a network.

A value is settled here if every port around it is free, alone in its class and of one spec, or float: the
label of its range needs no rescale and loses nothing (`plain` says the same port by port, of what is left
open here). A kernel around which all is settled is closed: it takes no part in what follows.
Source: design 01, section 5, the price: items 1 to 5 have one answer here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph
from planner.ir.qtypes import FloatType, Storage, Uniform
from planner.ir.ranges import affine_slices
from planner.propagation.building import build_network, moves_data
from planner.propagation.columns import Bools, Columns, Floats, Ints
from planner.propagation.labels import UNIT
from planner.propagation.layout import Layout
from planner.propagation.parameters import derive_parameters
from planner.propagation.price import Market
from planner.propagation.rows import Choice
from planner.target.records import PortType, Target

FREE: Final = 0
"""A port whose type is its value's own affair."""
FLOATS: Final = 1
TIED: Final = 2
"""A port on which a rule, a fact or the data that a mover passes on has a say."""
WIDEST: Final = 1e38
"""Ranges beyond are left open: their scale may be none."""
BITS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """What is decided.

    Attributes:
      known: by value, whether nothing about it is open. A constant is known if its reader is closed.
      types: by value, the type of the ports that store it; None where none does, or where it is open.
      stored: by port, whether it has its value's type.
      clips: by value, share of its range that its type cuts off.
      open: kernels that are not closed, ascending.
      quantized, dequantized: elements x trips that pass the borders to float of settled values.
    """

    known: Bools
    types: Sequence[Uniform | None]
    stored: Bools
    clips: Floats
    open: Sequence[int]
    quantized: int = 0
    dequantized: int = 0

    def by_name(self, columns: Columns) -> dict[str, Uniform | None]:
        """Types of the settled values."""
        return {columns.names[value]: self.types[value] for value in np.flatnonzero(self.known).tolist()}

    def price(self, market: Market) -> int:
        """Price of the casts, in 1/1024."""
        costs = market.costs
        return (
            round(costs.quantize * UNIT) * self.quantized + round(costs.dequantize * UNIT) * self.dequantized
        )


def settle_nothing(columns: Columns, choices: Sequence[Choice], graph: Graph, target: Target) -> Settled:
    """Leave everything open: the same plan comes out, later."""
    del graph, target
    count = len(columns.names)
    return Settled(
        np.zeros(count, bool),
        [None] * count,
        np.zeros(len(columns.value), bool),
        np.zeros(count),
        range(len(choices)),
    )


def settle(columns: Columns, choices: Sequence[Choice], graph: Graph, target: Target) -> Settled:
    """Decide what can be decided value by value.

    Raises:
      RuleError: a constant's axis that its tensor does not have.
    """
    kinds = _kinds(choices, graph)
    codes, own = kinds.at_ports(columns)
    present = columns.value >= 0
    at = np.maximum(columns.value, 0)
    free = present & (codes == FREE)
    spec = np.full(len(columns.names), -1)
    spec[at[free]] = own[free]
    tied = _values_at(columns, present & (codes == TIED)) | _values_at(columns, free & (own != spec[at]))
    stores, floats = _values_at(columns, free), _values_at(columns, present & (codes == FLOATS))
    loose = columns.unbound & ~columns.constant & ~tied
    plain = loose & stores & (columns.reads + columns.results > 0)
    plain &= columns.hi - columns.lo < WIDEST  # false where there is no range
    if not target.rescale_allowed:
        plain &= ~floats & (columns.results == 0) & (columns.definition >= 0)
    types: list[Uniform | None] = [None] * len(columns.names)
    clips = np.zeros(len(columns.names))
    for number in sorted(set(spec[plain].tolist())):
        _type_plain(columns, np.flatnonzero(plain & (spec == number)), kinds.specs[number], types, clips)
    held = np.array([kind is not None for kind in types], bool)
    known = held | (loose & ~stores)
    closed, constants = _closed(columns, kinds, known[at] | ~present, present & (codes != TIED))
    for value, kind in _constant_types(columns, constants, choices, graph, target):
        types[value] = kind
    known[columns.value[constants]] = True
    stored = free & known[at]
    return Settled(
        known,
        types,
        stored,
        clips,
        np.flatnonzero(~closed).tolist(),
        *_casts(columns, held, stored, graph, target),
    )


def _values_at(columns: Columns, ports: Bools) -> Bools:
    """Values that one of these ports is at."""
    found = np.zeros(len(columns.names), bool)
    found[columns.value[ports]] = True
    return found


@dataclass(slots=True)
class _Kinds:
    """Kernels by what their ports are: of one layout, and movers or not.

    Attributes:
      specs: of free ports, by number.
      codes, own: of all kinds' ports, one kind after the other: FREE, FLOATS or TIED; the number of the spec.
      starts: of each kind, in these.
      closing: by kind, whether its kernels can be closed.
      of: by kernel, its kind.
      held_open: kernels that have facts of their own.
    """

    specs: list[PortType] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    closing: list[bool] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    held_open: list[int] = field(default_factory=list)

    def at_ports(self, columns: Columns) -> tuple[Ints, Ints]:
        """(code, number of the spec) of each port."""
        kind = np.array(self.of, np.int64)[columns.kernel]
        place = np.array(self.starts, np.int64)[kind] + np.arange(len(kind)) - columns.first[columns.kernel]
        codes = np.array(self.codes, np.int64)[place]
        if self.held_open:
            codes[np.isin(columns.kernel, self.held_open)] = TIED
        return codes, np.array(self.own, np.int64)[place]

    def add(self, layout: Layout | None, ports: int, *, tied: bool) -> int:
        """A new kind."""
        self.starts.append(len(self.codes))
        self.closing.append(not tied and (layout is None or not (layout.deriving or layout.calls)))
        for code, spec in _ports_of(layout) if layout is not None else [(FLOATS, None)] * ports:
            self.codes.append(TIED if tied else code)
            self.own.append(-1 if spec is None else self._number(spec))
            if layout is not None and code == FLOATS:
                self.closing[-1] = False
        return len(self.starts) - 1

    def _number(self, spec: PortType) -> int:
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)


def _kinds(choices: Sequence[Choice], graph: Graph) -> _Kinds:
    kinds = _Kinds()
    known: dict[tuple[int, int, bool], int] = {}
    ends = {name for pair in carried_pairs(graph) for name in pair}
    for number, choice in enumerate(choices):
        region, layout = choice.region, choice.layout
        tied = moves_data(graph, choice) or region.name in ends
        ports = len(region.inputs) + len(region.outputs)
        key = (0 if layout is None else id(layout), ports, tied)
        kind = known.get(key)
        if kind is None:
            kind = known[key] = kinds.add(layout, ports, tied=tied)
        kinds.of.append(kind)
        if region.input_facts or region.output_facts:
            kinds.held_open.append(number)
    return kinds


def _ports_of(layout: Layout) -> Iterator[tuple[int, PortType | None]]:
    """(code, spec if free) of each port of a layout."""
    fixed = {rule.args["port"] for rule in layout.fixing}
    for side, patterns in (("in", layout.inputs), ("out", layout.outputs)):
        for i, pattern in enumerate(patterns):
            spec, place = pattern.type, (side, i)
            if isinstance(spec.storage, FloatType):
                yield FLOATS, None
                continue
            tied = layout.calls or place in layout.joined or place in layout.derived or pattern.name in fixed
            if tied or not isinstance(spec.storage, Storage) or not _is_by_range(spec):
                yield TIED, None
            else:
                yield FREE, spec


def _is_by_range(spec: PortType) -> bool:
    """Whether a range alone makes the type, and in numbers that arrays hold."""
    bounds = (spec.zero_point, spec.scale_min, spec.scale_max)
    narrow = isinstance(spec.storage, Storage) and spec.storage.bits <= BITS
    return narrow and bounds == (None, None, None) and spec.granularity != "block"


def _type_plain(
    columns: Columns, values: Ints, spec: PortType, types: list[Uniform | None], clips: Floats
) -> None:
    """Give values their types, in the storage that all ports around them have."""
    store = spec.storage
    if not isinstance(store, Storage):
        return
    lows, highs = columns.lo[values], columns.hi[values]
    scales, zeros = affine_slices(
        lows, highs, store, symmetric=spec.symmetric, power_of_two=spec.power_of_two
    )
    known: dict[tuple[float, int], Uniform] = {}
    for value, label in zip(values.tolist(), zip(scales, zeros, strict=True), strict=True):
        kind = known.get(label)
        if kind is None:
            kind = known[label] = Uniform(store, (label[0],), (label[1],))
        types[value] = kind
    clips[values] = _cut_off(lows, highs, np.array(scales), np.array(zeros, np.int64), store)


def _cut_off(lows: Floats, highs: Floats, scales: Floats, zeros: Ints, store: Storage) -> Floats:
    """`clipped_share` of each range."""
    low, high = np.minimum(lows, 0.0), np.maximum(highs, 0.0)
    below = (store.qmin - zeros) * scales - 0.5 * scales - low
    above = high - (store.qmax - zeros) * scales - 0.5 * scales
    cut = np.maximum(below, 0.0) + np.maximum(above, 0.0)
    width = np.where(cut > 0.0, high - low, 1.0)
    return np.where(cut > 0.0, cut / width, 0.0)


def _closed(columns: Columns, kinds: _Kinds, settled: Bools, takes: Bools) -> tuple[Bools, Ints]:
    """Kernels that are closed, and the ports of constants at them.

    Args:
      settled: by port, whether it is absent or its value is known.
      takes: by port, whether a constant may be there.
    """
    at = np.maximum(columns.value, 0)
    lone = takes & columns.constant[at] & columns.ranged[at] & (columns.reads + columns.results == 1)[at]
    closed = np.array(kinds.closing, bool)[np.array(kinds.of, np.int64)]
    closed[kinds.held_open] = False
    closed[columns.kernel[~(settled | lone)]] = False
    return closed, np.flatnonzero(lone & closed[columns.kernel] & ~settled)


def _constant_types(
    columns: Columns, ports: Ints, choices: Sequence[Choice], graph: Graph, target: Target
) -> Iterator[tuple[int, Uniform]]:
    """Constants of closed kernels with their types: of the first of each sort by itself, the others alike."""
    known: dict[tuple[Any, ...], list[Uniform | None]] = {}
    values = columns.value.tolist()
    bounds = columns.first.tolist()
    for kernel in sorted(set(columns.kernel[ports].tolist())):
        choice = choices[kernel]
        region, layout = choice.region, choice.layout
        if layout is None:
            continue
        names = [name for name in region.inputs if name in graph.constants]
        facts = [(graph.constants[name].lo, graph.constants[name].hi) for name in names]
        key = (id(layout), *facts, *(graph.values[name].shape for name in names), region.ops and region.name)
        if key not in known:
            known[key] = _alone(choice, graph, target)
        at = values[bounds[kernel] : bounds[kernel + 1]]
        for value, kind in zip(at, known[key], strict=True):
            if kind is not None:
                yield value, kind


def _alone(choice: Choice, graph: Graph, target: Target) -> list[Uniform | None]:
    """The types of a kernel's constants by port, None at other ports."""
    region = choice.region
    constants = {name: graph.constants[name] for name in region.inputs if name in graph.constants}
    part = replace(graph, inputs=(), outputs=(), constants=constants, scopes={})
    network = build_network(part, [choice], target)
    kernel = network.kernels[0]
    derive_parameters(network, kernel)
    return [network.ports[p].type if p >= 0 else None for p in (*kernel.inputs, *kernel.outputs)]


def _casts(columns: Columns, held: Bools, stored: Bools, graph: Graph, target: Target) -> tuple[int, int]:
    """Elements x trips that are quantized, and dequantized, between settled ports and float ones."""
    at = np.maximum(columns.value, 0)
    starts_stored = np.zeros(len(columns.names), bool)
    made = columns.definition >= 0
    starts_stored[made] = stored[columns.definition[made]]
    wants = ~columns.result & (columns.value >= 0) & held[at] & (stored != starts_stored[at])
    times = np.zeros(len(columns.names), np.int64)
    outer = np.where(held & starts_stored, columns.results, 0)
    if target.rescale_single_consumer:
        np.add.at(times, at[wants], columns.trips[columns.kernel[wants]])
        times += outer
    else:
        np.maximum.at(times, at[wants], columns.trips[columns.kernel[wants]])
        times = np.maximum(times, outer > 0)
    found = [0, 0]
    for value in np.flatnonzero(times).tolist():
        elements = graph.values[columns.names[value]].elements
        found[int(starts_stored[value])] += elements * int(times[value])
    return found[0], found[1]
