"""Effort: how hard `quantize` tries for a plan that is good, and which of the plans it tried is worth taking.

A plan that was better is never given up. How plans stand to each other is in `aims`. Source: docs/search.md.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Generic, TypeAlias, TypeVar

from planner.accuracy.own_noise import Progress as NoiseProgress
from planner.accuracy.verdict import (
    FAIR_MACS,
    LEVELS,
)
from planner.calibration.samples import Sample, Source, open_samples
from planner.errors import PlannerError, quantity
from planner.formats.onnx.sessions import Optimisation
from planner.formats.runnable import is_runnable
from planner.interpreter.compare import Comparison
from planner.interpreter.reference import ReferenceKind
from planner.ir.graph import Graph
from planner.plan_search.aims import Aim, Budget
from planner.plan_search.goals import Goal
from planner.plan_search.greedy import raised
from planner.plan_search.measuring import bench_of, measured_table
from planner.plan_search.options import FLOAT, TABLES
from planner.plan_search.search import Progress, Search, SearchRun
from planner.plan_search.search_text import given_up, nothing_better
from planner.plan_search.trials import Bench, State, Trial, kernels_key, trial_of
from planner.plans.plan import Plan
from planner.target.records import Target

T = TypeVar("T")
CANDIDATES: Final = 3
"""Plans that are made of a search at most, the best first, until one is as good as it was when tried."""
CLOSE: Final = 0.5
"""dB between predictions where an aim is met closely enough."""
NOISE_SAMPLES: Final = (4, 8)
"""Samples that the noise of kernels is measured on, of large models and of others."""
LARGE: Final = 1_000_000_000
"""Elements of all values times kernels, from which on a model is large: a sample of it takes many seconds."""
TRIAL_SAMPLES: Final = 32
"""Samples that trials are measured on where no metric counts; the plan taken is measured on all."""


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search towards an aim.

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
    """Everything that trials of `improve` need: plans as `quantize` makes them, files as they are used.

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
      The plan that is worth most, and whether the search was interrupted.
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
    """Result of an effort.

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
        """A sentence: the best plan's gains and losses, or that no trial was better."""
        return outcome_text(self.plan, self.first.trial, self.best.trial, self.found, self.aim)

    @property
    def stopped(self) -> str:
        """That the search was stopped; "" where it was not."""
        done, most = self.found.trials, self.budget.trials
        text = (
            f"the search was stopped after {done} of {quantity(most, 'trial')}: this is the best plan so far"
        )
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
    """A sentence: the best plan's gains and losses, or that no trial was better than the first plan.

    Args:
      plan: the first.
    """
    if best.kernels and found.search is not None:
        return given_up(plan, first, best, aim.metric_name, found.search.dearest)
    sound = [] if found.search is None else [trial for trial in found.search.trials if not trial.error]
    nearest, spent = max(sound, key=aim.order, default=None), None
    if nearest is not None and not aim.is_worth(nearest, first):
        spent = (nearest.work - first.work) / (first.float_work - first.work)
    return nothing_better(found.trials, nearest, aim.metric_name, spent)
