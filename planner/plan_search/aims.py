"""Aims: what a plan is to reach, and which of two plans is worth more.

A plan stands by its verdict, the worse of accuracy and coverage, then by the better of the two (a poor one by
coverage), then by the aim: of those that reach it the one of least work, else the one of best quality.
Source: docs/search.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from planner.accuracy.metrics import BUILT_IN, SQNR, Metric, metric_name
from planner.accuracy.verdict import (
    FAIR_DROP,
    FAIR_SQNR,
    GOOD_DROP,
    GOOD_MACS,
    GOOD_SQNR,
    LEVELS,
    Level,
    coverage_level,
    drop_level,
    sqnr_level,
)
from planner.interpreter.compare import Comparison
from planner.plan_search.goals import Goal
from planner.plan_search.trials import Trial, is_met

Effort: TypeAlias = Literal["quick", "normal", "high"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)
GAIN: Final = 1.0
"""dB below which one plan is no better than another of the same verdict."""
COVERED: Final = 6.0
"""dB for which a poor plan may leave so much in float that its coverage is fair and not good."""
FAIR: Final = LEVELS.index("fair")
KEPT: Final = 0.5
"""Share of the multiply-adds that the device runs which a plan keeps at least: else it is a float model."""
OFF: Final = 6.0
"""dB by which trials may be better than the file that is written; beyond, it is no matter of the plan."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The means of an effort, and its aim.

    Attributes:
      trials: plans that are measured, at most.
      sqnr: of the worst output, dB.
      drop: of a share of labels; of other metrics a share of the model's own.
      spent: share of the work saved over float that a fair plan may give up to become better; a poor one all.
    """

    trials: int
    sqnr: float
    drop: float
    spent: float


BUDGETS: Final[Mapping[Effort, Budget]] = {
    "quick": Budget(0, GOOD_SQNR, GOOD_DROP, 0.0),
    "normal": Budget(16, GOOD_SQNR, GOOD_DROP, 0.5),
    "high": Budget(48, GOOD_SQNR + 6, GOOD_DROP / 2, 1.0),
}


@dataclass(frozen=True, slots=True)
class Aim:
    """Conditions under which a search is done.

    Attributes:
      goals: all of them are to be met.
      metric: that counts; None for SQNR.
      is_given: whether the user said what counts: then that alone makes accuracy good.
      coverage: share of the multiply-adds in types of the device, at least.
      spent: as a budget has it, where the user said nothing of what counts.
    """

    goals: tuple[Goal, ...]
    metric: str | Metric | None = None
    is_given: bool = False
    coverage: float = 0.0
    spent: float = 1.0

    @property
    def metric_name(self) -> str:
        """The name of the metric; "" for SQNR."""
        if self.metric is None or isinstance(self.metric, str):
            return self.metric or ""
        return metric_name(self.metric)

    @property
    def stages(self) -> tuple[Goal, ...]:
        """Goals of a search, one after the other: the aim itself, the best well covered plan, a fair one."""
        fair = Goal("sqnr", FAIR_SQNR) if self.metric is None else _drop(self.metric, FAIR_DROP)
        return (*self.goals, Goal("coverage", max(GOOD_MACS, self.coverage)), fair)

    def raised_by(self, more: float) -> "Aim":
        """The aim of trials that have some dB more than the file has, up to `OFF`."""
        added = min(more, OFF) if more > 0 else 0.0
        goals = (
            replace(goal, bound=goal.bound + added) if goal.kind == "sqnr" else goal for goal in self.goals
        )
        return replace(self, goals=tuple(goals))

    def reached(self, trial: Trial) -> bool:
        """Whether a trial is good enough; unasked, by what its outputs decide as well."""
        if not self.is_given and self.metric is None and trial.level == "good":
            return not trial.error
        return not trial.error and all(is_met(goal, trial, math.inf) for goal in self.goals)

    def accuracy(self, trial: Trial) -> Level:
        """The level of a trial's accuracy, on the scale of the verdict, or of what the user asks."""
        if self.is_given and self.reached(trial):
            return "good"
        level = trial.level or sqnr_level(trial.sqnr)
        if _is_share(self.metric_name) and trial.reference is not None:
            level = drop_level(trial.reference - trial.quality)
        return min(level, "fair", key=LEVELS.index) if self.is_given else level

    def standing(self, trial: Trial) -> tuple[int, int]:
        """The levels of a trial: of its verdict, of its coverage."""
        covered = LEVELS.index(coverage_level(trial.mac_share, trial.kernel_share))
        return min(LEVELS.index(self.accuracy(trial)), covered), covered

    def order(self, trial: Trial) -> tuple[int, int, bool, float, int]:
        """A key that is larger for better trials."""
        reached, (level, covered) = self.reached(trial), self.standing(trial)
        worth = -trial.work if reached else trial.quality
        if level:
            # Good accuracy with fair coverage is worth as much as the other way round: what counts is the
            # aim, then the work, of which the share of multiply-adds is a part.
            covered += LEVELS.index(self.accuracy(trial))
        elif trial.metric is None:
            # Among poor plans many decibels are worth coverage that is fair and not good.
            worth -= COVERED * (covered == FAIR)
            covered = min(covered, FAIR)
        return (level, covered, reached, worth, -trial.size)

    def is_worth(self, trial: Trial, other: Trial) -> bool:
        """Whether a trial keeps enough of the work that another saves over float.

        All that a poor one saves may be given up, but no more: the float model itself is better then.
        """
        saved = other.float_work - other.work
        if self.is_given or saved <= 0:
            return True
        if self.standing(other)[0] < FAIR:
            return trial.work <= other.float_work
        return trial.work <= other.work + self.spent * saved

    def is_better(self, trial: Trial, other: Trial) -> bool:
        """Whether a trial is worth more than another, which it may replace."""
        most = max(KEPT * other.mac_share, self.coverage if other.mac_share >= self.coverage else 0.0)
        if trial.error or trial.mac_share < most or not trial.mac_share or not self.is_worth(trial, other):
            return False
        (level, covered), (own, own_covered) = self.standing(trial), self.standing(other)
        if level != own:
            return level > own
        if self.reached(other):
            return False
        gain = GAIN if trial.metric is None else 0.0
        is_gain = (
            LEVELS.index(self.accuracy(trial)) > LEVELS.index(self.accuracy(other))
            and trial.work < other.work
        )
        if covered < own_covered and not (level and is_gain):
            # What is poor either way may leave more in float for many decibels, if coverage stays fair.
            if level or not covered or trial.metric is not None:
                return False
            gain = COVERED
        if self.reached(trial):
            return True
        return trial.quality > other.quality and trial.quality >= other.quality + gain


