"""Charts of a plan: float kernels by reason, rescales by cost, histograms, channels, trade-offs.

Picks the figures; `charts` draws them. Source: docs/service.md.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.accuracy.coverage import Fallback, coverage_of, kernel_macs, reason_text
from planner.accuracy.verdict import FAIR_SQNR, GOOD_SQNR
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.report.causes import Cause, cause_of, causes_of
from planner.report.charts import (
    Bar,
    Level,
    Seen,
    Steps,
    Trade,
    along,
    bars,
    channels,
    grid,
    histogram,
    trades,
)
from planner.report.markup import Markup, element, join
from planner.report.totals import is_integer

if TYPE_CHECKING:
    # The service counts reasons with this module, in a process that loads no reader of models.
    from planner.accuracy.losses import Losses
    from planner.calibration.statistics import Bins, Statistics
from planner.what_if.pareto import Tradeoff

MOST: Final = 12
"""Bars of a chart."""
BESIDE: Final = 6
"""Small charts of a kind."""
WEIGHT_BITS: Final = 16
"""A constant of more bits is a bias."""
BINS: Final = 80
"""Bars of a histogram."""

Reason: TypeAlias = tuple[str, Mapping[str, int]]


def reasons(plan: Plan) -> list[Reason]:
    """Why kernels run in float, most frequent first: the reason, and how many of which kind."""
    found: dict[str, Counter[str]] = {}
    for kernel in plan.kernels_in_order:
        if not is_integer(kernel):
            found.setdefault(reason_text(kernel), Counter())[kernel.kernel] += 1
    return sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))


def causes(plan: Plan) -> list[Cause]:
    """Why kernels run in float, grouped: those that compute first, most multiply-adds, then most kernels."""
    counted = coverage_of(plan).fallbacks
    known = {one.reason for one in counted}
    rest = (Fallback(reason, 0, kinds, "") for reason, kinds in reasons(plan) if reason not in known)
    return causes_of((*counted, *rest))


def causes_by_kernel(plan: Plan) -> list[tuple[Cause, list[str]]]:
    """Why kernels run in float, with the names of all: most multiply-adds first, then in plan order."""
    regions = {region.name: region for region in plan.graph.regions}
    floats = [kernel for kernel in plan.kernels_in_order if not is_integer(kernel)]
    macs = {one.name: kernel_macs(one, regions[one.name], plan.graph) for one in floats}
    floats.sort(key=lambda kernel: -macs[kernel.name])
    each = [Fallback(reason_text(one), macs[one.name], {one.kernel: 1}, one.name) for one in floats]
    found = [(cause, list[str]()) for cause in causes_of(each)]
    places = {(cause.kind, cause.about): names for cause, names in found}
    open_sizes = [names for (kind, _), names in places.items() if kind == "open size"]
    for one in each:
        key = cause_of(one.reason)
        mine = open_sizes[0] if key[0] == "some size" and len(open_sizes) == 1 else places[key]
        mine.append(one.kernel)
    return found


def float_causes(plan: Plan) -> Markup:
    """Why kernels run in float, a line for each cause."""
    return element("ul", *(element("li", cause.text()) for cause, _ in causes_by_kernel(plan)))


def rescale_chart(plan: Plan) -> Markup:
    """The most expensive rescales and casts."""
    order = sorted(plan.rescales, key=lambda rescale: -rescale.cost)[:MOST]
    rows = [Bar(one.id, one.cost, f"{one.cost:,.0f} {one.kind}") for one in order]
    return _figure(bars("Rescales by cost", rows)) if len(rows) > 1 else Markup()


def losses_chart(losses: "Losses") -> Markup:
    """SQNR of each value, in plan order."""
    levels = [Level(one.value, one.sqnr) for one in losses.values if not math.isnan(one.sqnr)]
    return (
        _figure(along("SQNR along the model", levels, (GOOD_SQNR, FAIR_SQNR)))
        if len(levels) > 1
        else Markup()
    )


def histograms(plan: Plan, stats: "Statistics", losses: "Losses | None") -> Markup:
    """Values with their histograms: those that lose or are cut most, then the worst by SQNR."""
    worst = {} if losses is None else {one.value: one.sqnr for one in losses.values}

    def rank(name: str) -> tuple[float, ...]:
        value = plan.values[name]
        return (-(value.bits_lost + 10 * value.clip), worst.get(name, math.inf))

    found = _binned(plan, stats)
    drawn = [histogram(name, *found[name]) for name in sorted(found, key=rank)[:BESIDE]]
    return grid(*drawn) if drawn else Markup()


def _binned(plan: Plan, stats: "Statistics") -> dict[str, tuple[Seen, Steps]]:
    """Histogram and grid of the values of one scale that have a histogram."""
    found = {}
    for name, value in plan.values.items():
        bins = stats.values[name].bins if name in stats.values else None
        kind = value.type
        if bins is not None and bins.counts and isinstance(kind, Uniform) and len(kind.scales) == 1:
            found[name] = _seen(bins), _steps(kind)
    return found


def _seen(bins: "Bins") -> Seen:
    """The histogram in at most `BINS` bars."""
    counts, width = list(bins.counts), math.ldexp(1.0, bins.exponent)
    many = -(-len(counts) // BINS)
    merged = [sum(counts[k : k + many]) for k in range(0, len(counts), many)]
    borders = [(bins.first + many * k) * width for k in range(len(merged) + 1)]
    return Seen(borders, merged)


def _steps(kind: Uniform) -> Steps:
    scale, zero = kind.scales[0], kind.zero_points[0]
    low, high = kind.storage.qmin, kind.storage.qmax
    return Steps((low - zero) * scale, (high - zero) * scale, scale, high - low + 1)


def channels_chart(plan: Plan) -> Markup:
    """Weights with a scale per channel whose channels differ most in size."""
    found: dict[str, tuple[float, ...]] = {}
    for kernel in plan.kernels_in_order:
        for port in kernel.inputs:
            kind = port.type
            if port.value not in plan.graph.constants or not isinstance(kind, Uniform) or kind.axis is None:
                continue
            if kind.storage.bits > WEIGHT_BITS:
                continue
            top = max(abs(kind.storage.qmin), kind.storage.qmax)
            found.setdefault(f"{kernel.name}: {port.value}", tuple([scale * top for scale in kind.scales]))
    order = sorted(found.items(), key=lambda item: -max(item[1]) / (min(item[1]) or 1.0))
    return grid(*(channels(name, spans) for name, spans in order[:BESIDE])) if found else Markup()


def tradeoffs_chart(tradeoffs: Mapping[str, Sequence[Tradeoff]]) -> Markup:
    """The trade-offs of each requested component."""
    note = "Plans of the same component with fewer rescaled elements, and the bits that consumers would lose."
    drawn = grid(
        *(
            trades(name, [Trade(one.rescaled_elements, one.worst_bits_lost, one.chosen) for one in points])
            for name, points in tradeoffs.items()
        )
    )
    return join(element("p", note, " The dark point is the plan as it is.", class_="quiet"), drawn)


def _figure(chart: Markup) -> Markup:
    return join(element("figure", chart))
