"""Parameters of constants and derived ports: weights from their numbers, biases from the products.

Runs after labelling: a bias sees its port's scales after rescale. `accumulators` has what sums need. Source:
docs/specification.md, sections 4 to 6; tests/cases, cases 17 to 24.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import Conflict, QTypeError, RuleError, quantity
from planner.ir.graph import Constant, port_address
from planner.ir.types.intervals import ALL, Interval
from planner.ir.types.intervals import cut_to as within
from planner.ir.types.qtypes import Bipolar, Storage, Uniform, uniform
from planner.plans.rescales import same_scale
from planner.propagation.network.constant_ranges import (
    constant_range,
    neighbours_of,
    observed,
    slice_ranges,
)
from planner.propagation.network.ports import CONSTANT, Kernel, Port, ports_of
from planner.propagation.parameters.bias_grids import finer_weight
from planner.propagation.parameters.blocks import block_ranges, block_type
from planner.propagation.parameters.multiplier_range import grown_weight
from planner.propagation.parameters.typed import Typing, kernel_views
from planner.propagation.selection.conflicts import Concession
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.remedies import Inapplicable, Left
from planner.target.ports.accepts import bias_room, usable
from planner.target.ports.axes import block_axes, block_size, channel_axis, linear_op
from planner.target.ports.labels import label_for, typed
from planner.target.ports.slices import OneSided, ends_observed, one_type, slices_of_axis, with_pairs
from planner.target.records import PortId, PortType, Row, Rule
from planner.target.rules import rule_function

Reals: TypeAlias = npt.NDArray[np.float64]


def derive_parameters(network: Typing, kernel: Kernel) -> list[PortId]:
    """Fill in the types of a kernel's constant and derived ports; return the ports derived by a rule.

    Raises:
      RuleError: a rule cannot be applied (factors per axis along different axes, ...).
      Inapplicable: its row can be left for that.
      Conflict: a bias of fixed type is off the product of its factors.
    """
    row, layout = kernel.choice.row, kernel.choice.layout
    if row is None or layout is None:
        return []
    ports = {port.side: port for port in ports_of(network, kernel)}
    for port in ports.values():
        if port.kind == CONSTANT and (network.types[port.id] is None or port.id in network.finer):
            network.widened.pop(port.id, None)
            network.finer.pop(port.id, None)
            network.types[port.id] = _constant(network, kernel, port, row)
    for rule in layout.ranged:
        grown = grown_weight(network, kernel, rule)
        if grown is not None:
            port, scales, network.widened[grown[0].id] = grown
            network.types[port.id] = _rescaled(network, port, scales)
    derived: list[PortId] = []
    for rule in layout.deriving:
        if rule.kind == "multiplier_accumulator_scale":
            _grow_for_bias(network, ports, rule.args, row)
            finer = finer_weight(network, kernel, row, rule)
            if finer is not None:
                weight, kind, why = finer
                network.types[weight.id], network.finer[weight.id] = kind, why
        for side, kind in _answers(network, kernel, rule).items():
            port = _answered(rule, ports, side, kind)
            value = network.values[port.value]
            free = rule.kind == "fn" and port.kind == CONSTANT and value.pin is None
            if free or network.is_derived(port) or network.types[port.id] is None:
                network.types[port.id] = kind
                for pin in (value.pin, port.pin) if value.constant and not network.derives_bias else ():
                    if pin not in (None, kind):
                        _check_bias_pin(network, port, pin, kind)
                derived.append(side)
    return derived


def _constant(network: Typing, kernel: Kernel, port: Port, row: Row) -> Uniform | None:
    """The type of a constant.

    Raises:
      Inapplicable: its numbers have both signs, and the row's zero point is an end of its storage.
      RuleError: its numbers have none in the row's storage; kernel, row and port are named.
    """
    try:
        return constant_type(network, kernel, port, row)
    except OneSided as error:
        address = port_address(kernel.choice.region.name, *port.side)
        raise _left(kernel, f"{address} has no type: {error.message}") from error
    except QTypeError as error:
        address = port_address(kernel.choice.region.name, *port.side)
        name = network.values[port.value].name
        raise RuleError(
            f"{address}, {row.source}: {name!r} has no type in {port.spec}: {error.message}",
            hint="give the row a zero point within its storage, or none",
        ) from error


def _answers(network: Typing, kernel: Kernel, rule: Rule) -> Mapping[PortId, Uniform]:
    """Apply a rule to a kernel's ports, which have types now.

    Raises:
      Inapplicable: it derives no type from them.
      RuleError: it cannot be applied to them; the kernel and the row are named.
    """
    views = kernel_views(network, kernel)
    name = kernel.choice.region.name
    try:
        return rule_function(rule, network.target)(*views, rule.args)
    except RuleError as error:
        if rule.kind == "derive":  # of a valid expression it is the types that make it impossible
            seen = ", ".join(
                f"{port.side[0]}[{port.side[1]}] {network.types[port.id]}"
                for port in ports_of(network, kernel)
                if network.types[port.id] is not None and port.name != rule.args["port"]
            )
            raise _left(kernel, error.message, seen) from error
        raise RuleError(f"{name!r}, {rule.source}: {error.message}", hint=error.hint) from error


def _left(kernel: Kernel, why: str, seen: str = "") -> Inapplicable:
    layout = kernel.choice.layout
    return Inapplicable(kernel.choice.region.name, layout.key if layout is not None else "", Left(why, seen))


def _answered(rule: Rule, ports: Mapping[PortId, Port], side: PortId, kind: object) -> Port:
    """The port that a rule's answer is about.

    Raises:
      RuleError: a port that the kernel has not, no type, or a type of another storage.
    """
    port, name = ports.get(side), rule.args.get("name", rule.kind)
    if port is None:
        known = ", ".join(f"{where}[{i}]" for where, i in ports)
        raise RuleError(f"{rule.source}: {name!r} answers for port {side}, the kernel has {known}")
    if not isinstance(kind, Uniform) or kind.storage != port.spec.storage:
        raise RuleError(
            f"{rule.source}: {name!r} answers {kind} for port {port.name!r}, which stores {port.spec}"
        )
    return port


def overflow_of(network: Typing, kernel: Kernel, accumulator: str) -> str | None:
    """Say which channel of a bias is beyond its storage, as the scale of a fixed weight cannot grow."""
    ports = ports_of(network, kernel)
    bias = next((port for port in ports if port.name == accumulator), None)
    data = network.graph.constants.get(network.values[bias.value].name) if bias is not None else None
    kind = network.type_of(bias)
    if bias is None or kind is None or data is None or data.array is None or not data.array.size:
        return None
    if not isinstance(bias.spec.storage, Storage):
        return None
    steps = np.abs(data.array.reshape(-1).astype(np.float64)) / np.asarray(kind.scales)
    channel = int(np.argmax(steps))
    if steps[channel] <= bias.spec.storage.qmax:
        return None
    pinned = [
        value.name for value in (network.values[port.value] for port in ports) if value.pin and value.constant
    ]
    told = (
        f"channel {channel} of {network.values[bias.value].name!r} is {steps[channel]:.4g} steps of its scale"
    )
    told += f", {bias.spec.storage} holds {bias.spec.storage.qmax}"
    return told + "".join(f", and {name!r} has a fixed type" for name in pinned)


def _check_bias_pin(network: Typing, port: Port, pin: Uniform, kind: Uniform) -> None:
    name = network.values[port.value].name
    address = port_address(network.kernels[port.kernel].choice.region.name, *port.side)
    fits = len(pin.scales) in (1, len(kind.scales)) and all(
        same_scale(a, b)
        for a, b in zip(np.broadcast_to(pin.scales, len(kind.scales)), kind.scales, strict=True)
    )
    if not fits:
        place, where = (address, f"port {address}") if port.pin == pin else (name, f"value {name!r}")
        raise Conflict(
            f"{name!r} has the fixed type {pin}, but the product of its factors' scales is {kind}",
            facts=(f"{where}: {pin}", f"port {address}: {kind}"),
            hint="drop the fixed type: the scale is derived",
            concession=Concession(facts=((place, pin),)),
            about=name,
        )


def constant_type(network: Typing, kernel: Kernel, port: Port, row: Row) -> Uniform | None:
    """The type of a weight or other constant: its fixed type, or the tightest its port accepts."""
    value = network.values[port.value]
    spec = port.spec
    pin = port.pin or value.pin
    if pin is not None:
        return restored(pin, spec, network.graph.constants[value.name])
    if not isinstance(spec.storage, Storage):
        return None
    signs = _two_signs(network, kernel, port, row)
    if signs is not None:
        return signs
    store = usable(spec.storage, spec)
    constant, seen = network.graph.constants[value.name], observed(network, port)
    if spec.granularity == "axis":
        axis = _port_axis(network, kernel, port, row)
        shape = network.graph.values[value.name].shape
        slices = shape[axis] if shape is not None and axis < len(shape) else None
        if seen is None and constant.array is None and len(constant.lo) == 1 and isinstance(slices, int):
            kind = _of_one_range((constant.lo[0], constant.hi[0]), slices, store, axis, spec)
        else:
            ends = ends_observed(seen, *slice_ranges(constant, axis), axis=axis)
            los, his = np.clip(ends, *stored_part(network, port, constant))
            los, his = _with_pairs(network, kernel, port, (los, his), store)
            kind = slices_of_axis(los, his, store, axis, spec)
        if store is spec.storage and spec.scale_min is None and spec.scale_max is None:
            return kind
        low, high = spec.scale_min or 0.0, spec.scale_max or math.inf
        scales = tuple(min(max(scale, low), high) for scale in kind.scales)
        return Uniform(spec.storage, scales, kind.zero_points, "f32", axis)
    if spec.granularity == "block":
        return _blocks(network, kernel, port, row)
    extent = (
        (seen.lo, seen.hi)
        if seen is not None
        else constant_range(constant) or network.ranges[port.value] or (0.0, 0.0)
    )
    held = within(extent, stored_part(network, port, constant))
    if spec.weight_pairs is not None:
        (low,), (high,) = _with_pairs(network, kernel, port, (np.array(held[:1]), np.array(held[1:])), store)
        held = (float(low), float(high))
    return replace(one_type(held, store, spec, network.costs.max_clip), storage=spec.storage)


def _with_pairs(
    network: Typing, kernel: Kernel, port: Port, ends: tuple[Reals, Reals], store: Storage
) -> tuple[Reals, Reals]:
    """Ends of slices, moved out until neighbours in a sum add up to no more steps than the port takes."""
    most, op = port.spec.weight_pairs, linear_op(kernel.choice.region.ops)
    name = network.values[port.value].name
    if most is None or op is None or op.inputs[1] != name:
        return ends
    return with_pairs(ends, neighbours_of(network.graph.constants[name], op), most, store)


def stored_part(network: Typing, port: Port, constant: Constant) -> Interval:
    """The reals that a constant's stored copy is cut to; the constant itself is not."""
    if port.id in network.needed:
        return network.needed[port.id]
    # Infinities are stored as far as the port has to hold them.
    infinite = constant.array is not None and constant_range(constant) is None
    return (network.required[port.id] or ALL) if infinite else ALL


