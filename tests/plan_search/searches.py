"""Searches made by hand, for tests of how they are told and drawn."""

import math
from typing import Any

from planner.plan_search.goals import goal_of
from planner.plan_search.search import Search
from planner.plan_search.trials import Trial


def a_trial(origin: str, work: float, sqnr: float, **given: Any) -> Trial:
    """A trial that asks something of as many kernels as make it unlike the others."""
    kernels = given.pop("kernels", {f"k{work:g}/{sqnr:g}": "i16"})
    return Trial(origin, kernels, work, given.pop("weight_bits", 8.0), sqnr + 1, sqnr, **given)


def a_search(goal: str = "sqnr=30", *, met: bool = True, **given: Any) -> Search:
    """Four trials: as planned, all float, one between, and one that cannot be planned."""
    plain = a_trial("planned", 100.0, 21.5, kernels={})
    best = a_trial("program", 150.0, 30.25, kernels={"conv": "i16", "fc": "float"})
    dear = a_trial("all float", 400.0, math.inf)
    worse = a_trial("all i16", 300.0, 25.0)
    wrong = a_trial("program", 0.0, -math.inf, error="cannot be exported")
    found = {
        "best": best,
        "front": (plain, best, dear),
        "trials": (plain, dear, worse, wrong, best),
        "dearest": 400.0,
        "bound": 140.0,
        "gap": 0.05,
        "unit": "cycles",
    }
    return Search(goal_of(goal), met, **{**found, **given})
