"""Verify the rescales of a plan: derive every change of type, then compare.

Derived from the types of ports, fixed types and outputs alone, not from the list that the plan holds.
Source: docs/specification.md, section 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.checker.kernel_ports import NEAR, refuse
from planner.errors import quantity
from planner.ir.graph import BOUNDARY, port_address
from planner.ir.types.held_pins import held
from planner.ir.types.qtypes import AnyType, Calibrated, FloatType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped, Rescale
from planner.target.records import Costs, Target

Consumer = tuple[str, int]


@dataclass(slots=True)
class Edge:
    """A change of type that a plan needs: its two types, its consumers, the kinds it may be listed as."""

    value: str
    before: PortTyped
    after: PortTyped
    consumers: list[Consumer]
    to_pin: bool
    kinds: tuple[str, ...]


def check_edges(plan: Plan, target: Target | None) -> None:
    """`plan.rescales` are exactly the changes of type that the port types ask for, rightly priced.

    Raises:
      PlanInvalid: one missing, one too many, one of another kind, size or cost, one the target forbids.
    """
    ends = ends_of(plan, plan.kernels_in_order, pins_of(plan))
    edges = (edge for name in ends.readers for edge in ends.edges(name))
    needed = {(e.value, e.to_pin, tuple(e.consumers)): e for e in edges}
    trips = {kernel.name: kernel.trip_count for kernel in plan.kernels_in_order}
    seen: dict[str, int] = {}
    for rescale in plan.rescales:
        edge = needed.pop((rescale.value, rescale.to_pin, rescale.consumers), None)
        if edge is None:
            wanted = [e for e in needed.values() if e.value == rescale.value]
            accepted = f"consumers {_readers(wanted[0].consumers)}" if wanted else "no rescale there"
            refuse(rescale.id, f"serves {_readers(rescale.consumers)}; accepted: {accepted}")
        if rescale.id != f"{rescale.value}#{seen.setdefault(rescale.value, 0)}":
            refuse(rescale.id, f"is out of turn; accepted: {rescale.value}#{seen[rescale.value]}")
        seen[rescale.value] += 1
        _check_edge(plan, rescale, edge, max((trips.get(k, 1) for k, _ in rescale.consumers), default=1))
    for edge in needed.values():
        kernel, index = edge.consumers[0]
        refuse(
            port_address(kernel, "in", index),
            f"wants {brief(edge.after)} of {edge.value!r}, which is {brief(edge.before)}, and no rescale "
            f"is listed; accepted: one of kind {edge.kinds[0]}",
        )
    if target is not None and not target.rescale_allowed:
        _check_forbidden(plan, target)


def _readers(consumers: tuple[Consumer, ...] | list[Consumer]) -> str:
    return ", ".join(port_address(kernel, "in", index) for kernel, index in consumers) or "nobody"


def _check_edge(plan: Plan, rescale: Rescale, edge: Edge, trips: int) -> None:
    if (rescale.from_type, rescale.to_type) != (edge.before, edge.after):
        refuse(
            rescale.id,
            f"leads from {brief(rescale.from_type)} to {brief(rescale.to_type)}; "
            f"accepted: from {brief(edge.before)} to {brief(edge.after)}",
        )
    if rescale.kind not in edge.kinds:
        refuse(rescale.id, f"is called {rescale.kind}; accepted: {' or '.join(edge.kinds)}")
    elements = plan.graph.values[rescale.value].elements
    if rescale.elements != elements:
        refuse(rescale.id, f"counts {quantity(rescale.elements, 'element')}; accepted: {elements}")
    # A rescale in a loop body runs once a trip; the trips are those of its most frequent consumer.
    cost = elements * _price(rescale.kind, plan.target.costs) * trips
    if abs(rescale.cost - cost) > NEAR * abs(cost):
        refuse(rescale.id, f"costs {rescale.cost!r}; accepted: {cost!r}")


@dataclass(slots=True)
class Ends:
    """Both ends of values whose types change on the way: defined type, fixed type, types at consumers."""

    defined: dict[str, PortTyped]
    pins: dict[str, PortTyped]
    readers: dict[str, list[tuple[Consumer, PortTyped]]]
    costs: Costs
    shared: bool

    def edges(self, name: str) -> Iterator[Edge]:
        """The changes of type of one value: to its fixed type, and from there to each consumer's."""
        if name not in self.defined:
            return
        # With a pin there are two hops: every reader sees the pinned numbers, as in the original model.
        defined, readers = self.defined[name], self.readers[name]
        base = self.pins.get(name, defined)
        kinds = () if base is defined else kinds_between(defined, base, self.costs)
        if kinds:
            yield Edge(name, defined, base, [consumer for consumer, _ in readers], True, kinds)
        groups: list[Edge] = []
        for consumer, wanted in readers:
            # Identity before equality: most ports share one type object, and comparing many scales is slow.
            if wanted is base or wanted == base:
                continue
            # Readers that want the same type share one rescale, unless the target gives each one consumer.
            joined = next((edge for edge in groups if self.shared and edge.after == wanted), None)
            kinds = joined.kinds if joined else kinds_between(base, wanted, self.costs)
            if joined:
                joined.consumers.append(consumer)
            elif kinds:
                groups.append(Edge(name, base, wanted, [consumer], False, kinds))
        yield from groups

    def price(self, name: str, elements: int, trips: Mapping[str, int]) -> float:
        """Return the cost of the type changes of one value."""
        return sum(
            elements
            * _price(edge.kinds[0], self.costs)
            * max((trips.get(kernel, 1) for kernel, _ in edge.consumers), default=1)
            for edge in self.edges(name)
        )


