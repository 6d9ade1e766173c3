"""Axes of a chart as SVG: numbers to pixels, round ticks, labels. Knows no plan and no search.

Colours are the text's own (`currentColor`), so charts serve light and dark pages, and paper.
"""

import math
from dataclasses import dataclass
from typing import Final

from planner.report.markup import Markup, element

TICKS: Final = 6
FAINT: Final = {"stroke": "currentColor", "stroke-opacity": "0.25"}


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers along a side of the chart.

    Attributes:
      low, high: ends, in the numbers' unit; a logarithmic axis ends above 0.
      start, end: their places, in pixels.
      is_log: whether equal ratios are equally far apart.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Pixels of a number; infinity is the high end."""
        inside = min(max(value, self.low), self.high)
        ratio = (self._flat(inside) - self._flat(self.low)) / (self._flat(self.high) - self._flat(self.low))
        return self.start + ratio * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        """Round numbers between the ends."""
        if self.is_log:
            found = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            numbers = [step * 10.0**exponent for exponent in found for step in (1, 2, 5)]
        else:
            step = _round_step((self.high - self.low) / TICKS)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            numbers = [step * at for at in range(first, last + 1)]
        return tuple(number for number in numbers if self.low <= number <= self.high)

    def _flat(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def _round_step(least: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def label(text: str, x: float, y: float, anchor: str, **attributes: str) -> Markup:
    """A text at a place; `anchor` is `start`, `middle` or `end`."""
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", **{"text-anchor": anchor}, **attributes)


def drawing(title: str, description: str, size: tuple[int, int], *parts: Markup) -> Markup:
    """An `svg` element with a title and a description for people who do not see it."""
    about = {"viewBox": f"0 0 {size[0]} {size[1]}", "role": "img", "font-size": "12", "aria-label": title}
    told = (element("title", title), element("desc", description))
    return element("svg", *told, *parts, **about, fill="currentColor", width="100%")
