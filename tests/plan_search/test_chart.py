"""The chart of a front: what is drawn where, in words too, and nothing that a page may not have."""

import math
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import planner
from planner.errors import InputError
from planner.formats.annotated.document import read_annotated
from planner.plan_search.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, chart
from planner.plan_search.search import Search
from tests.plan_search.searches import a_search, a_trial

NASTY = "<img src=x onerror=alert(1)>"


def drawn(search: Search) -> ET.Element:
    """The chart, read as XML."""
    return ET.fromstring(str(chart(search)))  # noqa: S314 - our own text


def texts(search: Search) -> list[str]:
    return [str(one.text) for one in drawn(search).iter("text")]


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0.0, 1.06, 0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (Axis(-31.0, 29.0, 0.0, 1.0), (-30.0, -20.0, -10.0, 0.0, 10.0, 20.0)),
        (Axis(0.01, 1.0, 0.0, 1.0, is_log=True), (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)),
        (Axis(1e-9, 2e-9, 0.0, 1.0), (1e-9, 1.2e-9, 1.4e-9, 1.6e-9, 1.8e-9, 2e-9)),
    ],
)
def test_ticks_are_round(axis: Axis, ticks: tuple[float, ...]) -> None:
    """1, 2 or 5 times a power of ten apart, ends included where they are round."""
    assert axis.ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("axis", "value", "place"),
    [
        (Axis(0.0, 10.0, 100.0, 200.0), 5.0, 150.0),
        (Axis(0.0, 10.0, 200.0, 100.0), 0.0, 200.0),
        (Axis(0.0, 10.0, 100.0, 200.0), math.inf, 200.0),
        (Axis(0.0, 10.0, 100.0, 200.0), -1.0, 100.0),
        (Axis(0.01, 1.0, 0.0, 100.0, is_log=True), 0.1, 50.0),
    ],
)
def test_places(axis: Axis, value: float, place: float) -> None:
    """Equal steps, or equal ratios; what lies outside stands at the end."""
    assert axis.place(value) == pytest.approx(place)


def test_every_trial_with_a_number_is_a_point() -> None:
    """The one that could not be planned is not drawn, and counted."""
    found = drawn(a_search())
    titles = [one.text or "" for one in found.iter("title")]
    assert [title.partition(":")[0] for title in titles[1:]] == ["planned", "all float", "all i16", "program"]
    description = found.findtext("desc")
    assert description is not None
    assert "4 trials are points. 1 without a number are not drawn." in description
    rings = [one for one in found.iter("g") if one.get("class") == "best"]
    assert len(rings[0].findall("circle")) == 2
    hollow = [one for one in found.findall("circle") if one.get("fill") == "none"]
    assert [one.findtext("title") for one in hollow] == [titles[3]]


def test_points_stand_where_their_figures_are() -> None:
    """More work is further right, better is higher, exact is the top."""
    dots = {str(one.findtext("title")).partition(":")[0]: one for one in drawn(a_search()).findall("circle")}
    places = {name: (float(str(dot.get("cx"))), float(str(dot.get("cy")))) for name, dot in dots.items()}
    assert places["planned"][0] < places["all i16"][0] < places["all float"][0]
    assert places["planned"][1] > places["all i16"][1] > places["all float"][1] == TOP
    inside = [(LEFT <= x <= WIDTH - RIGHT, TOP <= y <= HEIGHT - BOTTOM) for x, y in places.values()]
    assert set(inside) == {(True, True)}
    # From 0 to 6 % beyond the dearest.
    assert places["planned"][0] == pytest.approx(LEFT + 0.25 / 1.06 * (WIDTH - RIGHT - LEFT), abs=0.1)


def test_the_front_is_steps() -> None:
    """Through all of its trials, never a slope between them."""
    line = next(one for one in drawn(a_search()).iter("path"))
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}", str(line.get("d")))


_SCORED = a_trial("planned", 100.0, 12.0, metric=0.5, reference=0.8)


@pytest.mark.parametrize(
    ("given", "axis", "goal"),
    [
        ({"goal": "sqnr=30"}, "SQNR, dB", 1),
        ({"goal": "work=0.5"}, "SQNR, dB", 1),
        ({"goal": "weight_bits=6"}, "SQNR, dB", 0),
        ({"goal": "sqnr=30", "best": _SCORED, "trials": (_SCORED,), "front": (_SCORED,)}, "metric", 0),
        ({"goal": "metric=0.7", "best": _SCORED, "trials": (_SCORED,), "front": (_SCORED,)}, "metric", 1),
        ({"goal": "drop=50%", "best": _SCORED, "trials": (_SCORED,), "front": (_SCORED,)}, "metric", 1),
        ({"goal": "drop=0.1", "best": _SCORED, "trials": (_SCORED,), "front": (_SCORED,)}, "metric", 1),
    ],
)
def test_axes_and_goal(given: dict[str, Any], axis: str, goal: int) -> None:
    """A goal is a line where the axes have its unit."""
    search = a_search(**given)
    assert axis in texts(search)
    assert [text for text in texts(search) if text.startswith("goal")] == [f"goal {search.goal}"] * goal
    assert len([one for one in drawn(search).iter("line") if one.get("class") == "goal"]) == goal


