"""Decided: how often a softmax, sigmoid or index of the quantized file decides otherwise than the model's.

A margin is what a decision is won by: the logarithm of the likeliest class over the next, or the logit of a
sigmoid. Noise changes it; few samples show few changes, so the share that is expected to change is counted as
well: with noise of the deviation s, a decision with margin m changes with the probability Phi(-m / s).

In a signal (a picture, sound, a line of text as a picture) a decision that moves to the next place, the edge
of a region or the step of a letter, is the same decision: it changes where nothing within one place keeps it,
and where nothing within one place was like it before. Words have no such neighbours.
Source: docs/accuracy.md.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.ops.axes import Axes

Array: TypeAlias = NDArray[Any]

LEAST: Final = 16
"""Decisions below which nothing is said."""
FLOOR: Final = 2.0**-9
"""Probabilities below count as this one: on a grid of 8 bits they are 0."""
FINEST: Final = 1 / 256
"""Width of a bin of margins."""
UNSEEN: Final = 3.0
"""Changes that may be expected with a chance of 5 % and more where none was seen."""
SOFT: Final = math.log(9)
"""Margin of a probability of 0.9: many sigmoids a sample, most of them below, are numbers, no decisions."""
NEAR: Final = 4.0
"""Margins of decisions that are not near certain; where a probability is next to 0 or 1, noise hides."""


@dataclass(frozen=True, slots=True)
class Decided:
    """How many decisions of an output change.

    Attributes:
      share: of the answers that change, or are expected to if that is more, 0 to 1. An answer is a decision;
        with one axis of places (words, steps in time) a sequence of them; in pictures, and in samples of
        many labels where one is the commonest by far, a decision that is not the commonest, and the share is
        what their F1 score loses.
      answers: of all samples.
    """

    share: float
    answers: int


@dataclass(slots=True)
class Decisions:
    """Margins and their noise over the samples seen so far.

    Attributes:
      axes: of the output.
      count: decisions.
      places: axes of places or words that are longer than 1, at most.
      sequences: decisions that differ in more than their places.
      labels: decisions about one sample, at most.
      changed: decisions that went otherwise.
      soft: margins below `SOFT`.
      noise: squares of what margins changed by; `near_noise` that of the `near` ones below `NEAR`.
    """

    axes: Axes
    count: int = 0
    places: int = 0
    sequences: int = 0
    labels: int = 0
    changed: int = 0
    soft: int = 0
    noise: float = 0.0
    near: int = 0
    near_noise: float = 0.0
    _margins: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    _chosen: dict[int, int] = field(default_factory=dict)

    def add(self, wanted: Array, got: Array) -> None:
        """Take one sample's output of both."""
        if not wanted.size or wanted.ndim != len(self.axes.kinds):
            return
        kinds = list(self.axes.kinds)
        if self.axes.decides == "softmax":
            axis = kinds.index("class")
            del kinds[axis]  # another one may be that of a softmax before
            found = _of_softmax(np.moveaxis(wanted, axis, -1), np.moveaxis(got, axis, -1))
        elif self.axes.decides == "sigmoid":
            found = _of_sigmoid(wanted, got)
        else:
            found = _of_indices(wanted, got)
        margins, others, chosen, other = found
        signal = [axis for axis, kind in enumerate(kinds) if kind == "place"]
        is_moved = (others < 0) & _is_moved(chosen, other, signal)
        # What only moved tells nothing of the noise, however far the margin fell.
        errors = np.where(is_moved, 0.0, np.square(others - margins))
        is_near = (margins < NEAR) & ~is_moved
        places = [size for size, kind in zip(chosen.shape, kinds, strict=True) if kind in ("place", "word")]
        self.places = max(self.places, sum(size > 1 for size in places))
        self.sequences += margins.size // math.prod(places)
        self.labels = max(self.labels, math.prod(chosen.shape[1:]))
        self.count += margins.size
        self.soft += int(np.count_nonzero(margins < SOFT))
        self.noise += float(errors.sum())
        self.near += int(np.count_nonzero(is_near))
        self.near_noise += float(errors[is_near].sum())
        self.changed += int(np.count_nonzero((others < 0) & ~is_moved))
        bins = np.bincount((_sure(margins, chosen, signal) / FINEST).astype(np.int64).ravel())
        length = max(len(bins), len(self._margins))
        self._margins = _padded(self._margins, length) + _padded(bins, length)
        for one, many in zip(*np.unique(chosen, return_counts=True), strict=True):
            self._chosen[int(one)] = self._chosen.get(int(one), 0) + int(many)

    def found(self) -> Decided | None:
        """Return the result so far; None where samples are too few, or nothing is decided."""
        is_sparse = self.places > 1 or self._is_sparse()
        answers = self._rare() if is_sparse else self.sequences if self.places else self.count
        if answers < LEAST or self._is_of_numbers():
            return None
        # What was seen bounds what is expected, by two deviations of a count: noise may have long tails.
        most = self.changed + 2 * math.sqrt(self.changed) + UNSEEN
        changes = max(self.changed, min(self._expected(), most))
        # Of masks in a picture what the F1 score loses: a change makes one answer too many or too few.
        changes = changes / 2 if is_sparse else changes
        return Decided(min(1.0, changes / answers), answers)

    def _is_of_numbers(self) -> bool:
        """Whether a sigmoid bounds numbers and decides nothing: grey of a picture, depths, sides of boxes."""
        return self.axes.decides == "sigmoid" and self.labels >= LEAST and 2 * self.soft > self.count

    def _is_sparse(self) -> bool:
        """Whether samples have many labels, most of them alike: the species not heard, the empty boxes.

        Were each of them an answer, a file that loses every rare one would be right nearly always.
        """
        return not self.places and self.labels > 1 and 2 * max(self._chosen.values()) > self.count

    def _rare(self) -> int:
        """Decisions that are not the commonest; of a sigmoid in pictures those for it."""
        if self.axes.decides == "sigmoid" and self.places > 1:
            return self._chosen.get(1, 0)
        return self.count - max(self._chosen.values(), default=0)

    def _expected(self) -> float:
        """How many decisions change by noise of one deviation."""
        near = self.near_noise / self.near if self.near else 0.0
        deviation = math.sqrt(max(near, self.noise / max(1, self.count)))
        if not deviation:
            return 0.0
        middles = (np.arange(len(self._margins)) + 0.5) * FINEST
        tails = [0.5 * math.erfc(middle / deviation / math.sqrt(2)) for middle in middles.tolist()]
        return float(np.dot(self._margins, tails))


