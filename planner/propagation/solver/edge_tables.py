"""Edge tables: the price of one edge for all picks of labels at its ends, in one go.

`price.edge_price` says what one labelling of an edge costs; this says it for all of them: a change of type is
priced once for each pair of labels, and uses that want the same type share it. Entries are whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from planner.ir.types.qtypes import Uniform
from planner.propagation.solver.classes import Offered
from planner.propagation.solver.components import Edge, Use
from planner.propagation.solver.price import CostModel
from planner.target.ports.labels import typed

ROOM: Final = 1 << 62
"""Of a machine's integer; entries beyond are Python's."""

MANY: Final = 32
"""Uses of an edge; numpy has axes for 64 classes."""

Table = NDArray[Any]
Kind = Uniform | None


@dataclass(frozen=True, slots=True)
class _End:
    """One end of an edge: its type for each pick of its class, whose axis it is; of a given type no axis."""

    kinds: Sequence[Kind]
    axis: int | None = None

    def numbers(self, known: dict[Kind, int]) -> list[int]:
        """Its types as numbers, new ones where they are not known."""
        return [known.setdefault(kind, len(known)) for kind in self.kinds]


def edge_tables(edge: Edge, offered: Offered, cost_model: CostModel) -> tuple[Table, Table] | None:
    """(price, rescales) by picks, an axis for each class at the edge with a choice.

    Returns:
      None where uses are so many that going through them two by two is no gain.
    """
    if len(edge.uses) > MANY:
        return None
    # Uses that want the same type share a rescale at the most of their trips: the one with the most pays.
    uses = sorted(edge.uses, key=lambda use: -use.trips)
    groups = [c for c in edge.groups() if len(offered[c]) > 1]
    start = _start(edge, groups, offered)
    ends = [_end(use, groups, offered) for use in uses]
    free = [cost_model.is_free(edge, use) for use in uses]
    numbers: dict[Kind, int] = {}
    shape = [len(offered[group]) for group in groups]
    rank = max(1, len(shape))  # numpy makes numbers of its own of arrays without axes
    changes = [_changes(start, end, cost_model, free=freely) for end, freely in zip(ends, free, strict=True)]
    most = sum(int(prices.max()) * use.trips for (prices, _), use in zip(changes, uses, strict=True))
    # Beyond a machine's integer Python's own take over: prices are never rounded.
    kind = np.int64 if most * edge.elements < ROOM else object
    price: Table = np.zeros(shape or [1], kind)
    count: Table = np.zeros(shape or [1], np.int64)
    for n, (use, end, (prices, rescales)) in enumerate(zip(uses, ends, changes, strict=True)):
        first = np.ones([1] * rank, np.int64)
        for other, freely in zip(ends[:n], free[:n], strict=True):
            if freely == free[n] and not cost_model.single_consumer:
                unlike = np.not_equal.outer(other.numbers(numbers), end.numbers(numbers))
                first = first * _placed(unlike, (other, end), rank)
        price = price + _placed(prices.astype(kind) * use.trips, (start, end), rank) * first
        count = count + _placed(rescales, (start, end), rank) * first
    return (price * edge.elements).reshape(shape), count.reshape(shape)


def _start(edge: Edge, groups: Sequence[int], offered: Offered) -> _End:
    if edge.definition is None:
        return _End([edge.start])
    group, store = edge.definition
    kinds = [None if label is None else typed(label, store) for label in offered[group]]
    return _End(kinds, groups.index(group) if len(kinds) > 1 else None)


def _end(use: Use, groups: Sequence[int], offered: Offered) -> _End:
    store = use.store
    if use.group < 0:
        return _End([use.goal])
    kinds = [None if label is None or store is None else typed(label, store) for label in offered[use.group]]
    return _End(kinds, groups.index(use.group) if len(kinds) > 1 else None)


def _changes(start: _End, end: _End, cost_model: CostModel, *, free: bool) -> tuple[Table, Table]:
    """Price per element of a change from each type to each other, and whether it is a rescale."""
    pairs = [[cost_model.pair(a, b, free=free) for b in end.kinds] for a in start.kinds]
    both = np.array(pairs, np.int64).reshape(len(start.kinds), len(end.kinds), 2)
    return both[..., 0], both[..., 1]


def _placed(matrix: Table, ends: tuple[_End, _End], rank: int) -> Table:
    """A matrix over the picks of two ends, its axes where theirs are; of one class only equal picks meet."""
    first, second = ends[0].axis, ends[1].axis
    shape = [1] * rank
    if first is not None and first == second:
        matrix = np.diagonal(matrix)
    elif first is not None and second is not None and first > second:
        matrix = matrix.T
    for axis, end in ((first, ends[0]), (second, ends[1])):
        if axis is not None:
            shape[axis] = len(end.kinds)
    return matrix.reshape(shape)
