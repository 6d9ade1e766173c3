"""Charts as SVG: bars, SQNR along the model, a value's histogram with its steps, scales of channels.

Each takes plain figures and gives one `svg` element with words for people who do not see it. Which figures:
`plan_charts`. Colours are the text's own; classes `good`, `fair`, `poor`, `mark` are the page's.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from planner.errors import quantity
from planner.report.axes import FAINT, Axis, drawing, label
from planner.report.markup import Markup, element, join

WIDE: Final = 720
HIGH: Final = 230
SMALL: Final = (340, 170)
"""Size of a chart beside others."""
ROW: Final = 22
BARS_LEFT: Final = 250
LETTERS: Final = 38
"""Of a name beside a bar; it ends in what tells it apart."""
FINEST: Final = 3.0
"""Pixels between steps from which each is drawn."""


class Bar(NamedTuple):
    """A bar of a chart: its name, its number, the number in words."""

    name: str
    number: float
    text: str


def bars(title: str, rows: Sequence[Bar]) -> Markup:
    """Draw horizontal bars, as long as their numbers."""
    most = max((row.number for row in rows), default=0.0) or 1.0
    x = Axis(0.0, most, float(BARS_LEFT), WIDE - 150.0)
    parts = []
    for i, row in enumerate(rows):
        y = ROW * i + 4
        box = element(
            "rect", element("title", f"{row.name}: {row.text}"), x=str(BARS_LEFT), y=str(y),
            height=str(ROW - 8),
            width=f"{max(1.0, x.place(row.number) - BARS_LEFT):.1f}", rx="2", class_="bar",
        )  # fmt: skip
        name = row.name if len(row.name) <= LETTERS else f"…{row.name[1 - LETTERS :]}"
        parts += [
            label(name, BARS_LEFT - 8, y + 11, "end"),
            box,
            label(row.text, x.place(row.number) + 6, y + 11, "start", class_="quiet"),
        ]
    told = "; ".join(f"{row.name}: {row.text}" for row in rows)
    return drawing(title, told, (WIDE, ROW * len(rows) + 6), *parts)


class Level(NamedTuple):
    """A value along the model: its name, SQNR in dB, and whether it lies on a line of its own."""

    name: str
    sqnr: float


def along(title: str, levels: Sequence[Level], limits: tuple[float, float]) -> Markup:
    """Draw SQNR (dB) value after value; `limits` are where it gets fair and poor, drawn as lines."""
    known = [level.sqnr for level in levels if math.isfinite(level.sqnr)]
    low, high = min([*known, 0.0]), max([*known, limits[0] + 10])
    y = Axis(low, high * 1.05, HIGH - 26.0, 12.0)
    x = Axis(0.0, float(max(1, len(levels) - 1)), 46.0, WIDE - 12.0)
    parts = []
    for number in y.ticks():
        at = f"{y.place(number):.1f}"
        parts.append(element("line", x1="46", x2=str(WIDE - 12), y1=at, y2=at, **FAINT))
        parts.append(label(f"{number:g}", 40, y.place(number) + 4, "end"))
    for limit, name in zip(limits, ("fair", "poor"), strict=True):
        at = f"{y.place(limit):.1f}"
        parts.append(element("line", x1="46", x2=str(WIDE - 12), y1=at, y2=at, class_=f"limit {name}"))
        parts.append(label(f"{name} below", WIDE - 12, y.place(limit) - 4, "end", class_="quiet"))
    places = [
        (x.place(float(i)), y.place(level.sqnr)) for i, level in enumerate(levels) if level.sqnr > -math.inf
    ]
    line = "".join(f"{'L' if i else 'M'}{at:.1f} {top:.1f}" for i, (at, top) in enumerate(places))
    parts.append(element("path", d=line, class_="curve"))
    if len(levels) <= WIDE // 2:
        parts += [
            element("circle", element("title", f"{level.name}: {_decibels(level.sqnr)}"), r="3", class_="dot",
                    cx=f"{x.place(float(i)):.1f}", cy=f"{y.place(level.sqnr):.1f}")
            for i, level in enumerate(levels)
        ]  # fmt: skip
    parts += [
        label("dB", 10, 14, "start"),
        label("from the inputs to the outputs", WIDE / 2, HIGH - 6, "middle"),
    ]
    worst = sorted(levels, key=lambda level: level.sqnr)[:3]
    told = f"{quantity(len(levels), 'value')}; the worst: " + "; ".join(
        f"{one.name} {_decibels(one.sqnr)}" for one in worst
    )
    return drawing(title, told, (WIDE, HIGH), *parts)


class Seen(NamedTuple):
    """The histogram of a value: borders of bins, in reals, one more than counts; and how many in each."""

    borders: Sequence[float]
    counts: Sequence[int]


class Steps(NamedTuple):
    """A type's grid, in reals: its ends, the distance of its levels, and how many levels there are."""

    low: float
    high: float
    step: float
    levels: int


