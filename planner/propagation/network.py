"""The network: kernels with something left to decide, as plain lists of ints, for the loops that visit ports.

Ports, values and classes are numbered; nothing here decides. Ranges are in reals. Of a value that was settled
before (`settle`) only the ports at these kernels are here; of every other value all are.
A port is one of: `CLASS` (its label is searched), `CONSTANT` (its type comes from its own numbers),
`DERIVED` (a rule computes it from other ports), `GIVEN` (a fact per axis or block says it), `SETTLED`
(nothing but its value's range has a say, see `settle` and `plain`), `FLOAT`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Final

from planner.ir.borders import carried_pairs
from planner.ir.graph import Facts, Graph, Region
from planner.ir.qtypes import AnyType, Bipolar, Calibrated, FloatType, Storage, Uniform
from planner.ir.roles import is_mover
from planner.propagation.layout import Layout
from planner.propagation.pinned import restored
from planner.propagation.rows import FLOATING, Choice
from planner.target.records import PortId, PortType, PortView, Target
from planner.target.rules import rule_function

CLASS: Final = 0
CONSTANT: Final = 1
DERIVED: Final = 2
FLOAT: Final = 3
GIVEN: Final = 4
SETTLED: Final = 5

FLOAT_PORT: Final = PortType(FloatType("f32"))

Interval = tuple[float, float]


@dataclass(slots=True)
class Value:
    """One value: who writes and reads it, and what is known of its reals.

    `saturates`: a constant whose infinities become an end of the storage. `settled`: it was before.
    """

    name: str
    elements: int
    constant: bool
    pin: Uniform | None = None
    stays_float: bool = False
    calibrated: Interval | None = None
    has_any: bool = False
    definition: int = -1
    uses: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    range: Interval | None = None
    kept: Interval | None = None
    saturates: bool = False
    settled: bool = False


@dataclass(slots=True)
class Port:
    """One present port of one kernel."""

    id: int
    kernel: int
    side: PortId
    name: str
    value: int
    kind: int
    spec: PortType
    fixed: Uniform | None = None
    fixed_source: str = ""
    pin: Uniform | None = None
    group: int = -1
    required: Interval | None = None
    type: Uniform | None = None


@dataclass(slots=True)
class Kernel:
    """One live region with its row; `moves`: data passes unchanged from inputs to outputs.

    At an end of a carried value, `handed` is the range that the trip before hands in, and `asked` what the
    uses behind either end keep.
    """

    choice: Choice
    moves: bool
    cut: Interval | None = None
    handed: Interval | None = None
    asked: Interval | None = None
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Network:
    """Everything by number, in topological order of kernels."""

    graph: Graph
    target: Target
    kernels: list[Kernel]
    values: list[Value]
    ports: list[Port]
    value_ids: dict[str, int]
    settled: Mapping[str, Uniform | None] = field(default_factory=dict)
    """The types of values that were settled before, float as None, by name."""
    derives_bias: bool = False
    visits: int = 0
    begins: dict[int, int] = field(default_factory=dict)
    """Kernel through which a carried value enters its loop, by the one through which it leaves."""
    lost: dict[int, int] = field(default_factory=dict)
    """Bits lost, in 1/1024, at uses that no class has a say in, by value."""


def build_network(
    graph: Graph,
    choices: Sequence[Choice],
    target: Target,
    settled: Mapping[str, Uniform | None] | None = None,
) -> Network:
    """Number the ports of the chosen rows, wildcards resolved to storages.

    Args:
      choices: of all live kernels, or of those around values that are not `settled`.
    """
    wild = any(choice.layout is not None and choice.layout.wild for choice in choices)
    reader_storage = _reader_storages(graph, choices) if wild else {}
    network = Network(graph, target, [], [], [], {}, settled or {})
    for name in (*graph.inputs, *graph.constants):
        if name not in network.settled:
            _value(network, name)
    begin_of = {end: begin for begin, end in carried_pairs(graph)}
    numbers: dict[str, int] = {}
    for index, choice in enumerate(choices):
        numbers[choice.region.name] = index
        begin = numbers.get(begin_of.get(choice.region.name, ""))
        if begin is not None:
            network.begins[index] = begin
        _add_kernel(network, choice, reader_storage)
    for i, name in enumerate(graph.outputs):
        if name not in network.settled or name in network.value_ids:
            network.values[_value(network, name)].outputs.append(i)
    return network


def _value(network: Network, name: str) -> int:
    known = network.value_ids.get(name)
    if known is not None:
        return known
    value = network.graph.values[name]
    entry = Value(name, value.elements, name in network.graph.constants)
    entry.settled = name in network.settled
    network.value_ids[name] = number = len(network.values)
    network.values.append(entry)
    for fact in value.facts:
        if isinstance(fact, Calibrated):
            entry.calibrated = entry.calibrated or (fact.lo, fact.hi)
        elif isinstance(fact, Uniform):
            entry.pin = entry.pin or fact
        elif isinstance(fact, AnyType):
            entry.has_any = True
        else:
            entry.stays_float = entry.stays_float or isinstance(fact, (*FLOATING, Bipolar))
    for fact in value.facts:
        if isinstance(fact, Bipolar):
            # No integer stands for a sign of either kind: it is computed in float, and is one of two reals.
            entry.calibrated = (-fact.scale, fact.scale)
    return number


def _reader_storages(graph: Graph, choices: Sequence[Choice]) -> dict[str, Storage]:
    """The storage that most readers of each value want, through wildcard readers."""
    votes: dict[str, list[Storage]] = {}
    for choice in reversed(choices):
        layout, region = choice.layout, choice.region
        if layout is None:
            continue
        wild = layout.wild and any(pattern.type.storage is None for pattern in layout.inputs)
        behind = _behind(graph, choice, votes) if wild else None
        for name, pattern in zip(region.inputs, layout.inputs, strict=True):
            store = pattern.type.storage
            found = store if isinstance(store, Storage) else behind if store is None else None
            if name and found is not None:
                votes.setdefault(name, []).append(found)
    return {name: _elected(stores) for name, stores in votes.items()}


def _elected(stores: Sequence[Storage]) -> Storage:
    """The most frequent storage, then the widest: nothing that listing order could change."""
    if all(store is stores[0] for store in stores):
        return stores[0]
    votes = {store: stores.count(store) for store in stores}
    return max(votes, key=lambda store: (votes[store], store.bits, store.steps, store.signed, store.qmin))


def _behind(graph: Graph, choice: Choice, votes: dict[str, list[Storage]]) -> Storage | None:
    """The storage that a kernel's wildcards take if nothing before them says: pins, then the results'."""
    region = choice.region
    for name in (*region.inputs, *region.outputs):
        for fact in graph.values[name].facts if name else ():
            if isinstance(fact, Uniform):
                return fact.storage
    for pattern in choice.outputs:
        if isinstance(pattern.type.storage, Storage):
            return pattern.type.storage
    read = [store for name in region.outputs for store in votes.get(name, ())]
    return _elected(read) if read else None


def _add_kernel(network: Network, choice: Choice, reader_storage: dict[str, Storage]) -> None:
    graph, region, layout = network.graph, choice.region, choice.layout
    kernel = Kernel(choice, moves=moves_data(graph, choice), cut=_cut(graph, choice))
    index = len(network.kernels)
    network.kernels.append(kernel)
    resolved = _resolve(network, choice, layout, reader_storage) if layout is not None and layout.wild else {}
    for i, name in enumerate(region.inputs):
        port = _add_port(network, index, ("in", i), name, resolved)
        kernel.inputs.append(port)
        if port >= 0:
            network.values[network.ports[port].value].uses.append(port)
    for i, name in enumerate(region.outputs):
        port = _add_port(network, index, ("out", i), name, resolved)
        kernel.outputs.append(port)
        if port >= 0:
            network.values[network.ports[port].value].definition = port
    if layout is not None and layout.fixing:
        _fix(network, kernel, layout)


def _add_port(
    network: Network, kernel: int, side: PortId, name: str, resolved: Mapping[PortId, PortType]
) -> int:
    """Number one port; -1 where it is absent."""
    if not name:
        return -1
    choice = network.kernels[kernel].choice
    value, layout = _value(network, name), choice.layout
    number = len(network.ports)
    if layout is None:
        port = Port(number, kernel, side, "", value, FLOAT, FLOAT_PORT)
        port.pin = _own_pin(choice, side)
        network.ports.append(port)
        return number
    pattern = (layout.inputs if side[0] == "in" else layout.outputs)[side[1]]
    spec = resolved.get(side, pattern.type)
    port = Port(number, kernel, side, pattern.name, value, FLOAT, spec)
    port.pin = _own_pin(choice, side)
    network.ports.append(port)
    if isinstance(spec.storage, Storage):
        port.kind = CONSTANT if network.values[value].constant else CLASS
        if port.kind == CONSTANT and port.pin is not None:
            port.pin = restored(port.pin, spec, network.graph.constants[name])
        _give(port)
        if side in layout.derived:
            port.kind = DERIVED
        if port.kind == CLASS and name in network.settled:
            port.kind, port.type = SETTLED, network.settled[name]
    return number


def _give(port: Port) -> None:
    """A fact per axis or block on the port itself is its type."""
    pin = port.pin
    if pin is not None and not pin.is_per_tensor and pin.storage == port.spec.storage:
        port.kind, port.type, port.pin = GIVEN, pin, None


def _own_pin(choice: Choice, side: PortId) -> Uniform | None:
    facts: tuple[Facts, ...] = choice.region.input_facts if side[0] == "in" else choice.region.output_facts
    if not facts:
        return None
    return next((fact for fact in facts[side[1]] if isinstance(fact, Uniform)), None)


def _resolve(
    network: Network, choice: Choice, layout: Layout, reader_storage: dict[str, Storage]
) -> dict[PortId, PortType]:
    """The spec of each wildcard port, its storage found."""
    region = choice.region
    sides: list[tuple[PortId, str, PortType]] = [
        (("in", i), name, pattern.type)
        for i, (name, pattern) in enumerate(zip(region.inputs, layout.inputs, strict=True))
        if name
    ]
    sides += [
        (("out", i), name, pattern.type)
        for i, (name, pattern) in enumerate(zip(region.outputs, layout.outputs, strict=True))
        if name
    ]
    joined: dict[PortId, Storage] = {}
    for group in layout.groups:
        own = (_own_pin(choice, side) for side in group)
        shared = next((pin.storage for pin in own if pin is not None), None)
        shared = shared or _storage_of_begin(network)
        members = sides if layout.joins_all else [entry for entry in sides if entry[0] in group]
        shared = shared or _shared_storage(network, members, reader_storage)
        joined |= dict.fromkeys(group, _wide_enough(network, shared, [name for _, name, _ in members]))
    default = network.target.default_port
    result: dict[PortId, PortType] = {}
    for side, name, spec in sides:
        if spec.storage is None:
            if side in joined:
                result[side] = stored_as(spec, joined[side])
                continue
            found = _storage_near(network, name, reader_storage)
            found = found or (default.storage if isinstance(default.storage, Storage) else None)
            if found is not None:
                result[side] = stored_as(spec, _wide_enough(network, found, [name]))
            else:
                result[side] = default
    return result


def _storage_of_begin(network: Network) -> Storage | None:
    """What the other end of a carried value is stored in, where the newest kernel is one end."""
    begin = network.begins.get(len(network.kernels) - 1)
    ports = network.kernels[begin].outputs if begin is not None else ()
    stores = [network.ports[p].spec.storage for p in ports if p >= 0]
    return next((store for store in stores if isinstance(store, Storage)), None)


def _wide_enough(network: Network, store: Storage, names: Sequence[str]) -> Storage:
    """A storage that a wildcard found, or the one that the widest Any on its values asks for."""
    values = network.graph.values
    asked = [fact.storage for name in names for fact in values[name].facts if isinstance(fact, AnyType)]
    if not asked:
        return store
    return max([store, *asked], key=lambda one: one.range_bits)


@lru_cache(maxsize=1024)
def stored_as(spec: PortType, store: Storage) -> PortType:
    """A wildcard port that has found its storage."""
    return replace(spec, storage=store)


def _shared_storage(
    network: Network,
    members: Sequence[tuple[PortId, str, PortType]],
    reader_storage: dict[str, Storage],
) -> Storage:
    for _, _, spec in members:
        if isinstance(spec.storage, Storage):
            return spec.storage
    for _, name, _ in members:
        pin = network.values[_value(network, name)].pin
        if pin is not None:
            return pin.storage
    near = chain(
        (_storage_near(network, name, {}) for _, name, _ in members),
        (reader_storage.get(name) for side, name, _ in members if side[0] == "out"),
        (reader_storage.get(name) for side, name, _ in members if side[0] == "in"),
    )
    default = network.target.default_port.storage
    fallback = default if isinstance(default, Storage) else Storage(8, True, -128, 127)
    return next((store for store in near if store is not None), fallback)


def _storage_near(network: Network, name: str, reader_storage: dict[str, Storage]) -> Storage | None:
    """Storage of a value's pin, else of its producer, else of its readers."""
    value = network.values[_value(network, name)]
    if value.pin is not None:
        return value.pin.storage
    if value.definition >= 0:
        store = network.ports[value.definition].spec.storage
        if isinstance(store, Storage):
            return store
    return reader_storage.get(name)


