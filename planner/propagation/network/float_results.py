"""Float results: kernels whose results nothing stores, so that a row with float results may serve them.

Such a row computes quantized and hands on floats: where every consumer is float, its results would be rounded
only to be dequantized again. One that moves data reads a quantized table that would be float otherwise,
unless another kernel reads the table in float anyway. This runs once all float kernels are known. A quantized
kernel that reads such a result stores it, so these rows never make an island of another kernel, and one
pass is enough.
Source: docs/specification.md, section 11; tests/cases, case 67.
"""

from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import Calibrated, NoneType
from planner.plans.records import BETWEEN_FLOATS
from planner.propagation.network.float_islands import is_bound
from planner.propagation.network.ports import FLOAT, Kernel, Network, present
from planner.propagation.selection.choice import NO_RANGE, port_facts
from planner.target.borders import rows_for


def read_in_float(network: Network, *, unranged: bool = False) -> set[str]:
    """Names of the kernels with a row, and with one that hands on floats, whose results nothing stores.

    Float consumers are kernels in float, float ports and the model's outputs, also behind data movement that
    can be float.

    Args:
      unranged: those kernels instead that run in float because a port of theirs has no range.
    """
    kernels = [kernel for kernel in network.kernels if _is_meant(kernel, unranged=unranged)]
    used = {kernel.choice.region.kernel for kernel in kernels}
    target = network.target
    known = {name for name in used if any(row.hands_on_floats for row in rows_for(target, name))}
    if not known:
        return set()
    is_stored = _stored(network)
    return {
        region.name
        for kernel in kernels
        if (region := kernel.choice.region).kernel in known
        if not any(is_stored[port.value] for port in present(network, kernel.outputs))
        if _may_be_float(network.graph, region)
        if not (kernel.moves and _is_read_in_float(network, kernel))
    }


def may_read_table(network: Network, kernel: Kernel) -> bool:
    """Whether a kernel moves a constant that a row could read quantized, and no other has it in float."""
    rows = rows_for(network.target, kernel.choice.region.kernel)
    if not kernel.moves or kernel.choice.row is None or not any(row.reads_table for row in rows):
        return False
    return _may_be_float(network.graph, kernel.choice.region) and not _is_read_in_float(network, kernel)


def _is_meant(kernel: Kernel, *, unranged: bool) -> bool:
    return kernel.choice.reason == NO_RANGE if unranged else kernel.choice.row is not None


def _stored(network: Network) -> list[bool]:
    """By value, whether anything stores it: a fixed type, a width, or a consumer, through data movement."""
    found = [value.pin is not None or value.has_any for value in network.values]
    for number in range(len(network.kernels) - 1, -1, -1):
        kernel = network.kernels[number]
        passes = kernel.moves and _can_be_float(network, kernel, number)
        behind = any(found[port.value] for port in present(network, kernel.outputs))
        for port in present(network, kernel.inputs):
            found[port.value] |= behind if passes else port.kind != FLOAT
    return found


def _can_be_float(network: Network, kernel: Kernel, number: int) -> bool:
    """Whether data movement can follow a float neighbour: one class that may be float, or floats around."""
    if number in network.begins or number in network.begins.values():
        return False  # what a loop hands to its next trip is behind its end
    layout = kernel.choice.layout
    if layout is None:
        return kernel.choice.reason == BETWEEN_FLOATS
    return layout.joins_all and not is_bound(network, kernel)


def _is_read_in_float(network: Network, kernel: Kernel) -> bool:
    """Whether another kernel reads a constant of a data-movement kernel in float: the file has it anyway."""
    uses = (
        network.ports[p]
        for port in present(network, kernel.inputs)
        if network.values[port.value].constant
        for p in network.values[port.value].uses
    )
    return any(
        port.kind == FLOAT
        and (other := network.kernels[port.kernel]) is not kernel
        and other.choice.reason != BETWEEN_FLOATS
        for port in uses
    )


def _may_be_float(graph: Graph, region: Region) -> bool:
    """Whether no fact says what results are stored in, or another float."""
    facts = (
        fact for i, name in enumerate(region.outputs) if name for fact in port_facts(graph, region, "out", i)
    )
    return all(isinstance(fact, Calibrated | NoneType) for fact in facts)
