"""Effort: how hard `quantize` tries for a plan that is good, and which of the plans it tried is worth taking.

A plan stands by its verdict, the worse of accuracy and coverage, then by its coverage, then by the aim: of
those that reach it the one of least work, else the one of best quality. A plan that was better is never given
up. Source: docs/search.md.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Generic, Literal, TypeAlias, TypeVar, get_args

from planner.accuracy.metrics import BUILT_IN, SQNR, Metric, metric_name
from planner.accuracy.own_noise import Progress as NoiseProgress
from planner.accuracy.verdict import (
    FAIR_DROP,
    FAIR_MACS,
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
from planner.calibration.samples import Sample, Source, open_samples
from planner.errors import PlannerError
from planner.exporters.runnable import is_runnable
from planner.interpreter.compare import Comparison
from planner.interpreter.reference import ReferenceKind
from planner.ir.graph import Graph
from planner.onnx.sessions import Optimisation
from planner.plan_search.goals import Goal
from planner.plan_search.greedy import raised
from planner.plan_search.measuring import bench_of, measured_table
from planner.plan_search.options import FLOAT, TABLES
from planner.plan_search.search import Progress, Search, SearchRun
from planner.plan_search.told import given_up, nothing_better
from planner.plan_search.trials import Bench, State, Trial, is_met, kernels_key, trial_of
from planner.plans.plan import Plan
from planner.target.records import Target

T = TypeVar("T")
Effort: TypeAlias = Literal["quick", "normal", "high"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)
GAIN: Final = 1.0
"""dB below which one plan is no better than another of the same verdict."""
COVERED: Final = 6.0
"""dB for which a poor plan may leave so much in float that its coverage is fair and not good."""
FAIR: Final = LEVELS.index("fair")
KEPT: Final = 0.5
"""Share of the multiply-adds that the device runs which a plan keeps at least: else it is a float model."""
CANDIDATES: Final = 3
"""Plans that are made of a search at most, the best first, until one is as good as it was when tried."""
OFF: Final = 6.0
"""dB by which trials may be better than the file that is written; beyond, it is no matter of the plan."""
CLOSE: Final = 0.5
"""dB between predictions where an aim is met closely enough."""
NOISE_SAMPLES: Final = (4, 8)
"""Samples that the noise of kernels is measured on, of large models and of others."""
LARGE: Final = 1_000_000_000
"""Elements of all values times kernels, from which on a model is large: a sample of it takes many seconds."""
TRIAL_SAMPLES: Final = 32
"""Samples that trials are measured on where no metric counts; the plan taken is measured on all."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What an effort may spend, and what it aims at.

    Attributes:
      trials: plans that are measured, at most.
      sqnr: of the worst output, dB.
      drop: of a share of labels; of other metrics a share of the model's own.
      spent: share of the work saved over float that a fair plan may give up to become better.
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
    """What is enough.

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
        """Goals of a search, one after the other: what is wanted, the best well covered plan, a fair one."""
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
        """What larger is better of."""
        reached, (level, covered) = self.reached(trial), self.standing(trial)
        worth = -trial.work if reached else trial.quality
        if not level and trial.metric is None:
            # Among poor plans many decibels are worth coverage that is fair and not good.
            worth -= COVERED * (covered == FAIR)
            covered = min(covered, FAIR)
        return (level, covered, reached, worth, -trial.size)

    def is_worth(self, trial: Trial, other: Trial) -> bool:
        """Whether a trial keeps enough of the work that another, fair one saves over float."""
        saved = other.float_work - other.work
        if self.is_given or saved <= 0 or self.standing(other)[0] < FAIR:
            return True
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
        if covered < own_covered:
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
    """What a file is to reach: the bounds of the user, or what the effort aims at.

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


@dataclass(frozen=True, slots=True)
class Found:
    """What a search towards an aim found.

    Attributes:
      search: None where it was stopped before a plan was measured.
      better: trials that are worth more than the plan at hand, the best first.
      is_stopped: whether it was interrupted.
    """

    search: Search | None
    better: tuple[Trial, ...]
    is_stopped: bool

    @property
    def trials(self) -> int:
        """The number of plans measured."""
        return 0 if self.search is None else len(self.search.trials)

    def with_best(self, trial: Trial, aim: Aim) -> Search | None:
        """The search with the trial of the plan that was taken as its best."""
        if self.search is None:
            return None
        same = [one for one in self.search.trials if one.kernels == trial.kernels]
        best = same[0] if same else self.search.trials[0]
        return replace(self.search, best=best, met=aim.reached(best), bound=None, gap=None)