def aim_of(
    budget: Budget,
    comparisons: Sequence[Comparison],
    *,
    metric: str | Metric | None = None,
    min_sqnr: float | None = None,
    min_metric: float | None = None,
    coverage: float | None = None,
) -> Aim:
    """The figures that a file has to reach: the user's bounds, or those of the effort.

    Args:
      comparisons: of the plan without a search; where they have labels, these are what counts.
      metric: that the user named; SQNR counts as none.
      min_sqnr, min_metric, coverage: least figures that the user asks for.
    """
    named = None if metric == SQNR else metric
    goals = () if min_sqnr is None else (Goal("sqnr", min_sqnr),)
    if named is not None and (min_metric is not None or not goals):
        own = _drop(named, budget.drop) if min_metric is None else Goal("metric", min_metric)
        return Aim((own, *goals), named, True, coverage or 0.0)
    if goals:
        return Aim(goals, None, True, coverage or 0.0)
    first = next((name for one in comparisons for name in one.scores if _is_share(name)), None)
    goal = Goal("sqnr", budget.sqnr) if first is None else _drop(first, budget.drop)
    return Aim((goal,), first, False, coverage or 0.0, budget.spent)


def _drop(metric: str | Metric, share: float) -> Goal:
    """A loss of a metric: labels of all labels, else a share of the model's own figure."""
    if isinstance(metric, str) and _is_share(metric):
        return Goal("drop", share)
    return Goal("drop", 100 * share, is_relative=True)


def _is_share(name: str) -> bool:
    return name in BUILT_IN and BUILT_IN[name].is_share