def histogram(title: str, seen: Seen, steps: Steps) -> Markup:
    """Draw the counts of a value (by square roots, so that tails show), the range and steps of the type."""
    wide, high = SMALL
    ends = [*seen.borders, steps.low, steps.high]
    x = Axis(min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1.0, 10.0, wide - 10.0)
    y = Axis(0.0, math.sqrt(max([*seen.counts, 1])), high - 24.0, 18.0)
    left, right = x.place(steps.low), x.place(steps.high)
    area = element(
        "rect",
        x=f"{left:.1f}",
        y="18",
        width=f"{max(right - left, 1.0):.1f}",
        height=str(high - 42),
        class_="chosen",
    )
    path = f"M{x.place(seen.borders[0]):.1f} {high - 24}" if seen.counts else ""
    for k, count in enumerate(seen.counts):
        path += f"V{y.place(math.sqrt(count)):.1f}H{x.place(seen.borders[k + 1]):.1f}"
    marks = _step_marks(x, steps, high)
    parts = [area, element("path", d=f"{path}V{high - 24}Z", class_="bar"), marks]
    for end, anchor in ((steps.low, "start"), (steps.high, "end")):
        parts.append(label(f"{end:.4g}", x.place(end), high - 8, anchor))
    parts.append(label(title if len(title) <= 2 * LETTERS // 1.4 else f"…{title[-50:]}", 10, 12, "start"))
    outside = _outside(seen, steps)
    told = (
        f"Seen from {seen.borders[0]:.4g} to {seen.borders[-1]:.4g}; the type holds {steps.low:.4g} to "
        f"{steps.high:.4g} in {quantity(steps.levels, 'level')}, steps of {steps.step:.4g}; "
        f"{outside:.2%} lies outside."
    )
    return drawing(f"Histogram of {title}", told, SMALL, *parts)


def _outside(seen: Seen, steps: Steps) -> float:
    """Share of what was seen whose bin lies outside the type's range."""
    total = sum(seen.counts) or 1
    half = steps.step / 2
    out = sum(
        count
        for k, count in enumerate(seen.counts)
        if seen.borders[k] >= steps.high + half or seen.borders[k + 1] <= steps.low - half
    )
    return out / total


def _step_marks(x: Axis, steps: Steps, high: int) -> Markup:
    """A tick for each step; where they would run into each other the range alone stays."""
    apart = x.place(steps.low + steps.step) - x.place(steps.low)
    if apart < FINEST:
        return Markup()
    path = "".join(f"M{x.place(steps.low + i * steps.step):.1f} {high - 24}v5" for i in range(steps.levels))
    return element("path", d=path, class_="steps")


def channels(title: str, spans: Sequence[float]) -> Markup:
    """Draw the largest weight that each channel can hold, on a logarithmic axis where they lie far apart."""
    wide, high = SMALL
    known = [span for span in spans if span > 0] or [1.0]
    low, most = min(known), max(known)
    is_log = most / low > 20
    y = Axis(low / 1.3 if is_log else 0.0, most * 1.02, high - 14.0, 22.0, is_log=is_log)
    x = Axis(0.0, float(len(spans)), 52.0, wide - 8.0)
    parts = []
    for number in y.ticks()[-4:] if not is_log else y.ticks()[::3]:
        at = f"{y.place(number):.1f}"
        parts.append(element("line", x1="52", x2=str(wide - 8), y1=at, y2=at, **FAINT))
        parts.append(label(f"{number:.2g}", 48, y.place(number) + 4, "end"))
    path = ""
    for i, span in enumerate(spans):
        path += (
            f"M{x.place(float(i)):.1f} {high - 14}V{y.place(span):.1f}H{x.place(i + 1.0):.1f}V{high - 14}Z"
        )
    parts.append(element("path", d=path, class_="bar"))
    parts.append(label(title if len(title) <= 50 else f"…{title[-50:]}", 10, 12, "start"))
    told = (
        f"{quantity(len(spans), 'channel')}, the largest {most:.4g}, the smallest {low:.4g}: "
        f"{most / low:.4g} times."
    )
    return drawing(f"Weights per channel of {title}", told, SMALL, *parts)


class Trade(NamedTuple):
    """A trade-off: elements that are rescaled, bits lost by the worst consumer, whether the plan has it."""

    elements: int
    bits: float
    chosen: bool


def trades(title: str, points: Sequence[Trade]) -> Markup:
    """Draw trade-offs of a component as points."""
    wide, high = SMALL
    x = Axis(0.0, 1.05 * (max((p.elements for p in points), default=0) or 1), 44.0, wide - 14.0)
    y = Axis(0.0, 1.1 * (max((p.bits for p in points), default=0.0) or 1.0), high - 40.0, 24.0)
    parts = [label(title if len(title) <= 50 else f"…{title[-50:]}", 10, 12, "start")]
    for number in y.ticks():
        at = f"{y.place(number):.1f}"
        parts += [
            element("line", x1="44", x2=str(wide - 14), y1=at, y2=at, **FAINT),
            label(f"{number:g}", 38, y.place(number) + 4, "end"),
        ]
    for number in x.ticks()[::2]:
        parts.append(label(f"{number:,.0f}", x.place(number), high - 24, "middle"))
    for point in points:
        is_plan = ", the plan" if point.chosen else ""
        said = f"{quantity(point.elements, 'element', ',')} rescaled, {point.bits:.2f} bits lost{is_plan}"
        parts.append(
            element("circle", element("title", said), r="5", cx=f"{x.place(point.elements):.1f}",
                    cy=f"{y.place(point.bits):.1f}", class_="dot chosen" if point.chosen else "dot")
        )  # fmt: skip
    parts.append(label("elements rescaled; bits lost upwards", wide / 2, high - 6, "middle", class_="quiet"))
    told = "; ".join(
        f"{quantity(p.elements, 'element', ',')}, {p.bits:.2f} bits{' (the plan)' if p.chosen else ''}"
        for p in points
    )
    return drawing(f"Trade-offs around {title}", told, SMALL, *parts)


def shares(title: str, parts: Sequence[Bar], classes: Sequence[str] = ()) -> Markup:
    """Draw a thin bar that is divided as its parts are.

    Args:
      classes: of the parts; with them a legend names the parts.
    """
    total = sum(part.number for part in parts) or 1.0
    names = classes or [f"share{i}" for i in range(len(parts))]
    at, found = 0.0, []
    for part, class_ in zip(parts, names, strict=True):
        wide = 100 * part.number / total
        said = element("title", f"{part.name}: {part.text}")
        found.append(
            element("rect", said, x=f"{at:.2f}", y="0", width=f"{wide:.2f}", height="4", class_=class_)
        )
        at += wide
    told = "; ".join(f"{part.name}: {part.text}" for part in parts)
    about = {
        "viewBox": "0 0 100 4",
        "role": "img",
        "preserveAspectRatio": "none",
        "aria-label": f"{title}: {told}",
    }
    drawn = element("svg", *found, **about, class_="shares")
    if not classes:
        return drawn
    legend = (
        element("span", element("i", class_=class_), f" {part.text} {part.name}")
        for part, class_ in zip(parts, classes, strict=True)
    )
    return join(drawn, element("p", *legend, class_="legend"))


def grid(*charts: Markup) -> Markup:
    """Charts beside each other, as many as there is room for."""
    return element("div", join(*(element("figure", chart) for chart in charts)), class_="charts")


def _decibels(sqnr: float) -> str:
    return "exact" if sqnr == math.inf else f"{sqnr:.1f} dB"
