"""Derived ports: what `derive` and `fn` rules yield for ports whose label others depend on.

A rule needs the labels of its kernel's other ports, and those are chosen with the derived ones known: so
guess, label, derive again, and repeat while something moves. Source: design 01, section 4.
"""

from collections.abc import Sequence

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.network.ports import DERIVED, GIVEN, SETTLED, Network, Port, ports_of
from planner.propagation.parameters.constant_types import derive_parameters
from planner.propagation.solver.classes import LabelClass, label_of, typed


def guess_derived(network: Network, classes: Sequence[LabelClass]) -> None:
    """Fix derived ports at what their rules yield for the labels their kernels would choose alone."""
    for entry in classes:
        if not _may_be_derived(network, entry):
            continue
        mine = ports_of(network, network.kernels[entry.kernel])
        for port in mine:
            own = classes[port.group].own if port.group >= 0 and port.group != entry.id else None
            if own is not None and isinstance(port.spec.storage, Storage):
                port.type = typed(own, port.spec.storage)
        _fix(network, entry)
        forget(mine)


def derive_again(network: Network, classes: Sequence[LabelClass]) -> bool:
    """Fix derived ports at what their rules yield for the chosen labels; whether one moved.

    Forgets all types where one moved: they have to be written anew.
    """
    moved = False
    for entry in classes:
        if entry.ports[0].kind == DERIVED and entry.ports[0].type is not None:
            before = entry.fixed
            moved |= _fix(network, entry) and entry.fixed != before
    if moved:
        forget(network.ports)
    return moved


def _may_be_derived(network: Network, entry: LabelClass) -> bool:
    row = network.kernels[entry.kernel].choice.row
    calls = row is not None and any(rule.kind == "fn" for rule in row.rules)
    return entry.ports[0].kind == DERIVED or calls


def _fix(network: Network, entry: LabelClass) -> bool:
    port = entry.ports[0]
    network.visits += 1
    derived = derive_parameters(network, network.kernels[entry.kernel])
    kind: Uniform | None = port.type if port.side in derived else None
    if kind is None or not kind.is_per_tensor:
        return False
    port.kind = DERIVED
    entry.fixed, entry.own, entry.fixed_source = kind, label_of(kind), "derived"
    return True


def forget(ports: Sequence[Port]) -> None:
    """Take the types off all ports but those that were settled before."""
    for port in ports:
        if port.kind not in (GIVEN, SETTLED):
            port.type = None
