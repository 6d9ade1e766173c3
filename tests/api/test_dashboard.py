"""The dashboard and the alerts ask for what `/metrics` has: names, labels, values of labels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.jobs.records import State
from api.problems import TYPES
from api.settings import Settings
from tests.api.documents import OCTETS, relu

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docker" / "dashboard.json").read_text("utf-8"))
ALERTS = yaml.safe_load((ROOT / "docker" / "alerts.yaml").read_text("utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED = {"instance"}
"""Labels that Prometheus adds."""
SELECTOR = re.compile(r"\b(qplan_\w+)(?:\{([^}]*(?:\{\w+\}[^}]*)*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
ENDINGS = {"ok", "busy", "crashed", *TYPES}


def expressions() -> Iterator[tuple[str, str]]:
    """What each panel and each alert asks for."""
    for panel in PANELS:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)


@pytest.fixture(scope="module")
def sampled(service) -> dict[str, set[str]]:
    """Names of samples of a server that has worked, with their labels."""
    service.post("/v1/models", content=relu(), headers=OCTETS)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(service.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize(("title", "expr"), list(expressions()))
def test_what_is_asked_for_is_there(sampled, title, expr):
    asked = SELECTOR.findall(expr)
    assert asked, title
    labels = set[str]()
    for name, matchers in asked:
        assert name in sampled, (title, name)
        labels |= sampled[name]
        assert {label for label, _, _ in MATCHER.findall(matchers)} <= sampled[name] | SCRAPED, title
    for grouped in re.findall(r"\bby \(([^)]*)\)", expr):
        assert set(re.split(r",\s*", grouped)) <= labels, title


def possible(label: str) -> set[str]:
    """Values that a label can have."""
    return {
        "ending": ENDINGS,
        "route": set(create_app(Settings(data="unused")).openapi()["paths"]),
        "state": set(get_args(State)),
        "status": {str(status) for status, _ in TYPES.values()},
    }[label]


@pytest.mark.parametrize(("title", "expr"), list(expressions()))
def test_values_of_labels_can_be(title, expr):
    for _, matchers in SELECTOR.findall(expr):
        for label, operator, text in MATCHER.findall(matchers):
            if label in SCRAPED:
                continue
            words = text.split("|") if operator in ("=~", "!~") else [text]
            for word in words:
                fits = [one for one in possible(label) if one == word or re.fullmatch(word, one)]
                assert fits, (title, label, word)


def test_what_an_operator_looks_at_is_shown(sampled):
    """All but the sums of histograms and the deprecated name."""
    shown = " ".join(expr for _, expr in expressions())
    hidden = re.compile(r".*_(sum|count|created)$|qplan_blob_bytes")
    assert [name for name in sampled if not hidden.fullmatch(name) and name not in shown] == []


def test_panels_lie_beside_each_other():
    """No two overlap, none has another's number, and each says where its data are."""
    taken = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {f"${{{variable['name']}}}" for variable in DASHBOARD["templating"]["list"]}
    assert {panel["datasource"]["uid"] for panel in PANELS} <= variables


def test_alerts_say_what_to_do():
    for rule in RULES:
        assert re.fullmatch(r"Qplan[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}
