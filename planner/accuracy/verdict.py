"""Verdict: whether a quantized model is good enough to go on with, in a word and a reason.

It has two parts: accuracy, and coverage, how much of the model the device runs in its own types; the worse
decides. If the quantized file has no advantage over the float model, the verdict is to keep that one.
Accuracy goes by labels where there are some, by the number of additional wrong answers. Else it goes by the
worst output's SQNR. There is one scale, this one, for the command, the report, the page and the service. The
bounds are ours, for a first look; a bound that matters is `--min-sqnr`, `--min-metric`, `--min-coverage`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from planner.accuracy.coverage import Coverage
from planner.accuracy.metrics import BUILT_IN, Score, score_text
from planner.accuracy.quality import Quality, decibels
from planner.errors import InputError, quantity

Level: TypeAlias = Literal["good", "fair", "poor"]

LEVELS: Final[tuple[Level, ...]] = ("poor", "fair", "good")
"""Worst first."""
GOOD_SQNR: Final = 30.0
"""dB of an output whose noise is about a thirtieth of it."""
FAIR_SQNR: Final = 20.0
"""dB of an output whose noise is a tenth of it."""
GOOD_DROP: Final = 0.01
"""Share of the labels that may be lost."""
FAIR_DROP: Final = 0.03
GOOD_MACS: Final = 0.9
"""Share of the multiply-adds that run on the device: what is left costs about as much as all of them."""
FAIR_MACS: Final = 0.5
"""At least half of the work is saved."""
GOOD_KERNELS: Final = 0.5
"""Share of the kernels that run on the device: below, most of the model is float with casts between."""
FAIR_KERNELS: Final = 0.2
KEEP: Final = "keep the float model"


@dataclass(frozen=True, slots=True)
class Part:
    """One side of a verdict: a level, and the figure that it follows from, for people."""

    level: Level
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A level, and the figure that it follows from, for people.

    Attributes:
      level, reason: of the worse part; of accuracy where both are alike.
      accuracy: None where nothing was compared.
      coverage: None where no plan is known.
      covered: the figures of coverage.
    """

    level: Level
    reason: str
    accuracy: Part | None = None
    coverage: Part | None = None
    covered: Coverage | None = None

    def __str__(self) -> str:
        return self.reason if self.keeps_float else f"{self.level}: {self.reason}"

    @property
    def keeps_float(self) -> bool:
        """Whether the float model is to be kept: the quantized file has nothing to offer over it."""
        return self.covered is not None and not self.covered.pays

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "level": self.level,
            "reason": self.reason,
            "keep_float": self.keeps_float,
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            "coverage": None
            if self.coverage is None or self.covered is None
            else {**asdict(self.coverage), **coverage_data(self.covered)},
        }


def verdict_of(
    outputs: Mapping[str, Quality],
    scores: Mapping[str, Score],
    coverage: Coverage | None = None,
    *,
    of: str = "",
    failure: str = "",
) -> Verdict | None:
    """Evaluate a comparison and the coverage of its plan.

    Args:
      outputs: of the quantized file against the reference, by name.
      scores: metrics by labels; the first that is a share of labels decides, top-1 say.
      coverage: of the plan, where it is known.
      of: what was compared, where it is not the file itself.
      failure: why the file does not run at its engine's defaults: no figures make up for that.

    Returns:
      None where nothing was compared and no plan is known.
    """
    accuracy = Part("poor", failure) if failure else _accuracy(outputs, scores)
    if accuracy is not None and of:
        accuracy = Part(accuracy.level, f"{accuracy.reason} ({of})")
    covered = None if coverage is None else coverage_part(coverage)
    is_kept = coverage is not None and not coverage.pays
    parts = [part for part in (None if is_kept else accuracy, covered) if part is not None]
    if not parts:
        return None
    worse = min(parts, key=lambda part: LEVELS.index(part.level))
    return Verdict(worse.level, worse.reason, accuracy, covered, coverage)


def sqnr_level(sqnr: float) -> Level:
    """The level of an output of so many dB."""
    return _level(sqnr, GOOD_SQNR, FAIR_SQNR)


def quality_level(quality: Quality) -> Level:
    """The level of an output: by dB, or by what it decides where that is better."""
    by_noise = sqnr_level(quality.worst)
    if quality.decided is None:
        return by_noise
    return max(by_noise, drop_level(quality.decided.share), key=LEVELS.index)


def level_of(outputs: Mapping[str, Quality]) -> Level:
    """The level of the worst output."""
    return min(map(quality_level, outputs.values()), key=LEVELS.index, default="good")


def decided_text(quality: Quality) -> str:
    """`, and decides 32 of 32 answers as before`; "" of an output that decides nothing."""
    if quality.decided is None:
        return ""
    share = share_text(quality.decided.share)
    return f", and {share} of {quality.decided.answers:,} answers change"


def drop_level(drop: float) -> Level:
    """The level of a file that loses such a share of the labels."""
    return _level(-drop, -GOOD_DROP, -FAIR_DROP)


