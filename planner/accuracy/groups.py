"""Groups: slices of an output that are alike in range, so that large numbers do not hide small ones.

A detector's boxes (0 to 640) drown what happens to its scores (0 to 1) in any figure over both. Slices along
an axis are put in order of range; where one is more than 2^4 below the next larger, a new group begins. So a
hundred class scores of all sizes stay together, and boxes come apart from them. If all differ by more than
2^4 but no two neighbours do, the widest step, from 2^2 on, divides them in two (boxes of -3 to 3 and scores).
Nothing is divided along places of a picture, along time, or along the classes of a softmax: a slice that is
small there is small on these samples alone.
Source: docs/accuracy.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.ops.axes import UNKNOWN, Axes

Array: TypeAlias = NDArray[Any]

GAP: Final = 2.0**4
"""Ratio of the ranges of two slices from which on they are unlike."""
STEP: Final = 2.0**2
"""Ratio of two neighbours from which on slices that are unlike as a whole come apart there."""
NOTHING: Final = 2.0**-20
"""Share of the largest range below which a slice holds what rounding of floats left."""
SPANS: Final = 6
"""Runs of indices that a label lists."""
LEAST: Final = 8
"""Numbers of a slice in one sample: the range of fewer is an accident (a class that no sample has)."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Slices of one output in groups, those of the largest range first.

    Attributes:
      axis: along which the output is cut; None: it is one group.
      members: indices along the axis, ascending, of each group; empty without an axis.
    """

    axis: int | None = None
    members: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return max(1, len(self.members))

    def parts(self, array: Array) -> tuple[Array, ...]:
        """The part of an array in each group."""
        if self.axis is None:
            return (array,)
        return tuple(np.take(array, indices, self.axis) for indices in self.members)

    def label(self, index: int) -> str:
        """Which part a group is, as `[.., 0-3, 5]` with a place for each axis up to its own; "" for all."""
        if self.axis is None:
            return ""
        places = ", ".join([":"] * self.axis + [_spans(self.members[index])])
        return f"[{places}]"


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Sums over one output, whole and by slice along each axis; those of two samples add up (`merged`).

    Attributes:
      whole: squares of the signal, squares of the error, elements.
      axes: by axis, for every slice: least and greatest number, zero included, then the same three sums.
    """

    whole: Array
    axes: Mapping[int, Array]

    def groups(self) -> Groups:
        """Groups along the axis with the widest gap; one group where no axis has any."""
        best, widest = Groups(), 1.0
        for axis, (lo, hi, *_) in sorted(self.axes.items()):
            members, gap = like_slices(hi - lo)
            if len(members) > 1 and gap > widest:
                best, widest = Groups(axis, members), gap
        return best

    def sums(self, groups: Groups) -> tuple[tuple[float, float, float], ...]:
        """Squares of the signal, squares of the error, and elements of each group."""
        if groups.axis is None:
            return (_three(self.whole),)
        sums = self.axes[groups.axis][2:]
        return tuple(_three(sums[:, list(indices)].sum(axis=1)) for indices in groups.members)


def slices_of(array: Array, error: Array | None = None, axes: Axes = UNKNOWN) -> Slices:
    """Sums over one sample's output; axis 0 is the batch and is never cut, nor are places and classes.

    Args:
      array: of the float model; infinities and NaN count as 0.
      error: of another one, of the same shape; none by default.
      axes: what the output's axes are.
    """
    numbers = np.where(np.isfinite(array), array, 0.0).astype(np.float64, copy=False)
    squares = np.square(numbers)
    errors = np.zeros_like(squares) if error is None else np.square(error, dtype=np.float64)
    found = {}
    for axis in range(1, array.ndim):
        if axis not in axes.alike and _is_cut(array, axis):
            others = tuple(other for other in range(array.ndim) if other != axis)
            lo, hi = numbers.min(axis=others, initial=0.0), numbers.max(axis=others, initial=0.0)
            size = np.full(array.shape[axis], array.size / array.shape[axis])
            found[axis] = np.stack([lo, hi, squares.sum(axis=others), errors.sum(axis=others), size])
    return Slices(np.asarray([squares.sum(), errors.sum(), array.size], np.float64), found)


def merged(first: Slices, other: Slices) -> Slices:
    """Sums over two samples; an axis whose size changes is left out."""
    axes = {}
    for axis, mine in first.axes.items():
        theirs = other.axes.get(axis)
        if theirs is not None and theirs.shape == mine.shape:
            lo, hi = np.minimum(mine[0], theirs[0]), np.maximum(mine[1], theirs[1])
            axes[axis] = np.concatenate([lo[None], hi[None], mine[2:] + theirs[2:]])
    return Slices(first.whole + other.whole, axes)


def output_groups(arrays: Iterable[Array], axes: Axes = UNKNOWN) -> Groups:
    """Groups of an output.

    Args:
      arrays: the float model's, of each sample; rank and meaning of axes alike.
      axes: what they are.
    """
    found = [slices_of(array, axes=axes) for array in arrays]
    return reduce(merged, found).groups() if found else Groups()


def like_slices(ranges: Sequence[float] | Array) -> tuple[tuple[tuple[int, ...], ...], float]:
    """Slices in groups of like range, the largest first, and the widest ratio between two neighbours.

    A slice without any range (always 0, or next to nothing) goes with the smallest that have one.
    """
    sizes = np.asarray(ranges, np.float64)
    sizes = np.where(sizes < NOTHING * sizes.max(initial=0.0), 0.0, sizes)
    order = np.argsort(-sizes, kind="stable")
    held = sizes[order][sizes[order] > 0.0]
    if held.size < 2:
        return (tuple(range(sizes.size)),), 1.0
    gaps = held[:-1] / held[1:]
    widest = float(gaps.max())
    cuts = np.flatnonzero(gaps > GAP) + 1
    if not cuts.size and held[0] / held[-1] > GAP and widest > STEP:
        cuts = np.asarray([gaps.argmax() + 1])
    return tuple(tuple(sorted(part.tolist())) for part in np.split(order, cuts)), widest


def _is_cut(array: Array, axis: int) -> bool:
    size = array.shape[axis]
    return size > 1 and bool(array.size // size >= LEAST)


def _three(sums: Array) -> tuple[float, float, float]:
    signal, error, elements = sums.tolist()
    return signal, error, elements


def _spans(indices: Sequence[int]) -> str:
    """`0-3, 5` of ascending indices."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and index == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], index]
        else:
            spans.append([index, index])
    told = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    # The first indices tell groups apart, which share none.
    return ", ".join(told if len(told) <= SPANS else [*told[: SPANS - 1], f"... {indices[-1]}"])
