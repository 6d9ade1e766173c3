"""Observations for planning besides the range: the maxima of softmax rows, and tensors of two values.

A softmax does not distinguish numbers far below the greatest entry of its row, so the smallest of these
maxima says where its operand's needed range begins. A row whose entries are all equal does not count (all of
it is masked), nor does one further below the median of its sample than `APART`: left padding of another
value.
Source: docs/specification.md, section 10.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.calibration.observe import Array
from planner.ir.graph import Graph
from planner.ops import defined, find_movements
from planner.ops.forms import Form
from planner.ops.operands import operands_of

APART: Final = 256.0
"""Reals below the median row maximum: more than the steps of 8 bits, each of at least one real."""
SCALED_BY: Final = frozenset({"Mul", "Div"})
PASSING: Final = frozenset({Form.SUM, Form.PRODUCT, Form.VARIADIC, Form.SELECT})
"""Operators through which minus infinity passes to a softmax; so it does through Cast and data movement."""


@dataclass(frozen=True, slots=True)
class RowsSeen:
    """Rows along one axis: the smallest maximum, in reals, and the entries of the longest row.

    `apart`: rows left out as they lie far below the others, `sample` the first name of a sample with such.
    """

    axis: int
    least: float
    entries: int
    apart: int = 0
    sample: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one value: its rows by axis, and the numbers it is made of where they are at most two, else None."""

    rows: Mapping[int, RowsSeen]
    numbers: frozenset[float] | None = None


Watched = Mapping[str, tuple[tuple[int, ...], bool]]
"""By value: the axes that softmaxes go along, and whether its numbers are counted."""


def watched(graph: Graph, wanted: Iterable[str]) -> Watched:
    """Return the values of `wanted` that a softmax reads or a constant scales."""
    axes: dict[str, set[int]] = defaultdict(set)
    scaled: set[str] = set()
    for op in graph.all_ops():
        if op.type == "Softmax":
            shape = graph.values[op.inputs[0]].shape
            if shape:
                axes[op.inputs[0]].add(int(op.attributes.get("axis", -1)) % len(shape))
        elif op.type in SCALED_BY and any(name in graph.constants for name in op.inputs):
            scaled.update(op.inputs)
    found = (name for name in wanted if name in axes or name in scaled)
    return {name: (tuple(sorted(axes[name])), name in scaled) for name in found}


def reaching_softmax(graph: Graph) -> frozenset[str]:
    """Return the values that a softmax reads, through sums, choices, factors and data movement."""
    reached: set[str] = set()
    for op in reversed(tuple(graph.all_ops())):
        if op.type == "Softmax":
            reached.add(op.inputs[0])
        elif not reached.isdisjoint(op.outputs) and (
            op.type == "Cast" or defined(op.type).form in PASSING or find_movements(operands_of(op, graph))
        ):
            reached.update(filter(None, op.inputs))
    return frozenset(reached)


def look(array: Array, axes: Iterable[int], rank: int, *, counts: bool, sample: str) -> Seen:
    """Look at one tensor.

    Args:
      array: of any shape; the trips of a loop may be stacked in front of its `rank` dimensions.
      counts: whether its numbers are counted.
      sample: its name, for rows that are left out.
    """
    # Counted from the end, an axis is the same with the trips of a loop in front.
    rows = {axis: _rows(array, axis, rank, sample) for axis in axes} if array.ndim >= rank else {}
    return Seen({axis: seen for axis, seen in rows.items() if seen}, _numbers(array) if counts else None)


def join(one: Seen, other: Seen) -> Seen:
    """Join observations; the order makes no difference."""
    rows = {**one.rows, **other.rows}
    for axis in one.rows.keys() & other.rows.keys():
        a, b = one.rows[axis], other.rows[axis]
        rows[axis] = RowsSeen(
            axis,
            min(a.least, b.least),
            max(a.entries, b.entries),
            a.apart + b.apart,
            min(filter(None, (a.sample, b.sample)), default=""),
        )
    both = None if one.numbers is None or other.numbers is None else one.numbers | other.numbers
    return Seen(rows, None if both is None or len(both) > 2 else both)


def _rows(array: Array, axis: int, rank: int, sample: str) -> RowsSeen | None:
    """The rows of one tensor; None where none counts."""
    place = axis - rank
    entries = array.shape[place]
    if not array.size:
        return None
    most, least = array.max(axis=place).ravel(), array.min(axis=place).ravel()
    counting = most[np.isfinite(most) & (most != least)].astype(np.float64)
    if not counting.size:
        return None
    # The upper median: `np.median` loads a library for it, and a row in the middle will do.
    middle = np.partition(counting, counting.size // 2)[counting.size // 2]
    near = counting[counting >= middle - APART]
    apart = counting.size - near.size
    return RowsSeen(axis, float(near.min()), int(entries), apart, sample if apart else "")


def _numbers(array: Array) -> frozenset[float] | None:
    """The numbers that a tensor is made of, where they are at most two and finite."""
    if not array.size:
        return frozenset()
    lo, hi = array.min(), array.max()
    # Most tensors are told by their first few numbers.
    for part in (array.ravel()[:64], array):
        if not ((part == lo) | (part == hi)).all():
            return None
    return frozenset((float(lo), float(hi))) if np.isfinite(lo) and np.isfinite(hi) else None
