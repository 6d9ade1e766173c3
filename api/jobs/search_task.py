"""The task `search` of a child: the plan of least work that is as good as asked.

Its measurements lie in a file that the next child goes on with: of a server that was killed, or of a later
search with another goal. Source: docs/service.md; docs/search.md.
"""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError, model_validator

from planner.errors import InputError, UnsupportedExport
from planner.interpreter.as_used import compare_as_used
from planner.interpreter.compare import Comparison, Evaluated, compare
from planner.ir.graph import Graph
from planner.ir.kernel_requests import with_wanted
from planner.plan_model import plan, require_ranges
from planner.plan_search.aims import BUDGETS, Aim, aim_of
from planner.plan_search.effort import Made, bench_for, try_harder, worst_of
from planner.plan_search.goals import Goal
from planner.plan_search.search import Search, merged_annotations, search
from planner.plan_search.search_text import FORMAT, given_up, search_json
from planner.plan_search.trials import State, Trial
from planner.plans.plan import Plan
from planner.target.records import Target

from ..intake.scan_zip import scan_npz
from ..planning.provenance import NO_RANGES
from .tasks import as_run

APART: Final = ("kernels", "outputs")
"""Of a trial: as long as the model, so only the whole document has them."""
WRITTEN: Final = "onnx-qdq"
"""The format in which plans are written to be run."""
Correct = Callable[[Graph], Graph]
NOISE: Final = "noise"
"""The phase in front of trials, in progress: runs with one kernel quantized are counted."""


def _by_percent(tell: Callable[[int, int | None], None]) -> Callable[[int, int | None], None]:
    """Tell only what changes the per cent."""
    told = -1

    def some(done: int, total: int | None) -> None:
        nonlocal told
        percent = 100 * done // total if total else done
        if percent != told:
            told = percent
            tell(done, total)

    return some


def search_of(text: str) -> Search:
    """Read the document of a search, for a report.

    Raises:
      InputError: it is none, or its figures are no numbers.
    """
    try:
        found = _Document.model_validate_json(text)
        trials = tuple([_trial(one) for one in found.trials])
        best, front = trials[found.best], tuple([trials[at] for at in found.front])
    except (ValidationError, IndexError) as error:
        what = str(error).splitlines()[0]
        raise InputError(f"not a {FORMAT}: {what}", hint="send the blob that a search gave") from error
    goal = Goal(found.goal.kind, found.goal.bound, found.goal.is_relative)
    return Search(goal, found.met, best, front, trials, found.dearest, found.bound, found.gap, found.unit)


_Number = Annotated[float, Field(ge=-1e30, le=1e30)]
_Amount = Annotated[float, Field(ge=0, le=1e30)]


class _Goal(BaseModel):
    kind: Literal["sqnr", "metric", "drop", "work", "weight_bits", "size", "coverage"]
    bound: _Number
    is_relative: bool


class _Trial(BaseModel):
    """A trial as `search_json` writes it; one that could not be planned has no figures."""

    origin: str
    kernels: dict[str, Any]
    work: _Amount | None
    weight_bits: _Number | None
    size: NonNegativeInt = 0
    predicted: _Number | None
    sqnr: _Number | None
    exact: bool
    metric: _Number | None
    reference: _Number | None
    error: str

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if self.work is None and not self.error:
            raise ValueError(f"the trial {self.origin!r} has no work")
        return self


class _Document(BaseModel):
    format: Literal["qplan.search-result/1"]
    goal: _Goal
    met: bool
    unit: str
    dearest: _Amount
    bound: _Number | None
    gap: _Number | None
    best: NonNegativeInt
    front: list[NonNegativeInt]
    trials: list[_Trial]


def _trial(one: _Trial) -> Trial:
    sqnr = one.sqnr if one.sqnr is not None else math.inf if one.exact else -math.inf
    work, bits, predicted = (
        math.nan if number is None else number for number in (one.work, one.weight_bits, one.predicted)
    )
    return Trial(
        one.origin,
        one.kernels,
        work,
        bits,
        predicted,
        sqnr,
        metric=one.metric,
        reference=one.reference,
        error=one.error,
        size=one.size,
    )


