"""Settle: what needs no search is decided for all kernels at once, before there is a network.

A value is settled here if every port around it is free, alone in its class and of one spec, or float: the
label of its range needs no rescale and loses nothing (`presolve` says the same port by port, of what is left
open here). Values that movers tie are settled if one label for all is the cheapest (`alike`). A kernel
around which all is settled is closed: it takes no part in what follows.
Source: design 01, section 5, the price: items 1 to 5 have one answer here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.ir.graph import Graph
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import affine_columns
from planner.propagation.alike import Alike, settle_alike
from planner.propagation.columns import Bools, Columns, Floats, Ints
from planner.propagation.network.build import build_network
from planner.propagation.parameters.constant_types import derive_parameters
from planner.propagation.portkinds import FLOATS, FREE, TIED, Kinds, kinds_of
from planner.propagation.selection.rows import Choice
from planner.propagation.solver.classes import UNIT, clipped_shares
from planner.propagation.solver.price import CostModel
from planner.propagation.tied import WIDEST
from planner.target.records import Costs, PortType, Target


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """What is decided.

    Attributes:
      known: by value, whether nothing about it is open. A constant is known if its reader is closed.
      types: by value, the type of the ports that store it; None where none does, or where it is open.
      stored: by port, whether it has its value's type.
      clips: by value, share of its range that its type cuts off.
      lost: by value, bits lost in its worst use, in 1/1024.
      open: kernels that are not closed, ascending.
      quantized, dequantized: elements x trips that pass the borders to float of settled values.
      alike: the components among them that one label serves.
    """

    known: Bools
    types: Sequence[Uniform | None]
    stored: Bools
    clips: Floats
    lost: Ints
    open: Sequence[int]
    quantized: int = 0
    dequantized: int = 0
    alike: Alike | None = None

    def by_name(self, columns: Columns) -> dict[str, Uniform | None]:
        """Types of the settled values."""
        return {columns.names[value]: self.types[value] for value in np.flatnonzero(self.known).tolist()}

    def ranges(self, columns: Columns) -> dict[str, tuple[float, float]]:
        """Ranges of the values that one label was found for: what movers wrote is cut to what they read."""
        alike = self.alike
        if alike is None:
            return {}
        mine = np.flatnonzero(alike.chosen[alike.tied.home] >= 0)
        names = [columns.names[value] for value in alike.tied.values[mine].tolist()]
        ends = zip(alike.tied.lo[mine].tolist(), alike.tied.hi[mine].tolist(), strict=True)
        return dict(zip(names, ends, strict=True))

    def price(self, cost_model: CostModel) -> int:
        """Price of casts and bits lost, in 1/1024."""
        costs = cost_model.costs
        casts = (
            round(costs.quantize * UNIT) * self.quantized + round(costs.dequantize * UNIT) * self.dequantized
        )
        return casts + (self.alike.loss if self.alike is not None else 0)


def settle_nothing(
    columns: Columns, choices: Sequence[Choice], graph: Graph, target: Target, costs: Costs | None
) -> Settled:
    """Leave everything open but kernels without ports: the same plan comes out, later."""
    del choices, graph, target, costs
    count = len(columns.names)
    return Settled(
        np.zeros(count, bool),
        [None] * count,
        np.zeros(len(columns.value), bool),
        np.zeros(count),
        np.zeros(count, np.int64),
        sorted(set(columns.kernel[columns.value >= 0].tolist())),
    )


def settle(
    columns: Columns, choices: Sequence[Choice], graph: Graph, target: Target, costs: Costs | None
) -> Settled:
    """Decide what can be decided value by value, or one label at a time.

    Args:
      costs: by which the least price is looked for; None where it is not.

    Raises:
      RuleError: a constant's axis that its tensor does not have.
    """
    kinds = kinds_of(choices, graph, target)
    ports = kinds.at_ports(columns)
    codes, own, at = ports.codes, ports.own, np.maximum(columns.value, 0)
    free = codes == FREE
    spec = np.full(len(columns.names), -1)
    spec[at[free]] = own[free]
    tied = _values_at(columns, codes > FLOATS) | _values_at(columns, free & (own != spec[at]))
    stores, floats = _values_at(columns, free), _values_at(columns, codes == FLOATS)
    loose = columns.unbound & ~columns.constant & ~tied
    plain = loose & stores & (columns.reads + columns.results > 0)
    plain &= columns.hi - columns.lo < WIDEST  # false where there is no range
    if not target.rescale_allowed:
        plain &= ~floats & (columns.results == 0) & (columns.definition >= 0)
    types: list[Uniform | None] = [None] * len(columns.names)
    clips, lost = np.zeros(len(columns.names)), np.zeros(len(columns.names), np.int64)
    for number in sorted(set(spec[plain].tolist())):
        _type_plain(columns, np.flatnonzero(plain & (spec == number)), ports.specs[number], types, clips)
    alike = None
    if costs is not None and target.rescale_allowed and not target.rescale_single_consumer:
        alike = settle_alike(columns, ports, graph, costs)
    if alike is not None:
        _type_alike(alike, types, clips, lost)
    held = np.array([kind is not None for kind in types], bool)
    known = held | (loose & ~stores)
    takes = (codes == FREE) | (codes == FLOATS)
    closed, constants = _closed(columns, kinds, known[at] | (codes < 0), takes)
    for value, kind in _constant_types(columns, constants, choices, graph, target):
        types[value] = kind
    known[columns.value[constants]] = True
    stored = (codes >= 0) & (codes != FLOATS) & (codes != TIED) & known[at]
    return Settled(
        known,
        types,
        stored,
        clips,
        lost,
        np.flatnonzero(~closed).tolist(),
        *_casts(columns, held, stored, graph, target),
        alike,
    )


def _type_alike(alike: Alike, types: list[Uniform | None], clips: Floats, lost: Ints) -> None:
    """Give the values of components their type."""
    tied, board = alike.tied, alike.board
    mine = np.flatnonzero(alike.chosen[tied.home] >= 0)
    home, values = tied.home[mine], tied.values[mine]
    for value, c in zip(values.tolist(), home.tolist(), strict=True):
        types[value] = alike.kinds[c]
    clips[values] = board.cut_off(alike.chosen[home], tied.lo[mine], tied.hi[mine])
    lost[values] = alike.lost[mine]


def _values_at(columns: Columns, ports: Bools) -> Bools:
    """Values that one of these ports is at."""
    found = np.zeros(len(columns.names), bool)
    found[columns.value[ports]] = True
    return found


def _type_plain(
    columns: Columns, values: Ints, spec: PortType, types: list[Uniform | None], clips: Floats
) -> None:
    """Give values their types, in the storage that all ports around them have."""
    store = spec.storage
    if not isinstance(store, Storage):
        return
    lows, highs = columns.lo[values], columns.hi[values]
    scales, zeros = affine_columns(
        lows, highs, store, symmetric=spec.symmetric, power_of_two=spec.power_of_two
    )
    known: dict[tuple[float, int], Uniform] = {}
    for value, label in zip(values.tolist(), zip(scales.tolist(), zeros.tolist(), strict=True), strict=True):
        kind = known.get(label)
        if kind is None:
            kind = known[label] = Uniform(store, (label[0],), (label[1],))
        types[value] = kind
    clips[values] = clipped_shares(lows, highs, scales, store.qmin - zeros, store.qmax - zeros)


def _closed(columns: Columns, kinds: Kinds, settled: Bools, takes: Bools) -> tuple[Bools, Ints]:
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
