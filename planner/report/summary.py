"""The top of a report: quality and its evaluation data, kernels quantized, cost in its parts, size.

The cards are plain data first, so that the page can set those of an edited plan beside them. Source:
docs/service.md; thresholds are those of docs/accuracy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from planner.accuracy.coverage import counts_weights_alone, coverage_of
from planner.accuracy.losses import Losses
from planner.accuracy.metrics import score_text
from planner.accuracy.quality import decibels
from planner.accuracy.verdict import coverage_part, sqnr_level
from planner.errors import quantity
from planner.interpreter.compare import Comparison
from planner.plans.plan import Plan
from planner.plans.work import CASTS
from planner.report.charts import Bar, shares
from planner.report.markup import Markup, element, join
from planner.report.plan_charts import causes
from planner.report.totals import size_of, totals

INTERPRETED: Final = "interpreter"
"""In place of a format: the plan itself was run, by the reference interpreter."""
UNMEASURED: Final = "not measured"
BY_COMMAND: Final = "qplan compare measures it; so does qplan plan with --data and --format onnx-qdq."
BY_BUTTON: Final = "The quality button below measures it, on samples."
FEW: Final = 3
"""Causes at the top; the section of float kernels has all reasons."""


def bytes_text(number: float) -> str:
    """`12.3 kB`."""
    for least, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= least:
            return f"{number / least:.3g} {unit}"
    return f"{number:.0f} bytes"


def mark(sqnr: float) -> str:
    """`good`, `fair` or `poor`, as a word and a class."""
    return sqnr_level(sqnr)


def sqnr_text(sqnr: float) -> str:
    """`38.51 dB`, `exact`, or `no signal` where there is only error."""
    return decibels(sqnr) if math.isfinite(sqnr) or sqnr > 0 else "no signal"


@dataclass(frozen=True, slots=True)
class Card:
    """One card of the top.

    Attributes:
      title, figure: its name and its figure, with the unit.
      level: `good`, `fair` or `poor`; "" where nothing grades it.
      notes: lines below the figure.
      causes: of float kernels, a line each.
      parts: of the bar below the figure; none where they are all 0.
      colors: classes of the parts of the bar; with names of their own in a legend.
      told: more about the last note.
    """

    title: str
    figure: str
    level: str = ""
    notes: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    parts: tuple[Bar, ...] = ()
    colors: tuple[str, ...] = ()
    told: str = ""


def summary(
    plan: Plan, comparisons: Mapping[str, Comparison], losses: Losses | None, *, live: bool = False
) -> Markup:
    """The cards of the top.

    Args:
      live: whether a host with a button measures the quality, in place of a command.
    """
    found = [_quality(comparisons, losses, live=live), _kernels(plan, comparisons), _cost(plan), _size(plan)]
    return element("div", *map(_drawn, found), class_="cards", id="cards")


def cards_data(plan: Plan) -> list[dict[str, Any]]:
    """The cards of a plan without measured quality, as JSON's types."""
    found = [_quality({}, None), _kernels(plan, {}), _cost(plan), _size(plan)]
    kept = ("title", "figure", "level", "notes", "causes")
    return [{key: value for key, value in asdict(card).items() if key in kept} for card in found]


def _drawn(card: Card) -> Markup:
    figure = join(card.figure, " ", element("span", card.level, class_="level") if card.level else "")
    bar = shares(card.title, card.parts, card.colors) if any(part.number for part in card.parts) else Markup()
    notes = [element("p", text, class_="quiet") for text in card.notes]
    if card.told:
        notes[-1] = element("p", card.notes[-1], class_="quiet", title=card.told)
    causes = [element("li", text, title=text) for text in card.causes]
    return element(
        "section",
        element("h2", card.title),
        element("p", figure, class_=f"figure {card.level}".rstrip()),
        bar,
        *notes,
        *((element("ul", *causes, class_="reasons"),) if causes else ()),
        class_="card",
    )


