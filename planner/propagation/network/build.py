"""Build the network: ports numbered kernel by kernel, constrained by rows and by the ports' own facts.

Nothing is searched: wildcards are resolved (`wildcards`), ports that the row fixes get their types, and
data-movement kernels are marked. Source: docs/specification.md, section 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner.ir import roles
from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph
from planner.ir.operators.movement import cut_of
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, Storage, Uniform
from planner.ir.types.ranges import NO_WIDTHS
from planner.plans.records import BETWEEN_FLOATS
from planner.propagation.network.early_ranges import EarlyRanges
from planner.propagation.network.per_axis import give_slices
from planner.propagation.network.ports import (
    CLASS,
    CONSTANT,
    DERIVED,
    FLOAT,
    FLOAT_PORT,
    GIVEN,
    Kernel,
    Network,
    Port,
    Value,
    own_pin,
    ports_of,
    present,
)
from planner.propagation.network.wildcards import reader_storages, resolve
from planner.propagation.selection.choice import FLOATING, Choice
from planner.propagation.selection.chosen import Chosen
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.row_layout import Layout, moves_data
from planner.propagation.selection.rows import wanted_of
from planner.target.records import PortId, PortType, PortView
from planner.target.rules import rule_function


@dataclass(frozen=True, slots=True)
class Draft:
    """A network under construction, and its lists, which grow until it is handed out.

    Attributes:
      readers: of each value, the numbers of the ports that read it.
      outputs: of a name, where it stands among the model's outputs.
    """

    network: Network
    kernels: list[Kernel]
    values: list[Value]
    ports: list[Port]
    value_ids: dict[str, int]
    begins: dict[int, int]
    readers: list[list[int]]
    outputs: Mapping[str, tuple[int, ...]]


def build_network(chosen: Chosen) -> Network:
    """Number the ports of the chosen rows, wildcards resolved to storages."""
    graph, choices = chosen.graph, chosen.choices
    draft = _started(chosen)
    network = draft.network
    wild = any(choice.layout is not None and choice.layout.wild for choice in choices)
    reader_storage = reader_storages(graph, choices, network.storages) if wild else {}
    ways = [(_moves(graph, choice), cut_of(graph, choice.region)) for choice in choices]
    early = EarlyRanges(graph, choices, ways)
    begin_of = {end: begin for begin, end in carried_pairs(graph)}
    numbers: dict[str, int] = {}
    for index, choice in enumerate(choices):
        numbers[choice.region.name] = index
        begin = numbers.get(begin_of.get(choice.region.name, ""))
        if begin is not None:
            draft.begins[index] = begin
        _add_kernel(draft, choice, ways[index], reader_storage, early)
    for name in graph.outputs:
        _number(draft, name)
    give_slices(network, draft.ports)
    return network


def _started(chosen: Chosen) -> Draft:
    graph, target = chosen.graph, chosen.target
    places: dict[str, tuple[int, ...]] = {}
    for i, name in enumerate(graph.outputs):
        places[name] = (*places.get(name, ()), i)
    kernels, values, ports = list[Kernel](), list[Value](), list[Port]()
    value_ids, begins = dict[str, int](), dict[int, int]()
    request = chosen.request
    network = Network(
        chosen=chosen,
        graph=graph,
        target=target,
        costs=request.costs,
        derives_bias=request.bias_pins == "derive",
        kernels=kernels,
        values=values,
        ports=ports,
        value_ids=value_ids,
        formats=target.files.to_write(request.formats),
        begins=begins,
        visits=chosen.visits + len(chosen.choices),
    )
    draft = Draft(network, kernels, values, ports, value_ids, begins, [], places)
    for name in (*graph.inputs, *graph.constants):
        _number(draft, name)
    return draft


def _number(draft: Draft, name: str, definition: int = -1) -> int:
    """The number of a value, a new one where it has none.

    Args:
      definition: the number of the port that writes it.
    """
    known = draft.value_ids.get(name)
    if known is not None:
        return known
    graph, uses = draft.network.graph, list[int]()
    draft.readers.append(uses)
    draft.value_ids[name] = number = len(draft.values)
    draft.values.append(_value(graph, name, definition, uses, draft.outputs.get(name, ())))
    return number


def _value(graph: Graph, name: str, definition: int, uses: Sequence[int], outputs: tuple[int, ...]) -> Value:
    """A value with what its facts say."""
    value, constant = graph.values[name], name in graph.constants
    pin: Uniform | None = None
    calibrated: Interval | None = None
    stays_float = has_any = signs = False
    by_width = NO_WIDTHS
    for fact in value.facts:
        if isinstance(fact, Calibrated):
            calibrated = calibrated or (fact.lo, fact.hi)
            # Constants have parameters of their own numbers, whatever the width.
            widths = () if constant else fact.widths
            by_width = by_width or {width.bits: (width.lo, width.hi) for width in widths}
        elif isinstance(fact, Uniform):
            pin = pin or fact
        elif isinstance(fact, AnyType):
            has_any = True
        else:
            stays_float = stays_float or isinstance(fact, (*FLOATING, Bipolar))
    for fact in value.facts:
        if isinstance(fact, Bipolar):
            # No integer stands for a sign of either kind: it is computed in float, and is one of two reals.
            calibrated, by_width, signs = (-fact.scale, fact.scale), NO_WIDTHS, True
    return Value(
        name,
        value.elements,
        constant,
        pin,
        stays_float,
        calibrated,
        has_any,
        signs,
        by_width,
        definition,
        uses,
        outputs,
    )


def _moves(graph: Graph, choice: Choice) -> bool:
    """Whether data passes a kernel unchanged: as its row says, and where it gave that up for float, too."""
    gave_up = choice.reason == BETWEEN_FLOATS and roles.moves_data(graph, choice.region, joins_all=True)
    return gave_up or moves_data(graph, *choice[:3])


def _add_kernel(
    draft: Draft,
    choice: Choice,
    way: tuple[bool, Interval | None],
    reader_storage: Mapping[str, Storage],
    early: EarlyRanges,
) -> None:
    region, layout = choice.region, choice.layout
    index, number = len(draft.kernels), len(draft.ports)
    read, made = [], []
    for name in region.inputs:
        read.append(number if name else -1)
        if name:
            draft.readers[_number(draft, name)].append(number)
            number += 1
    for name in region.outputs:
        made.append(number if name else -1)
        if name:
            _define(draft, name, number)
            number += 1
    kernel = Kernel(choice, *way, wanted_of(draft.network.graph, choice), tuple(read), tuple(made))
    draft.kernels.append(kernel)
    resolved: Mapping[PortId, PortType] = {}
    if layout is not None and layout.wild:
        resolved = resolve(draft.network, choice, layout, reader_storage, partial(early.required, index))
    for i, name in enumerate(region.inputs):
        _add_port(draft, choice, ("in", i), name, resolved)
    if kernel.moves:
        _move_signs(draft, kernel)
    for i, name in enumerate(region.outputs):
        _add_port(draft, choice, ("out", i), name, resolved)
    if layout is not None and layout.fixing:
        _fix(draft, kernel, layout)


def _define(draft: Draft, name: str, port: int) -> None:
    """Say which port writes a value."""
    number = _number(draft, name, port)
    if draft.values[number].definition != port:
        draft.values[number] = replace(draft.values[number], definition=port)


def _add_port(
    draft: Draft, choice: Choice, side: PortId, name: str, resolved: Mapping[PortId, PortType]
) -> None:
    """Append one port, where it is there."""
    if not name:
        return
    number, kernel, layout = len(draft.ports), len(draft.kernels) - 1, choice.layout
    value_id, pin = draft.value_ids[name], own_pin(choice, side)
    if layout is None:
        draft.ports.append(Port(number, kernel, side, "", value_id, FLOAT, FLOAT_PORT, pin))
        return
    value = draft.values[value_id]
    pattern = (layout.inputs if side[0] == "in" else layout.outputs)[side[1]]
    spec = resolved.get(side, pattern.type)
    if value.signs:
        spec = replace(spec, even=True)
    kind, given = FLOAT, None
    if isinstance(spec.storage, Storage):
        kind = CONSTANT if value.constant else CLASS
        if kind == CONSTANT and pin is not None:
            pin = restored(pin, spec, draft.network.graph.constants[name])
        if side in layout.derived:
            kind = DERIVED
        elif pin is not None and not pin.is_per_tensor and pin.storage == spec.storage:
            # A fact per axis or block on the port itself is its type.
            kind, given, pin = GIVEN, pin, None
    draft.ports.append(Port(number, kernel, side, pattern.name, value_id, kind, spec, pin, None, "", given))


def _move_signs(draft: Draft, kernel: Kernel) -> None:
    """Mark results as plus or minus a number where all values moved to them are."""
    values = draft.values
    moved = [values[port.value] for port in present(draft.network, kernel.inputs) if port.kind == CLASS]
    if moved and all(value.signs and value.calibrated == moved[0].calibrated for value in moved):
        for name in filter(None, kernel.choice.region.outputs):
            number = draft.value_ids[name]
            values[number] = replace(values[number], signs=True)


def _fix(draft: Draft, kernel: Kernel, layout: Layout) -> None:
    """Give ports the types that the row fixes."""
    network, row = draft.network, kernel.choice.row
    by_side = {port.side: port for port in ports_of(network, kernel)}
    views = [
        tuple(PortView(p.side, p.name, p.spec, p.given, None, None) for p in present(network, side))
        for side in (kernel.inputs, kernel.outputs)
    ]
    for rule in layout.fixing:
        answer = rule_function(rule, network.target)(views[0], views[1], rule.args)
        source = rule.source or (row.source if row is not None else "")
        for side, fixed in answer.items():
            number = by_side[side].id
            draft.ports[number] = replace(draft.ports[number], fixed=fixed, fixed_source=source)
