"""Wildcards: the storage of a port that takes any.

That of its own fixed type, else of the request for its kernel, else that of its value's fixed type, else of
the ports it is joined with (one from a fixed type only where the target's ports name one of its width and
sign: a device of bytes moves trained values of 4 bits in bytes), else of its producer, else of its consumers,
else the target's default, or what the target's defaults make of it (`asked_widths`, `unsigned`). It is wide
enough for what an Any asks of its values, and has signs where its zero point would leave no number for a part
of the range that facts give. Source: docs/specification.md, sections 4 and 11.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from planner.ir.graph import Graph
from planner.ir.types.held_pins import Storages, centring, has_storage
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import AnyType, Storage, Uniform
from planner.ir.types.storages import storage
from planner.ir.types.wanted import wanted_at
from planner.propagation.network.ports import Network, Value, own_pin, present
from planner.propagation.selection.choice import Choice, port_facts
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.reach import holds, may_fall_short
from planner.propagation.selection.row_layout import Layout
from planner.target.records import PortId, PortType

Member = tuple[PortId, str, PortType]
"""A port's side, its value, and what its row says of it."""
Required = Callable[[PortId, str], Interval | None]
"""The range that a port has to hold, by its side and value, as far as it is known."""


def reader_storages(graph: Graph, choices: Sequence[Choice], storages: Storages) -> dict[str, Storage]:
    """Return the storage that most consumers of each value require, through wildcard consumers."""
    votes: dict[str, list[Storage]] = {}
    for choice in reversed(choices):
        layout, region = choice.layout, choice.region
        if layout is None:
            continue
        wild = layout.wild and any(pattern.type.storage is None for pattern in layout.inputs)
        behind = _behind(graph, choice, layout, votes, storages) if wild else {}
        for i, (name, pattern) in enumerate(zip(region.inputs, layout.inputs, strict=True)):
            store = pattern.type.storage
            found = store if isinstance(store, Storage) else behind.get(("in", i)) if store is None else None
            if name and found is not None:
                votes.setdefault(name, []).append(found)
    return {name: _elected(stores) for name, stores in votes.items()}


def _elected(stores: Sequence[Storage]) -> Storage:
    """The most frequent storage, then the widest: nothing that listing order could change."""
    if all(store is stores[0] for store in stores):
        return stores[0]
    votes = {store: stores.count(store) for store in stores}
    return max(votes, key=lambda store: (votes[store], store.bits, store.steps, store.signed, store.qmin))


def _behind(
    graph: Graph, choice: Choice, layout: Layout, votes: dict[str, list[Storage]], storages: Storages
) -> dict[PortId, Storage]:
    """The storage of a kernel's joined wildcards if nothing before decides: fixed types, then the results'.

    A port's storage says nothing of a port that it is not joined with: a sum of 8-bit numbers may be compared
    with thresholds to 2 bits, and weights of 6 bits are no reason to round their input to 6.
    """
    region = choice.region
    names: dict[PortId, str] = {("in", i): name for i, name in enumerate(region.inputs) if name}
    names |= {("out", i): name for i, name in enumerate(region.outputs) if name}
    found: dict[PortId, Storage] = {}
    for group in (tuple(names),) if layout.joins_all else layout.alike:
        members = [(side, names[side]) for side in group if side in names]
        store = _store_of(graph, choice, members, votes, storages)
        if store is not None:
            found |= dict.fromkeys(group, store)
    return found


def _store_of(
    graph: Graph,
    choice: Choice,
    members: Sequence[tuple[PortId, str]],
    votes: dict[str, list[Storage]],
    storages: Storages,
) -> Storage | None:
    for _, name in members:
        for fact in graph.values[name].facts:
            if isinstance(fact, Uniform) and has_storage(storages, fact.storage):
                return fact.storage
    results = [(i, name) for (end, i), name in members if end == "out"]
    for i, _ in results:
        store = choice.outputs[i].type.storage
        if isinstance(store, Storage):
            return store
    read = [store for _, name in results for store in votes.get(name, ())]
    return _elected(read) if read else None