def _quality(comparisons: Mapping[str, Comparison], losses: Losses | None, *, live: bool = False) -> Card:
    """The worst output of the best file, with its level in words too, and the samples behind it."""
    if comparisons:
        name, best = max(comparisons.items(), key=lambda item: item[1].worst_sqnr)
        scores = [
            f"{metric}: {score_text(metric, one.quantized)}, the model {score_text(metric, one.reference)}"
            for metric, one in best.scores.items()
        ]
        what = "the plan in the reference interpreter" if name == INTERPRETED else name
        told = f"SQNR of the worst output of {what}, {best.measured_on}"
        found = best.verdict
        part = None if found is None else found.accuracy
        return _graded(best.worst_sqnr, told, *scores, level=None if part is None else part.level)
    if losses is not None:
        return _graded(
            losses.sqnr, f"SQNR of {losses.outputs[0].label}, on {quantity(losses.samples, 'sample')}"
        )
    return Card("Quality", UNMEASURED, notes=(BY_BUTTON if live else BY_COMMAND,))


def _graded(sqnr: float, *notes: str, level: str | None = None) -> Card:
    return Card("Quality", sqnr_text(sqnr), level or mark(sqnr), notes)


def _kernels(plan: Plan, comparisons: Mapping[str, Comparison]) -> Card:
    files = [one.coverage for one in comparisons.values() if one.coverage is not None]
    count = totals(plan)
    found = causes(plan)
    others = [one.text() for one in found[:FEW]]
    more = len(found) - FEW
    if more > 0:
        others.append(f"{more} more cause{'' if more == 1 else 's'} below")
    n_float = count.kernels - count.integer
    parts = (Bar("integer", count.integer, str(count.integer)), Bar("float", n_float, str(n_float)))
    own = coverage_of(plan)
    shown = max(files, key=lambda one: one.pays, default=None) or own
    covered = coverage_part(shown)
    told = () if others else ("Fully quantized",)
    apart = count.kernels - own.kernels
    lacking = "weights" if counts_weights_alone(plan) else "arithmetic"
    uncounted = f"{quantity(apart, 'float kernel')} without {lacking} not counted"
    rest = (uncounted,) if apart > 0 and shown.kernels == own.kernels else ()
    return Card(
        "Kernels quantized", f"{count.integer} of {count.kernels}", covered.level,
        (*told, covered.reason, *rest), tuple(others), parts, ("share0", "float"),
    )  # fmt: skip


def _cost(plan: Plan) -> Card:
    count = totals(plan)
    casts = sum(one.cost for one in plan.rescales if one.kind in CASTS)
    lost = count.cost - count.changed
    parts = (
        Bar("rescales", count.changed - casts, f"{count.changed - casts:,.0f}"),
        Bar("casts", casts, f"{casts:,.0f}"),
        Bar("lost bits", lost, f"{lost:,.0f}"),
    )
    changes = f"{quantity(count.rescales, 'rescale', ',')}, {quantity(count.casts, 'cast', ',')}"
    notes = (
        f"{count.cost_text}: {count.changed:,.0f} for rescales and casts, {lost:,.0f} for lost bits",
        f"{changes}; work {count.work.total:,.0f} {count.work_unit}",
    )
    told = f"Work of the device: {count.work_text}"
    return Card("Cost", f"{count.cost:,.0f}", notes=notes, parts=parts, told=told)


def _size(plan: Plan) -> Card:
    before, after = size_of(plan)
    if not before:
        return Card("Weights", "none", notes=("No kernel reads a constant.",))
    share = after / before
    parts = (
        Bar("planned", after, bytes_text(after)),
        Bar("saved", max(before - after, 0.0), bytes_text(max(before - after, 0.0))),
    )
    told = f"of {bytes_text(before)} in the model, {share:.0%}; biases and scales of the format not counted"
    return Card("Weights", bytes_text(after), notes=(told,), parts=parts)