def improve(
    bench: Bench,
    aim: Aim,
    first: Trial,
    *,
    trials: int,
    state: State | None = None,
    progress: Progress | None = None,
    measuring: NoiseProgress | None = None,
    executor: Executor | None = None,
) -> Found:
    """Search for plans that are better than one; an interrupt ends it with what was found by then.

    Args:
      bench: what trials need.
      first: the plan at hand, as measured.
      trials: plans that are measured, at most.
      state: what was measured before, and keeps what is measured now.
      progress, measuring, executor: as `search` takes them.
    """
    run: _Run | None = None
    samples = few_samples(bench.samples, bench.model, _noise_samples(bench.model))
    if aim.metric is None:
        bench = replace(bench, samples=few_samples(bench.samples, bench.model, TRIAL_SAMPLES))
    kept = State("", None) if state is None else state
    is_stopped = False
    try:
        table = measured_table(bench, kept, samples, measuring, executor=executor)
        run = _Run(bench, kept, table, goal=aim.goals[0], most=trials, progress=progress)
        run.towards(aim, first)
    except KeyboardInterrupt:
        is_stopped = True
    if run is None or not run.trials:
        return Found(None, (), is_stopped)
    sound = [trial for trial in run.trials if trial.kernels and aim.is_better(trial, first)]
    better = tuple(sorted(sound, key=aim.order, reverse=True)[:CANDIDATES])
    return Found(run.result(), better, is_stopped)


def bench_for(
    model: Graph,
    target: Target,
    samples: Source,
    aim: Aim,
    *,
    output: str | None = None,
    reference: ReferenceKind = "written",
    formats: Sequence[str] = (),
    prepare: Callable[[Graph], Graph] | None = None,
) -> Bench:
    """What the trials of `improve` need: plans as `quantize` makes them, files as they are used.

    Args:
      model: annotated, biases as given.
      formats: that are written.
      prepare: corrects biases, say, of a model with kernels asked.
    """
    bench = bench_of(model, target, samples, metric=aim.metric, output=output, reference=reference)
    is_here = target.files.runtime == "onnxruntime"
    level: Optimisation = "all" if is_here and any(map(is_runnable, formats)) else "none"
    return replace(bench, formats=tuple(formats), prepare=prepare, optimisation=level)


def _noise_samples(model: Graph) -> int:
    size = sum(value.elements for value in model.values.values()) * len(model.ops)
    return NOISE_SAMPLES[size < LARGE]


def few_samples(samples: Source, model: Graph, most: int) -> list[Sample]:
    """The first of some samples."""
    return [dict(feed.arrays) for feed in islice(open_samples(samples, model).feeds, most)]


