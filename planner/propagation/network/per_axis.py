"""Per-axis ports: types per axis or per block that facts say, and that data movement hands on.

Such a type is no label, so it is not searched for: a fact fixes it, data movement carries it as long as it
keeps the slices whole, and a row that takes slices reads it as it is. Ranges observed per axis become one
where every port around the value takes slices. A use that needs one scale gets a requantize. Source:
docs/specification.md, sections 3 and 5; tests/cases, cases 37 and 51.
"""

from dataclasses import replace

from planner.ir.graph import Graph
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.fit import has_short_block
from planner.ir.types.qtypes import Calibrated, QType, Storage, Uniform
from planner.propagation.network.ports import (
    CLASS,
    CONSTANT,
    FLOAT,
    GIVEN,
    Kernel,
    Network,
    Port,
    Ranged,
    base_of,
    ports_of,
    present,
)
from planner.propagation.selection.refusals import accepts
from planner.target.ports.labels import label_for, log_units
from planner.target.records import PortPattern


def give_slices(network: Network, ports: list[Port]) -> None:
    """Type the ports around sliced values, kernels in order.

    Args:
      ports: those of the network, which is not handed out yet; ports that get a type are replaced.
    """
    if not _has_slices(network.graph):
        return
    for index, value in enumerate(network.values):
        if value.definition < 0:
            _by_range(network, ports, index)
    for kernel in network.kernels:
        for port in present(network, kernel.inputs):
            kind = _start(network, port.value)
            if kind is not None and not kind.is_per_tensor and _takes(network, port, kind):
                _give(ports, port, kind, "moved" if network.values[port.value].pin is None else "pinned")
        if kernel.moves:
            _carry(network, ports, kernel)
        for port in present(network, kernel.outputs):
            pin = base_of(network, network.values[port.value])
            if pin is not None and not pin.is_per_tensor and _takes(network, port, pin):
                _give(ports, port, pin, "pinned")
            _by_range(network, ports, port.value)


def _has_slices(graph: Graph) -> bool:
    facts = [fact for value in graph.values.values() for fact in value.facts]
    for region in graph.regions:
        facts += [fact for own in (*region.input_facts, *region.output_facts) for fact in own]
    return any(map(_is_sliced, facts))


def _is_sliced(fact: QType) -> bool:
    if isinstance(fact, Calibrated):
        return fact.axis is not None
    return isinstance(fact, Uniform) and not fact.is_per_tensor


def _start(network: Network, index: int) -> Uniform | None:
    """The type that a value's consumers start from, where that is known without a search."""
    value = network.values[index]
    if value.pin is not None or value.stays_float:
        return base_of(network, value)
    if value.definition < 0:
        return None
    made = network.ports[value.definition]
    return made.given


def _pattern(network: Network, port: Port) -> PortPattern | None:
    layout = network.kernels[port.kernel].choice.layout
    side, index = port.side
    return None if layout is None else (layout.inputs if side == "in" else layout.outputs)[index]


def _takes(network: Network, port: Port, kind: Uniform) -> bool:
    """Whether a free port of a row takes a type's slices as they are."""
    pattern = _pattern(network, port)
    if pattern is None or port.kind != CLASS or port.pin is not None or port.fixed is not None:
        return False
    if not accepts(pattern, kind, follows=False) or port.spec.storage != kind.storage:
        return False
    row = network.kernels[port.kernel].choice.row
    role = row.axis.get(pattern.name) if row is not None else None
    rank = len(network.graph.values[network.values[port.value].name].shape or ())
    if kind.blocks:
        shape = network.graph.values[network.values[port.value].name].shape
        if has_short_block(kind, shape) and not pattern.type.short_block:
            return False
        return all(size in (1, *pattern.type.block_size) for _, size in kind.blocks)
    return not isinstance(role, int) or kind.axis == (role + rank if role < 0 else role)


def _give(ports: list[Port], port: Port, kind: Uniform, why: str) -> None:
    ports[port.id] = replace(port, kind=GIVEN, given=kind, fixed_source=why)


