"""Shared bodies: which places of a function can share one body, because they were planned alike.

Each place is planned where it stands; those with equal rows and types at every port share a body, the others
get clones. A clone is called by the first place that needs it, so its name stays while places come and go
behind it. Derived from the plan, never stored. Source: docs/specification.md, section 5; tests/cases, case
41.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from planner.ir.graph import Graph
from planner.ir.structure import Scope
from planner.plans.records import KernelPlan

Signature: TypeAlias = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Body:
    """One body of a function: its name (the function's, or `FUNCTION@PLACE`), and the places that run it."""

    name: str
    function: str
    places: tuple[str, ...]


def bodies(graph: Graph, kernels: tuple[KernelPlan, ...]) -> Mapping[str, tuple[Body, ...]]:
    """The bodies of each function, in order of their first place."""
    if not graph.scopes:
        return {}
    signatures = _signatures(graph, kernels)
    found: dict[str, dict[Signature, list[str]]] = {}
    for path, scope in graph.scopes.items():
        found.setdefault(scope.function, {}).setdefault(tuple(signatures[path]), []).append(path)
    return {function: _named(function, list(groups.values())) for function, groups in found.items()}


def _named(function: str, groups: list[list[str]]) -> tuple[Body, ...]:
    return tuple(
        Body(function if i == 0 else f"{function}@{places[0]}", function, tuple(places))
        for i, places in enumerate(groups)
    )


def _signatures(graph: Graph, kernels: tuple[KernelPlan, ...]) -> Mapping[str, list[tuple[object, ...]]]:
    """The decisions of each place, kernel by kernel, with names relative to the place."""
    scope_of = {region.name: region.scope for region in graph.regions}
    found: dict[str, list[tuple[object, ...]]] = {path: [] for path in graph.scopes}
    for kernel in kernels:
        types = tuple(port.type for port in (*kernel.inputs, *kernel.outputs))
        for path in _around(graph.scopes, scope_of[kernel.name]):
            found[path].append((kernel.name.removeprefix(path), kernel.row, types))
    return found


def _around(scopes: Mapping[str, Scope], path: str) -> list[str]:
    """A scope and those around it."""
    found = []
    while path:
        found.append(path)
        path = scopes[path].parent
    return found
