"""Re-verify what was asked of kernels: those named run so, of those a glob fits it is said how many do not.

Names, globs and storages are read anew, from the graph and the rows. Source: docs/specification.md, section
11.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from planner.checker.kernel_ports import Served, own_facts, refuse
from planner.ir.graph import Constant, Graph, Region, once_per_graph
from planner.ir.roles import is_mover
from planner.ir.structure import BORDERS
from planner.ir.types.qtypes import AnyType, FloatType, Storage, Uniform
from planner.ir.types.typetext import brief
from planner.ir.types.wanted import Stored, Wanted
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port

REASON: Final = "annotated: float"


class Asked(NamedTuple):
    """What one kernel is asked, by which key, and whether that names it."""

    wanted: Wanted
    key: str
    by_name: bool


def asked_of(graph: Graph, region: Region) -> Asked | None:
    """The last key that names the kernel or an op of it, else the last glob that fits one of these names."""
    if not graph.wanted or region.kernel in BORDERS or not any(region.inputs + region.outputs):
        return None
    names, order = [region.name, *(op.name for op in region.ops)], _order(graph)
    named = [key for key in names if key in graph.wanted]
    fit = [] if named else [key for key in order if _is_glob(key) and any(fnmatchcase(n, key) for n in names)]
    if not named and not fit:
        return None
    key = max(named or fit, key=order.__getitem__)
    wanted = graph.wanted[key]
    free = not (wanted.float or wanted.result or wanted.inputs or wanted.outputs or wanted.dynamic)
    if free or (wanted.result and not named and not any(region.outputs)):
        return None
    return Asked(wanted, key, bool(named))


@once_per_graph
def _order(graph: Graph) -> Mapping[str, int]:
    return {key: number for number, key in enumerate(graph.wanted)}


def _is_glob(key: str) -> bool:
    return any(sign in key for sign in "*?[")


def check_asked(plan: Plan, kernel: KernelPlan, region: Region) -> None:
    """A kernel runs in float for being asked if and only if it was; one that is named has what was asked.

    Raises:
      PlanInvalid: what was asked, and what the plan has.
    """
    asked = asked_of(plan.graph, region)
    if asked is None or not asked.wanted.float:
        if kernel.reason == REASON:
            refuse(kernel.name, f"runs in float as {REASON!r}, and nothing asks that; accepted: its row")
    elif kernel.reason != REASON:
        refuse(kernel.name, f"is asked to run in float, by {asked.key!r}; accepted: no row, {REASON!r}")
    if (
        asked is not None
        and asked.by_name
        and not asked.wanted.float
        and not runs_as_asked(plan, kernel, asked.wanted)
    ):
        has = ", ".join(brief(port.type) for port in kernel.outputs if port.value)
        refuse(
            kernel.name, f"gives {has}, and {asked.key!r} asks for {asked.wanted}; accepted: what is asked"
        )


def check_globs(
    plan: Plan,
    regions: Iterable[tuple[KernelPlan, Region, Served | None]],
    numbers: Mapping[str, Constant] | None,
) -> None:
    """The plan warns of every glob that some of its kernels do not run as.

    Args:
      numbers: the model's constants, which say whether a pad computes; None where no model was given.

    Raises:
      PlanInvalid: a warning is missing, or counts otherwise.
    """
    graph = plan.graph if numbers is None else replace(plan.graph, constants=numbers)
    every: dict[str, int] = {}
    missed: dict[str, int] = {}
    unknown: set[str] = set()
    for kernel, region, served in regions if plan.graph.wanted else ():
        asked = asked_of(plan.graph, region)
        if asked is None or asked.by_name or asked.wanted.float:
            continue
        runs = runs_as_asked(plan, kernel, asked.wanted)
        if numbers is None and any(op.type == "Pad" for op in region.ops):
            unknown.add(asked.key)
        if not _follows(graph, region, served):
            every[asked.key] = every.get(asked.key, 0) + 1
            missed[asked.key] = missed.get(asked.key, 0) + (not runs)
    for key, count in missed.items():
        if key in unknown:
            continue
        told = f"{key!r} asks for {plan.graph.wanted[key]}: {count} of its {every[key]} kernels do not run so"
        if count and not any(text.startswith(told) for text in plan.warnings):
            refuse("", f"says nothing of what a glob asks in vain; accepted: a warning that {told}")


def has_asked(served: Served, wanted: Wanted) -> bool:
    """Whether the row beside a kernel has the storages asked for, or quantizes at run time where that is."""
    if wanted.dynamic:
        return served.row.dynamic is not None
    if wanted.result is not None and served.row.dynamic is not None and served.row.when.get("asked") is True:
        return False  # its results do not tell it from rows of stored operands
    asked = [*_asked_at(served, wanted)]
    computes = _computes(served)
    for at, store in asked:
        if at is None:
            return False
        has = _store(served, at)
        if has is None and store is not None:
            if not computes or not isinstance(store, Storage) or not _is_free(served, at, store):
                return False
        elif not _is(has, store):
            return False
    return bool(asked)


def asked_bits(served: Served, position: int) -> int:
    """Bits that count as asked of a port, where its row has what was asked of its kernel."""
    asked = asked_of(served.graph, served.region)
    if asked is None or asked.wanted.float or not has_asked(served, asked.wanted):
        return 0
    wanted, read = asked.wanted, len(served.region.inputs)
    stores, i = (wanted.inputs, position) if position < read else (wanted.outputs, position - read)
    store = wanted.result or (stores[i] if i < len(stores) else None)
    return store.bits if isinstance(store, Storage) else 0


def _asked_at(served: Served, wanted: Wanted) -> Iterator[tuple[int | None, Stored]]:
    """Positions among the row's ports that something is asked of; None where the row has none there."""
    read, names = len(served.region.inputs), (*served.region.inputs, *served.region.outputs)
    if wanted.result is not None:
        yield from ((i, wanted.result) for i in range(read, len(names)) if names[i])
        return
    row = served.row
    for begin, stores, count, of_row in (
        (0, wanted.inputs, read, row.inputs),
        (read, wanted.outputs, len(names) - read, row.outputs),
    ):
        for i, store in enumerate(stores):
            if i < count:
                yield begin + i, store
            elif i >= len(of_row) or not _is(of_row[i].type.storage or store, store):
                yield None, store  # an optional port that is absent is the row's all the same