def test_a_drop_is_drawn_at_what_may_be_left() -> None:
    """1 % of a cross entropy of -0.8 allows -0.808."""
    one = a_trial("planned", 1.0, 12.0, metric=-0.8, reference=-0.8)
    other = a_trial("program", 2.0, 12.0, metric=-0.808, reference=-0.8)
    search = a_search("drop=1%", best=other, front=(other, one), trials=(one, other), dearest=2.0)
    found = drawn(search)
    line = next(line for line in found.iter("line") if line.get("class") == "goal")
    ring = next(group for group in found.iter("g") if group.get("class") == "best")
    assert [line.get("y1")] * 2 == [circle.get("cy") for circle in ring.findall("circle")]


@pytest.mark.parametrize(
    "given",
    [
        {"dearest": 0.0, "trials": (a_trial("planned", 0.0, 20.0),)},
        {"trials": (a_trial("planned", 1.0, math.inf),)},
        {"trials": (a_trial("planned", 1.0, -math.inf),)},
        {"trials": (a_trial("planned", 1.0, math.nan),)},
        {"trials": (a_trial("planned", 1.0, 20.0), a_trial("program", 1.0, 20.0))},
        {"trials": (a_trial("planned", 1e-6, 1e-9), a_trial("program", 1e12, 300.0)), "dearest": 1e12},
        {"trials": (a_trial("planned", 1.0, 20.0),), "goal": "sqnr=-1e300"},
        {"trials": (a_trial("planned", 1.0, 20.0),), "goal": "sqnr=1e300"},
    ],
    ids=["no work", "exact", "only error", "no number", "equal", "far apart", "deep goal", "high goal"],
)
def test_odd_figures_are_drawn(given: dict[str, Any]) -> None:
    """No division by nothing, no number that is none among the places."""
    best = given["trials"][0]
    text = str(chart(a_search(**{"best": best, "front": (best,), **given})))
    assert ET.fromstring(text).tag == "svg"  # noqa: S314 - our own text
    places = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy)="([^"]*)"', text)
    assert places
    assert all(math.isfinite(float(place)) for place in places)


def test_far_apart_is_logarithmic() -> None:
    """From more than twenty times the least work; at twenty it starts from 0."""
    few = (a_trial("planned", 50.0, 20.0), a_trial("program", 1000.0, 30.0))
    many = (a_trial("planned", 49.0, 20.0), few[1])
    assert "0%" in texts(a_search(best=few[0], front=few, trials=few, dearest=1000.0))
    assert "0%" not in texts(a_search(best=many[0], front=many, trials=many, dearest=1000.0))


MODEL = """{"format": "qplan.annotated/1", "name": "m",
 "values": [{"name": "a", "shape": [1, 8], "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]},
            {"name": "z", "shape": [1, 8]}],
 "kernels": [{"name": "odd", "kernel": "Mystery", "inputs": ["a"], "outputs": ["z"]}],
 "inputs": ["a"], "outputs": ["z"]}"""


def test_the_report_has_a_section() -> None:
    """Chart, table and what failed, where a search is given; names stay text, and nothing is asked for."""
    plan = planner.plan(read_annotated(MODEL), "teaching-npu")
    wrong = a_trial("program", 0.0, -math.inf, error=NASTY)
    search = a_search(trials=(*a_search().trials, wrong), unit=NASTY)
    page = planner.write_report(plan, search=search)
    assert "<svg" in page
    assert "30.2 dB" in page
    assert "5.0% above that" in page
    assert "Trials that could not be measured" in page
    assert NASTY not in page
    assert not re.search(r"https?://|url\(|@import", page)
    assert "Front of the search" not in planner.write_report(plan)


def test_the_report_wants_a_search() -> None:
    """Anything else is refused by name."""
    plan = planner.plan(read_annotated(MODEL), "teaching-npu")
    with pytest.raises(InputError, match="a search is the result of planner"):
        planner.write_report(plan, search=plan)  # type: ignore[arg-type]