def coverage_part(coverage: Coverage) -> Part:
    """Evaluate the coverage of a plan: by multiply-adds and by kernels, the worse; poor without any gain."""
    if not coverage.pays:
        return Part("poor", f"{KEEP}: {unpaid_text(coverage)}")
    slower = f"; it is predicted to take {_slower_text(coverage)}" if coverage.is_slower else ""
    level = coverage_level(coverage.mac_share, coverage.kernel_share)
    return Part(level, f"{coverage_text(coverage)}{slower}")


def coverage_level(mac_share: float, kernel_share: float) -> Level:
    """The level of a plan by what the device runs: of multiply-adds and of kernels, the worse."""
    by_macs = _level(mac_share, GOOD_MACS, FAIR_MACS)
    by_kernels = _level(kernel_share, GOOD_KERNELS, FAIR_KERNELS)
    return min(by_macs, by_kernels, key=LEVELS.index)


def coverage_text(coverage: Coverage) -> str:
    """`7 of 9 kernels and 97 % of multiply-adds are quantized; the rest falls back to float`."""
    if not coverage.kernels:
        return "no kernel computes with floats"
    if coverage.is_nothing:
        if coverage.kernels == 1:
            return "nothing is quantized, the only kernel falls back to float"
        return f"nothing is quantized, all {coverage.kernels} kernels fall back to float"
    macs = f" and {share_text(coverage.mac_share)} of multiply-adds" if coverage.macs else ""
    rest = "" if coverage.on_device == coverage.kernels else "; the rest falls back to float"
    return f"{coverage.on_device} of {quantity(coverage.kernels, 'kernel')}{macs} are quantized{rest}"


def unpaid_text(coverage: Coverage) -> str:
    """Return why a quantized file has nothing to offer over the float model."""
    if coverage.is_nothing or (not coverage.macs_on_device and coverage.macs):
        return coverage_text(coverage)
    return (
        f"the file is bigger, {coverage.size:,} bytes, not {coverage.float_size:,}, and predicted to take "
        f"{_slower_text(coverage)}"
    )


def _slower_text(coverage: Coverage) -> str:
    times = coverage.work / coverage.float_work if coverage.float_work else math.inf
    return f"{times:.3g} times the work of the given model"


def offers_nothing(coverage: Coverage, bound: float | None) -> bool:
    """Return whether a file is not worth writing.

    Args:
      bound: the least share of the multiply-adds that the user asks for: then that decides, unless nothing is
        quantized.
    """
    return coverage.is_nothing or (bound is None and not coverage.pays)


def require_share(bound: float | None, name: str) -> None:
    """Refuse a least coverage that is no share.

    Raises:
      InputError: below 0, above 1, or NaN.
    """
    if bound is not None and not 0 <= bound <= 1:
        raise InputError(f"{name} {bound:g}: a share of the multiply-adds, between 0 and 1")


def missed_coverage(coverage: Coverage, bound: float | None) -> str:
    """Return what falls short of a least share of the multiply-adds; "" where nothing does.

    Without a bound a file that has nothing to offer over the float model falls short.
    """
    if offers_nothing(coverage, bound):
        return unpaid_text(coverage)
    if bound is None or coverage.mac_share >= bound:
        return ""
    return f"{share_text(coverage.mac_share)} of multiply-adds are quantized, of at least {bound:.0%}"


def share_text(share: float) -> str:
    """`97 %`; what is not all or nothing is neither 100 nor 0 %."""
    percent = round(100 * share)
    if share < 1 and percent == 100:
        return "over 99 %"
    return "under 1 %" if share > 0 and percent == 0 else f"{percent} %"


def coverage_data(coverage: Coverage) -> dict[str, Any]:
    """The figures as plain data."""
    return {
        "kernels": coverage.kernels,
        "on_device": coverage.on_device,
        "multiply_adds": coverage.macs,
        "multiply_adds_on_device": coverage.macs_on_device,
        "kernel_share": coverage.kernel_share,
        "multiply_add_share": coverage.mac_share,
        "work": coverage.work,
        "float_work": coverage.float_work,
        "bytes": coverage.size,
        "float_bytes": coverage.float_size,
        "fallbacks": [
            {
                "reason": one.reason,
                "multiply_adds": one.macs,
                "kernels": dict(one.kinds),
                "kernel": one.kernel,
            }
            for one in coverage.fallbacks
        ],
    }


def _accuracy(outputs: Mapping[str, Quality], scores: Mapping[str, Score]) -> Part | None:
    for name, score in scores.items():
        if name in BUILT_IN and BUILT_IN[name].is_share:
            drop = score.reference - score.quantized
            figures = (
                f"{name} {score_text(name, score.quantized)}, {score_text(name, score.reference)} as given"
            )
            return Part(drop_level(drop), figures)
    if not outputs:
        return None
    name = min(
        outputs, key=lambda output: (LEVELS.index(quality_level(outputs[output])), outputs[output].worst)
    )
    worst = outputs[name]
    figure = decibels(worst.worst)
    verb = "is" if math.isinf(worst.worst) else "has"
    return Part(quality_level(worst), f"{name} {verb} {figure}{decided_text(worst)}")


def _level(value: float, good: float, fair: float) -> Level:
    """Larger is better; a float's rounding decides nothing. NaN is poor."""
    slack = 1e-9
    if value >= good - slack:
        return "good"
    return "fair" if value >= fair - slack else "poor"
