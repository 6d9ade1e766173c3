"""Told: a search as a line, as a table of its front, and as JSON data.

Source: design 11, section 7; docs/accuracy.md.
"""

import math
from dataclasses import asdict
from typing import Any, Final

from planner.accuracy.told import decibels
from planner.plan_search.search import Search
from planner.plan_search.trials import Trial, kernels_key

FORMAT: Final = "qplan.search-result/1"
FRONT_HEAD: Final = ("work", "of the dearest", "predicted", "SQNR", "metric", "found by", "kernels asked", "")


def sentence(search: Search) -> str:
    """Whether the goal is met, with the work and the quality of the best trial."""
    best, count = search.best, len(search.trials)
    head = f"{search.goal} is met" if search.met else f"{search.goal} is not met; the nearest"
    means = f"work {work_text(search, best.work)}, {share(search, best.work):.0%} of the dearest plan's"
    trials = f"{count} trial{'' if count == 1 else 's'}"
    return f"{head}: {_quality(best)}; {means}; {trials}"


def _quality(trial: Trial) -> str:
    """`31.2 dB`, with the metric and the model's own where there is one, and what weights take."""
    score = "" if trial.metric is None else f", metric {score_text(trial.metric)}"
    given = "" if trial.reference is None else f" (the model {score_text(trial.reference)})"
    return f"{decibels(trial.sqnr)}{score}{given}, {trial.weight_bits:.3g} bits a weight"


def front_rows(search: Search) -> tuple[tuple[str, ...], ...]:
    """Rows below `FRONT_HEAD`, least work first; the best is marked."""
    return tuple(_row(search, trial) for trial in search.front)


def _row(search: Search, trial: Trial) -> tuple[str, ...]:
    return (
        work_text(search, trial.work),
        f"{share(search, trial.work):.1%}",
        decibels(trial.predicted),
        decibels(trial.sqnr),
        "" if trial.metric is None else score_text(trial.metric),
        trial.origin,
        str(len(trial.kernels)),
        "best" if trial == search.best else "",
    )


def share(search: Search, work: float) -> float:
    """Work as a share of the dearest plan's; 1 where no plan takes any."""
    return work / search.dearest if search.dearest else 1.0


def work_text(search: Search, work: float) -> str:
    """Work with its unit."""
    return f"{work:,.0f} {search.unit}".rstrip()


def score_text(value: float) -> str:
    """A metric."""
    return f"{value:.4g}"


def search_json(search: Search) -> dict[str, Any]:
    """Everything, as JSON data.

    `best` and `front` are places in `trials`. An SQNR without a number is null: `exact` says whether there is
    no error at all. Other numbers that JSON has no word for are null too.
    """
    places = {kernels_key(trial.kernels): at for at, trial in enumerate(search.trials)}
    return {
        "format": FORMAT,
        "goal": {"text": str(search.goal), **asdict(search.goal)},
        "met": search.met,
        "sentence": sentence(search),
        "unit": search.unit,
        "dearest": _number(search.dearest),
        "bound": _number(search.bound),
        "gap": _number(search.gap),
        "best": places[kernels_key(search.best.kernels)],
        "front": [places[kernels_key(trial.kernels)] for trial in search.front],
        "trials": [_trial(search, trial) for trial in search.trials],
        "annotations": search.annotations,
    }


def _trial(search: Search, trial: Trial) -> dict[str, Any]:
    return {
        "origin": trial.origin,
        "kernels": dict(trial.kernels),
        "work": _number(trial.work),
        "share": _number(share(search, trial.work)),
        "weight_bits": _number(trial.weight_bits),
        "predicted": _number(trial.predicted),
        "sqnr": _number(trial.sqnr),
        "exact": trial.sqnr == math.inf,
        "outputs": {name: _number(sqnr) for name, sqnr in trial.outputs.items()},
        "metric": _number(trial.metric),
        "reference": _number(trial.reference),
        "error": trial.error,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
