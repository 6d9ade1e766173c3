"""Quality: signal, noise and largest error of a tensor over all samples, and of its groups of like slices.

`SQNR = 10 log10(sum ref^2 / sum (ref - got)^2)` in dB, over all samples. Only the last sample tells which
slices are alike (`groups`). Source: docs/formats.md; docs/accuracy.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.accuracy.decided import Decided, Decisions
from planner.accuracy.groups import Array, Slices, merged, slices_of
from planner.ops.axes import UNKNOWN, Axes

LABEL_BYTES: Final = 4
"""Bytes of an integer that may be a label."""
MOST_LABELS: Final = 1 << 16
"""Labels of one sample: more are no answers."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Comparison of one tensor of the quantized file with the reference's.

    Attributes:
      sqnr: dB; infinite where there is no error, minus infinity where there is only error.
      max_error: the largest difference, real.
      elements: compared, over all samples.
      groups: by label (`[:, :, 0-3]`), slices of an output that are alike in range; none where all are.
      decided: of an output that a softmax, a sigmoid or an index of the largest makes, and of labels, how
        often it decides otherwise.
    """

    sqnr: float
    max_error: float
    elements: int
    groups: Mapping[str, "Quality"] = field(default_factory=dict)
    decided: Decided | None = None

    @property
    def worst(self) -> float:
        """The SQNR (dB) that counts: of the worst group where there are groups."""
        return min((group.sqnr for group in self.groups.values()), default=self.sqnr)

    @property
    def parts(self) -> Mapping[str, "Quality"]:
        """The whole under "", then the groups by label."""
        return {"": self, **self.groups}


@dataclass(slots=True)
class Tally:
    """Sums over the samples seen so far.

    Attributes:
      is_cut: whether slices are measured separately; of inner values they are not.
      axes: what the axes of an output are.
    """

    is_cut: bool = False
    axes: Axes = UNKNOWN
    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    elements: int = 0
    _slices: Slices | None = None
    _largest: dict[int, Array] = field(default_factory=dict)
    _decisions: Decisions | None = None

    def add(self, wanted: Array, got: Array) -> None:
        """Take one sample's tensor of both."""
        reference, other = wanted.astype(np.float64), got.astype(np.float64)
        with np.errstate(invalid="ignore"):
            # Equal infinities and NaN at the same places are no error.
            is_same = (reference == other) | (np.isnan(reference) & np.isnan(other))
            error = np.where(is_same, 0.0, reference - other)
        error = np.where(np.isnan(error), math.inf, np.abs(error))
        finite = np.where(np.isfinite(reference), reference, 0.0)
        self.signal += float(np.sum(finite * finite))
        self.noise += float(np.sum(error * error))
        self.largest = max(self.largest, float(np.max(error, initial=0.0)))
        self.elements += reference.size
        is_real = wanted.dtype.kind == "f"
        if self.is_cut and is_real:
            self._add_slices(reference, error)
        axes = self.axes if is_real or self.axes.decides == "index" else _labels(wanted)
        if self.is_cut and axes.decides:
            self._decisions = self._decisions or Decisions(axes)
            self._decisions.add(reference, other)

    def _add_slices(self, reference: Array, error: Array) -> None:
        found = slices_of(reference, error, self.axes)
        self._slices = found if self._slices is None else merged(self._slices, found)
        for axis in self._slices.axes:
            others = tuple(other for other in range(error.ndim) if other != axis)
            largest = error.max(axis=others)
            self._largest[axis] = np.maximum(self._largest.get(axis, largest), largest)

    def quality(self) -> Quality:
        """Return the result of the samples so far."""
        parts = {} if self._slices is None else dict(self._groups(self._slices))
        decided = None if self._decisions is None else self._decisions.found()
        return Quality(_decibels(self.signal, self.noise), self.largest, self.elements, parts, decided)

    def _groups(self, slices: Slices) -> Iterator[tuple[str, Quality]]:
        groups = slices.groups()
        if groups.axis is None:
            return
        largest = self._largest[groups.axis]
        for i, (signal, noise, elements) in enumerate(slices.sums(groups)):
            error = float(largest[list(groups.members[i])].max())
            yield groups.label(i), Quality(_decibels(signal, noise), error, int(elements))


def _labels(array: Array) -> Axes:
    """Axes of integers that may be labels: not those of bytes, which are pictures or stored numbers."""
    is_label = array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize >= LABEL_BYTES)
    return Axes(("",) * array.ndim, "index") if is_label and array.size <= MOST_LABELS else UNKNOWN


def decibels(sqnr: float) -> str:
    """`38.51 dB`, or `exact` where there is no error at all."""
    return "exact" if math.isinf(sqnr) and sqnr > 0 else f"{sqnr:.2f} dB"


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    share = signal / noise
    return 10 * math.log10(share) if share > 0 else -math.inf