def _blocks(network: Typing, kernel: Kernel, port: Port, row: Row) -> Uniform | None:
    """The type per block of a constant whose row was chosen because a block divides it."""
    graph, region = network.graph, kernel.choice.region
    name = network.values[port.value].name
    side, index = port.side
    pattern = (kernel.choice.inputs if side == "in" else kernel.choice.outputs)[index]
    size, shape = block_size(graph, region, row, pattern, name), graph.values[name].shape
    whole = tuple(dim for dim in shape or () if isinstance(dim, int))
    if size is None or shape is None or len(whole) < len(shape):
        return None
    axes = block_axes(graph, region, row, pattern, len(shape))
    ranges = block_ranges(graph.constants[name], whole, axes, size)
    los, his = np.clip(
        ends_observed(observed(network, port), *ranges), *stored_part(network, port, graph.constants[name])
    )
    return block_type((los, his), whole, axes, size, spec=port.spec)


@lru_cache(maxsize=4096)
def _of_one_range(lo_hi: Interval, slices: int, store: Storage, axis: int, spec: PortType) -> Uniform:
    """The per-axis type of a constant of which only one range for all slices is known."""
    los, his = (np.full(slices, end) for end in lo_hi)
    return slices_of_axis(los, his, store, axis, spec)


def _two_signs(network: Typing, kernel: Kernel, port: Port, row: Row) -> Uniform | None:
    """The type of one-bit weights, +-scale: stored as -1 and 1."""
    value = network.graph.values[network.values[port.value].name]
    fact = next((fact for fact in value.facts if isinstance(fact, Bipolar)), None)
    if fact is None or not isinstance(port.spec.storage, Storage):
        return None
    axis = _port_axis(network, kernel, port, row) if port.spec.granularity == "axis" else None
    size = value.shape[axis] if axis is not None and value.shape is not None else 1
    return uniform(port.spec.storage, [fact.scale] * (size if isinstance(size, int) else 1), 0, axis=axis)


