"""Plain values: those whose label no other value can have a say in, decided before any search.

Every port that stores such a value is free, alone in its class, of one spec and holds the whole range; the
label of that range then needs no rescale and loses nothing, so it is the cheapest. Most values of a
convolutional net are plain. Source: docs/specification.md, section 5, the price: items 1 to 5 have one answer
here.
"""

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.network.ports import CLASS, FLOAT, Port, Ranged, Value, range_in
from planner.target.ports.labels import label_for, storable, typed
from planner.target.records import PortType


def settle_plain(network: Ranged) -> dict[int, Uniform]:
    """The types of the ports of all plain values, by port; they take no part in the search."""
    settled: dict[int, Uniform] = {}
    for index, value in enumerate(network.values):
        known = network.ranges[index] is not None
        if value.pin is None and known and not value.constant and not value.stays_float:
            stored = _stored(network, index, value)
            kind = _plain_type(network, index, stored[0].spec) if stored else None
            if stored and kind is not None:
                settled |= {port.id: kind for port in stored}
    return settled


def _stored(network: Ranged, index: int, value: Value) -> list[Port] | None:
    """The ports that store a value as integers, all alike; None (or nothing) where it is not plain."""
    found: list[Port] = []
    ports, required, extent = network.ports, network.required, network.ranges[index]
    for p in (value.definition, *value.uses):
        if p < 0:
            continue
        port = ports[p]
        kernel = network.kernels[port.kernel]
        if kernel.moves:
            return None
        if port.kind == FLOAT:
            if required[p] != extent:
                return None  # a reader in float that needs less may lose bits
            continue
        layout = kernel.choice.layout
        if (
            port.kind != CLASS
            or port.fixed is not None
            or port.pin is not None
            or layout is None
            or layout.calls
            or port.side in layout.joined
            or required[p] != range_in(network, index, port.spec)
            or (found and port.spec is not found[0].spec and port.spec != found[0].spec)
        ):
            return None
        found.append(port)
    return found


def _plain_type(network: Ranged, index: int, spec: PortType) -> Uniform | None:
    """The type of a plain value in ports of this type; None where they cannot store it."""
    extent = range_in(network, index, spec)
    if extent is None or not isinstance(spec.storage, Storage):
        return None
    label = label_for(extent, spec)
    return typed(label, spec.storage) if storable(label, spec) else None