def ends_of(plan: Plan, kernels: Sequence[KernelPlan], pins: dict[str, PortTyped]) -> Ends:
    """Both ends of every value that is read or leaves the model.

    Args:
      kernels: the plan's in their order, whatever types their ports have.
    """
    graph, costs = plan.graph, plan.target.costs
    defined: dict[str, PortTyped] = {name: pins.get(name) for name in graph.inputs}
    for kernel in kernels:
        for port in kernel.outputs:
            if port.value:
                defined[port.value] = port.type
    uses: dict[str, list[tuple[Consumer, PortTyped]]] = {}
    for kernel in kernels:
        for index, port in enumerate(kernel.inputs):
            if port.value in defined:
                uses.setdefault(port.value, []).append(((kernel.name, index), port.type))
    for index, name in enumerate(graph.outputs):
        if graph.values[name].is_float:
            uses.setdefault(name, []).append(((BOUNDARY, index), pins.get(name)))
    readers = {name: wanted for name, wanted in uses.items() if name not in graph.constants}
    return Ends(defined, pins, readers, costs, not plan.target.rescale_single_consumer)


def pins_of(plan: Plan) -> dict[str, PortTyped]:
    """The fixed type that users of a value start from, whatever its kernel yields; no other values."""
    graph, found = plan.graph, dict[str, PortTyped]()
    outside = {*graph.inputs, *graph.outputs, *graph.constants}
    given = {port.value: port.type for kernel in plan.kernels_in_order for port in kernel.outputs}
    for name, value in graph.values.items():
        facts = [fact for fact in value.facts if not isinstance(fact, (Calibrated, AnyType))]
        if not facts:
            continue
        # A uniform pin wins over a float one; a None, or the
        # float the tensor has anyway, pins to plain float.
        uniform = [fact for fact in facts if isinstance(fact, Uniform)]
        floats = [fact for fact in facts if isinstance(fact, FloatType)]
        if uniform:
            found[name] = uniform[-1]
            if name not in outside:
                made = given.get(name)
                store = made.storage if isinstance(made, Uniform) else None
                found[name] = held(uniform[-1], plan.target.storages, store, plan.formats)
        else:
            found[name] = floats[0] if floats and floats[0].name != value.dtype else None
    return found


def kinds_between(before: PortTyped, after: PortTyped, costs: Costs) -> tuple[str, ...]:
    """The most expensive kinds of rescale from one type to another; () where none is needed."""
    if not isinstance(before, Uniform):
        return ("quantize",) if isinstance(after, Uniform) else ()
    if not isinstance(after, Uniform):
        return ("dequantize",)
    if before == after:
        return ()
    # One rescale op does several of these at once: it costs its most expensive part, not the sum.
    found = _differing(before, after)
    most = max((_price(kind, costs) for kind in found), default=0.0)
    return tuple(kind for kind in found if _price(kind, costs) == most)


def _differing(a: Uniform, b: Uniform) -> list[str]:
    rescaled = (a.axis, a.blocks, len(a.scales)) != (b.axis, b.blocks, len(b.scales)) or any(
        abs(x - y) > NEAR * max(x, y) for x, y in zip(a.scales, b.scales, strict=True)
    )
    found = ["requantize"] if rescaled else []
    if a.storage.bits != b.storage.bits:
        found.append("widen" if a.storage.bits < b.storage.bits else "narrow")
    elif not a.storage.fits_shifted(b.storage):
        found.append("clamp")
    # Where scales change layout, zero points cannot be compared slice by slice; the first stands for all.
    moved = a.zero_points[0] != b.zero_points[0] or (not rescaled and a.zero_points != b.zero_points)
    if a.storage.signed != b.storage.signed or moved:
        found.append("zero_point")
    return found


def _price(kind: str, costs: Costs) -> float:
    return float(getattr(costs, kind))


def _check_forbidden(plan: Plan, target: Target) -> None:
    """No rescale between kernels where the target allows none, unless a best-effort plan warns of some."""
    told = f"{target.id} allows none between kernels: done all the same"
    if "best_effort" in plan.options and any(warning.endswith(told) for warning in plan.warnings):
        return
    for rescale in plan.rescales:
        # Quantizing inputs and dequantizing outputs is done around the device, not between its kernels.
        enters = rescale.value in plan.graph.inputs and rescale.from_type is None
        leaves = all(kernel == BOUNDARY for kernel, _ in rescale.consumers)
        if not enters and not leaves:
            refuse(
                port_address(rescale.consumers[0][0], "in", rescale.consumers[0][1]),
                f"needs the {rescale.kind} {rescale.id}; {target.id} accepts none between kernels",
            )
