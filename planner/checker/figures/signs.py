"""Re-verify signs: kernels that may have either sign have those that change signs between kernels least.

A choice of two for each kernel, with a price where neighbours differ, is least where it costs what a minimum
cut does; both costs are those of cuts here, one with every kernel held where the plan has it. Of choices of
one price the plan has the one that leaves the fewest first rows. Source: docs/specification.md, section 4.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.checker.kernel_ports import Served, refuse
from planner.checker.rows.merit import merit_of
from planner.checker.rows.mirrors import activations_signed, mirrors
from planner.ir.graph import Graph, Region
from planner.ir.roles import is_mover
from planner.ir.types.qtypes import FloatType, NoneType, Storage, Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.borders import rows_for
from planner.target.records import Row, Target

SIGNED, UNSIGNED = "signed", "unsigned"
WHY: Final = "it differs in the sign of its activations alone, and kernels around have the other"
PART: Final = 1 << 10
"""Of an element-rescale: prices are integers."""

Node = str | tuple[str, int]
Judged = tuple[KernelPlan, Region, Served | None]
Told = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel that may have either sign: the row that stands first, whether it is signed, and its mirror."""

    first: Row
    other: Row
    signed: bool


def check_signs(plan: Plan, judged: Sequence[Judged], target: Target, left: Told, told: Told) -> None:
    """Every kernel that the log says took the mirror of its first row did, and the signs are the least.

    Args:
      judged: the kernels of the plan, in its order; beside no row those in float.
      left: rows that kernels could not keep, by kernel and key.
      told: likewise, first rows whose mirrors were taken.
    """
    if not told and not any(map(_turns, plan.rescales)):
        return
    kernels = [served for _, _, served in judged]
    free = {
        at: found
        for at, served in enumerate(kernels)
        if served is not None and (found := _either(served, target, left)) is not None
    }
    for at, served in enumerate(kernels):
        said = {} if served is None else told.get(served.kernel.name, {})
        is_other = served is not None and at in free and served.row == free[at].other
        wanted = {free[at].first.key: WHY} if is_other else {}
        if said != wanted and served is not None:
            accepted = ", ".join(wanted) or "none"
            refuse(served.kernel.name, f"is said to mirror {', '.join(said) or 'none'}; accepted: {accepted}")
    if any(served is None and _moves(plan.graph, region) for _, region, served in judged):
        return  # what it had for a row, which may have a sign, is not in the plan
    ends = list(_ends(plan, kernels, target, free))
    own, least = (_cut(ends, free, kernels, held=held) for held in (True, False))
    if own != least:
        # Changes of sign weigh so much more than rows that a quotient and a remainder tell them apart.
        paid, moved = zip(*(divmod(cut, len(free) + 1) for cut in (own, least)), strict=True)
        what, (has, may) = "cost {} elements", (f"{part / PART:g}" for part in paid)
        if paid[0] == paid[1]:
            what, (has, may) = "take {} kernels off their first rows", map(str, moved)
        refuse("", f"changes of sign between kernels {what.format(has)}; accepted: {may}")


def _moves(graph: Graph, region: Region) -> bool:
    return bool(region.ops) and all(is_mover(op, graph) for op in region.ops)


def _turns(rescale: Any) -> bool:
    ends = (rescale.from_type, rescale.to_type)
    signs = {kind.storage.signed for kind in ends if isinstance(kind, Uniform)}
    return len(signs) == 2


def _either(served: Served, target: Target, left: Told) -> _Kernel | None:
    """The first row and its first mirror of a kernel that has as good a row of either sign."""
    costs, gone = target.costs, left.get(served.kernel.name, {})
    rows = [row for row in rows_for(target, served.kernel.kernel) if row.key not in gone]
    # Most kernels have no mirror at all, which is quicker to tell than what rows are worth.
    if not any(mirrors(served, served.row, row) for row in rows):
        return None
    own, sort = merit_of(served, served.row, costs), served.row.hands_on_floats
    equal = [row for row in rows if row.hands_on_floats == sort and merit_of(served, row, costs) == own]
    other = next((row for row in equal if mirrors(served, equal[0], row)), None)
    signed = activations_signed(served, equal[0])
    return None if other is None or signed is None else _Kernel(equal[0], other, signed)


