"""Building the network: ports numbered kernel by kernel, with what rows and the ports' own facts say.

Nothing is searched: wildcards are resolved (`wildcards`), ports that the row fixes get their types, and
kernels are told apart that move data. Source: docs/specification.md, section 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph
from planner.ir.types.held_pins import storages_in
from planner.ir.types.qtypes import Storage
from planner.propagation.network.early_ranges import EarlyRanges
from planner.propagation.network.float_islands import BETWEEN_FLOATS
from planner.propagation.network.ports import (
    CLASS,
    CONSTANT,
    DERIVED,
    FLOAT,
    FLOAT_PORT,
    GIVEN,
    Interval,
    Kernel,
    Network,
    Port,
    number_of,
    own_pin,
    ports_of,
    present,
)
from planner.propagation.network.wildcards import reader_storages, resolve
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.chosen import Chosen
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.row_layout import Layout, moves_data
from planner.propagation.selection.rows import wanted_of
from planner.target.records import PortId, PortType, PortView
from planner.target.rules import rule_function


def build_network(chosen: Chosen) -> Network:
    """Number the ports of the chosen rows, wildcards resolved to storages."""
    graph, target, choices = chosen.graph, chosen.target, chosen.choices
    formats = target.files.to_write(chosen.request.formats)
    wild = any(choice.layout is not None and choice.layout.wild for choice in choices)
    storages = storages_in(target.storages, formats)
    reader_storage = reader_storages(graph, choices, storages) if wild else {}
    ways = [(_moves(graph, choice), _cut(graph, choice)) for choice in choices]
    early = EarlyRanges(graph, choices, ways)
    network = Network(chosen, graph, target, [], [], [], {}, formats, {}, chosen.visits + len(choices))
    for name in (*graph.inputs, *graph.constants):
        number_of(network, name)
    begin_of = {end: begin for begin, end in carried_pairs(graph)}
    numbers: dict[str, int] = {}
    for index, choice in enumerate(choices):
        numbers[choice.region.name] = index
        begin = numbers.get(begin_of.get(choice.region.name, ""))
        if begin is not None:
            network.begins[index] = begin
        kernel = Kernel(choice, *ways[index], wanted=wanted_of(graph, choice))
        _add_kernel(network, kernel, reader_storage, early)
    for i, name in enumerate(graph.outputs):
        value = network.values[number_of(network, name)]
        value.outputs = (*value.outputs, i)
    return network


def _moves(graph: Graph, choice: Choice) -> bool:
    """Whether data passes a kernel unchanged: as its row says, and where it gave that up for float, too."""
    gave_up = choice.reason == BETWEEN_FLOATS and not choice.region.ops
    return gave_up or moves_data(graph, *choice[:3])


def _add_kernel(
    network: Network, kernel: Kernel, reader_storage: dict[str, Storage], early: EarlyRanges
) -> None:
    choice = kernel.choice
    region, layout = choice.region, choice.layout
    index = len(network.kernels)
    network.kernels.append(kernel)
    resolved: Mapping[PortId, PortType] = {}
    if layout is not None and layout.wild:
        resolved = resolve(network, choice, layout, reader_storage, partial(early.required, index))
    inputs = [_add_port(network, index, ("in", i), name, resolved) for i, name in enumerate(region.inputs)]
    if kernel.moves:
        _move_signs(network, inputs, region.outputs)
    outputs = [_add_port(network, index, ("out", i), name, resolved) for i, name in enumerate(region.outputs)]
    kernel.inputs, kernel.outputs = tuple(inputs), tuple(outputs)
    for port in present(network, inputs):
        network.values[port.value].uses.append(port.id)
    for port in present(network, outputs):
        network.values[port.value].definition = port.id
    if layout is not None and layout.fixing:
        _fix(network, kernel, layout)


def _add_port(
    network: Network, kernel: int, side: PortId, name: str, resolved: Mapping[PortId, PortType]
) -> int:
    """Number one port; -1 where it is absent."""
    if not name:
        return -1
    choice = network.kernels[kernel].choice
    value, layout = number_of(network, name), choice.layout
    number = len(network.ports)
    if layout is None:
        network.ports.append(
            Port(number, kernel, side, "", value, FLOAT, FLOAT_PORT, pin=own_pin(choice, side))
        )
        return number
    pattern = (layout.inputs if side[0] == "in" else layout.outputs)[side[1]]
    spec = resolved.get(side, pattern.type)
    if network.values[value].signs:
        spec = replace(spec, even=True)
    port = Port(number, kernel, side, pattern.name, value, FLOAT, spec)
    port.pin = own_pin(choice, side)
    network.ports.append(port)
    if isinstance(spec.storage, Storage):
        port.kind = CONSTANT if network.values[value].constant else CLASS
        if port.kind == CONSTANT and port.pin is not None:
            port.pin = restored(port.pin, spec, network.graph.constants[name])
        if side in layout.derived:
            port.kind = DERIVED
        else:
            _give(port)
    return number


def _move_signs(network: Network, inputs: Sequence[int], outputs: Sequence[str]) -> None:
    """What moves values that are plus or minus a number gives such values."""
    moved = [network.values[port.value] for port in present(network, inputs) if port.kind == CLASS]
    if moved and all(value.signs and value.calibrated == moved[0].calibrated for value in moved):
        for name in filter(None, outputs):
            value = network.values[number_of(network, name)]
            value.signs = True


def _give(port: Port) -> None:
    """A fact per axis or block on the port itself is its type."""
    pin = port.pin
    if pin is not None and not pin.is_per_tensor and pin.storage == port.spec.storage:
        port.kind, port.given, port.pin = GIVEN, pin, None


def _cut(graph: Graph, choice: Choice) -> Interval | None:
    """What a relu or clamp among the ops of a mover cuts its data to, in reals."""
    low, high = float("-inf"), float("inf")
    for op in choice.region.ops:
        if op.type == "Relu":
            low = max(low, 0.0)
        elif op.type == "Clip":
            low = max(low, _bound(graph, op.inputs, 1, low))
            high = min(high, _bound(graph, op.inputs, 2, high))
            # The upper bound wins over the lower one: below one that is computed there is no floor.
            low = float("-inf") if _is_computed(graph, op.inputs, 2) else min(low, high)
    return None if (low, high) == (float("-inf"), float("inf")) else (low, high)


def _is_computed(graph: Graph, names: tuple[str, ...], index: int) -> bool:
    name = names[index] if index < len(names) else ""
    return bool(name) and name not in graph.constants


def _bound(graph: Graph, names: tuple[str, ...], index: int, default: float) -> float:
    name = names[index] if index < len(names) else ""
    constant = graph.constants.get(name)
    if constant is None or constant.array is None:
        return default
    return float(constant.array.reshape(-1)[0])


def _fix(network: Network, kernel: Kernel, layout: Layout) -> None:
    """Give ports the types that the row fixes."""
    by_side = {port.side: port for port in ports_of(network, kernel)}
    views_in, views_out = (
        tuple(
            PortView(port.side, port.name, port.spec, port.given, None, None)
            for port in present(network, side)
        )
        for side in (kernel.inputs, kernel.outputs)
    )
    row = kernel.choice.row
    for rule in layout.fixing:
        answer = rule_function(rule, network.target)(views_in, views_out, rule.args)
        for side, fixed in answer.items():
            by_side[side].fixed = fixed
            by_side[side].fixed_source = rule.source or (row.source if row is not None else "")