def _of_softmax(wanted: Array, got: Array) -> tuple[Array, Array, Array, Array]:
    """Margins of the model, of the file for the same class, and the classes of both: the last axis."""
    chosen = wanted.argmax(axis=-1)
    return _won_by(wanted, chosen), _won_by(got, chosen), chosen, got.argmax(axis=-1)


def _won_by(probabilities: Array, chosen: Array) -> Array:
    at = chosen[..., None]
    own = np.take_along_axis(probabilities, at, -1)[..., 0]
    rest = probabilities.copy()
    np.put_along_axis(rest, at, 0.0, -1)
    best = rest.max(axis=-1)
    margins: Array = _log(own) - _log(best)
    # Where both are next to nothing, the sign still says which is greater.
    return np.where((margins == 0.0) & (best > own), -FINEST, margins)


def _of_sigmoid(wanted: Array, got: Array) -> tuple[Array, Array, Array, Array]:
    """Margins of the model, of the file for the same side of one half, and whether each is above."""
    logits, others = (_log(part) - _log(1 - part) for part in (wanted, got))
    is_above = logits > 0
    return (
        np.abs(logits),
        np.where(is_above, others, -others),
        is_above.astype(np.int64),
        (others > 0).astype(np.int64),
    )


def _of_indices(wanted: Array, got: Array) -> tuple[Array, Array, Array, Array]:
    """Indices tell no margins: each is as good as certain, and lost where the file has another one."""
    margins = np.full(wanted.shape, NEAR)
    return margins, np.where(wanted == got, margins, -FINEST), wanted, got


def _is_moved(chosen: Array, other: Array, axes: Sequence[int]) -> Array:
    """Whether each decision is within one place in the file too, and the file's was within one before."""
    is_kept, is_known = chosen == other, chosen == other
    for before, after in zip(_neighbours(chosen, axes), _neighbours(other, axes), strict=True):
        is_kept = is_kept | (after == chosen)
        is_known = is_known | (before == other)
    moved: Array = is_kept & is_known
    return moved


def _sure(margins: Array, chosen: Array, axes: Sequence[int]) -> Array:
    """Margins of decisions; at the edge of a region that of the surest like it within one place.

    Within a region each decision has its own: something new may appear there.
    """
    is_inner = np.ones(chosen.shape, bool)
    most = margins
    for other, near in zip(_neighbours(chosen, axes), _neighbours(margins, axes), strict=True):
        is_inner &= other == chosen
        most = np.where(other == chosen, np.maximum(most, near), most)
    return np.where(is_inner, margins, most)


def _neighbours(array: Array, axes: Sequence[int]) -> Iterator[Array]:
    """The array moved by at most one place along each axis; what lies beyond is like the last place."""
    padded = np.pad(array, [(1, 1) if axis in axes else (0, 0) for axis in range(array.ndim)], mode="edge")
    for steps in itertools.product(range(3), repeat=len(axes)):
        cut = dict(zip(axes, steps, strict=True))
        yield padded[
            tuple(
                slice(cut[axis], cut[axis] + size) if axis in cut else slice(None)
                for axis, size in enumerate(array.shape)
            )
        ]


def _log(probabilities: Array) -> Array:
    numbers = np.nan_to_num(probabilities.astype(np.float64, copy=False), nan=0.0)
    logarithms: Array = np.log(np.clip(numbers, FLOOR, 1.0))
    return logarithms


def _padded(bins: Array, length: int) -> Array:
    return np.pad(bins, (0, length - len(bins)))
