"""Observations that need no tensor: values whose elements are those of values already observed.

Reshaping moves elements, Concat joins them, Relu and Clip move both ends of a range. All of these are
exact, which spares fetching and reading about half of a model's values.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import reduce
from typing import Final, TypeAlias

from planner.calibration.observe import Observed, merge
from planner.ir.graph import Graph, Op

Seen: TypeAlias = Mapping[str, Observed]
Derivation: TypeAlias = Callable[[Op, Graph, Seen], Observed]


def derivable(graph: Graph, wanted: Collection[str], method: str) -> tuple[Op, ...]:
    """Ops, in order, whose only result follows from wanted values for this method's observations."""
    known = {name for name in graph.inputs if name in wanted}
    found = []
    for op in graph.all_ops():
        if _follows(op, graph, known, DERIVATIONS[method]) and op.outputs[0] in wanted:
            found.append(op)
        known.update(name for name in op.outputs if name in wanted)
    return tuple(found)


def derive(ops: tuple[Op, ...], graph: Graph, seen: Seen, method: str) -> dict[str, Observed]:
    """Observations of the results of `ops`, and those given."""
    every = dict(seen)
    for op in ops:
        every[op.outputs[0]] = DERIVATIONS[method][op.type](op, graph, every)
    return every


def _follows(op: Op, graph: Graph, known: Collection[str], table: Mapping[str, Derivation]) -> bool:
    if op.type not in table or len(op.outputs) != 1:
        return False
    if op.type == "Clip" and any(_constant(graph, name) is None for name in op.inputs[1:] if name):
        return False
    return all(name in known for name in _data(op))


def _data(op: Op) -> Iterator[str]:
    yield from op.inputs if op.type == "Concat" else op.inputs[:1]


def _constant(graph: Graph, name: str) -> float | None:
    constant = graph.constants.get(name)
    if constant is None or constant.array is None or constant.array.size != 1:
        return None
    return float(constant.array.reshape(-1)[0])


def _moved(op: Op, _graph: Graph, seen: Seen) -> Observed:
    return seen[op.inputs[0]]


def _joined(op: Op, _graph: Graph, seen: Seen) -> Observed:
    return reduce(merge, (seen[name] for name in op.inputs))


def _relu(op: Op, _graph: Graph, seen: Seen) -> Observed:
    source = seen[op.inputs[0]]
    return source if source.is_empty else Observed(max(source.lo, 0.0), max(source.hi, 0.0))


def _clip(op: Op, graph: Graph, seen: Seen) -> Observed:
    source = seen[op.inputs[0]]
    if source.is_empty:
        return source
    lo, hi = source.lo, source.hi
    for bound, cut in zip(op.inputs[1:], (max, min), strict=False):
        limit = _constant(graph, bound)
        if limit is not None:
            lo, hi = cut(lo, limit), cut(hi, limit)
    return Observed(lo, hi)


_MOVERS: Final[Mapping[str, Derivation]] = dict.fromkeys(
    ("DepthToSpace", "Flatten", "Identity", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"),
    _moved,
)

# What these drop or keep of NaN and infinity cannot be told from what they read.
CUTTING: Final = frozenset({"Clip", "Relu"})

# A histogram tells nothing of what a relu makes of the elements of a bin that 0 lies in.
_OF_BINS: Final[Mapping[str, Derivation]] = {**_MOVERS, "Concat": _joined}
DERIVATIONS: Final[Mapping[str, Mapping[str, Derivation]]] = {
    "entropy": _OF_BINS,
    "minmax": {**_MOVERS, "Clip": _clip, "Concat": _joined, "Relu": _relu},
    "mse": _OF_BINS,
    "percentile": _OF_BINS,
}
