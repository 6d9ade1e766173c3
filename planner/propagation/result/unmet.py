"""Unmet: kernels of a plan that do not run as was asked of them; a glob asks of many, and some may not.

Source: docs/specification.md, section 11.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from planner.errors import Conflict
from planner.ir.graph import Graph, Region
from planner.ir.kernel_requests import Asked, asked_of
from planner.ir.roles import moves_alone
from planner.plans.records import KernelPlan, runs_as
from planner.propagation.selection.conflicts import Concession
from planner.propagation.selection.wanted_rows import asked_text
from planner.target.records import Row

NAMED: Final = 4
"""Kernels that a warning names at most."""

Rows = Mapping[str, Row]


def unmet_globs(graph: Graph, kernels: Iterable[KernelPlan], rows: Rows) -> list[str]:
    """Return a warning for each glob whose storages some of its kernels have no row for."""
    asked: dict[str, list[str]] = {}
    missed: dict[str, list[str]] = {}
    for region, kernel, one in _asked(graph, kernels):
        if one.by_name or not one.wanted.is_row or _follows(graph, region, kernel, rows):
            continue
        asked.setdefault(one.key, []).append(kernel.name)
        if not runs_as(kernel, one.wanted, rows):
            missed.setdefault(one.key, []).append(kernel.name)
    return [_describe(graph, key, names, len(asked[key])) for key, names in missed.items()]


def _describe(graph: Graph, key: str, names: list[str], of: int) -> str:
    listed = ", ".join(map(repr, names[:NAMED])) + (", ..." if len(names) > NAMED else "")
    told = "its one kernel does not" if of == 1 else f"{len(names)} of its {of} kernels do not"
    return f"{key!r} asks for {graph.wanted[key]}: {told} run so: {listed}"


def refuse_other_types(graph: Graph, kernels: Iterable[KernelPlan], rows: Rows) -> None:
    """Refuse a kernel asked by name whose wildcards were stored otherwise after all.

    Raises:
      Conflict: with the types at its ports.
    """
    for _, kernel, asked in _asked(graph, kernels):
        if asked.by_name and not runs_as(kernel, asked.wanted, rows):
            types = ", ".join(
                f"{port.address} {port.type or 'float'}" for port in kernel.outputs if port.value
            )
            raise Conflict(
                f"{kernel.name!r} has to run as {asked.wanted}, and its neighbours give it {types}",
                facts=(asked_text(kernel.name, asked),),
                hint=f"drop {asked.key!r} from the requests for kernels",
                concession=Concession(wanted=((kernel.name, str(asked.wanted)),), keys=(asked.key,)),
            )


def _follows(graph: Graph, region: Region, kernel: KernelPlan, rows: Rows) -> bool:
    """Whether a kernel moves data and has no storage of its own: a glob means those around it."""
    if not moves_alone(graph, region):
        return False
    return kernel.row is None or any(port.type.storage is None for port in rows[kernel.row].outputs)


def _asked(graph: Graph, kernels: Iterable[KernelPlan]) -> Iterator[tuple[Region, KernelPlan, Asked]]:
    regions = {region.name: region for region in graph.regions} if graph.wanted else {}
    for kernel in kernels if graph.wanted else ():
        asked = asked_of(graph, regions[kernel.name])
        if asked is not None:
            yield regions[kernel.name], kernel, asked
