"""Verify the structure of a plan: its kernels are the live regions of its graph, in an order that runs.

With what spans kernels: values that loops and caches hand on are read as they were stored, and data do not
come back from an engine that nothing comes back from. Source: docs/specification.md, sections 3 and 6;
docs/targets/reference.md.
"""

from collections.abc import Mapping

from planner.checker.kernel_ports import one_class, refuse
from planner.errors import quantity
from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph, Region, port_address
from planner.ir.topology import live
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan


def check_coverage(plan: Plan) -> Mapping[str, Region]:
    """The kernels are the live regions, with the regions' values at their ports, in an order that runs."""
    graph = plan.graph
    regions = {region.name: region for region in graph.regions}
    operands = {region.name: _operands(region) for region in graph.regions}
    alive = live(graph)
    unplanned = {*alive} - {kernel.name for kernel in plan.kernels_in_order}
    for name in regions if unplanned else ():
        if name in unplanned:
            refuse(name, "is live and has no plan; accepted: one kernel per live region")
    known = {"", *graph.inputs, *graph.constants}
    seen: set[str] = set()
    for kernel in plan.kernels_in_order:
        region = regions.get(kernel.name)
        if region is None:
            refuse(kernel.name, "is no region of the model; accepted: one kernel per live region")
        if kernel.name not in alive:
            refuse(kernel.name, "reaches no model output; accepted: live regions only")
        if kernel.name in seen:
            refuse(kernel.name, "is planned twice; accepted: once")
        seen.add(kernel.name)
        _check_shape_of(kernel, region)
        early = operands[kernel.name] - known
        if early:
            name = next((name for name in region.inputs if name in early), min(early))
            refuse(kernel.name, f"reads {name!r} before a kernel defines it; accepted: a later place")
        known.update(region.outputs)
        for op in region.ops:
            known.update(op.outputs)
    return regions


def _check_shape_of(kernel: KernelPlan, region: Region) -> None:
    if (kernel.kernel, kernel.trip_count) != (region.kernel, region.trip_count):
        refuse(
            kernel.name,
            f"is {kernel.kernel} x {kernel.trip_count}; accepted: {region.kernel} x {region.trip_count}",
        )
    for side, ports, names in (("in", kernel.inputs, region.inputs), ("out", kernel.outputs, region.outputs)):
        if len(ports) != len(names):
            refuse(kernel.name, f"has {quantity(len(ports), 'port')} on side {side}; accepted: {len(names)}")
        stem = f"{kernel.name}.{side}["
        for i, port in enumerate(ports):
            if port.address != f"{stem}{i}]":
                address = port_address(kernel.name, side, i)
                refuse(address, f"is addressed as {port.address!r}; accepted: {address!r}")
            if port.value != names[i]:
                refuse(port.address, f"carries {port.value!r}; accepted: {names[i]!r}")


def _operands(region: Region) -> set[str]:
    """Values that a region needs before it runs, integer operands too."""
    needed = set(region.inputs)
    inner: set[str] = set()
    for op in region.ops:
        needed.update(op.inputs)
        needed.update(op.captures)
        inner.update(op.outputs)
    return needed - inner


def check_carried(plan: Plan) -> None:
    """A value that a loop hands to its next trip has one scale where it enters and where it leaves."""
    for pair in carried_pairs(plan.graph):
        kernels = [plan.kernels[name] for name in pair if name in plan.kernels]
        ports = [port for one in kernels for port in (*one.inputs, *one.outputs) if port.value]
        for port in ports[1:]:
            first, other = ports[0].type, port.type
            # Signedness may differ: storage and zero point shift by the same half range, numbers stay.
            is_stored = isinstance(first, Uniform) and isinstance(other, Uniform) and one_class(first, other)
            if not is_stored and first != other:
                refuse(
                    port.address,
                    f"is {brief(other)}, the next trip reads it as {brief(first)} at {ports[0].address}; "
                    "accepted: one scale and zero point",
                )


def check_caches(graph: Graph) -> None:
    """Check that data that leaves the model and returns in the next run is read as it was stored."""
    for past, present in graph.caches:
        read, written = (
            [fact for fact in graph.values[name].facts if isinstance(fact, FloatType | Uniform)]
            for name in (past, present)
        )
        if read != written:
            refuse(
                present,
                f"is {brief(written[0]) if written else 'float'}, the next run reads it as "
                f"{brief(read[0]) if read else 'float'} at {past}; accepted: one type",
            )


def check_engines(plan: Plan) -> None:
    """On a device whose data go one way, no kernel reads from an engine behind its own."""
    engines = plan.target.engines
    if not engines.one_way:
        return
    latest: dict[str, int] = {}
    for kernel in plan.kernels_in_order:
        row = None if kernel.row is None else plan.target.rows.get(kernel.row)
        name = engines.of(row)
        if name not in engines.names:
            refuse(kernel.name, f"runs on {name!r}; accepted: {', '.join(engines.names)}", row)
        own = engines.names.index(name)
        before = max((latest.get(port.value, 0) for port in kernel.inputs), default=0)
        if own < before:
            refuse(
                kernel.name,
                f"runs on {name} behind {engines.names[before]}, from where nothing comes back; accepted: "
                f"{', '.join(engines.names[before:])}",
                row,
            )
        latest.update(dict.fromkeys((port.value for port in kernel.outputs), max(own, before)))
