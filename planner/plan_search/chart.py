"""Chart: the front of a search as SVG: work against quality, every trial a point, the goal a line.

Colours are the text's own (`currentColor`), so it serves light and dark pages, and paper. Every point has its
figures as a title, and the whole a description in words. Source: docs/search.md.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from planner.accuracy.losses_text import decibels
from planner.errors import quantity
from planner.plan_search.search import Search
from planner.plan_search.search_text import score_text, sentence, share, work_text
from planner.plan_search.trials import Trial
from planner.report.axes import FAINT, Axis, label
from planner.report.markup import Markup, element

WIDTH: Final = 720
HEIGHT: Final = 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 28, 48
LINE: Final = 14
"""Height of a line of text."""
FOLD: Final = 20.0
"""From the least to the most work, where the axis becomes logarithmic."""
ROOM: Final = 0.06
"""Of an axis, free at its ends."""


def chart(search: Search) -> Markup:
    """Draw the trials of a search.

    Returns:
      An `svg` element, for HTML.
    """
    drawn = [trial for trial in search.trials if not trial.error and _is_drawn(trial)]
    x, y = _work_axis(search, drawn), _quality_axis(search, drawn)
    parts = (
        element("title", f"Front of the search for {search.goal}"),
        element("desc", _description(search, drawn)),
        *_ticks(x, y, drawn),
        *_titles(search),
        *_goal(search, x, y),
        _front_line(search, x, y),
        *(_point(search, trial, x, y) for trial in drawn),
        _best_label(search, x, y),
    )
    about = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "class": "front", "font-size": "12"}
    return element("svg", *parts, **about, fill="currentColor", width="100%")


def _is_drawn(trial: Trial) -> bool:
    """Whether there is a place for a trial: an exact one stands at the upper end."""
    return not math.isnan(trial.quality) and trial.quality != -math.inf


def _is_scored(search: Search) -> bool:
    """Whether quality is the metric."""
    return search.best.metric is not None


def _limit(search: Search) -> float | None:
    """The quality that the goal asks for; None where it bounds something else."""
    goal, given = search.goal, search.best.reference
    if goal.kind == "drop" and given is not None:
        return given - (abs(given) * goal.bound / 100 if goal.is_relative else goal.bound)
    if (goal.kind == "metric" and _is_scored(search)) or (goal.kind == "sqnr" and not _is_scored(search)):
        return goal.bound
    return None


def _work_axis(search: Search, drawn: Sequence[Trial]) -> Axis:
    """Shares of the costliest plan's work, from 0, or logarithmic where they lie far apart."""
    shares = [share(search, trial.work) for trial in drawn] or [1.0]
    if search.goal.kind == "work":
        shares.append(search.goal.bound)
    low, high, start, end = min(shares), max(shares), float(LEFT), float(WIDTH - RIGHT)
    if low > 0 and high / low > FOLD:
        margin = (high / low) ** ROOM
        return Axis(low / margin, high * margin, start, end, is_log=True)
    return Axis(0.0, (high or 1.0) * (1 + ROOM), start, end)


def _quality_axis(search: Search, drawn: Sequence[Trial]) -> Axis:
    limit = _limit(search)
    given = [*(trial.quality for trial in drawn), *([] if limit is None else [limit])]
    found = [value for value in given if math.isfinite(value)] or [0.0]
    low, high = min(found), max(found)
    margin = ROOM * (high - low) or ROOM * abs(high) or 1.0
    # Room below for the label of the best, and above for what is exact.
    return Axis(low - 2 * margin, high + 2 * margin, float(HEIGHT - BOTTOM), float(TOP))


def _ticks(x: Axis, y: Axis, drawn: Sequence[Trial]) -> Iterator[Markup]:
    """Lines of a grid with their numbers."""
    is_exact = any(trial.quality == math.inf for trial in drawn)
    for number in x.ticks():
        at = f"{x.place(number):.1f}"
        yield element("line", x1=at, x2=at, y1=str(TOP), y2=str(HEIGHT - BOTTOM), **FAINT)
        yield label(f"{100 * number:.3g}%", x.place(number), HEIGHT - BOTTOM + 16, "middle")
    for number in y.ticks():
        at = f"{y.place(number):.1f}"
        yield element("line", x1=str(LEFT), x2=str(WIDTH - RIGHT), y1=at, y2=at, **FAINT)
        if not (is_exact and abs(y.place(number) - y.place(math.inf)) < LINE):
            yield label(f"{number:.4g}", LEFT - 6, y.place(number) + 4, "end")
    if is_exact:
        yield label("exact", LEFT - 6, y.place(math.inf) + 4, "end")


