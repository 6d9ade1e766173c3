"""Search text: a search as a line, as a table of its front, and as JSON data.

Source: docs/search.md; docs/accuracy.md.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from planner.accuracy.losses_text import decibels
from planner.accuracy.metrics import score_text as metric_text
from planner.ir.types.wanted import DYNAMIC
from planner.plan_search.goals import size_text
from planner.plan_search.options import FLOAT, Wish
from planner.plan_search.search import Search
from planner.plan_search.trials import Trial, kernels_key
from planner.plans.plan import Plan

FORMAT: Final = "qplan.search-result/1"
FRONT_HEAD: Final = (
    *("work", "of the costliest", "predicted", "SQNR", "metric"),
    *("weights", "found by", "kernels asked", ""),
)
KINDS: Final = 3
"""Kinds of kernels that are named."""


def sentence(search: Search) -> str:
    """Whether the goal is met, with the work and the quality of the best trial."""
    best, count = search.best, len(search.trials)
    head = f"{search.goal} is met" if search.met else f"{search.goal} is not met; the nearest"
    means = f"work {work_text(search, best.work)}, {share(search, best.work):.0%} of the costliest plan's"
    trials = f"{count} trial{'' if count == 1 else 's'}"
    return f"{head}: {_quality(best)}; {means}; {trials}"


def _quality(trial: Trial) -> str:
    """`31.2 dB`, with the metric and the model's own where there is one, and what weights take."""
    score = "" if trial.metric is None else f", metric {score_text(trial.metric)}"
    given = "" if trial.reference is None else f" (the model {score_text(trial.reference)})"
    size = f", weights {size_text(trial.size)}" if trial.size else ""
    return f"{decibels(trial.sqnr)}{score}{given}, {trial.weight_bits:.3g} bits a weight{size}"


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
        size_text(trial.size),
        trial.origin,
        str(len(trial.kernels)),
        "best" if trial == search.best else "",
    )


def share(search: Search, work: float) -> float:
    """Work as a share of the costliest plan's; 1 where no plan takes any."""
    return work / search.dearest if search.dearest else 1.0


def work_text(search: Search, work: float) -> str:
    """Work with its unit."""
    return f"{work:,.0f} {search.unit}".rstrip()


def score_text(value: float) -> str:
    """A metric."""
    return f"{value:.4g}"


def given_up(plan: Plan, before: Trial, after: Trial, metric: str, dearest: float) -> str:
    """A plan's gains and losses: `16 kernels (Gelu) in float: 4.0 -> 26.5 dB, work 7.7 % -> 8.1 % ...`.

    Args:
      plan: that of `before`, which names the kernels.
      metric: that counts; "" for SQNR.
      dearest: work of the plan with every kernel at its most expensive, for targets without work in float.
    """
    whole, of_what = (before.float_work, " of float") if before.float_work else (dearest, "")
    figures = [f"{decibels(before.sqnr)} -> {decibels(after.sqnr)}"]
    if before.metric is not None and after.metric is not None:
        texts = [metric_text(metric, value) for value in (before.metric, after.metric)]
        figures.insert(0, f"{metric} {' -> '.join(texts)}")
    pairs = [("multiply-adds quantized", before.mac_share, after.mac_share, "")] if dearest else []
    if dearest and whole:
        pairs.insert(0, ("work", before.work / whole, after.work / whole, of_what))
    figures += [
        f"{what} {_percent(a)} -> {_percent(b)}{more}"
        for what, a, b, more in pairs
        if _percent(a) != _percent(b)
    ]
    return f"{_asked_text(plan, after.kernels)}: {', '.join(figures)}"


def nothing_better(trials: int, nearest: Trial | None, metric: str, spent: float | None = None) -> str:
    """That no trial is worth more than the plan at hand, and what came nearest.

    Args:
      spent: share of the work saved over float that the nearest would give up, where that is too much.
    """
    told = f"{trials} trial{'' if trials == 1 else 's'} found no better plan"
    if nearest is None or not nearest.kernels:
        return told
    figure = "" if nearest.metric is None else f"{metric} {metric_text(metric, nearest.metric)}, "
    share = _percent(nearest.mac_share)
    text = f"{told}: the nearest has {figure}{decibels(nearest.sqnr)} with {share} of multiply-adds quantized"
    return text if spent is None else f"{text}, but gives up {_percent(spent)} of the work saved over float"


def _asked_text(plan: Plan, kernels: Mapping[str, Wish]) -> str:
    """`16 kernels (LayerNorm, Gelu) in float and 2 (Conv) in i16`."""
    groups: dict[str, list[str]] = {}
    for name, wish in kernels.items():
        groups.setdefault(_wish_text(wish), []).append(
            plan.kernels[name].kernel if name in plan.kernels else ""
        )
    parts: list[str] = []
    for wish, kinds in sorted(groups.items(), key=lambda group: (group[0] != FLOAT, -len(group[1]))):
        ranked = [kind for kind, _ in Counter(filter(None, kinds)).most_common()]
        named = ", ".join(ranked[:KINDS]) + (", ..." if len(ranked) > KINDS else "")
        noun = "" if parts else " kernel" if len(kinds) == 1 else " kernels"
        way = "quantized at run time" if wish == DYNAMIC else f"in {wish}"
        parts.append(f"{len(kinds)}{noun}{f' ({named})' if named else ''} {way}")
    return " and ".join(parts) or "no kernel asked"


def _wish_text(wish: Wish) -> str:
    """`float`, `i16`; `i16 x i4 -> i16` of operands and results."""
    if not isinstance(wish, Mapping):
        return str(wish)
    ends = [" x ".join(str(store) for store in wish.get(end) or () if store) for end in ("in", "out")]
    return " -> ".join(filter(None, ends))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


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
        "size": trial.size,
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
