"""Quality: signal, noise and largest error of a tensor over all samples, and of its groups of like slices.

`SQNR = 10 log10(sum ref^2 / sum (ref - got)^2)` in dB, over all samples. Sums are kept for every slice, since
only the last sample tells which slices are alike (`groups`). Source: design 05; design 11, "Judged".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.accuracy.groups import Array, Slices


@dataclass(frozen=True, slots=True)
class Quality:
    """Comparison of one tensor of the quantized file with the reference's.

    Attributes:
      sqnr: dB; infinite where there is no error, minus infinity where there is only error.
      max_error: the largest difference, real.
      elements: compared, over all samples.
      groups: by label (`[:, :, 0-3]`), slices of an output that are alike in range; none where all are.
    """

    sqnr: float
    max_error: float
    elements: int
    groups: Mapping[str, "Quality"] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The SQNR (dB) that counts: of the worst group where there are groups."""
        return min((group.sqnr for group in self.groups.values()), default=self.sqnr)

    @property
    def parts(self) -> Mapping[str, "Quality"]:
        """The whole under "", then the groups by label."""
        return {"": self, **self.groups}


@dataclass(slots=True)
class Sums:
    """Signal, noise and largest error: of a tensor, or (arrays) of each of its slices along an axis."""

    signal: Array
    noise: Array
    largest: Array

    def add(self, other: "Sums") -> None:
        """Take another sample."""
        self.signal = self.signal + other.signal
        self.noise = self.noise + other.noise
        self.largest = np.maximum(self.largest, other.largest)

    def of(self, members: tuple[int, ...], elements: int) -> Quality:
        """The quality of some slices."""
        at = list(members)
        signal, noise = float(self.signal[at].sum()), float(self.noise[at].sum())
        largest = float(self.largest[at].max(initial=0.0))
        return Quality(_decibels(signal, noise), largest, elements)


@dataclass(slots=True)
class Tally:
    """Sums over the samples seen so far.

    Attributes:
      is_cut: whether slices are told apart; of inner values they are not.
    """

    is_cut: bool = False
    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    elements: int = 0
    _slices: Slices = field(default_factory=Slices)
    _sums: dict[int, Sums] = field(default_factory=dict)

    def add(self, wanted: Array, got: Array) -> None:
        """Take one sample's tensor of both."""
        reference, other = wanted.astype(np.float64), got.astype(np.float64)
        with np.errstate(invalid="ignore"):
            # Equal infinities and NaN at the same places are no error.
            is_same = (reference == other) | (np.isnan(reference) & np.isnan(other))
            error = np.where(is_same, 0.0, reference - other)
        error = np.where(np.isnan(error), math.inf, np.abs(error))
        finite = np.where(np.isfinite(reference), reference, 0.0)
        signal, noise = finite * finite, error * error
        self.signal += float(np.sum(signal))
        self.noise += float(np.sum(noise))
        self.largest = max(self.largest, float(np.max(error, initial=0.0)))
        self.elements += reference.size
        if self.is_cut and wanted.dtype.kind == "f":
            self._slices.add(wanted)
            self._add_slices(signal, noise, error)

    def _add_slices(self, signal: Array, noise: Array, error: Array) -> None:
        sums = {}
        for axis in self._slices.ranges:
            others = tuple(other for other in range(error.ndim) if other != axis)
            found = Sums(signal.sum(others), noise.sum(others), error.max(others))
            if axis in self._sums:
                found.add(self._sums[axis])
            sums[axis] = found
        self._sums = sums

    def quality(self) -> Quality:
        """What the samples say by now."""
        groups = self._slices.groups()
        parts = {}
        if groups.axis is not None:
            sums = self._sums[groups.axis]
            each = self.elements // sums.signal.size
            parts = {
                groups.label(i): sums.of(members, each * len(members))
                for i, members in enumerate(groups.members)
            }
        return Quality(_decibels(self.signal, self.noise), self.largest, self.elements, parts)


def decibels(sqnr: float) -> str:
    """`38.51 dB`, or `exact` where there is no error at all."""
    return "exact" if math.isinf(sqnr) and sqnr > 0 else f"{sqnr:.2f} dB"


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    share = signal / noise
    return 10 * math.log10(share) if share > 0 else -math.inf