def _store(served: Served, at: int) -> Stored:
    """The storage that a row says of a port, by itself or by a port of its scale; None of a wildcard."""
    if served.row.float:
        return FloatType(served.row.float)
    group = next((group for group in served.groups if at in group), ())
    known = (served.patterns[i].type.storage for i in (at, *group))
    return next((store for store in known if store is not None), None)


def _computes(served: Served) -> bool:
    """Whether results are new numbers."""
    if served.row.computes:
        return True
    if served.region.ops:
        graph = replace(served.graph, constants=served.numbers) if served.numbers else served.graph
        return not all(is_mover(op, graph) for op in served.region.ops)
    names = (*served.region.inputs, *served.region.outputs)
    return not any(len(group) >= sum(map(bool, names)) for group in served.groups)


def _is_free(served: Served, at: int, store: Storage) -> bool:
    """Whether no fact keeps a wildcard from a storage."""
    name = (*served.region.inputs, *served.region.outputs)[at]
    own = own_facts(served.region, at)
    facts = (*(served.graph.values[name].facts if name else ()), *own)
    wider = any(isinstance(fact, AnyType) and fact.bits > store.range_bits for fact in facts)
    return not wider and not any(isinstance(fact, Uniform) and fact.storage != store for fact in own)


def runs_as_asked(plan: Plan, kernel: KernelPlan, wanted: Wanted) -> bool:
    """Whether a kernel has a row, and its ports the storages that are asked for."""
    row = plan.target.rows.get(kernel.row) if kernel.row is not None else None
    if row is None:
        return False
    if wanted.dynamic:
        return row.dynamic is not None
    if wanted.result is not None:
        return all(_is(_stored(port), wanted.result) for port in kernel.outputs if port.value)
    for stores, ports, of_row in (
        (wanted.inputs, kernel.inputs, row.inputs),
        (wanted.outputs, kernel.outputs, row.outputs),
    ):
        for i, store in enumerate(stores):
            if i >= max(len(ports), len(of_row)):
                return False
            has = _stored(ports[i]) if i < len(ports) else of_row[i].type.storage or store
            if (i >= len(ports) or ports[i].value) and not _is(has, store):
                return False
    return True


def _stored(port: Port) -> Stored:
    return port.type.storage if isinstance(port.type, Uniform) else port.type or FloatType("f32")


def _is(store: Stored, wanted: Stored) -> bool:
    """Whether a storage is the one asked for, whose range counts where it is a part only."""
    if wanted is None or store == wanted:
        return True
    if not isinstance(store, Storage) or not isinstance(wanted, Storage) or not wanted.is_full:
        return False
    mine, asked = ((one.bits, one.signed, one.float_name) for one in (store, wanted))
    return mine == asked


def _follows(graph: Graph, region: Region, served: Served | None) -> bool:
    """Whether a kernel moves data and is stored as its neighbours are."""
    if not region.ops or not all(is_mover(op, graph) for op in region.ops):
        return False
    return served is None or any(entry.type.storage is None for entry in served.row.outputs)