def _carry(network: Network, ports: list[Port], kernel: Kernel) -> None:
    """Give data-movement ports the types that their ops make of the slices read, if they keep them whole."""
    region, layout = kernel.choice.region, kernel.choice.layout
    if layout is None or not layout.joins_all:
        return
    read = {
        network.values[port.value].name: _start(network, port.value)
        for port in present(network, kernel.inputs)
    }
    types = {name: kind for name, kind in read.items() if kind is not None}
    if len(types) < len(read) or all(kind.is_per_tensor for kind in types.values()):
        return
    for op in region.ops:
        made = moved_types(op, types, network.graph)
        if made is None:
            return
        types |= made
    wanted = [(port, types.get(network.values[port.value].name)) for port in ports_of(network, kernel)]
    if all(kind is not None and _hands_on(network, port, kind) for port, kind in wanted):
        for port, kind in wanted:
            if kind is not None and port.kind == CLASS:
                pinned = port.side[0] == "in" and network.values[port.value].pin is not None
                _give(ports, port, kind, "pinned" if pinned else "moved")


def _hands_on(network: Network, port: Port, kind: Uniform) -> bool:
    """Whether a data-movement port may have a type: a wildcard takes any slices with its kind of scales."""
    if port.kind == GIVEN:
        return port.given == kind
    pattern = _pattern(network, port)
    if pattern is None or port.kind not in (CLASS, CONSTANT) or port.pin is not None:
        return False
    if port.spec.storage != kind.storage or (
        port.kind == CONSTANT and network.values[port.value].pin != kind
    ):
        return False
    any_slices = pattern.type.is_wildcard and accepts(pattern, kind, follows=True)
    return any_slices or _takes(network, port, kind)


def _by_range(network: Network, ports: list[Port], index: int) -> None:
    """Give the ports around a value its ranges per axis, where each of them takes slices."""
    value = network.values[index]
    facts = network.graph.values[value.name].facts
    seen = next((fact for fact in facts if isinstance(fact, Calibrated) and fact.axis is not None), None)
    if seen is None or value.constant or value.pin is not None or value.stays_float:
        return
    stored = [port for port in present(network, (value.definition, *value.uses)) if port.kind != FLOAT]
    if not stored or any(port.kind != CLASS or port.spec != stored[0].spec for port in stored):
        return
    store = stored[0].spec.storage
    if not isinstance(store, Storage) or stored[0].spec.granularity != "axis":
        return
    labels = [label_for(extent, stored[0].spec) for extent in zip(seen.los, seen.his, strict=True)]
    zeros = tuple(zero + store.offset for _, zero in labels)
    kind = Uniform(store, tuple(scale for scale, _ in labels), zeros, "f32", seen.axis)
    if all(_takes(network, port, kind) for port in stored):
        for port in stored:
            _give(ports, port, kind, "range")


def given_units(network: Ranged, port: Port, kind: Uniform) -> int:
    """log2 of the scales that a use per axis or per block would have of its own, the mean over its slices.

    A slice's range is what was observed of it, else what its type holds; both cut to what the use keeps.
    """
    facts = network.graph.values[network.values[port.value].name].facts
    seen = next((fact for fact in facts if isinstance(fact, Calibrated) and fact.axis is not None), None)
    ends = zip(kind.slice_ranges, kind.scales, kind.zero_points, strict=True)
    held = [((low - zero) * scale, (high - zero) * scale) for (low, high), scale, zero in ends]
    if seen is not None and seen.axis == kind.axis and len(seen.los) == len(held):
        held = list(zip(seen.los, seen.his, strict=True))
    required = network.required[port.id]
    if required is not None:
        low, high = required
        held = [(min(max(lo, low), high), max(min(hi, high), low)) for lo, hi in held]
    own = [
        # A slice of zeros asks for nothing: it is as fine as it is.
        scale if lo == hi == 0.0 else label_for((lo, hi), port.spec)[0]
        for (lo, hi), scale in zip(held, kind.scales, strict=True)
    ]
    return round(sum(map(log_units, own)) / len(own))
