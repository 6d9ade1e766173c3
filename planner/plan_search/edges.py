"""Edges: the values between kernels, with what it takes to change their storage and what rounding them does.

The rounding of a stored value is its writer's; where a consumer needs another storage, it is rounded again.
Data-movement operators round nothing themselves: what they hand on was rounded at its origins.
Source: docs/search.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from planner.ir.graph import BOUNDARY
from planner.ir.roles import is_movement
from planner.plan_search.options import FLOAT, Noise, Option, Table, store_text
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of, pins, price_of

Chosen = Mapping[str, int]
"""The place of each kernel's option; the first, 0, is as planned without being asked."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One value between kernels.

    Attributes:
      value: its name.
      writer: the kernel that writes it; "" of a model input.
      held: storage of a model input, or `float`; "" where a kernel writes it.
      readers: kernels that read it; `BOUNDARY` for a model output.
      wanted: what it is stored in at the boundary of the model.
      elements: times runs.
      noise: of rounding it, by storage.
      prices: work of an element that changes its storage, by the one that is held and the requested one.
    """

    value: str
    writer: str
    held: str
    readers: tuple[str, ...]
    wanted: str
    elements: float
    noise: Mapping[str, Noise]
    prices: Mapping[tuple[str, str], float]


def edges_of(table: Table) -> tuple[Edge, ...]:
    """Every value that a kernel reads or the model hands out, constants left out."""
    plan, graph = table.base, table.base.graph
    pinned = pins(graph)
    ends = {name: store_text(kind) for name, kind in pinned.items()}
    writers = {port.value: kernel.name for kernel in plan.kernels_in_order for port in kernel.outputs}
    trips = {kernel.name: kernel.trip_count for kernel in plan.kernels_in_order}
    readers: dict[str, list[str]] = {}
    for kernel in plan.kernels_in_order:
        for name in dict.fromkeys(port.value for port in kernel.inputs if port.value):
            if name not in graph.constants:
                readers.setdefault(name, []).append(kernel.name)
    for name in graph.outputs:
        if graph.values[name].is_float:
            readers.setdefault(name, []).append(BOUNDARY)
    noise = _rounded(table, writers)
    return tuple(
        Edge(
            name,
            writers.get(name, ""),
            "" if name in writers else ends.get(name, FLOAT),
            tuple(found),
            ends.get(name, FLOAT),
            graph.values[name].elements * max(trips.get(reader, 1) for reader in found),
            noise(name),
            _prices(table, name, writers.get(name, ""), found, pinned.get(name)),
        )
        for name, found in readers.items()
    )


def _prices(
    table: Table, value: str, writer: str, readers: Sequence[str], end: PortTyped
) -> Mapping[tuple[str, str], float]:
    """Work of an element, by storages; of the dearest change where options have other types of these."""
    costs = table.base.target.costs
    held = _types(table, writer, value) if writer else [end]
    wanted = [
        kind for name in readers for kind in ([end] if name == BOUNDARY else _types(table, name, value))
    ]
    found: dict[tuple[str, str], float] = {}
    for source, other in product(held, dict.fromkeys(wanted)):
        kind, key = kind_of(source, other, costs), (store_text(source), store_text(other))
        if kind is not None and key[0] != key[1]:
            found[key] = max(found.get(key, 0.0), price_of(kind, costs))
    return found


def _types(table: Table, kernel: str, value: str) -> list[PortTyped]:
    """The types that a kernel's options have a value in."""
    return [*dict.fromkeys(option.types[value] for option in table.kernels[kernel])]


def _rounded(table: Table, writers: Mapping[str, str]) -> Callable[[str], Mapping[str, Noise]]:
    """A function that says what rounding a value does, by storage."""
    plan = table.base
    regions = {region.name: region for region in plan.fused.regions}
    known: dict[str, Mapping[str, Noise]] = {}

    def noise(name: str) -> Mapping[str, Noise]:
        if name not in known:
            known[name] = {}  # a value that comes round in a loop rests on others
            known[name] = found(name)
        return known[name]

    def found(name: str) -> Mapping[str, Noise]:
        writer = writers.get(name)
        if writer is None:
            return table.inputs.get(name, {})
        region = regions[writer]
        if not region.ops or not all(is_movement(op, plan.fused) for op in region.ops):
            return {
                option.stores[name]: option.rounding
                for option in reversed(table.kernels[writer])
                if option.stores[name] != FLOAT
            }
        total: dict[str, Noise] = {}
        for source in dict.fromkeys(region.inputs):
            if source and source not in plan.graph.constants:
                for store, power in noise(source).items():
                    total[store] = _sum(total.get(store), power)
        return total

    return noise


def _sum(first: Noise | None, other: Noise) -> Noise:
    return other if first is None else tuple(a + b for a, b in zip(first, other, strict=True))


def is_forbidden(table: Table, edge: Edge, reader: str) -> bool:
    """Whether the target changes no type between this producer and consumer; the model's own ends may."""
    return not table.base.whole_target.rescale_allowed and bool(edge.writer) and reader != BOUNDARY


def wanted(edge: Edge, options: Mapping[str, Option]) -> Iterator[tuple[str, str]]:
    """Consumers, and the storage that they need a value stored in; the model's own end last."""
    for reader in edge.readers:
        yield reader, edge.wanted if reader == BOUNDARY else options[reader].stores[edge.value]
