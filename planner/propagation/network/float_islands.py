"""Float islands: movers between float ops that rescale inside, so that no label is theirs to share.

A mover of one class has float as a label of its own. One of several classes (a concat that rescales its
inputs) runs in float as a whole or not at all; where all around it is float, float costs nothing.
Source: design 01, section 5, the price, item 2; 02, case 54.
"""

from planner.propagation.network.ports import FLOAT, Kernel, Network, ports_of
from planner.propagation.selection.rows import Choice, in_float

BETWEEN_FLOATS = "moves data between float ops"


def float_islands(network: Network) -> set[int]:
    """Numbers of the movers of several classes that only float ops are around, through other movers too."""
    if not any(_is_loose(kernel) for kernel in network.kernels):
        return set()
    inside = {
        i for i, kernel in enumerate(network.kernels) if kernel.moves and not _is_bound(network, kernel)
    }
    while True:
        kept = {i for i in inside if _borders_on_float(network, network.kernels[i], inside)}
        if kept == inside:
            return {i for i in inside if _is_loose(network.kernels[i])}
        inside = kept


def afloat(choices: list[Choice], islands: set[int]) -> list[Choice]:
    """Run these kernels in float."""
    return [in_float(choice, BETWEEN_FLOATS) if i in islands else choice for i, choice in enumerate(choices)]


def _is_loose(kernel: Kernel) -> bool:
    layout = kernel.choice.layout
    return kernel.moves and layout is not None and not layout.joins_all


def _is_bound(network: Network, kernel: Kernel) -> bool:
    """Whether a pin or an Any touches a mover."""
    ports = ports_of(network, kernel)
    values = [network.values[port.value] for port in ports]
    fixed = any(port.pin is not None or port.fixed is not None or port.type is not None for port in ports)
    return fixed or any(value.pin is not None or value.has_any for value in values)


def _borders_on_float(network: Network, kernel: Kernel, inside: set[int]) -> bool:
    """Whether whatever defines what a mover reads, and reads what it writes, is float or inside."""
    for p in (*kernel.inputs, *kernel.outputs):
        if p < 0:
            continue
        value = network.values[network.ports[p].value]
        if value.constant or value.stays_float:
            continue
        others = [value.definition] if network.ports[p].side[0] == "in" else value.uses
        for q in others:
            other = network.ports[q] if q >= 0 else None
            if other is not None and other.kind != FLOAT and other.kernel not in inside:
                return False
    return True
