"""The RFC's propagation: a worklist of kernels; ports take what their row and their neighbours say.

Take a kernel and resolve its ports: each group that its row joins (`same_scale`; mostly a single port) takes
what is fixed, else the first type decided at one of its values, else the calibrated range of one, else its
own. Its results may decide values, and whoever reads those is looked at again. If two ends of an edge end up
decided otherwise, the edge is a rescale, derived from the types. `max_clip` does not bind this order: it
is kept for parity, and as the price that `minimal` has to beat.

Rows, Any and None are settled before (`selection`), ranges too (`network`).
Source: MLIR quantization RFC, "Propagation pass"; docs/specification.md, section 5.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from planner.propagation.network.ports import Ranged, base_of, range_in
from planner.propagation.solver.classes import LabelClass, Labels
from planner.target.ports.labels import Label, label_for, label_of, storable


def rfc(network: Ranged, classes: Sequence[LabelClass]) -> Labels:
    """A label for every class, first decided wins."""
    groups: dict[int, list[LabelClass]] = {}
    for group in classes:
        groups.setdefault(group.kernel, []).append(group)
    decided = _pinned(network)
    labels: Labels = {}
    work = deque(groups)  # kernels in topological order, first in, first out
    waiting = set(work)
    while work:
        waiting.discard(kernel := work.popleft())
        changed: list[int] = []
        for group in groups[kernel]:
            # A group is decided once: what a neighbour decides later is a rescale and no change, so a second
            # visit changes nothing and the loop ends. Were the kernels that define a changed operand queued
            # too, later decisions would reach back, and 20 of 353 recorded plans would be others.
            if group.id not in labels:
                labels[group.id] = label = _resolved(network, group, decided)
                changed += _decide(group, label, decided)
        for neighbour in _readers(network, changed):
            if neighbour in groups and neighbour not in waiting:
                work.append(neighbour)
                waiting.add(neighbour)
    return labels


def _pinned(network: Ranged) -> dict[int, Label]:
    """Uniform facts of one scale, by value: decided before any kernel is."""
    pins = ((number, base_of(network, value)) for number, value in enumerate(network.values))
    return {number: label_of(pin) for number, pin in pins if pin is not None and pin.is_per_tensor}


def _resolved(network: Ranged, group: LabelClass, decided: dict[int, Label]) -> Label | None:
    """The QuantFn of a row on one group of ports."""
    if group.fixed is not None:
        return label_of(group.fixed)
    for port in group.ports:  # Uniform: a neighbour, or the model, has decided
        label = decided.get(port.value)
        if label is not None and all(storable(label, other.spec) for other in group.ports):
            return label
    for port in group.ports:  # Calibrated: a range, as the row's storage holds it
        extent = range_in(network, port.value, port.spec)
        label = label_for(extent, port.spec) if extent is not None else None
        if label is not None and all(storable(label, other.spec) for other in group.ports):
            return label
    return group.own


def _decide(group: LabelClass, label: Label | None, decided: dict[int, Label]) -> Iterator[int]:
    """Make the type of a group that of the values it writes; give those that had none."""
    for port in group.ports:
        if label is not None and port.side[0] == "out" and port.value not in decided:
            decided[port.value] = label
            yield port.value


def _readers(network: Ranged, values: Sequence[int]) -> Iterator[int]:
    return (network.ports[p].kernel for value in values for p in network.values[value].uses)