def resolve(
    network: Network,
    choice: Choice,
    layout: Layout,
    reader_storage: Mapping[str, Storage],
    required: Required,
) -> dict[PortId, PortType]:
    """The spec of each wildcard port, its storage found.

    Args:
      required: what a port has to hold, by its side and value, as far as it is known.
    """
    region = choice.region
    names = (*region.inputs, *region.outputs)
    sides = [(side, name, spec) for (side, spec), name in zip(layout.specs, names, strict=True) if name]
    joined: dict[PortId, Storage] = {}
    for group in layout.alike:
        members = sides if layout.joins_all else [entry for entry in sides if entry[0] in group]
        wild = all(spec.storage is None for _, _, spec in members)
        pinned = [entry for entry in sides if entry[0] in group]
        own = _own_storage(network, choice, pinned) or _storage_of_begin(network)
        own = own or (_wanted_storage(network, group) if wild else None)
        shared = own or _shared_storage(network, members, reader_storage)
        if shared is None:
            shared = _unsaid(network, choice, members, required)
        shared = _wide_enough(network, choice, shared, [side for side, _, _ in members])
        if own is None and wild:
            shared = _with_room(network, members, shared, required)
        joined |= dict.fromkeys(group, shared)
    default = network.target.default_port
    result: dict[PortId, PortType] = {}
    for side, name, spec in sides:
        if spec.storage is None:
            if side in joined:
                result[side] = _stored_as(spec, joined[side])
                continue
            own = _own_storage(network, choice, [(side, name, spec)]) or _wanted_storage(network, (side,))
            if own is not None:
                result[side] = _stored_as(spec, own)
                continue
            found = _storage_near(network, name, reader_storage, spec)
            if found is None and isinstance(default.storage, Storage):
                found = _unsaid(network, choice, [(side, name, spec)], required)
            if found is not None:
                found = _wide_enough(network, choice, found, [side])
                result[side] = _stored_as(spec, _with_room(network, [(side, name, spec)], found, required))
            else:
                result[side] = default
    if region.input_facts or region.output_facts:
        return result  # a port's own fact comes first, whatever a format has
    return {side: _around_zero(network, spec) for side, spec in result.items()}


def _around_zero(network: Network, spec: PortType) -> PortType:
    """A wildcard port that has found its storage, symmetric where a format has that around 0 alone."""
    store = spec.storage
    if isinstance(store, Storage) and centring(store, network.formats) and spec.zero_point is None:
        return _stored_as(replace(spec, symmetric=True), store)
    return spec


