"""Rescales: where two ends of a use edge differ, derived from port types.

A value has a type where it is defined. A value of fixed type has that type, in a storage that the device has:
a kernel that yields another type is followed by one rescale to it, and users start from there. The model's
own inputs and outputs keep the fixed type's storage. Uses that require the same type share one rescale unless
the target says otherwise. Constants are quantized once per type and never rescaled.
Source: docs/specification.md, section 3.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from planner.ir.graph import BOUNDARY, Graph, once_per_graph
from planner.ir.types.held_pins import Storages, held
from planner.ir.types.qtypes import Bipolar, Calibrated, FloatType, NoneType, Uniform
from planner.plans.records import KernelPlan, Kind, PortTyped, Rescale, TargetRef, Use
from planner.target.records import Costs

SAME_SCALE: Final = 1e-6


def same_scale(a: float, b: float) -> bool:
    """Whether two scales are one label: within 1e-6 of each other, relatively."""
    return a == b or math.isclose(a, b, rel_tol=SAME_SCALE, abs_tol=0.0)


def kind_of(source: PortTyped, wanted: PortTyped, costs: Costs) -> Kind | None:
    """Return the most expensive rescale that applies from one type to another; None if none is needed."""
    if not isinstance(source, Uniform):
        return "quantize" if isinstance(wanted, Uniform) else None
    if not isinstance(wanted, Uniform):
        return "dequantize"
    if source == wanted:
        return None
    return max(_differences(source, wanted), key=lambda kind: price_of(kind, costs), default=None)


def price_of(kind: Kind, costs: Costs) -> float:
    """Cost of a rescale per element."""
    price: float = getattr(costs, kind)
    return price


def _differences(source: Uniform, wanted: Uniform) -> list[Kind]:
    kinds: list[Kind] = []
    a, b = source.storage, wanted.storage
    shape = (source.axis, source.blocks, len(source.scales))
    if shape != (wanted.axis, wanted.blocks, len(wanted.scales)) or not all(
        same_scale(x, y) for x, y in zip(source.scales, wanted.scales, strict=True)
    ):
        kinds.append("requantize")
    if a.bits != b.bits:
        kinds.append("widen" if b.bits > a.bits else "narrow")
    if (
        a.signed != b.signed
        or source.zero_points[:1] != wanted.zero_points[:1]
        or ("requantize" not in kinds and source.zero_points != wanted.zero_points)
    ):
        kinds.append("zero_point")
    # What lies within a range needs nothing to enter it, and a change of sign moves the range along.
    if a.bits == b.bits and not a.fits_shifted(b):
        kinds.append("clamp")
    return kinds


def pins(graph: Graph) -> Mapping[str, Uniform | None]:
    """The types that facts fix values to, whatever their kernels yield: a Uniform fact, or None for float.

    Values without a fact that fixes their type or keeps them in a float are left out.
    """
    return {name: kind if isinstance(kind, Uniform) else None for name, kind in _bases(graph).items()}


def held_pins(
    graph: Graph, kernels: Sequence[KernelPlan], storages: Storages, formats: Sequence[str] = ()
) -> Mapping[str, Uniform | None]:
    """The same as a device of these storages holds them in formats: what users of a value start from."""
    found = _held(_bases(graph), graph, definitions(graph, kernels), storages, formats)
    return {name: kind if isinstance(kind, Uniform) else None for name, kind in found.items()}


def _held(
    pinned: Mapping[str, PortTyped],
    graph: Graph,
    made: Mapping[str, PortTyped],
    storages: Storages,
    formats: Sequence[str],
) -> Mapping[str, PortTyped]:
    if storages is None and not formats:
        return pinned
    # What the model is handed and hands out is stored as it says; constants are stored as their readers want.
    as_said = {*graph.inputs, *graph.outputs, *graph.constants}
    found = dict(pinned)
    for name, kind in pinned.items():
        if isinstance(kind, Uniform) and name not in as_said:
            given = made.get(name)
            store = given.storage if isinstance(given, Uniform) else None
            found[name] = held(kind, storages, store, formats)
    return found


@once_per_graph
def _bases(graph: Graph) -> Mapping[str, PortTyped]:
    """Types that facts say, uniform or float; None for the tensor's own float."""
    found: dict[str, PortTyped] = {}
    for name, value in graph.values.items():
        for fact in value.facts:
            if isinstance(fact, Calibrated):
                continue
            if isinstance(fact, Uniform):
                found[name] = fact
            elif isinstance(fact, (NoneType, Bipolar)):
                found.setdefault(name, None)
            elif isinstance(fact, FloatType):
                found.setdefault(name, fact if fact.name != value.dtype else None)
    return found


