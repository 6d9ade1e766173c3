"""Findings: what a plan's reader should know although nothing is wrong: clips, facts without effect.

Written after labelling. Source: design 01, section 4 ("Unknown is not None") and section 5, item 3;
02, cases 12 to 14.
"""

from collections.abc import Iterator

from planner.ir.graph import port_address
from planner.ir.qtypes import AnyType, Uniform
from planner.propagation.labels import clipped_share, label_of
from planner.propagation.log import brief
from planner.propagation.network import DERIVED, FLOAT, Interval, Kernel, Network, Port
from planner.propagation.rows import port_facts


def clip_of(extent: Interval, kind: Uniform) -> float:
    """Share of a range that a type cuts off; of a type with many scales, its widest slice counts."""
    if not kind.is_per_tensor:
        widest = max(range(len(kind.scales)), key=kind.scales.__getitem__)
        kind = Uniform(kind.storage, (kind.scales[widest],), (kind.zero_points[widest],), kind.expressed)
    return clipped_share(extent, label_of(kind), kind.storage)


def warnings_of(network: Network, kernel: Kernel) -> list[str]:
    """What one kernel has to say, port by port."""
    ports = [network.ports[p] for p in (*kernel.inputs, *kernel.outputs) if p >= 0]
    found = [text for port in ports for text in _of_port(network, kernel, port)]
    return found + list(_of_same_scale(network, kernel))


def _of_port(network: Network, kernel: Kernel, port: Port) -> Iterator[str]:
    region, value = kernel.choice.region, network.values[port.value]
    address = port_address(region.name, *port.side)
    if kernel.choice.row is None and port.kind == FLOAT:
        for fact in port_facts(network.graph, region, *port.side):
            if isinstance(fact, AnyType | Uniform):
                yield f"{address} is float, so {fact} on {value.name!r} has no effect there"
    pinned = network.derives_bias and value.constant and port.kind == DERIVED and value.pin is not None
    if pinned and port.type is not None and port.type != value.pin:
        yield f"{address}: {value.name!r} is pinned to {value.pin}; derived anew: {brief(port.type)}"
    if port.fixed is None:
        return
    share = clip_of(port.required, port.fixed) if port.required is not None else 0.0
    if share > network.target.costs.max_clip:
        yield f"{address} is fixed to {port.fixed} and clips {share:.1%} of {port.required}"
    if value.pin is not None and value.pin != port.fixed:
        yield f"{address} is fixed to {port.fixed}, {value.name!r} is pinned to {value.pin}"


def _of_same_scale(network: Network, kernel: Kernel) -> Iterator[str]:
    """A kernel that computes on one scale wastes it where its result is much smaller than what it reads."""
    if kernel.moves:
        return
    for p in kernel.outputs:
        made = network.ports[p] if p >= 0 else None
        extent = network.values[made.value].range if made is not None and made.group >= 0 else None
        if made is None or extent is None:
            continue
        read = [network.ports[q] for q in kernel.inputs if q >= 0 and network.ports[q].group == made.group]
        widths = [_width(network.values[port.value].range) for port in read]
        if widths and 2 * _width(extent) < max(widths):
            yield (
                f"{port_address(kernel.choice.region.name, *made.side)} shares the scale of what it reads, "
                f"{max(widths):g} wide, and is itself {_width(extent):g} wide"
            )


def _width(extent: Interval | None) -> float:
    return max(extent[1], 0.0) - min(extent[0], 0.0) if extent is not None else 0.0