def _with_room(network: Network, members: Sequence[Member], store: Storage, required: Required) -> Storage:
    """A storage that wildcards found; another where it cannot hold what is known of their ranges."""
    if not any(may_fall_short(_stored_as(spec, store)) for _, _, spec in members):
        return store
    values = [network.values[network.value_ids[name]] for _, name, _ in members]
    free = all(value.constant and value.pin is None for value in values)
    count = store.steps + 1
    signed = Storage(store.bits, True, -(count // 2), (count - 1) // 2)
    default = network.target.default_port.storage
    others = [default] if isinstance(default, Storage) else []
    # The width is the model's own and stays, but where it is that of a constant's neighbours.
    tried = [store, *others, signed] if free else [store, signed, *others]
    ranges = [(spec, required(side, name)) for side, name, spec in members]
    max_clip = 0.0 if free else network.target.costs.max_clip
    for one in tried:
        if all(extent is None or holds(spec, one, extent, max_clip) for spec, extent in ranges):
            return one
    return store


def _unsaid(network: Network, choice: Choice, members: Sequence[Member], required: Required) -> Storage:
    """The storage where neighbours say nothing: what the target's defaults make of requests and ranges."""
    target = network.target
    default = target.default_port.storage
    asked = _asked_storages(network, choice, [side for side, _, _ in members])
    store = default if isinstance(default, Storage) else Storage(8, True, -128, 127)
    if target.asked_widths and asked:
        store = max(asked, key=lambda one: one.range_bits)
    # A float has its sign in any case.
    if not (target.unsigned and store.signed) or store.float_name:
        return store
    extents = [required(side, name) for side, name, _ in members]
    needs_sign = any(spec.zero_point != 0 or spec.symmetric for _, _, spec in members)
    if needs_sign or any(extent is None or extent[0] < 0 for extent in extents):
        return store
    return Storage(store.bits, False, 0, (1 << store.bits) - 1)


def _own_storage(network: Network, choice: Choice, members: Sequence[Member]) -> Storage | None:
    """The storage that facts of ports themselves give; of a constant, as its port stores the numbers."""
    if not (choice.region.input_facts or choice.region.output_facts):
        return None
    constants = network.graph.constants
    for side, name, spec in members:
        pin = own_pin(choice, side)
        if pin is not None:
            return restored(pin, spec, constants[name]).storage if name in constants else pin.storage
    return None


def _wanted_storage(network: Network, group: Sequence[PortId]) -> Storage | None:
    """The storage requested for ports of the newest kernel, where it computes."""
    kernel = network.kernels[-1]
    if kernel.wanted is None or kernel.moves:
        return None
    stores = (wanted_at(kernel.wanted, side) for side in group)
    return next((store for store in stores if isinstance(store, Storage)), None)


def _storage_of_begin(network: Network) -> Storage | None:
    """The storage of the other end of a carried value, where the newest kernel is one end."""
    begin = network.begins.get(len(network.kernels) - 1)
    if begin is None:
        return None
    stores = [port.spec.storage for port in present(network, network.kernels[begin].outputs)]
    return next((store for store in stores if isinstance(store, Storage)), None)


def _wide_enough(network: Network, choice: Choice, store: Storage, sides: Sequence[PortId]) -> Storage:
    """A storage that a wildcard found, or the one that the widest Any on its ports or values asks for."""
    return max([store, *_asked_storages(network, choice, sides)], key=lambda one: one.range_bits)


def _asked_storages(network: Network, choice: Choice, sides: Sequence[PortId]) -> list[Storage]:
    """The storages that Anys at ports, or on their values, ask for."""
    met = (port_facts(network.graph, choice.region, *side) for side in sides)
    return [fact.storage for facts in met for fact in facts if isinstance(fact, AnyType)]


@lru_cache(maxsize=1024)
def _stored_as(spec: PortType, store: Storage) -> PortType:
    """A wildcard port with its storage: the whole one, where a fixed type's part lacks the port's zero."""
    zero = 0 if spec.symmetric else spec.zero_point
    lacks_zero = zero is not None and not store.qmin <= zero <= store.qmax
    return replace(spec, storage=storage(store.name) if lacks_zero else store)


def _shared_storage(
    network: Network,
    members: Sequence[Member],
    reader_storage: Mapping[str, Storage],
) -> Storage | None:
    for _, _, spec in members:
        if isinstance(spec.storage, Storage):
            return spec.storage
    values = []
    for _, name, _ in members:
        value = network.values[network.value_ids[name]]
        if value.pin is not None and has_storage(network.storages, value.pin.storage):
            return value.pin.storage
        values.append(value)
    for value in values:
        made = _made_in(network, value)
        if made is not None:
            return made
    for end in ("out", "in"):
        for side, name, _ in members:
            if side[0] == end and name in reader_storage:
                return reader_storage[name]
    return None


def _storage_near(
    network: Network, name: str, reader_storage: Mapping[str, Storage], spec: PortType
) -> Storage | None:
    """Storage of a value's fixed type, as a port stores it, else of its producer, else of its consumers.

    A fixed type whose storage the device lacks lies in that of the value's producer.
    """
    value = network.values[network.value_ids[name]]
    if value.pin is not None and value.constant:
        return restored(value.pin, spec, network.graph.constants[name]).storage
    if value.pin is not None and has_storage(network.storages, value.pin.storage):
        return value.pin.storage
    return _made_in(network, value) or reader_storage.get(name)


def _made_in(network: Network, value: Value) -> Storage | None:
    """Storage of a value's producer."""
    # What the kernel at hand writes has no port yet.
    is_made = 0 <= value.definition < len(network.ports)
    store = network.ports[value.definition].spec.storage if is_made else None
    return store if isinstance(store, Storage) else None