def _ends(
    plan: Plan, kernels: Sequence[Served | None], target: Target, free: Mapping[int, _Kernel]
) -> Iterator[tuple[Node, list[Node], int]]:
    """Where data may change their sign: who writes them, who shares the change, and its price."""
    graph = plan.graph
    writers: dict[str, tuple[Node, int | None]] = {}
    readers: dict[str, list[tuple[Node, int | None, int]]] = {}
    for at, served in enumerate(kernels):
        if served is None or served.row.float:
            continue
        for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
            store = pattern.type.storage
            if not port.value or port.value in graph.constants or isinstance(store, FloatType):
                continue
            if store is not None and store.float_name:
                continue
            node: Node = ("kernel", at)
            if at not in free and store is not None:
                node = SIGNED if store.signed else UNSIGNED
            bits = None if store is None else store.bits
            if i < len(served.kernel.inputs):
                readers.setdefault(port.value, []).append((node, bits, served.kernel.trip_count))
            else:
                writers[port.value] = (node, bits)
    for name in {**writers, **readers}:
        value = graph.values[name]
        if any(isinstance(fact, FloatType | NoneType) for fact in value.facts):
            continue
        pins = [fact.storage for fact in value.facts if isinstance(fact, Uniform)]
        price = round(value.elements * target.costs.zero_point * PART)
        written = writers.get(name)
        if pins and written is not None and written[1] in (None, pins[0].bits):
            yield written[0], [_anchor(pins[0])], price
        groups: dict[Node, list[tuple[Node, int]]] = {}
        for node, bits, trips in readers.get(name, ()):
            # A pin of the port's width is what it starts from; a shorter one lies in the writer's bytes.
            if pins and bits in (None, pins[0].bits):
                groups.setdefault(_anchor(pins[0]), []).append((node, trips))
            elif written is not None and (bits is None or written[1] in (None, bits)):
                groups.setdefault(written[0], []).append((node, trips))
        for start, group in groups.items():
            for some in [[one] for one in group] if target.rescale_single_consumer else [group]:
                yield start, [node for node, _ in some], price * max(trips for _, trips in some)


def _anchor(store: Storage) -> Node:
    return SIGNED if store.signed else UNSIGNED


def _cut(
    ends: Sequence[tuple[Node, list[Node], int]],
    free: Mapping[int, _Kernel],
    kernels: Sequence[Served | None],
    *,
    held: bool,
) -> int:
    """The capacity of a minimum cut: changes of sign, each more than all first rows, and rows not the first.

    Args:
      held: whether kernels have the signs that the plan has, or may have either.
    """
    nx = importlib.import_module("networkx")
    net = nx.DiGraph()
    net.add_nodes_from((SIGNED, UNSIGNED))
    moved = 0
    for at, found in free.items():
        served, node = kernels[at], ("kernel", at)
        if held and served is not None:
            moved += served.row != found.first
            signed = found.signed == (served.row == found.first)
            net.add_edge(*((SIGNED, node) if signed else (node, UNSIGNED)))  # no capacity: never cut
        else:
            net.add_edge(*((SIGNED, node) if found.signed else (node, UNSIGNED)), capacity=1)
    for number, (start, readers, price) in enumerate(ends):
        # One node for each way that the signs may differ: readers share a change, whose price is paid once.
        gains, loses = ("gains", number), ("loses", number)
        net.add_edge(start, loses, capacity=price * (len(free) + 1))
        net.add_edge(gains, start, capacity=price * (len(free) + 1))
        net.add_edges_from((loses, reader) for reader in readers)
        net.add_edges_from((reader, gains) for reader in readers)
    value: int = nx.minimum_cut_value(net, SIGNED, UNSIGNED)
    return value + moved
