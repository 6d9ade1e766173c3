"""Verdict: whether a quantized model is good enough to go on with, in a word and a reason.

By labels where there are some: what counts is how many more answers are wrong. Else by the worst output's
SQNR. The bounds are ours, for a first look; a bound that matters is `--min-sqnr` or `--min-metric`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from planner.accuracy.metrics import BUILT_IN, Score, score_text
from planner.accuracy.quality import Quality, decibels

Level: TypeAlias = Literal["good", "fair", "poor"]

GOOD_SQNR: Final = 30.0
"""dB of an output whose noise is about a thirtieth of it."""
FAIR_SQNR: Final = 20.0
"""dB of an output whose noise is a tenth of it."""
GOOD_DROP: Final = 0.01
"""Share of the labels that may be lost."""
FAIR_DROP: Final = 0.03


@dataclass(frozen=True, slots=True)
class Verdict:
    """A level, and the figure that it follows from, for people."""

    level: Level
    reason: str

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}"


def verdict_of(outputs: Mapping[str, Quality], scores: Mapping[str, Score]) -> Verdict | None:
    """Judge a comparison.

    Args:
      outputs: of the quantized file against the reference, by name.
      scores: metrics by labels; the first that is a share of labels decides, top-1 say.

    Returns:
      None where nothing was compared.
    """
    for name, score in scores.items():
        if name in BUILT_IN and BUILT_IN[name].is_share:
            drop = score.reference - score.quantized
            figures = (
                f"{name} {score_text(name, score.quantized)}, {score_text(name, score.reference)} as given"
            )
            return Verdict(_level(-drop, -GOOD_DROP, -FAIR_DROP), figures)
    if not outputs:
        return None
    name = min(outputs, key=lambda output: outputs[output].worst)
    worst = outputs[name].worst
    return Verdict(_level(worst, GOOD_SQNR, FAIR_SQNR), f"{name} has {decibels(worst)}")


def _level(value: float, good: float, fair: float) -> Level:
    """Larger is better; a float's rounding decides nothing. NaN is poor."""
    slack = 1e-9
    if value >= good - slack:
        return "good"
    return "fair" if value >= fair - slack else "poor"
