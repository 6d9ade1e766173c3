"""Fit: what of an outcome does not fit the rows that serve it, and the remedy for each such kernel.

Sums beyond an accumulator, biases beyond their storage, multipliers beyond a range or beyond what integers
express. A result grows where that is enough and worth it, else the kernel leaves its row. All kernels are
looked at together, so that no order among them decides. Source: docs/specification.md, sections 4 and 6.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.errors import quantity
from planner.ir.types.qtypes import Uniform
from planner.propagation.network.ports import Kernel, Ranged, ports_of, present
from planner.propagation.parameters.accumulators import accumulator_bits, partial_bits
from planner.propagation.parameters.constant_types import overflow_of
from planner.propagation.parameters.multiplier_range import grown_result, outside
from planner.propagation.parameters.multiplier_reach import TOO_FAR, read_as, too_far
from planner.propagation.parameters.typed import Typed, Typing, kernel_views
from planner.propagation.selection.remedies import Grown, Left, Remedies
from planner.target.conditions.on_types import unmet
from planner.target.records import PortId, Row


def unfit(network: Typed, known: Remedies) -> Remedies:
    """The remedies that an outcome asks for besides those it was made with; none where all fits."""
    far, behind = set(too_far(network)), _behind(network)
    left: dict[str, Mapping[str, Left]] = {}
    grown: dict[str, Mapping[PortId, Grown]] = {}
    for number, kernel in enumerate(network.kernels):
        row, layout = kernel.choice.row, kernel.choice.layout
        if row is None or layout is None or network.moves_in_float(kernel):
            continue
        name = kernel.choice.region.name
        why = behind.get(number) or next(_beyond(network, kernel, row), TOO_FAR if number in far else None)
        for rule in layout.ranged if why is None else ():
            wrong = outside(network, kernel, rule)
            if wrong is None:
                continue
            channel, multiplier, shrinks = wrong
            more = grown_result(network, kernel, rule, known.grown.get(name, {})) if shrinks else {}
            if more:
                grown[name] = more
                continue
            low, high = rule.args["range"]
            why = f"the multiplier of channel {channel} is {multiplier:.6g}, the row takes {low} to {high}"
        if why is not None:
            left[name] = {layout.key: Left(why, _seen(network, kernel))}
    return Remedies(left, {name: ports for name, ports in grown.items() if name not in left})


def _behind(network: Typing) -> Mapping[int, str]:
    """Kernels on an engine that data do not come back to, by number, and what they lie behind."""
    engines = network.target.engines
    if not engines.one_way:
        return {}
    after: dict[int, tuple[int, str]] = {}  # by value, the latest engine on the way to it, and who brought it
    found: dict[int, str] = {}
    for number, kernel in enumerate(network.kernels):
        own = engines.names.index(engines.of(kernel.choice.row))
        latest = max(
            (after[port.value] for port in present(network, kernel.inputs) if port.value in after),
            default=(0, ""),
        )
        if own < latest[0]:
            found[number] = f"it lies behind {latest[1]!r}, which runs on {engines.names[latest[0]]}"
        else:
            latest = max(latest, (own, kernel.choice.region.name))
        for port in present(network, kernel.outputs):
            after[port.value] = latest
    return found


def _beyond(network: Typing, kernel: Kernel, row: Row) -> Iterator[str]:
    """Say which values of a kernel are beyond the integers that its row keeps them in."""
    for rule in row.rules:
        if rule.kind == "multiplier_accumulator_scale":
            said = overflow_of(network, kernel, str(rule.args["port"]))
            if said is not None:
                yield said
        if rule.kind == "requires":
            inputs, outputs = kernel_views(network, kernel)
            broken = unmet(rule.args["holds"], (*inputs, *outputs))
            if broken is not None:
                yield f"requires {broken}"
    if row.partial is not None:
        bits = partial_bits(network, kernel, row.partial.products)
        if bits is not None and bits > row.partial.storage.bits:
            few = row.partial.products
            yield (
                f"sums of {few} products need {quantity(bits, 'bit')}, a partial sum has "
                f"{row.partial.storage}"
            )
    if row.accumulator is None or row.overflow != "refuse":
        return
    bits, channel = accumulator_bits(network, kernel)
    if bits is not None and bits > row.accumulator.bits:
        where = "" if channel is None else f" in channel {channel}"
        yield f"its sums need {quantity(bits, 'bit')}{where}, the accumulator has {row.accumulator}"


def _seen(network: Typing, kernel: Kernel) -> str:
    """The types of what a kernel reads and writes; constants are left out that their numbers alone decide."""
    found = []
    for port in ports_of(network, kernel):
        kind: Uniform | None = network.types[port.id]
        told = port.id in network.needed or not network.values[port.value].constant
        if kind is not None and kind.is_per_tensor and told:
            found.append(f"{port.side[0]}[{port.side[1]}] {kind}")
            came = read_as(network, port) if port.side[0] == "in" else None
            if came is not None and came != kind and came.is_per_tensor:
                found.append(f"from {came}")
    return ", ".join(found)


def with_least_scales(network: Ranged, grown: Mapping[str, Mapping[PortId, Grown]]) -> Ranged:
    """The network whose ports have the least scales that they grew to."""
    if not grown:
        return network
    ports = [*network.ports]
    for kernel in network.kernels:
        wanted = grown.get(kernel.choice.region.name, {})
        for port in ports_of(network, kernel) if wanted and kernel.choice.row is not None else ():
            if port.side in wanted:
                least = max(wanted[port.side].scale, port.spec.scale_min or 0.0)
                ports[port.id] = replace(port, spec=replace(port.spec, scale_min=least))
    return replace(network, ports=ports)
