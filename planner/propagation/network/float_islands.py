"""Kernels with a row that run in float because of their surroundings: data movement, integer islands.

Data movement of one class has float as a label of its own. Data movement of several classes (a concat that
rescales its inputs) runs in float as a whole or not at all; between floats, float costs nothing.
An integer island is a kernel without multiply-adds between float kernels: two casts for one cheap kernel cost
a device that has floats more than they save, and round twice. Targets ask for that (`defaults.islands`).
Source: docs/specification.md, section 5, the price, item 2; docs/specification.md, section 11; tests/cases,
cases 54 and 66.
"""

from typing import Final

from planner.ops import of_form
from planner.ops.forms import Form
from planner.propagation.network.ports import FLOAT, Kernel, Network, ports_of, present

ISLAND: Final = "integer island: float kernels alone are around it"
MULTIPLIES: Final = of_form(Form.LINEAR, Form.CONTRACTION, Form.RECURRENT)
"""Ops with multiply-adds, which are worth their casts."""

_OPEN, _FLOAT, _STORED = 0, 1, 2
"""The surroundings of a port: the model's ends or constants alone, a float kernel too, a stored value."""


def float_islands(network: Network) -> set[int]:
    """Numbers of the multi-class data-movement kernels with only float ops around, also through others."""
    if not any(_is_loose(kernel) for kernel in network.kernels):
        return set()
    inside = {
        i
        for i, kernel in enumerate(network.kernels)
        if kernel.moves and not is_bound(network, kernel) and not _reads_table(kernel)
    }
    while True:
        kept = {i for i in inside if _borders_on_float(network, network.kernels[i], inside)}
        if kept == inside:
            return {i for i in inside if _is_loose(network.kernels[i])}
        inside = kept


def integer_islands(network: Network) -> set[int]:
    """Numbers of kernels without multiply-adds that have only float kernels around them, past data movement.

    The model's own ends are float, yet make no island: there has to be a float kernel on one side.
    """
    kernels = network.kernels
    may = {i for i, kernel in enumerate(kernels) if _may_be_island(network, kernel)}
    found: set[int] = set()
    while may:
        before, behind = _before(network, found), _behind(network, found)
        around = (
            (i, (_joined(before, network, i, read=True), _joined(behind, network, i, read=False)))
            for i in may
        )
        more = {i for i, sides in around if max(sides) == _FLOAT}
        if not more:
            break
        found |= more
        may -= more
    return found


def _may_be_island(network: Network, kernel: Kernel) -> bool:
    ops = kernel.choice.region.ops
    if kernel.choice.row is None or kernel.moves or not ops or any(op.type in MULTIPLIES for op in ops):
        return False
    return not is_bound(network, kernel)


def _before(network: Network, islands: set[int]) -> list[int]:
    """By value, the kind that writes it: through data movement, the kinds that this reads."""
    found = [_STORED if value.pin is not None else _OPEN for value in network.values]
    for i, kernel in enumerate(network.kernels):
        made = _joined(found, network, i, read=True) if kernel.moves else _of_kernel(kernel, i, islands)
        if kernel.choice.row is not None and kernel.choice.row.hands_on_floats:
            made = _FLOAT
        for port in present(network, kernel.outputs):
            found[port.value] = max(found[port.value], made)
    return found


def _behind(network: Network, islands: set[int]) -> list[int]:
    """By value, the kind that reads it: through data movement, the kinds that read its results."""
    found = [_STORED if value.pin is not None else _OPEN for value in network.values]
    for i in range(len(network.kernels) - 1, -1, -1):
        kernel = network.kernels[i]
        read = _joined(found, network, i, read=False) if kernel.moves else _of_kernel(kernel, i, islands)
        for port in present(network, kernel.inputs):
            found[port.value] = max(found[port.value], read)
    return found


def _of_kernel(kernel: Kernel, number: int, islands: set[int]) -> int:
    row = kernel.choice.row
    # What quantizes at run time reads and writes floats.
    return _FLOAT if row is None or row.dynamic is not None or number in islands else _STORED


def _joined(found: list[int], network: Network, number: int, *, read: bool) -> int:
    """The kind of one side of a kernel: stored if anything there is."""
    kernel = network.kernels[number]
    if number in network.begins or number in network.begins.values():
        return _STORED  # what a loop hands to its next trip is behind its end
    ports = present(network, kernel.inputs if read else kernel.outputs)
    return max((found[p.value] for p in ports if not network.values[p.value].constant), default=_OPEN)


def _reads_table(kernel: Kernel) -> bool:
    """Whether a row hands on the numbers of a constant in float: it wants nothing stored beside it."""
    return kernel.choice.row is not None and kernel.choice.row.reads_table


def _is_loose(kernel: Kernel) -> bool:
    layout = kernel.choice.layout
    return kernel.moves and layout is not None and not layout.joins_all and not _reads_table(kernel)


def is_bound(network: Network, kernel: Kernel) -> bool:
    """Whether a fixed type or an Any touches a kernel, or it has a row that was requested."""
    if kernel.wanted is not None:
        return True
    ports = ports_of(network, kernel)
    values = [network.values[port.value] for port in ports]
    fixed = any(port.pin is not None or port.fixed is not None or port.given is not None for port in ports)
    return fixed or any(value.pin is not None or value.has_any for value in values)


def _borders_on_float(network: Network, kernel: Kernel, inside: set[int]) -> bool:
    """Whether all producers and consumers of a data-movement kernel's values are float or inside."""
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
