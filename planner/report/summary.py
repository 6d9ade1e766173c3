"""The top of a report: quality and what it was measured on, kernels quantized, cost in its parts, size.

Source: docs/service.md; thresholds are those of docs/accuracy.md.
"""

import math
from collections.abc import Mapping
from typing import Final

from planner.accuracy.coverage import coverage_of
from planner.accuracy.losses import Losses
from planner.accuracy.metrics import score_text
from planner.accuracy.quality import decibels
from planner.accuracy.verdict import coverage_part, sqnr_level
from planner.interpreter.compare import Comparison
from planner.plans.plan import Plan
from planner.report.charted import causes
from planner.report.charts import Bar, shares
from planner.report.markup import Markup, element, join
from planner.report.totals import size_of, totals

INTERPRETED: Final = "interpreter"
"""In place of a format: the plan itself was run, by the reference interpreter."""
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


def summary(plan: Plan, comparisons: Mapping[str, Comparison], losses: Losses | None) -> Markup:
    """The cards of the top."""
    cards = [_quality(comparisons, losses), _kernels(plan, comparisons), _cost(plan), _size(plan)]
    return element("div", *cards, class_="cards")


def _card(title: str, figure: object, *rest: object, class_: str = "") -> Markup:
    head = element("h2", title)
    return element(
        "section", head, element("p", figure, class_=f"figure {class_}".rstrip()), *rest, class_="card"
    )


def _quality(comparisons: Mapping[str, Comparison], losses: Losses | None) -> Markup:
    """The worst output of the best file, with its colour in words too, and the samples behind it."""
    if comparisons:
        name, best = max(comparisons.items(), key=lambda item: item[1].worst_sqnr)
        scores = [
            element(
                "p",
                f"{metric}: {score_text(metric, score.quantized)}, "
                f"the model {score_text(metric, score.reference)}",
            )
            for metric, score in best.scores.items()
        ]
        what = "the plan in the reference interpreter" if name == INTERPRETED else name
        told = f"SQNR of the worst output of {what}, {best.measured_on}"
        found = best.verdict
        part = None if found is None else found.accuracy
        return _graded(best.worst_sqnr, told, *scores, level=None if part is None else part.level)
    if losses is not None:
        return _graded(losses.sqnr, f"SQNR of {losses.outputs[0].label}, on {losses.samples} samples")
    told = (
        "Not measured. qplan plan with --data and a --format that an engine here runs (onnx-qdq does) "
        "or qplan compare measures it."
    )
    return _card("Quality", "–", element("p", told, class_="quiet"))


def _graded(sqnr: float, told: str, *rest: Markup, level: str | None = None) -> Markup:
    grade = level or mark(sqnr)
    figure = join(
        sqnr_text(sqnr),
        " ",
        element("span", grade, class_="grade"),
    )
    return _card("Quality", figure, element("p", told, class_="quiet"), *rest, class_=grade)


def _kernels(plan: Plan, comparisons: Mapping[str, Comparison]) -> Markup:
    files = [one.coverage for one in comparisons.values() if one.coverage is not None]
    count = totals(plan)
    found = causes(plan)
    others = [element("li", one.text(), title=one.text()) for one in found[:FEW]]
    more = len(found) - FEW
    if more > 0:
        others.append(element("li", f"{more} more cause{'' if more == 1 else 's'} below", class_="quiet"))
    n_float = count.kernels - count.integer
    parts = (Bar("integers", count.integer, str(count.integer)), Bar("float", n_float, str(n_float)))
    covered = coverage_part(max(files, key=lambda one: one.pays, default=None) or coverage_of(plan))
    told = [] if others else [element("p", "Fully quantized", class_="quiet")]
    told.append(element("p", covered.reason, class_="quiet"))
    figure = join(f"{count.integer} of {count.kernels} ", element("span", covered.level, class_="level"))
    return _card(
        "Kernels quantized", figure, shares("Kernels", parts), *told,
        *((element("ul", *others, class_="reasons"),) if others else ()), class_=covered.level,
    )  # fmt: skip


def _cost(plan: Plan) -> Markup:
    count = totals(plan)
    casts = sum(one.cost for one in plan.rescales if one.kind in ("quantize", "dequantize"))
    lost = count.cost - count.changed
    parts = (
        Bar("rescales", count.changed - casts, f"{count.changed - casts:,.0f}"),
        Bar("casts", casts, f"{casts:,.0f}"),
        Bar("lost bits", lost, f"{lost:,.0f}"),
    )
    told = f"{count.cost_text}: {count.changed:,.0f} for rescales and casts, {lost:,.0f} for lost bits"
    return _card(
        "Cost", f"{count.cost:,.0f}", shares("Cost", parts), element("p", told, class_="quiet"),
        element(
            "p",
            f"{_many(count.rescales, 'rescale')}, {_many(count.casts, 'cast')}; "
            f"work {count.work.total:,.0f} {count.work_unit}",
            title=f"Work of the device: {count.work_text}",
            class_="quiet",
        ),
    )  # fmt: skip


def _size(plan: Plan) -> Markup:
    before, after = size_of(plan)
    if not before:
        return _card("Weights", "none", element("p", "No kernel reads a constant.", class_="quiet"))
    share = after / before
    parts = (
        Bar("planned", after, bytes_text(after)),
        Bar("saved", max(before - after, 0.0), bytes_text(max(before - after, 0.0))),
    )
    told = f"of {bytes_text(before)} in the model, {share:.0%}; biases and scales of the format not counted"
    return _card("Weights", bytes_text(after), shares("Weights", parts), element("p", told, class_="quiet"))


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