def _titles(search: Search) -> Iterator[Markup]:
    yield label("work, share of the costliest plan's", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle")
    yield label("metric" if _is_scored(search) else "SQNR, dB", LEFT - 40, TOP - 12, "start")


def _goal(search: Search, x: Axis, y: Axis) -> Iterator[Markup]:
    """The goal as a line with its name; nothing where it bounds neither axis."""
    dashes = {"stroke": "currentColor", "stroke-dasharray": "6 4", "class": "goal"}
    limit, name = _limit(search), f"goal {search.goal}"
    if limit is not None:
        at = f"{y.place(limit):.1f}"
        yield element("line", x1=str(LEFT), x2=str(WIDTH - RIGHT), y1=at, y2=at, **dashes)
        yield label(name, WIDTH - RIGHT - 4, y.place(limit) - 5, "end")
    elif search.goal.kind == "work":
        at = f"{x.place(search.goal.bound):.1f}"
        yield element("line", x1=at, x2=at, y1=str(TOP), y2=str(HEIGHT - BOTTOM), **dashes)
        yield label(name, x.place(search.goal.bound), TOP - 12, "middle")


def _front_line(search: Search, x: Axis, y: Axis) -> Markup:
    """Steps: work between two plans of the front buys no more than the cheaper one gives."""
    shown = [trial for trial in search.front if _is_drawn(trial)]
    places = [(x.place(share(search, trial.work)), y.place(trial.quality)) for trial in shown]
    if not places:
        return Markup()
    (first, height), *rest = places
    steps = "".join(f"H{right:.1f}V{top:.1f}" for right, top in rest)
    line = {"fill": "none", "stroke": "currentColor", "stroke-width": "1.5", "class": "line"}
    return element("path", d=f"M{first:.1f} {height:.1f}{steps}", **line)


def _point(search: Search, trial: Trial, x: Axis, y: Axis) -> Markup:
    """A trial: full on the front, hollow elsewhere; the best larger, with a ring."""
    at = {"cx": f"{x.place(share(search, trial.work)):.1f}", "cy": f"{y.place(trial.quality):.1f}"}
    said = element("title", _figures(search, trial))
    hollow = {"fill": "none", "stroke": "currentColor"}
    if trial == search.best:
        dot, ring = element("circle", r="4", **at), element("circle", r="8", **at, **hollow)
        return element("g", said, dot, ring, class_="best")
    look = {} if trial in search.front else hollow
    return element("circle", said, r="4", **at, **look)


def _best_label(search: Search, x: Axis, y: Axis) -> Markup:
    """The figures of the best below it, where the front never runs, on the side where there is room."""
    best = search.best
    if not _is_drawn(best):
        return Markup()
    at, top = x.place(share(search, best.work)), y.place(best.quality)
    is_left = at < (LEFT + WIDTH - RIGHT) / 2
    side, anchor = (12, "start") if is_left else (-12, "end")
    text = f"best: {_quality(search, best)} at {share(search, best.work):.0%}"
    return element("g", label(text, at + side, top + 18, anchor), class_="best")


def _figures(search: Search, trial: Trial) -> str:
    """A trial in words, for its title."""
    means = f"{share(search, trial.work):.1%} of the costliest plan's work ({work_text(search, trial.work)})"
    return (
        f"{trial.origin}: {_quality(search, trial)} at {means}, "
        f"{quantity(len(trial.kernels), 'kernel')} asked"
    )


def _quality(search: Search, trial: Trial) -> str:
    return score_text(trial.quality) if _is_scored(search) else decibels(trial.quality)


def _description(search: Search, drawn: Sequence[Trial]) -> str:
    """What the chart shows, for whoever does not see it."""
    left_out = len(search.trials) - len(drawn)
    missing = f" {left_out} without a number are not drawn." if left_out else ""
    front = "; ".join(_figures(search, trial) for trial in search.front)
    return f"{sentence(search)}. {len(drawn)} trials are points.{missing} The front: {front}."
