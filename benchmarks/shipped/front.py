"""The front of metric and latency of a model as a picture: SVG, each point with its number and a legend."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from planner.report.axes import FAINT, Axis, drawing, label
from planner.report.markup import Markup, element

SIZE: Final = (720, 330)
PLOT: Final = (60, 400, 280, 30)
"""Left, right, bottom, top of the axes."""
LEGEND: Final = 425


class Point(NamedTuple):
    """A file: its name, its latency as a ratio to float's, its metric."""

    name: str
    latency: float
    metric: float


def on_the_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in one figure without losing in the other, fastest first."""
    found = [
        one
        for one in points
        if not any(
            other.latency <= one.latency and other.metric >= one.metric and other[1:] != one[1:]
            for other in points
        )
    ]
    return sorted(found, key=lambda point: (point.latency, -point.metric))


def picture(title: str, metric: str, points: Sequence[Point], *, is_quiet: bool) -> str:
    """Return the SVG file; it says where latency is of a machine that was busy."""
    left, right, bottom, top = PLOT
    latencies, metrics = [point.latency for point in points], [point.metric for point in points]
    room = 0.08 * max(max(metrics) - min(metrics), 0.01)
    x = Axis(min(latencies) / 1.25, max(latencies) * 1.25, left, right, is_log=True)
    y = Axis(min(metrics) - room, max(metrics) + room, bottom, top)
    front = on_the_front(points)
    parts = [*_grid(x, y), _line(front, x, y)]
    parts += [_dot(at, point, x, y, is_front=point in front) for at, point in enumerate(points, start=1)]
    parts += [_entry(at, point, is_front=point in front) for at, point in enumerate(points, start=1)]
    loaded = "" if is_quiet else " (loaded machine)"
    said = f"latency, ratio to float: further left is faster{loaded}"
    parts.append(label(said, (left + right) / 2, bottom + 38, "middle"))
    parts.append(label(f"{title}: {metric}", 10, 16, "start", **{"font-weight": "bold"}))
    told = "; ".join(f"{point.name}: {point.metric:.3f} at {point.latency:.2f}" for point in points)
    inner = drawing(f"{metric} of {title} against latency", told, SIZE, *parts)
    ground = element("rect", width="100%", height="100%", fill="white")
    box = {"viewBox": f"0 0 {SIZE[0]} {SIZE[1]}", "width": str(SIZE[0]), "height": str(SIZE[1])}
    svg = element(
        "svg", ground, inner, xmlns="http://www.w3.org/2000/svg", **{"font-family": "sans-serif"}, **box
    )
    return f"{svg}\n"


def _grid(x: Axis, y: Axis) -> list[Markup]:
    left, right, bottom, top = PLOT
    parts = []
    for number in y.ticks():
        at = f"{y.place(number):.1f}"
        parts += [
            element("line", x1=str(left), x2=str(right), y1=at, y2=at, **FAINT),
            label(f"{number:g}", left - 6, y.place(number) + 4, "end"),
        ]
    for number in x.ticks():
        at = f"{x.place(number):.1f}"
        parts += [
            element("line", x1=at, x2=at, y1=str(top), y2=str(bottom), **FAINT),
            label(f"{number:g}", x.place(number), bottom + 16, "middle"),
        ]
    return parts


def _line(front: Sequence[Point], x: Axis, y: Axis) -> Markup:
    places = " ".join(f"{x.place(point.latency):.1f},{y.place(point.metric):.1f}" for point in front)
    return element("polyline", points=places, fill="none", stroke="#0a6", **{"stroke-width": "2"})


def _dot(at: int, point: Point, x: Axis, y: Axis, *, is_front: bool) -> Markup:
    across, down = x.place(point.latency), y.place(point.metric)
    said = element("title", f"{point.name}: {point.metric:.3f} at {point.latency:.2f}")
    dot = element(
        "circle", said, cx=f"{across:.1f}", cy=f"{down:.1f}", r="8", fill="#0a6" if is_front else "#777"
    )
    return Markup(dot + label(str(at), across, down + 4, "middle", fill="white"))


def _entry(at: int, point: Point, *, is_front: bool) -> Markup:
    weight = {"font-weight": "bold"} if is_front else {}
    text = f"{at}  {point.name}: {point.metric:.3f} ({point.latency:.2f})"
    return label(text, LEGEND, 30 + 22 * at, "start", **weight)
