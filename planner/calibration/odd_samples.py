"""Unusual samples: data that no model was trained on, reported before ranges are taken from them.

NaN, a constant, nothing but zeros, bytes of pictures, one sample over and over, or numbers unlike the range
that somebody wrote at the input: more often than not a loader or a preprocessing went wrong. Only float
inputs are looked at; masks and indices are constant for good reasons. Source: docs/accuracy.md.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.calibration.npz import Array
from planner.calibration.samples import Samples, Source, open_samples
from planner.calibration.sources.channels import open_channels_hint
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Calibrated, Uniform
from planner.ops import of_form
from planner.ops.forms import Form

MARGIN: Final = 0.1
"""Share of an annotated range by which data may go beyond it, and which they have to use."""


_PREPARING: Final = of_form(Form.PRODUCT) | {"BatchNormalization", "Cast", "Sub"}


@dataclass(slots=True)
class _Input:
    """Observations of one input in the samples so far; lists have names of samples."""

    samples: int = 0
    lo: float = 0.0
    hi: float = 0.0
    not_finite: list[str] = field(default_factory=list)
    zero: list[str] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)
    first: Array | None = None
    is_repeated: bool = True
    given: set[str] = field(default_factory=set)
    layouts: dict[str, None] = field(default_factory=dict)

    def add(self, name: str, array: Array, given: str, layout: str) -> None:
        self.given.add(given)
        self.layouts |= dict.fromkeys(filter(None, [layout]))
        finite = array[np.isfinite(array)]
        lo, hi = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        self.lo, self.hi = min(self.lo, lo), max(self.hi, hi)
        if finite.size < array.size:
            self.not_finite.append(name)
        elif lo == hi and array.size > 1:
            (self.constant if lo else self.zero).append(name)
        if self.first is None:
            self.first = array
        elif self.is_repeated:
            self.is_repeated = np.array_equal(self.first, array)
        self.samples += 1

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield faults, each with what to do."""
        if self.not_finite:
            names = _named(self.not_finite, self.samples)
            yield f"has NaN or infinity in {names}", "no range counts that; clean them"
        if self.zero:
            names = _named(self.zero, self.samples)
            yield f"is all zero in {names}", "give samples like the data of the device"
        if self.constant:
            names = _named(self.constant, self.samples)
            yield f"is one number throughout {names}", "give samples like the data of the device"
        has_numbers = self.first is not None and self.first.size > 1
        if has_numbers and self.samples > 1 and self.is_repeated and not (self.zero or self.constant):
            yield f"is the same in all {self.samples} samples", "is the loader at fault?"


def odd_samples(graph: Graph, samples: Source | Samples) -> tuple[str, ...]:
    """Warn of samples that look unlike the data of a device, each with a remedy.

    Args:
      graph: whose inputs may have ranges, annotated or of the model's own quantizers.
      samples: anything `open_samples` reads; iterated once, the model is not run.

    Raises:
      SampleError: a sample that does not fit.
    """
    opened = samples if isinstance(samples, Samples) else open_samples(samples, graph)
    seen = {name: _Input() for name in graph.inputs if graph.values[name].is_float}
    for feed in opened.feeds:
        for name, found in seen.items():
            array = np.asarray(feed.arrays[name], np.float64)
            found.add(
                feed.name, array, feed.given.get(name, ""), open_channels_hint(graph, name, array.shape)
            )
    return tuple(
        f"input {name!r} {fault}: {advice}"
        for name, found in seen.items()
        for fault, advice in (*found.faults(), *_unlike(graph, name, found), *_raw(graph, name, found))
    )


def _raw(graph: Graph, name: str, seen: _Input) -> Iterator[tuple[str, str]]:
    """Pictures as files hold them: bytes, which a model of reals was seldom trained on, and channels last."""
    for layout in [*seen.layouts][:1]:
        yield "seems to have its channels last", layout
    written = any(isinstance(fact, Calibrated | Uniform) for fact in graph.values[name].facts)
    if seen.given != {"uint8"} or seen.hi <= 1 or written or _scales_itself(graph, name):
        return
    yield (
        f"is {graph.values[name].dtype}, and the samples are uint8, {seen.lo:g} to {seen.hi:g}",
        "scale them as in training (x / 255, or less a mean and by a deviation), and give float32",
    )


def _scales_itself(graph: Graph, name: str) -> bool:
    """Whether all that reads an input begins with the preprocessing: a cast, a division, a normalization."""
    readers = [op for op in graph.all_ops() if name in op.inputs]
    return bool(readers) and all(op.type in _PREPARING for op in readers)


def _unlike(graph: Graph, name: str, seen: _Input) -> Iterator[tuple[str, str]]:
    """Data of another order than the range that is written at the input."""
    for fact in graph.values[name].facts:
        if not isinstance(fact, Calibrated | Uniform) or not seen.samples:
            continue
        lo, hi = min(fact.lo, 0.0), max(fact.hi, 0.0)
        width = hi - lo
        if not math.isfinite(width) or not width:
            continue
        data, written = f"{seen.lo:.4g} to {seen.hi:.4g}", f"{fact.lo:.4g} to {fact.hi:.4g}"
        advice = "is the preprocessing that of the model (scale, mean, order of channels)?"
        if max(lo - seen.lo, seen.hi - hi) > MARGIN * width:
            yield f"is {data} in the samples, beyond the model's range for it, {written}", advice
        elif 0 < seen.hi - seen.lo < MARGIN * width:
            share = f"{(seen.hi - seen.lo) / width:.1%}".replace("%", " %")
            yield (
                f"is {data} in the samples, {share} of the model's range for it, {written}",
                advice,
            )


def _named(names: list[str], samples: int) -> str:
    """The first of these samples by name, and how many there are."""
    if len(names) == samples > 1:
        return f"all {samples} samples"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}"