def _port_axis(network: Typing, kernel: Kernel, port: Port, row: Row) -> int:
    """The axis that the row quantizes along at a port: a number (negative from the end) or a role.

    Raises:
      RuleError: an axis that the port's tensor does not have.
    """
    role = row.axis.get(port.name, "out_channel")
    axis = role if isinstance(role, int) else channel_axis(kernel.choice.region, network.graph)
    value = network.graph.values[network.values[port.value].name]
    if value.shape is None:
        return axis
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise RuleError(
            f"{row.source}: axis {axis} of port {port.name!r} at {kernel.choice.region.name!r}: "
            f"{value.name!r} has {quantity(rank, 'dimension')}",
            hint="name an axis that every tensor of this port has, or a row per rank (when: PORT.rank)",
        )
    return axis % rank


def _grow_for_bias(
    network: Typing, ports: Mapping[PortId, Port], args: Mapping[str, object], row: Row
) -> None:
    """Grow the scales of weight channels whose bias would overflow its accumulator (tests/cases, case 22).

    The storage of the sums may be narrower than that of the bias; either way one bit stays free for the sums.
    """
    named = {port.name: port for port in ports.values()}
    bias = named.get(str(args.get("port")))
    factors = [named[name] for name in _names(args.get("of")) if name in named]
    if bias is None or bias.spec.storage is None or not network.values[bias.value].constant:
        return
    store = bias.spec.storage
    weight = next((port for port in factors if port.kind == CONSTANT), None)
    other = next((port for port in factors if port is not weight), None)
    data = network.graph.constants[network.values[bias.value].name].array
    kind, factor = network.type_of(weight), network.type_of(other)
    if (
        weight is None
        or kind is None
        or factor is None
        or data is None
        or not isinstance(store, Storage)
        or weight.pin is not None
        or network.values[weight.value].pin is not None
    ):
        return
    least = np.abs(data.reshape(-1).astype(np.float64)) / (factor.scale * bias_room(store, row))
    scales = np.asarray(kind.scales)
    if scales.size == 1:
        least = np.max(least, initial=0.0, keepdims=True)
    if scales.size != least.size or np.all(scales >= least):
        return
    grown = np.maximum(scales, least * (1 + 1e-6))
    if weight.spec.power_of_two:
        grown = np.exp2(np.ceil(np.log2(grown)))
    network.types[weight.id] = _rescaled(network, weight, grown)


def _rescaled(network: Typing, port: Port, scales: Reals) -> Uniform | None:
    """The type of a constant with other scales; a zero point that its range decides moves with them."""
    kind, spec = network.types[port.id], port.spec
    if kind is None:
        return None
    rounded = tuple(scales.astype(np.float32).astype(np.float64).tolist())
    if not kind.is_per_tensor or spec.symmetric or spec.zero_point is not None:
        return replace(kind, scales=rounded)
    constant, seen = network.graph.constants[network.values[port.value].name], observed(network, port)
    extent = (seen.lo, seen.hi) if seen is not None else constant_range(constant) or (0.0, 0.0)
    held = within(extent, stored_part(network, port, constant))
    return typed(label_for(held, replace(spec, scale_min=rounded[0])), kind.storage)


def _names(item: object) -> tuple[str, ...]:
    return tuple(str(name) for name in item) if isinstance(item, (list, tuple)) else (str(item),)
