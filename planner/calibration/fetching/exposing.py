"""Exposing: values inside loops and branches as values of the model, so that a run can be watched.

A value of a loop's body comes out as those of all trips, one of a branch as itself or, where another branch
ran, as nothing; nothing in some trips of a Loop is added up, as its shape differs from trip to trip. Works on
the expanded graph, with the border ops that any body has. Source: `ir.expand`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from planner.formats.onnx.dtypes import NUMPY
from planner.ir.borders import closed_scope, homes
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.structure import BEGIN, END, JOIN

SHOWN: Final = "@shown"


@dataclass(slots=True)
class _Work:
    """The graph as it grows; `results`: how many results the kernel of a body has by now."""

    graph: Graph
    values: dict[str, Value]
    constants: dict[str, Constant]
    ops: list[Op]
    results: dict[str, int]


def exposed(graph: Graph, names: Iterable[str]) -> tuple[Graph, Mapping[str, str]]:
    """Let values out of the bodies they are in.

    Returns:
      The graph with ops at the borders, and for each value inside a body the name of its result outside.
    """
    inside = homes(graph)
    if not inside:
        return graph, {}
    ends = {path: len(scope.results) for path, scope in graph.scopes.items()}
    work = _Work(graph, dict(graph.values), dict(graph.constants), list(graph.ops), ends)
    shown: dict[str, str] = {}
    for name in names:
        outer, scope = name, inside.get(name, "")
        from_branch = False
        while scope:
            kind = graph.scopes[scope]
            if kind.kind == "loop" and from_branch and kind.type == "Loop":
                outer = _add_up(work, outer, scope)
            else:
                outer = _let_out(work, outer, scope)
            from_branch = kind.kind == "branch"
            scope = closed_scope(graph.scopes, kind.parent)
        if outer != name:
            shown[name] = outer
    grown = replace(graph, values=work.values, constants=work.constants, ops=tuple(work.ops))
    return grown, shown


def _let_out(work: _Work, name: str, path: str) -> str:
    """Let a value out of one body."""
    scope = work.graph.scopes[path]
    inner, outer = work.values[name], f"{name}{SHOWN}"
    work.values[outer] = Value(outer, None, inner.dtype)
    index = work.results[path]
    work.results[path] += 1
    marks: dict[str, Any] = {"body": path, "index": index, "carried": -1}
    if scope.kind == "loop":
        work.ops.append(Op(outer, END, (name,), (outer,), marks, (), None, path))
        return outer
    operands = [scope.operands[0]]
    for other, twin in work.graph.scopes.items():
        if twin.kind == "branch" and twin.owner == scope.owner:
            operands.append(name if other == path else _nothing(work, inner))
    marks["body"] = scope.owner
    work.ops.append(Op(outer, JOIN, tuple(operands), (outer,), marks, (), None, scope.parent))
    return outer


def _add_up(work: _Work, name: str, path: str) -> str:
    """Let the elements of a value of a Loop's body out, one trip's behind the other's."""
    inner, outer = work.values[name], f"{name}{SHOWN}"
    begun, flat, grown, shape = (f"{outer}:{word}" for word in ("begun", "flat", "grown", "shape"))
    for made in (outer, begun, flat, grown):
        work.values[made] = Value(made, (None,), inner.dtype)
    work.values[shape], work.constants[shape] = (
        Value(shape, (1,), "i64"),
        Constant(np.asarray([-1], np.int64)),
    )
    index = work.results[path]
    work.results[path] += 1
    # Operands are told by their place; this one stands behind all that were there.
    place = len(work.graph.scopes[path].operands) + index
    marks = {"body": path, "index": place, "carried": place}
    parent, nothing = work.graph.scopes[path].parent, _nothing(work, inner)
    work.ops += [
        Op(begun, BEGIN, (nothing,), (begun,), marks, (), None, parent),
        Op(flat, "Reshape", (name, shape), (flat,), {}, (), None, path),
        Op(grown, "Concat", (begun, flat), (grown,), {"axis": 0}, (), None, path),
        Op(outer, END, (grown,), (outer,), {**marks, "index": index}, (), None, path),
    ]
    return outer


def _nothing(work: _Work, like: Value) -> str:
    """A constant without elements."""
    name = f"nothing:{like.dtype}"
    work.values[name] = Value(name, (0,), like.dtype)
    work.constants[name] = Constant(np.zeros(0, NUMPY[like.dtype]))
    return name
