"""Borders of loops and branches: relations between the ops that stand there.

A loop's carried value enters through one kernel and leaves through another; they share a label, and one runs
only because the other does. The functions here only read an expanded graph. Source: tests/cases, case 40.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from planner.ir.graph import Graph, Op, Region, once_per_graph
from planner.ir.structure import BEGIN, BORDERS, END, Scope

WHOLE: Final = frozenset({"Loop", "Scan"})
"""Types of loops whose operands and results are identified by position: none can be left out."""


def border_op(step: Op | Region) -> Op | None:
    """The border op that a kernel is, None where it is another kernel."""
    if isinstance(step, Op):
        return step if step.type in BORDERS else None
    return step.ops[0] if len(step.ops) == 1 and step.ops[0].type in BORDERS else None


def borders(graph: Graph) -> Iterator[tuple[str, Op]]:
    """Name and op of every kernel at a border."""
    for step in graph.steps() if graph.scopes else ():
        op = border_op(step)
        if op is not None:
            yield step.name, op


@once_per_graph
def carried_pairs(graph: Graph) -> tuple[tuple[str, str], ...]:
    """The kernels through which each carried value of a loop enters and leaves it."""
    begins: dict[tuple[str, int], str] = {}
    ends: dict[tuple[str, int], str] = {}
    for name, op in borders(graph):
        if op.type in (BEGIN, END) and op.attributes["carried"] >= 0:
            side = begins if op.type == BEGIN else ends
            side[op.attributes["body"], op.attributes["carried"]] = name
    return tuple((name, ends[key]) for key, name in begins.items() if key in ends)


@once_per_graph
def bonds(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    """Kernels that run because a border kernel does: the other end of a carried value, a loop's control."""
    found: dict[str, tuple[str, ...]] = {}
    for begin, end in carried_pairs(graph):
        found[begin], found[end] = (end,), (begin,)
    steering: dict[str, list[str]] = {}
    leaving: dict[str, list[str]] = {}
    for name, op in borders(graph):
        if op.type in (BEGIN, END):
            body = op.attributes["body"]
            # Integers and booleans at a border are trip counters and conditions: they steer the loop.
            if not graph.values[op.outputs[0]].is_float or graph.scopes[body].type in WHOLE:
                steering.setdefault(body, []).append(name)
            if op.type == END:
                leaving.setdefault(body, []).append(name)
    for body, names in leaving.items():
        for name in names:
            found[name] = (*found.get(name, ()), *steering.get(body, ()))
    for path, scope in graph.scopes.items():
        if scope.type in WHOLE:
            found |= dict.fromkeys(steering.get(path, ()), tuple(steering.get(path, ())))
    return found


def closed_scope(scopes: Mapping[str, Scope], path: str) -> str:
    """The innermost loop or branch around a scope, itself counted: no kernel reaches across its border."""
    while path and scopes[path].kind == "call":
        path = scopes[path].parent
    return path


def inner_scope(scopes: Mapping[str, Scope], path: str, outer: str) -> str:
    """The loop or branch right inside `outer` that a scope is in; "" where it is in `outer` itself."""
    found = ""
    path = closed_scope(scopes, path)
    while path != outer:
        found, path = path, closed_scope(scopes, scopes[path].parent)
    return found


def homes(graph: Graph) -> Mapping[str, str]:
    """The loop or branch in which each value is defined, of those that are defined in one."""
    found: dict[str, str] = {}
    for op in graph.all_ops() if graph.scopes else ():
        scope = op.scope
        if op.type == BEGIN:
            scope = op.attributes["body"]
        # The result of a body is read outside of it, so it is at home one scope further out.
        elif op.type == END:
            scope = graph.scopes[op.attributes["body"]].parent
        home = closed_scope(graph.scopes, scope)
        if home:
            found |= dict.fromkeys(op.outputs, home)
    return found
