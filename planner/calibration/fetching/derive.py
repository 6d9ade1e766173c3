"""Observations that need no tensor: values whose elements are those of values already observed.

Reshaping moves elements, Concat joins them, Relu and Clip move both ends of a range. All of these are
exact, which spares fetching and reading about half of a model's values.
"""

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Final, TypeAlias

from planner.calibration.observe import Observed, merge
from planner.ir.graph import Graph, Op
from planner.ops import find_movements
from planner.ops.operands import operands_of
from planner.ops.steps import keeps_all

Seen: TypeAlias = Mapping[str, Observed]


def derivable(graph: Graph, wanted: Collection[str], method: str) -> tuple[Op, ...]:
    """Return ops, in order, whose only result follows from values in `wanted` for this method."""
    known = {name for name in graph.inputs if name in wanted}
    found = []
    for op in graph.all_ops():
        sources = _sources(op, graph, method)
        if sources and known.issuperset(sources) and op.outputs[0] in wanted:
            found.append(op)
        known.update(name for name in op.outputs if name in wanted)
    return tuple(found)


def derive(ops: tuple[Op, ...], graph: Graph, seen: Seen, method: str) -> dict[str, Observed]:
    """Observations of the results of `ops`, and those given."""
    every = dict(seen)
    for op in ops:
        whole = reduce(merge, (every[name] for name in _sources(op, graph, method)))
        cut = CUTS.get(op.type)
        every[op.outputs[0]] = whole if cut is None or whole.is_empty else cut(op, graph, whole)
    return every


def _sources(op: Op, graph: Graph, method: str) -> tuple[str, ...]:
    """The operands whose elements are all those of an op's only result, some cut; none where others are."""
    if len(op.outputs) != 1:
        return ()
    if op.type in CUTS:
        bounds = [name for name in op.inputs[1:] if name]
        # A histogram tells nothing of what a relu makes of the elements of a bin that 0 lies in.
        is_told = method == "minmax" and all(_constant(graph, name) is not None for name in bounds)
        return op.inputs[:1] if is_told else ()
    movements = find_movements(operands_of(op, graph))
    if movements is None or not keeps_all(movements[0]):
        return ()
    return tuple(op.inputs[i] for i in movements[0].operands)


def _constant(graph: Graph, name: str) -> float | None:
    constant = graph.constants.get(name)
    if constant is None or constant.array is None or constant.array.size != 1:
        return None
    return float(constant.array.reshape(-1)[0])


def _relu(_op: Op, _graph: Graph, source: Observed) -> Observed:
    return Observed(max(source.lo, 0.0), max(source.hi, 0.0))


def _clip(op: Op, graph: Graph, source: Observed) -> Observed:
    lo, hi = source.lo, source.hi
    for bound, cut in zip(op.inputs[1:], (max, min), strict=False):
        limit = _constant(graph, bound)
        if limit is not None:
            lo, hi = cut(lo, limit), cut(hi, limit)
    return Observed(lo, hi)


# What these drop or keep of NaN and infinity cannot be told from what they read.
CUTS: Final[Mapping[str, Callable[[Op, Graph, Observed], Observed]]] = {"Clip": _clip, "Relu": _relu}
