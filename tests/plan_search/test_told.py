"""A search is told as a line, a table and JSON."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from planner.plan_search.search_text import FRONT_HEAD, front_rows, search_json, sentence, share
from tests.plan_search.searches import a_search, a_trial

_ALONE = a_trial("planned", 0.0, math.inf, kernels={})
_SCORED = a_trial("program", 1_500_000.0, 12.0, metric=-0.95, reference=-0.9287)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {},
            "sqnr=30 is met: 30.2 dB, 8 bits a weight; work 150 cycles, 38% of the costliest plan's; 5 trials",  # noqa: E501
        ),
        (
            {"goal": "sqnr=99", "met": False, "unit": ""},
            (
                "sqnr=99 is not met; the nearest: 30.2 dB, 8 bits a weight; "
                "work 150, 38% of the costliest plan's; 5 trials"
            ),
        ),
        (
            {"goal": "drop=1%", "best": _SCORED, "dearest": 3e6, "trials": (_SCORED,)},
            (
                "drop=1% is met: 12.0 dB, metric -0.95 (the model -0.9287), 8 bits a weight; "
                "work 1,500,000 cycles, 50% of the costliest plan's; 1 trial"
            ),
        ),
        (
            {
                "goal": "size=2MB",
                "best": replace(_SCORED, size=1_234_567),
                "dearest": 3e6,
                "trials": (_SCORED,),
            },
            (
                "size=2MB is met: 12.0 dB, metric -0.95 (the model -0.9287), 8 bits a weight, "
                "weights 1.235MB; work 1,500,000 cycles, 50% of the costliest plan's; 1 trial"
            ),
        ),
        (
            {"best": _ALONE, "trials": (_ALONE,), "dearest": 0.0},
            "sqnr=30 is met: exact, 8 bits a weight; work 0 cycles, 100% of the costliest plan's; 1 trial",
        ),
    ],
)
def test_sentence(given: dict[str, Any], line: str) -> None:
    """Goal, quality, means and effort, on one line."""
    assert sentence(a_search(**given)) == line


def test_front_rows() -> None:
    """Least work first, as wide as the head; the best is marked."""
    found = a_search()
    rows = front_rows(replace(found, front=(replace(found.front[0], size=12_000_000), *found.front[1:])))
    assert rows == (
        ("100 cycles", "25.0%", "22.5 dB", "21.5 dB", "", "12MB", "planned", "0", ""),
        ("150 cycles", "37.5%", "31.2 dB", "30.2 dB", "", "0B", "program", "2", "best"),
        ("400 cycles", "100.0%", "exact", "exact", "", "0B", "all float", "1", ""),
    )
    assert {len(row) for row in rows} == {len(FRONT_HEAD)}
    assert front_rows(a_search(front=(_SCORED,), dearest=3e6))[0][4] == "-0.95"


def test_json_names_trials_by_their_places() -> None:
    """Best and front are places; the annotations are those of the best."""
    found = search_json(a_search())
    assert found["format"] == "qplan.search-result/1"
    assert found["goal"] == {"text": "sqnr=30", "kind": "sqnr", "bound": 30.0, "is_relative": False}
    assert (found["best"], found["front"]) == (4, [0, 4, 1])
    assert found["annotations"]["kernels"] == found["trials"][4]["kernels"] == {"conv": "i16", "fc": "float"}
    assert (found["met"], found["dearest"], found["bound"], found["gap"]) == (True, 400.0, 140.0, 0.05)


def test_json_has_no_word_for_infinity() -> None:
    """What is exact says so; what could not be planned has its reason."""
    found = search_json(a_search(bound=None, gap=None))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    exact, wrong = found["trials"][1], found["trials"][3]
    assert (exact["sqnr"], exact["exact"], exact["error"]) == (None, True, "")
    assert (wrong["sqnr"], wrong["exact"], wrong["error"]) == (None, False, "cannot be exported")
    assert (found["bound"], found["gap"]) == (None, None)


def test_share_of_nothing() -> None:
    """Where no plan takes any work, each takes all of it."""
    assert share(a_search(dearest=0.0), 0.0) == 1.0