def search_model(
    model: Graph, target: Target, job: Mapping[str, Any], correct: Correct | None = None
) -> dict[str, Any]:
    """Search, and write all that was found.

    Args:
      model: annotated.
      job: `samples`, a file; `effort`, or null and a `goal`; `metric`, `output`, `trials` and `reference` as
        `search` takes them; `annotations` that the model has, or null; `state`, a file to go on with; `out`,
        for the document.
      correct: corrects the biases of each plan's model, where an effort searches.

    Returns:
      The document without what is as long as the model, and the annotations that make the best plan.
    """
    tempfile.tempdir = str(Path(job["out"]).parent)
    samples = Path(job["samples"])
    scan_npz(samples)
    require_ranges(plan(model, target), NO_RANGES)
    told = ""
    if job.get("effort") is not None:
        found, told = _by_effort(model, target, samples, job, correct)
    else:
        found = search(
            model,
            target,
            samples,
            goal=job["goal"],
            metric=job["metric"],
            output=job["output"],
            trials=job["trials"],
            reference=job["reference"],
            state=job["state"],
            progress=job["tell"],
            measuring=_by_percent(partial(job["tell"], phase=NOISE)),
        )
    document = search_json(found)
    Path(job["out"]).write_text(json.dumps(document), encoding="utf-8")
    trials = [
        {**{name: item for name, item in trial.items() if name not in APART}, "asked": len(trial["kernels"])}
        for trial in document["trials"]
    ]
    annotations = merged_annotations(job["annotations"], found.best.kernels)
    return {**document, "trials": trials, "annotations": annotations, "given_up": told}


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan, and its file compared with the model."""

    plan: Plan
    comparison: Comparison


def _by_effort(
    model: Graph, target: Target, samples: Path, job: Mapping[str, Any], correct: Correct | None
) -> tuple[Search, str]:
    """Plan; where that is not good, search as `quantize` does, and say what was given up for what."""
    budget = BUDGETS[job["effort"]]
    budget = budget if job["trials"] is None else replace(budget, trials=min(job["trials"], budget.trials))
    asked = {"output": job["output"], "reference": job["reference"]}
    formats = tuple(job["options"].get("formats", ()))
    form = formats[0] if formats else WRITTEN

    def make(trial: Trial | None = None) -> _Planned:
        wanted = model if trial is None else with_wanted(model, trial.kernels)
        ready = wanted if correct is None else correct(wanted)
        planned = plan(ready, target, formats=formats)
        metrics = [] if job["metric"] is None else [job["metric"]]
        return _Planned(planned, _as_used(wanted, ready, planned, samples, form, metrics=metrics, **asked))

    made = make()
    aim = aim_of(budget, [made.comparison], metric=job["metric"])
    first = Made(made, worst_of(made.plan, [made.comparison], aim))
    if job["effort"] == "quick" or aim.reached(first.trial):
        return _alone(first.trial, aim, made.plan), ""
    bench = bench_for(model, target, samples, aim, formats=(form,), prepare=correct, **asked)
    state = State(bench.key(), Path(job["state"]))
    if not budget.trials:
        return _so_far(first.trial, aim, made.plan, [*state.trials.values()])
    tried = try_harder(
        first,
        lambda one: (one.plan, [one.comparison]),
        budget=budget,
        aim=aim,
        bench=bench,
        make=make,
        state=state,
        phases=lambda: nullcontext((_by_percent(partial(job["tell"], phase=NOISE)), job["tell"])),
    )
    search = tried.search
    return _alone(first.trial, aim, made.plan) if search is None else search, tried.text


def _so_far(first: Trial, aim: Aim, planned: Plan, measured: Sequence[Trial]) -> tuple[Search, str]:
    """The best of what a search measured before it was cancelled, and what it gave up for what."""
    better = sorted((one for one in measured if one.kernels and aim.is_better(one, first)), key=aim.order)
    alone = _alone(first, aim, planned)
    if not better:
        return alone, ""
    best, dearest = better[-1], max(one.work for one in measured if not one.error)
    search = replace(alone, met=aim.reached(best), best=best, front=(best,), trials=(first, *better))
    told = given_up(planned, first, best, aim.metric_name, dearest)
    return replace(search, dearest=dearest), told


def _as_used(model: Graph, ready: Graph, planned: Plan, samples: Path, form: str, **asked: Any) -> Comparison:
    """Compare a plan as users run its file, or in the reference interpreter where no file can say it."""
    try:
        file, form = as_run(ready, planned, form)
    except UnsupportedExport:
        own = planned if ready is model else Evaluated(ready, planned)
        return compare(model, own, samples, **asked)
    return compare_as_used(model, form, file, samples, device=planned.target.files, **asked)


def _alone(trial: Trial, aim: Aim, planned: Plan) -> Search:
    """A search of the first plan alone."""
    unit = planned.target.work_unit or "elements"
    return Search(aim.goals[0], aim.reached(trial), trial, (trial,), (trial,), trial.work, None, None, unit)