def moves_data(graph: Graph, choice: Choice) -> bool:
    """Whether data passes a kernel unchanged, from inputs to outputs."""
    region, row = choice.region, choice.row
    if row is not None and row.computes:
        return False
    if region.ops:
        return moves_alone(graph, region)
    return choice.layout is not None and choice.layout.joins_all


def moves_alone(graph: Graph, region: Region) -> bool:
    """Whether a kernel moves data whatever row it has: in float too."""
    return bool(region.ops) and all(is_mover(op, graph) for op in region.ops)


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
    by_side = {network.ports[p].side: network.ports[p] for p in (*kernel.inputs, *kernel.outputs) if p >= 0}
    views_in, views_out = kernel_views(network, kernel)
    row = kernel.choice.row
    for rule in layout.fixing:
        answer = rule_function(rule, network.target)(views_in, views_out, rule.args)
        for side, fixed in answer.items():
            by_side[side].fixed = fixed
            by_side[side].fixed_source = rule.source or (row.source if row is not None else "")


def kernel_views(network: Network, kernel: Kernel) -> tuple[tuple[PortView, ...], tuple[PortView, ...]]:
    """What a QuantFn sees of this kernel now."""

    def view(port: Port) -> PortView:
        extent = port.required or network.values[port.value].range
        lo, hi = extent if extent is not None else (None, None)
        return PortView(port.side, port.name, port.spec, port.type, lo, hi)

    return (
        tuple(view(network.ports[p]) for p in kernel.inputs if p >= 0),
        tuple(view(network.ports[p]) for p in kernel.outputs if p >= 0),
    )
