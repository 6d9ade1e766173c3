"""Unseen values: held-out samples that take values where calibration saw none, so that ranges clip them.

The observed range counts, not the part that a percentile kept: the rest was clipped on purpose. Source:
docs/accuracy.md.
"""

import math
from dataclasses import dataclass
from typing import Final

from planner.calibration.run import observe_each
from planner.calibration.samples import Source
from planner.calibration.statistics import Statistics
from planner.errors import expect
from planner.ir.expand import expand
from planner.ir.graph import Graph

MARGIN: Final = 0.1
"""Share of a calibrated range by which held-out data may go beyond it."""
MOST_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Beyond:
    """A value that goes beyond its calibrated range.

    Attributes:
      sample: the one that goes furthest.
      lo, hi: of that sample; `known` is the calibrated pair. Reals, zero included.
      share: of the calibrated range by which it goes beyond; infinite where that is 0.
    """

    value: str
    sample: str
    lo: float
    hi: float
    known: tuple[float, float]
    share: float


def beyond_calibration(model: Graph, stats: Statistics, samples: Source) -> tuple[Beyond, ...]:
    """Values that samples take beyond what calibration saw by more than `MARGIN`, the furthest first.

    Args:
      samples: held out; the float model is run on them, sample by sample.

    Raises:
      SampleError: a sample that does not fit or does not run.
      InputError: something else in place of statistics.
    """
    expect(stats, Statistics, "statistics are the result of calibrate")
    flat, found = expand(model), dict[str, Beyond]()
    watched = [name for name in stats.values if name in flat.values]
    for name, seen in observe_each(flat, samples, values=watched):
        for value, observed in seen.items():
            if observed.is_empty:
                continue
            known = stats.values[value]
            lo, hi = min(known.lo, 0.0), max(known.hi, 0.0)
            excess = max(lo - observed.lo, observed.hi - hi)
            share = excess / (hi - lo) if hi > lo else math.inf
            if excess > 0 and share > max(MARGIN, found[value].share if value in found else 0.0):
                ends = min(observed.lo, 0.0), max(observed.hi, 0.0)
                found[value] = Beyond(value, name, *ends, (lo, hi), share)
    order = {name: place for place, name in enumerate(watched)}
    return tuple(sorted(found.values(), key=lambda one: (-one.share, order[one.value])))


def unlike_calibration(model: Graph, stats: Statistics, samples: Source) -> tuple[str, ...]:
    """Warn of values of held-out samples that exceed their calibrated range by more than a tenth.

    Args:
      stats: of the model, from `calibrate`.
      samples: held out, as `calibrate` takes them; the float model is run on them.

    Returns:
      The furthest values, the number of the others, and a remedy; empty if there are none.
    """
    every = beyond_calibration(model, stats, samples)
    # What only moves data says the same once more.
    found = list({(one.sample, one.lo, one.hi, one.known): one for one in reversed(every)}.values())[::-1]
    told = [_text(one) for one in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        told.append(f"so do {len(found) - MOST_TOLD} more values")
    if told:
        told[-1] += "; calibrate with samples like these, or give these values ranges of your own"
    return tuple(told)


def _text(one: Beyond) -> str:
    share = "" if math.isinf(one.share) else f" by {100 * one.share:.0f} %"
    known = f"{one.known[0]:.4g} to {one.known[1]:.4g}"
    seen = f"{one.lo:.4g} to {one.hi:.4g} in {one.sample}"
    return f"held-out data take {one.value!r} beyond what calibration saw{share}: {seen}, not {known}"
