"""Goals as written, and what is refused."""

import math

import pytest

from planner.errors import InputError, UnknownName
from planner.plan_search.goals import GOALS, Goal, goal_of


@pytest.mark.parametrize(
    ("written", "goal"),
    [
        ("sqnr=30", Goal("sqnr", 30.0)),
        (" sqnr = -3.5 ", Goal("sqnr", -3.5)),
        ({"sqnr": 30}, Goal("sqnr", 30.0)),
        ("metric=-0.97", Goal("metric", -0.97)),
        ("drop=0", Goal("drop", 0.0)),
        ("drop=1%", Goal("drop", 1.0, is_relative=True)),
        ({"drop": "0.5%"}, Goal("drop", 0.5, is_relative=True)),
        ("work=1", Goal("work", 1.0)),
        ("weight_bits=4.5", Goal("weight_bits", 4.5)),
        (Goal("work", 0.5), Goal("work", 0.5)),
        ("size=25MB", Goal("size", 25e6)),
        ("size=1.5MiB", Goal("size", 1.5 * 2**20)),
        ("size=23456789B", Goal("size", 23456789.0)),
        ({"size": 800}, Goal("size", 800.0)),
        ({"size": "0.3 GB"}, Goal("size", 3e8)),
    ],
)
def test_goals_are_read(written, goal):
    assert goal_of(written) == goal
    assert goal_of(str(goal)) == goal


@pytest.mark.parametrize(
    "written",
    ["sqnr", "sqnr=", "sqnr=x", "sqnr=nan", "sqnr=inf", "sqnr=30%", "work=0", "work=1.01", "work=-1",
     "drop=-1%", "drop=-0.1", "weight_bits=0", "size=0MB",
     "size=MB", "size=5mb", "work=1B", "", 30, None, {}, {"sqnr": 30, "work": 1}, {"work": None}],
)  # fmt: skip
def test_what_is_no_goal_is_refused_with_an_example(written):
    with pytest.raises(InputError) as caught:
        goal_of(written)
    assert any(f"{name}=" in str(caught.value) or name in str(caught.value) for name in GOALS)


def test_an_unknown_goal_names_the_nearest():
    with pytest.raises(UnknownName, match="sqnr"):
        goal_of("snqr=3")


def test_only_quality_is_bounded_from_below():
    assert {name for name, meaning in GOALS.items() if meaning.is_quality} == {"sqnr", "metric", "drop"}
    assert all(math.isfinite(goal_of(f"{name}=1").bound) for name in GOALS)