class _Run(SearchRun):
    """A search by one goal after the other, as long as plans are wanting."""

    def towards(self, aim: Aim, first: Trial) -> None:
        """Base, levels, then each goal, unless a plan is good before.

        Args:
          first: the base as it is used: in another format, on more samples, it may have fewer dB.
        """
        self._tell()
        base = self._trial("planned", {})
        if not aim.is_given and first.mac_share >= FAIR_MACS:
            self._least_share = FAIR_MACS  # a plan with most of them in float is poor at any SQNR
        if base is not None:
            aim = aim.raised_by(base.sqnr - first.sqnr)
            if aim.reached(base):
                return  # what is lost is lost by the format
        self._close = CLOSE
        low, high = self._levels()
        for goal in aim.stages:
            if self._is_enough(aim, goal, first):
                break
            # Half of what is left: the last goal may be the one that can be met.
            self._until = self.spent + max(2, (self._most - self.spent + 1) // 2)
            self._until = min(self._until, self._most)
            self._goal = goal
            self._bisect(*self._narrowed(low, high))
            if goal.is_quality:
                self._greedy()
        self._goal, self._until = aim.goals[0], self._most
        self._mix(aim)

    def _mix(self, aim: Aim) -> None:
        """Raise all else to each level beside what the best trial asks, where that one is not good.

        What an engine loses in the storages of one level alone no noise of kernels tells.
        """
        best = max(self.trials, key=aim.order)
        if best.error or aim.standing(best)[0] == LEVELS.index("good"):
            return
        chosen = {name: at for name, at in self.chosen[kernels_key(best.kernels)].items() if at}
        for level in self._table.levels:
            if level not in ("", FLOAT, TABLES):
                mixed = self._trial(f"mixed with {level}", {**raised(self._table, level), **chosen})
                if mixed is not None and aim.standing(mixed)[0] == LEVELS.index("good"):
                    return

    def _is_enough(self, aim: Aim, goal: Goal, first: Trial) -> bool:
        """Whether nothing more is wanted: a good plan, or a fair one where that would be looked for."""
        if goal in aim.goals:
            return False
        sound = [trial for trial in self.trials if not trial.error and aim.is_worth(trial, first)]
        best = max(map(aim.standing, sound), default=(0, 0))
        return best[0] == LEVELS.index("good") or (goal.is_quality and best[0] == LEVELS.index("fair"))

    def _narrowed(self, low: float, high: float) -> tuple[float, float]:
        """The span of predictions that the goal lies in, by what was asked before."""
        for sqnr, trial in self._asked:
            if self._meets(trial) == self._goal.is_quality:
                high = min(high, sqnr)
            else:
                low = max(low, sqnr)
        return (low, high) if low < high else (high, high)


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """A plan with its files, and their figures.

    Attributes:
      what: all that was made.
      trial: what it asks of kernels, as it was measured.
    """

    what: T
    trial: Trial


def best_made(
    first: Made[T], found: Found, aim: Aim, make: Callable[[Trial], Made[T]]
) -> tuple[Made[T], bool]:
    """Make the plans that a search found until one is as good as it was there; the best, the first included.

    Args:
      make: plans, writes and measures anew, on all samples and as the files are used.

    Returns:
      What is worth most, and whether it was interrupted.
    """
    best = first
    for trial in found.better:
        try:
            made = make(trial)
        except PlannerError:
            continue  # this one cannot be written, or does not run
        except KeyboardInterrupt:
            return best, True
        if aim.is_better(made.trial, first.trial) and (
            best is first or aim.order(made.trial) > aim.order(best.trial)
        ):
            best = made
        if best is not first and aim.standing(best.trial) >= aim.standing(trial):
            break
    return best, found.is_stopped


@dataclass(frozen=True, slots=True)
class Tried(Generic[T]):
    """What came of an effort.

    Attributes:
      best: what is worth most; what was there before where nothing is better.
      first: what was there before.
      budget: what the effort might spend.
      is_stopped: whether it was interrupted.
    """

    best: Made[T]
    first: Made[T]
    plan: Plan
    aim: Aim
    found: Found
    budget: Budget
    is_stopped: bool

    @property
    def is_improved(self) -> bool:
        """Whether something else than what was there before is the best."""
        return self.best.what is not self.first.what

    @property
    def search(self) -> Search | None:
        """The search, with the plan taken as its best."""
        return self.found.with_best(self.best.trial, self.aim)

    @property
    def text(self) -> str:
        """What the best plan gave up for what, or that no trial was better."""
        return outcome_text(self.plan, self.first.trial, self.best.trial, self.found, self.aim)

    @property
    def stopped(self) -> str:
        """That the search was stopped; "" where it was not."""
        done, most = self.found.trials, self.budget.trials
        text = f"the search was stopped after {done} of {most} trials: this is the best plan so far"
        return text if self.is_stopped else ""


Phases: TypeAlias = Callable[[], AbstractContextManager[Sequence[Callable[[int, int | None], None]]]]
"""Opens what shows progress of a search: of measuring noise, and of trials."""


def try_harder(
    first: Made[T],
    figures: Callable[[T], tuple[Plan, Sequence[Comparison]]],
    *,
    budget: Budget,
    aim: Aim,
    bench: Bench,
    make: Callable[[Trial], T],
    state: State | None,
    phases: Phases,
    executor: Executor | None = None,
) -> Tried[T]:
    """Search for something better than what was made first, and make it.

    Args:
      figures: the plan of what was made, and its files compared.
      make: makes what a trial proposes, on all samples and as files are used.
      state: keeps what is measured.
      executor: as `search` takes it.

    Raises:
      PlannerError: a search cannot begin.
    """

    def remade(trial: Trial) -> Made[T]:
        what = make(trial)
        return Made(what, worst_of(*figures(what), aim, trial))

    with phases() as (runs, bar):
        found = improve(
            bench,
            aim,
            first.trial,
            trials=budget.trials,
            state=state,
            progress=bar,
            measuring=runs,
            executor=executor,
        )
    best, is_stopped = best_made(first, found, aim, remade)
    return Tried(best, first, figures(first.what)[0], aim, found, budget, is_stopped)


def worst_of(plan: Plan, comparisons: Iterable[Comparison], aim: Aim, proposed: Trial | None = None) -> Trial:
    """The figures of a plan whose files were compared, of the worst file.

    Args:
      proposed: what it asks; by default nothing.
    """
    asked = proposed or Trial("planned", {}, 0.0, 0.0, math.nan, 0.0)
    trials = [trial_of(plan, found, aim.metric_name, asked) for found in comparisons]
    return min(trials, key=aim.order)


def outcome_text(plan: Plan, first: Trial, best: Trial, found: Found, aim: Aim) -> str:
    """What the best plan gave up for what, or that no trial was better than the first plan.

    Args:
      plan: the first.
    """
    if best.kernels and found.search is not None:
        return given_up(plan, first, best, aim.metric_name, found.search.dearest)
    sound = [] if found.search is None else [trial for trial in found.search.trials if not trial.error]
    return nothing_better(found.trials, max(sound, key=aim.order, default=None), aim.metric_name)
