"""Needed ranges: what a kernel that computes can tell apart of what it reads, by what the network knows.

The needs of each op have one definition, `ir.operators.needs`. Data movement is in `value_ranges`.
Source: docs/specification.md, section 10; cases 59 to 64.
"""

from collections.abc import Mapping, Sequence

from planner.ir.graph import Op
from planner.ir.operators import needs
from planner.ir.types.intervals import ALL, Interval
from planner.ir.types.qtypes import Storage
from planner.propagation.network.ports import Kernel, Network, Port, Ranged, present, range_in
from planner.propagation.selection.reach import known_range


def asks(network: Network, kernel: Kernel, given: Sequence[Interval | None]) -> bool:
    """Whether an op of a kernel may need less than everything.

    Args:
      given: of each value, what its kernel has to give of it.
    """
    kept = (given[port.value] for port in present(network, kernel.outputs))
    return needs.asks(kernel.choice.region, kept)


def needs_of(network: Ranged, kernel: Kernel, given: Sequence[Interval | None]) -> Mapping[str, Interval]:
    """Return the range that the kernel needs of each input, by name, in reals; others it needs whole.

    Args:
      given: of each value, what its kernel has to give of it; that of the kernel's results has to be known.
    """
    results = {network.values[port.value].name: port for port in present(network, kernel.outputs)}
    kept = {name: given[port.value] or ALL for name, port in results.items()}

    def extent(name: str) -> Interval | None:
        number = network.value_ids.get(name)
        known = network.ranges[number] if number is not None else None
        return known or known_range(network.graph, name)

    def levels(name: str) -> int | None:
        for port in present(network, kernel.inputs):
            store = port.spec.storage
            if (
                network.values[port.value].name == name
                and isinstance(store, Storage)
                and not store.float_name
            ):
                return store.steps
        return None

    def step(name: str) -> float | None:
        return _step(network, results[name]) if name in results else None

    def maker(name: str) -> Op | None:
        ops, number = kernel.choice.region.ops, network.value_ids.get(name)
        made = network.values[number].definition if number is not None else -1
        if made >= 0:
            ops = network.kernels[network.ports[made].kernel].choice.region.ops
        return next((op for op in ops if name in op.outputs), None)

    def readers(name: str) -> Sequence[Op]:
        number = network.value_ids.get(name)
        uses = present(network, network.values[number].uses) if number is not None else []
        kernels = [kernel, *(network.kernels[port.kernel] for port in uses)]
        return [op for one in kernels for op in one.choice.region.ops if name in op.inputs]

    around = needs.Around(network.graph, extent, levels, step, maker, readers)
    return needs.needs_of(kernel.choice.region, kept, around)


def _step(network: Ranged, port: Port) -> float | None:
    """The step of a result in its row's storage: fixed, else of its own range; None in float."""
    store, fixed = port.spec.storage, port.fixed or port.pin
    extent = range_in(network, port.value, port.spec)
    if not isinstance(store, Storage) or store.float_name:
        return None
    if fixed is not None:
        return fixed.scale if fixed.is_per_tensor else None
    if extent is None:
        return None
    return (max(extent[1], 0.0) - min(extent[0], 0.0)) / store.steps or None
