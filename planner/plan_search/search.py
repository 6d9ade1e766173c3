"""Search: the plan of least work that is as good as asked, or the best within some work or weight bits.

The own noise of every kernel, measured once, predicts what options do to the outputs; a program proposes the
options of least work for an SQNR, `plan` plans them, and the exported file is measured. Bisection of the SQNR
that the program has to reach corrects its predictions, until the goal is met as closely as trials allow.
`plan` still decides what is legal: a search only asks things of kernels. Source: docs/search.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from planner.accuracy.metrics import SQNR, Metric
from planner.accuracy.own_noise import Progress as NoiseProgress
from planner.calibration.annotations import FORMAT as ANNOTATIONS
from planner.calibration.samples import Source
from planner.errors import InputError, quantity
from planner.interpreter.reference import ReferenceKind
from planner.ir.graph import Graph
from planner.notebook import html_of, html_table
from planner.plan_search.edges import Chosen
from planner.plan_search.forecast import Net, forecast, net_of, priced_by_coverage
from planner.plan_search.goals import Goal, goal_of
from planner.plan_search.greedy import greedy, raised
from planner.plan_search.measuring import bench_of, measured_table
from planner.plan_search.options import Table, Wish, mean_weight_bits, weight_bytes
from planner.plan_search.program import bounds_of, propose
from planner.plan_search.trials import Bench, State, Trial, is_met, kernels_key
from planner.plan_search.weight_bytes import with_fewer_bytes
from planner.target.load import TargetSource, as_target
from planner.target.records import QuantFn

TRIALS: Final = 40
CLOSE: Final = 0.1
"""dB between the SQNR asked of the program that does and the one that does not, where bisection ends."""
REACH: Final = 60.0
"""dB beyond the plan without wishes that are looked at, where float makes any SQNR possible."""
GAP: Final = 0.2
"""dB between neighbours of the front from which on what lies between is tried, while trials are left."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, repr=False)
class Search:
    """Result of a search.

    Attributes:
      goal: as asked.
      met: whether the best plan reaches it.
      best: of the trials that reach the goal the one of least work, or of the best quality within its means;
        where none does the one that comes nearest.
      front: no other trial is as good at less work; least work first.
      trials: all of them, in the order measured.
      dearest: work of the plan with every kernel at its most expensive, of which goals of work are shares.
      bound: work that any plan with the predicted noise of the best needs at least; of the prediction, not of
        the measurement. None where the program did not propose the best.
      gap: how far that proposal is above the bound, as a share.
      unit: the target's word for the unit of work.
    """

    goal: Goal
    met: bool
    best: Trial
    front: tuple[Trial, ...]
    trials: tuple[Trial, ...]
    dearest: float
    bound: float | None
    gap: float | None
    unit: str

    def __repr__(self) -> str:
        met = "met" if self.met else "not met"
        return (
            f"<Search for {self.goal}, {met}: work {self.best.work:g} at {self.best.sqnr:.1f} dB, "
            f"{quantity(len(self.trials), 'trial')}, front of {len(self.front)}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the front, least work first."""
        rows = [
            (
                f"{trial.work:g}",
                f"{trial.sqnr:.1f}",
                None if trial.metric is None else f"{trial.metric:.4g}",
                len(trial.kernels),
                "the best" if trial is self.best else "",
            )
            for trial in self.front
        ]
        title = (
            f"Search for {self.goal}, {'met' if self.met else 'not met'}: "
            f"{quantity(len(self.trials), 'trial')}"
        )
        head = (f"work ({self.unit})", "SQNR, dB", "metric", "kernels asked", "")
        return html_of(title, html_table(head, rows))

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations that make `plan` give the best plan, over those that the model has."""
        return merged_annotations(None, self.best.kernels)


def merged_annotations(given: Mapping[str, Any] | None, kernels: Mapping[str, Wish]) -> dict[str, Any]:
    """Annotations with wishes of kernels over those that are given."""
    document = {"format": ANNOTATIONS, **(given or {})}
    return {**document, "kernels": {**(document.get("kernels") or {}), **kernels}}


def search(
    model: Graph,
    target: TargetSource,
    samples: Source,
    *,
    goal: str | Goal | Mapping[str, Any],
    metric: str | Metric | None = None,
    output: str | None = None,
    trials: int = TRIALS,
    reference: ReferenceKind = "written",
    functions: Mapping[str, QuantFn] | None = None,
    state: str | Path | None = None,
    progress: Progress | None = None,
    measuring: NoiseProgress | None = None,
    executor: Executor | None = None,
    parts: int = 4,
) -> Search:
    """Find the plan of least work that reaches a goal.

    Args:
      model: annotated, as for `plan`; fixed types and requests for kernels stay.
      target: a loaded target, a shipped name, or a path.
      samples: a folder of .npz files, one .npz, or an iterable of {input name: array}, with `label` or
        `labels` where a metric wants them; 8 will do for SQNR.
      goal: `sqnr=30`, `metric=0.9`, `drop=0.01` or `drop=1%` (of least work); `work=0.5`, `weight_bits=4.5`,
        `size=25MB`, `coverage=0.9` (of best quality). Or a mapping of one.
      metric: `top1`, `top5`, `cross_entropy` (counted as minus it: larger is better), or a function.
      output: the one that labels evaluate; by default the only one.
      trials: plans that are measured, at most.
      reference: of a model with quantizers of its own, as `compare` takes it.
      state: a file of the measurements; a search that finds it resumes.
      progress: called with (trials done, trials at most), and once before the first.
      measuring: called with (runs done, runs in all or None) while noise is measured, before any trial: once
        through for the kernels, then for the weights of those that matter.
      executor: runs `parts` of the samples at once where noise is measured; any of `concurrent.futures`.

    Raises:
      InputError: no goal, a goal that needs a metric without one, a model without a float output, the state
        of another search, or a metric that raises.
      SampleError: no samples, or one that does not fit.
    """
    wanted = goal_of(goal)
    if wanted.needs_metric and metric in (None, SQNR):
        raise InputError(
            f"the goal {wanted} needs a metric",
            hint="top1, top5, cross_entropy, or a function (outputs, labels)",
        )
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
        raise InputError(f"trials is {trials!r}; accepted: a number of plans, 1 or more")
    device = as_target(target, functions)
    bench = bench_of(model, device, samples, metric=metric, output=output, reference=reference)
    # The key goes through all samples: only a file wants it.
    kept = State("", None) if state is None else State(bench.key(), Path(state))
    table = measured_table(bench, kept, bench.samples, measuring, executor=executor, parts=parts)
    return SearchRun(bench, kept, table, goal=wanted, most=trials, progress=progress).search()


class SearchRun:
    """One search; its state is what was measured so far."""

    def __init__(
        self, bench: Bench, kept: State, table: Table, *, goal: Goal, most: int, progress: Progress | None
    ) -> None:
        self._bench, self._kept, self._table, self._net = bench, kept, table, net_of(table)
        self._by_coverage = priced_by_coverage(table, self._net)
        self._goal, self._most, self._progress = goal, most, progress
        self._until, self._close = most, CLOSE
        # Of the multiply-adds on the device: with fewer, more quality is worth no trial.
        self._least_share = 0.0
        # Whether proposals are of the fewest multiply-adds in float, not of the least work.
        self._is_covering = False
        self._weight_bits = _most_weight_bits(goal, table)
        self._trials: dict[str, Trial] = {}
        # Wishes are dropped that planning cannot keep: what was measured in the place of what was asked.
        self._kept_as: dict[str, str] = {}
        self.chosen: dict[str, Chosen] = {}
        self._asked: list[tuple[float, Trial]] = []
        self._bounds: dict[str, tuple[float, float]] = {}
        self.dearest = _dearest(table, self._net)

    def search(self) -> Search:
        """Base, levels, bisection, then the gaps of the front."""
        self._tell()
        self._trial("planned", {})
        self._bisect(*self._levels())
        self._greedy()
        self._spread()
        return self.result()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Those measured by now, in that order."""
        return tuple(self._trials.values())

    @property
    def spent(self) -> int:
        """Plans measured, with those whose kept wishes had been measured before."""
        return len(self._kept_as)

    def result(self) -> Search:
        """The result so far; at least the plan without requests has been measured."""
        found = self.trials
        sound = [trial for trial in found if not trial.error]
        best = self._best(sound)
        bound, gap = self._bounds.get(kernels_key(best.kernels), (None, None))
        return Search(
            self._goal,
            self._meets(best),
            best,
            _front(sound),
            found,
            self.dearest,
            bound,
            gap,
            self._table.base.target.work_unit,
        )

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(len(self._trials), self._most)

    def _trial(self, origin: str, chosen: Chosen) -> Trial | None:
        """Measure some options, once; None where no trial is left."""
        kernels = self._wishes(chosen)
        key = self._kept_as.get(kernels_key(kernels), kernels_key(kernels))
        if key in self._trials:
            return self._trials[key]
        if self.spent >= self._until:
            return None
        known = self._kept.trials.get(key)
        if known is None or known.error:
            predicted = forecast(self._table, self._net, chosen).sqnr(self._table)
            known = self._bench.measured(origin, kernels, predicted, None if kernels else self._table.base)
            before = self._kept.trials.get(kernels_key(known.kernels))
            if before is None or before.error:
                self._kept.keep(known)
            else:
                known = before
        asked, key = key, kernels_key(known.kernels)
        self._kept_as[asked] = key
        dropped = kernels.keys() - known.kernels.keys()
        self.chosen.setdefault(key, {name: at for name, at in chosen.items() if name not in dropped})
        known = self._trials.setdefault(key, known)
        self._tell()
        return known

    def _wishes(self, chosen: Chosen) -> dict[str, Wish]:
        """What options ask of kernels."""
        wishes = {name: self._table.kernels[name][at].wish for name, at in chosen.items()}
        return {name: wish for name, wish in wishes.items() if wish is not None}

    def _levels(self) -> tuple[float, float]:
        """All or nothing: each level, unless predictions say that it is worse and dearer than another.

        Returns:
          The SQNR (dB) predicted without wishes, and of the finest level that is within reach.
        """
        plain = forecast(self._table, self._net, {})
        told = {"": (plain.work, plain.sqnr(self._table))}
        chosen = {level: raised(self._table, level) for level in self._table.levels if level}
        for level, options in chosen.items():
            found = forecast(self._table, self._net, options)
            told[level] = found.work, found.sqnr(self._table)
        for level, options in chosen.items():
            work, sqnr = told[level]
            others = [told[other] for other in told if other != level]
            if not any(other[0] <= work and other[1] >= sqnr and other != (work, sqnr) for other in others):
                self._trial(f"all {level}", options)
        low = plain.sqnr(self._table)
        return low, min(low + REACH, max(sqnr for _, sqnr in told.values()))

    def _bisect(self, low: float, high: float) -> None:
        """Ask the program for more or less, until the goal is met closely."""
        low = min(low, high) - self._close
        guess = self._guess(low, high)
        while high - low > self._close:
            trial = self._proposed(guess)
            if trial is None and self.spent >= self._until:
                return
            if trial is not None and self._goal.is_quality and trial.mac_share < self._least_share:
                if self._is_covering:
                    return
                # The least work has too much in float: the same quality with as little in float as it takes.
                self._is_covering = True
                continue
            is_enough = trial is not None and self._meets(trial)
            # Quality: what meets the goal may do with less. Means: what keeps within them may have more.
            if is_enough == self._goal.is_quality and trial is not None:
                high = guess
            elif trial is None or not is_enough:
                high, low = (guess, low) if not self._goal.is_quality else (high, guess)
            else:
                low = guess
            guess = self._guess(low, high)

    def _guess(self, low: float, high: float) -> float:
        """The next SQNR (dB) to ask for: the goal corrected by the nearest trial, else the middle."""
        middle = (low + high) / 2
        if self._goal.kind != "sqnr":
            return middle
        near = min(self._asked, key=lambda one: abs(one[1].sqnr - self._goal.bound), default=None)
        offset = 0.0 if near is None else near[1].sqnr - near[0]
        guess = self._goal.bound - (offset if math.isfinite(offset) else 0.0)
        margin = self._close / 2
        return guess if low + margin < guess < high - margin else middle

    def _proposed(self, sqnr: float) -> Trial | None:
        """Measure the program's proposal for an SQNR (dB); None where it has none, or no trial is left."""
        bounds = bounds_of(self._table, sqnr)
        is_covering = self._is_covering or self._goal.kind == "coverage"
        table, net = self._by_coverage if is_covering else (self._table, self._net)
        start = greedy(table, net, bounds, weight_bits=self._weight_bits)
        found = propose(
            table,
            net,
            bounds,
            {} if start is None else start[0],
            weight_bits=self._weight_bits,
        )
        if found is None:
            return None
        # Bytes are worth what two answers of a bisection may differ by.
        near = bounds_of(self._table, sqnr - CLOSE)
        chosen = with_fewer_bytes(self._table, self._net, found.chosen, near)
        trial = self._trial("program", chosen)
        if trial is not None and not trial.error:
            self._asked.append((sqnr, trial))
        key = kernels_key(self._wishes(chosen))
        # A bound is of all that was proposed: without some of its wishes a plan may need less work.
        is_whole = trial is not None and kernels_key(trial.kernels) == key
        if trial is not None and not trial.error and not is_covering and is_whole:
            work = forecast(self._table, self._net, chosen).work
            gap = max(0.0, work / found.bound - 1) if found.bound else 0.0
            self._bounds.setdefault(key, (found.bound, gap))
        return trial

    def _greedy(self) -> None:
        """The greedy choice for what was asked of the program where it served best."""
        sound = [(sqnr, trial) for sqnr, trial in self._asked if self._meets(trial)]
        if not sound:
            return
        best = self._best([trial for _, trial in sound])
        self._by_greedy(next(sqnr for sqnr, trial in sound if trial is best))

    def _by_greedy(self, sqnr: float) -> None:
        """Measure the greedy choice for an SQNR (dB)."""
        bounds = bounds_of(self._table, sqnr)
        start = greedy(self._table, self._net, bounds, weight_bits=self._weight_bits)
        # Infinite: it takes rescales that the target has not.
        if start is not None and math.isfinite(start[1].work):
            self._trial("greedy", with_fewer_bytes(self._table, self._net, start[0], bounds))

    def _spread(self) -> None:
        """Fill the widest gaps of the front, by the program and by greedy, while trials are left."""
        asked: list[float] = []
        while self.spent < self._most:
            front = _front([trial for trial in self._trials.values() if not trial.error])
            gaps = [_gap(a, b, self._top(), asked) for a, b in pairwise(front)]
            widest, middle = max(gaps, default=(0.0, 0.0))
            if widest <= 0:
                return
            asked.append(middle)
            self._proposed(middle)
            self._by_greedy(middle)

    def _top(self) -> float:
        """The SQNR (dB) up to which the front is filled: the best trial's, or that of the finest level."""
        sound = [trial for trial in self._trials.values() if not trial.error]
        raised = [
            trial.sqnr for trial in sound if trial.origin.startswith("all") and math.isfinite(trial.sqnr)
        ]
        return max([self._best(sound).sqnr, *raised])

    def _meets(self, trial: Trial) -> bool:
        return is_met(self._goal, trial, self.dearest)

    def _best(self, trials: Sequence[Trial]) -> Trial:
        meeting = [trial for trial in trials if self._meets(trial)]
        if meeting and self._goal.is_quality:
            return min(meeting, key=lambda trial: (trial.work, trial.size, -trial.quality))
        if meeting or self._goal.is_quality:
            return max(meeting or trials, key=lambda trial: (trial.quality, -trial.work))
        if self._goal.kind == "coverage":
            return max(trials, key=lambda trial: (trial.mac_share, trial.quality))
        means = self._goal.kind  # work, weight_bits or size: figures of a trial
        return min(trials, key=lambda trial: (getattr(trial, means), -trial.quality))


def _most_weight_bits(goal: Goal, table: Table) -> float:
    """Return the mean bits of a number in constants that a goal allows.

    Of a size as many as the first plan has for its bytes: constants that many kernels read count once there.
    """
    if goal.kind == "weight_bits":
        return goal.bound
    size = weight_bytes(table.base)
    return goal.bound * mean_weight_bits(table.base) / size if goal.kind == "size" and size else math.inf


def _gap(a: Trial, b: Trial, top: float, asked: Sequence[float]) -> tuple[float, float]:
    """How much of a gap of the front (dB) nothing was asked in, 0 for too little, and the SQNR amid it."""
    low, high = sorted((a.predicted, b.predicted))
    width = min(b.sqnr, top) - a.sqnr
    if not (math.isfinite(high - low) and width > GAP and high - low > CLOSE):
        return 0.0, 0.0
    known = sorted({low, high, *(sqnr for sqnr in asked if low < sqnr < high)})
    part, start = max((right - left, left) for left, right in pairwise(known))
    return (width * part / (high - low) if part > CLOSE else 0.0), start + part / 2


def _dearest(table: Table, net: Net) -> float:
    """Work of the plan with every kernel at its most expensive: of a level, or predicted of their mixture."""
    chosen = {
        name: max(range(len(options)), key=lambda at, own=options: own[at].work)  # type: ignore[misc]
        for name, options in table.kernels.items()
    }
    mixed = forecast(table, net, chosen).work
    levels = [plan.work.total for plan in table.levels.values()]
    return max([*levels, mixed] if math.isfinite(mixed) else levels)


def _front(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Trials that no other beats, least work first."""
    found: list[Trial] = []
    for trial in sorted(trials, key=lambda one: (one.work, -one.quality)):
        if trial.quality > (found[-1].quality if found else -math.inf):
            found.append(trial)
    return tuple(found)