def uses(
    graph: Graph,
    kernels: Sequence[KernelPlan],
    only: Collection[str] | None = None,
    pinned: Mapping[str, PortTyped] | None = None,
) -> Mapping[str, tuple[Use, ...]]:
    """Uses of each value in plan order, model outputs last (float unless the value has a fixed type).

    Args:
      only: the values that matter; all by default.
      pinned: the types that facts fix values to, where they are known already.
    """
    found: dict[str, list[Use]] = {}
    for kernel in kernels:
        for i, port in enumerate(kernel.inputs):
            if port.value and (only is None or port.value in only):
                found.setdefault(port.value, []).append(Use(kernel.name, i, port.type))
    pinned = _bases(graph) if pinned is None else pinned
    for i, name in enumerate(graph.outputs):
        if graph.values[name].is_float:
            found.setdefault(name, []).append(Use(BOUNDARY, i, pinned.get(name)))
    return {name: tuple(found[name]) for name in found}


def definitions(
    graph: Graph, kernels: Sequence[KernelPlan], pinned: Mapping[str, PortTyped] | None = None
) -> dict[str, PortTyped]:
    """Type of each value where it is defined: a kernel's output port, or the boundary (fixed, else float)."""
    pinned = _bases(graph) if pinned is None else pinned
    found: dict[str, PortTyped] = {name: pinned.get(name) for name in graph.inputs}
    for kernel in kernels:
        for port in kernel.outputs:
            if port.value:
                found[port.value] = port.type
    return found


def derive_rescales(
    graph: Graph, kernels: Sequence[KernelPlan], target: TargetRef, formats: Sequence[str] = ()
) -> tuple[Rescale, ...]:
    """List every rescale of a plan: by value in order of definition, then by first consumer."""
    costs = target.costs
    made = definitions(graph, kernels)
    pinned = _held(_bases(graph), graph, made, target.storages, formats)
    bases = {**made, **pinned}
    readers = uses(graph, kernels, _rescaled(kernels, made, bases), pinned)
    trips = {kernel.name: kernel.trip_count for kernel in kernels}
    result: list[Rescale] = []
    for value, defined in made.items():
        if value in graph.constants or value not in readers:
            continue
        wanted: list[tuple[PortTyped, PortTyped, list[Use], bool]] = []
        base = bases[value]
        if base != defined:
            wanted.append((defined, base, list(readers[value]), True))
        wanted += [(base, kind, users, False) for kind, users in _groups(readers[value], base, target)]
        count = 0
        for source, goal, users, to_pin in wanted:
            kind = kind_of(source, goal, costs)
            if kind is None:
                continue
            elements = graph.values[value].elements
            times = max(trips.get(use.kernel, 1) for use in users)
            result.append(
                Rescale(
                    id=f"{value}#{count}",
                    value=value,
                    from_type=source,
                    to_type=goal,
                    consumers=tuple((use.kernel, use.index) for use in users),
                    kind=kind,
                    elements=elements,
                    cost=elements * price_of(kind, costs) * times,
                    to_pin=to_pin,
                )
            )
            count += 1
    return tuple(result)


def _rescaled(
    kernels: Sequence[KernelPlan], made: Mapping[str, PortTyped], bases: Mapping[str, PortTyped]
) -> set[str]:
    """Values whose ends are not all one type; the few that only look so have equal ones."""
    found = {name for name, kind in made.items() if kind is not bases[name]}
    for kernel in kernels:
        for port in kernel.inputs:
            if port.type is not bases.get(port.value, port.type):
                found.add(port.value)
    return found


def _groups(
    readers: tuple[Use, ...], base: PortTyped, target: TargetRef
) -> list[tuple[PortTyped, list[Use]]]:
    groups: list[tuple[PortTyped, list[Use]]] = []
    for use in readers:
        if kind_of(base, use.type, target.costs) is None:
            continue
        shared = None if target.rescale_single_consumer else [g for g in groups if g[0] == use.type]
        if shared:
            shared[0][1].append(use)
        else:
            groups.append((use.type, [use]))
    return groups
