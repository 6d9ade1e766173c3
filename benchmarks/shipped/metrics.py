"""Metrics of the tasks: pure functions of answers and the truth, at most 1 and higher where better."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
NEAR: Final = 0.01
"""Share of float's metric that a file may lose."""
OVERLAP: Final = 0.5
"""Intersection over union from which a box counts as found."""


def share_right(found: Sequence[object], true: Sequence[object]) -> float:
    """Return the share of answers that are the true ones: top-1, accuracy, lines right."""
    return sum(one == other for one, other in zip(found, true, strict=True)) / len(true)


def ranks(values: Array) -> Array:
    """Return the rank of each value, the mean rank where values are equal."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which])


def is_near(metric: float, of_float: float) -> bool:
    """Return whether a metric is within 1 % of float's."""
    return metric >= (1 - NEAR) * of_float


def spearman(left: Array, right: Array) -> float:
    """Return the correlation of the ranks; 0 where all values of a side are equal or one is no number."""
    left, right = np.asarray(left).ravel(), np.asarray(right).ravel()
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return 0.0
    first, second = (ranks(side) - (side.size + 1) / 2 for side in (left, right))
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale else 0.0


def auc(scores: Array, is_true: Array) -> float:
    """Return the probability that a true one scores above a false one, equal scores as one half.

    0.5 where a score is no number: such a detector decides nothing.
    """
    scores, is_true = np.asarray(scores).ravel(), np.asarray(is_true).ravel().astype(bool)
    if not np.isfinite(scores).all():
        return 0.5
    count = int(is_true.sum())
    above = ranks(scores)[is_true].sum() - count * (count + 1) / 2
    return float(above / (count * (is_true.size - count)))


def intersection_over_union(left: Box, right: Box) -> float:
    """Return the common area over the area of both."""
    wide = min(left[2], right[2]) - max(left[0], right[0])
    high = min(left[3], right[3]) - max(left[1], right[1])
    common = max(wide, 0.0) * max(high, 0.0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (left, right))
    return common / (areas - common) if common else 0.0


def boxes_matched(found: Sequence[Box], true: Sequence[Box]) -> int:
    """Return how many true boxes have a found box of their own, best overlap first."""
    pairs = sorted(
        (
            (intersection_over_union(one, other), i, j)
            for i, one in enumerate(found)
            for j, other in enumerate(true)
        ),
        reverse=True,
    )
    used: tuple[set[int], set[int]] = (set(), set())
    for overlap, i, j in pairs:
        if overlap >= OVERLAP and i not in used[0] and j not in used[1]:
            used[0].add(i)
            used[1].add(j)
    return len(used[0])


def box_f1(found: Sequence[Sequence[Box]], true: Sequence[Sequence[Box]]) -> float:
    """Return the harmonic mean of precision and recall over all pictures."""
    matched = sum(boxes_matched(one, other) for one, other in zip(found, true, strict=True))
    every = sum(map(len, found)) + sum(map(len, true))
    return 2 * matched / every if every else 1.0


def suppressed(boxes: Sequence[Box], scores: Sequence[float], limit: float) -> list[Box]:
    """Return the boxes without those that a better one overlaps (non-maximum suppression)."""
    kept: list[Box] = []
    for at in np.argsort(-np.asarray(scores), kind="stable"):
        if all(intersection_over_union(boxes[at], other) <= limit for other in kept):
            kept.append(boxes[at])
    return kept


def collapse(ids: Sequence[int], blank: int = 0) -> list[int]:
    """Return the symbols of a CTC path: repeats once, blanks dropped."""
    return [
        one for before, one in zip([blank, *ids], [*ids, blank], strict=True) if one not in (before, blank)
    ]
