"""The RFC's greedy order: kernels in topological order, first decided wins, the later edge rescales.

Calibrated values take their own range; `max_clip` does not bind it. Kept for parity and as the bound
that `minimal` has to beat. Source: MLIR quantization RFC, "Propagation pass"; design 01, section 5.
"""

from collections.abc import Sequence

from planner.propagation.network.ports import Network
from planner.propagation.solver.classes import (
    Label,
    LabelClass,
    Labels,
    label_for,
    label_of,
    storable,
)


def greedy(network: Network, classes: Sequence[LabelClass]) -> Labels:
    """Label every class the way the RFC's worklist does."""
    decided: dict[int, Label] = {}
    for index, value in enumerate(network.values):
        if value.pin is not None and value.pin.is_per_tensor:
            decided[index] = label_of(value.pin)
    labels: Labels = {}
    for entry in classes:
        label = _first_decided(network, entry, decided)
        labels[entry.id] = label
        for port in entry.ports:
            if port.side[0] == "out" and label is not None:
                decided.setdefault(port.value, label)
    return labels


def _first_decided(network: Network, entry: LabelClass, decided: dict[int, Label]) -> Label | None:
    if entry.fixed is not None:
        return label_of(entry.fixed)
    for port in entry.ports:
        label = decided.get(port.value)
        if label is not None and all(storable(label, other.spec) for other in entry.ports):
            return label
    for port in entry.ports:
        extent = network.values[port.value].range
        if extent is not None:
            return label_for(extent, port.spec)
    return entry.own
