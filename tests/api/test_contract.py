"""The API keeps its promises: nothing in the document breaks clients of the released one.

`golden/contract.json` is what was promised last; it changes with a release that may break (SemVer), by
copying `golden/openapi.json` over it.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from api.settings import Settings
from tests.api.contract import breaks

GOLDEN = Path(__file__).parent / "golden"
PROMISED = json.loads((GOLDEN / "contract.json").read_text("utf-8"))
PLAN = ("paths", "/v1/plans", "post")
REQUEST = ("components", "schemas", "PlanRequest")
RECORD = ("components", "schemas", "ModelRecord")


def test_nothing_breaks():
    assert breaks(PROMISED, create_app(Settings(data="unused")).openapi()) == []


def at(document: dict[str, Any], *path: Any) -> Any:
    for name in path:
        document = document[name]
    return document


BREAKS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an operation that is gone": (lambda d: d["paths"].pop("/v1/plans"), "make_plan: gone"),
    "an operation elsewhere": (
        lambda d: d["paths"].update({"/v1/plan": d["paths"].pop("/v1/plans")}),
        "make_plan: moved from post /v1/plans to post /v1/plan",
    ),
    "a parameter that is gone": (
        lambda d: at(d, *PLAN)["parameters"].clear(),
        "make_plan: header prefer is gone",
    ),
    "a parameter that is required": (
        lambda d: at(d, *PLAN)["parameters"][0].update(required=True),
        "make_plan: header prefer is required now",
    ),
    "a field that is required": (
        lambda d: at(d, *REQUEST)["required"].append("stats"),
        "make_plan: body/stats is required now",
    ),
    "a field that is gone": (
        lambda d: at(d, *REQUEST)["properties"].pop("annotations"),
        "make_plan: body/annotations is gone",
    ),
    "a field of another type": (
        lambda d: at(d, *REQUEST)["properties"].update(target={"type": "integer"}),
        "make_plan: body/target: string where integer was",
    ),
    "an option that is gone": (
        lambda d: at(d, "components", "schemas", "PlanOptions", "properties", "strategy")["enum"].remove(
            "rfc"
        ),
        "make_plan: body/options/strategy: ['rfc'] differs",
    ),
    "a state of jobs that nobody knows": (
        lambda d: at(d, "components", "schemas", "JobRecord", "properties", "state")["enum"].append("lost"),
        "get_job: answer 200/state: ['lost'] differs",
    ),
    "an answer without a field": (
        lambda d: at(d, *RECORD)["required"].remove("digest"),
        "read_model: answer 201/digest is not always there",
    ),
    "an answer of another type": (
        lambda d: at(d, *RECORD)["properties"].update(bytes={"type": "string"}),
        "read_model: answer 201/bytes: string where integer was",
    ),
    "an answer that is gone": (
        lambda d: at(d, *PLAN)["responses"].pop("202"),
        "make_plan: answer 202 is gone",
    ),
    "a media type that is gone": (
        lambda d: at(d, "paths", "/v1/targets:lint", "post", "requestBody", "content").clear(),
        "lint_target: body: application/yaml is gone",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_breaks_are_seen(name):
    change, text = BREAKS[name]
    after = copy.deepcopy(PROMISED)
    change(after)
    assert text in breaks(PROMISED, after)


FINE: dict[str, Callable[[dict[str, Any]], object]] = {
    "an operation more": lambda d: d["paths"].update({"/v2": {"get": {"operationId": "x", "responses": {}}}}),
    "a field more to answer": lambda d: at(d, *RECORD)["properties"].update(more={"type": "string"}),
    "a field more to ask": lambda d: at(d, *REQUEST)["properties"].update(more={"type": "string"}),
    "a field that may be left out": lambda d: at(d, *REQUEST)["required"].remove("target"),
}


@pytest.mark.parametrize("name", FINE)
def test_what_breaks_nothing(name):
    after = copy.deepcopy(PROMISED)
    FINE[name](after)
    assert breaks(PROMISED, after) == []
