"""SARIF: what the standard demands of a log, and what a reader needs to show a finding beside its line."""

from pathlib import Path

import pytest

from planner.errors import TargetError
from planner.target.lint.findings import lint
from planner.target.lint.sarif import sarif_of_findings, sarif_of_problems
from planner.target.load import load_target

FOLDER = Path(__file__).parent / "broken"
CASES = sorted(FOLDER.glob("*.yaml"))


def log_of(path):
    try:
        target = load_target(path)
    except TargetError as error:
        return sarif_of_problems(error.errors, f"targets/{path.name}")
    return sarif_of_findings(target, lint(target), f"targets/{path.name}")


def demands(log):
    """Broken demands of SARIF 2.1.0 on the parts we write, with the section that makes each."""
    if log["version"] != "2.1.0" or not isinstance(log["runs"], list):
        yield "3.13: version and runs"
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        rules = driver["rules"]
        if not driver["name"] or run["columnKind"] not in ("utf16CodeUnits", "unicodeCodePoints"):
            yield "3.19.8, 3.14.17: name and columnKind"
        if len({rule["id"] for rule in rules}) != len(rules):
            yield "3.19.23: rules are unique"
        for rule in rules:
            if not rule["shortDescription"]["text"].endswith("."):
                yield "3.12.3: a message is a sentence"
            if rule["defaultConfiguration"]["level"] not in ("none", "note", "warning", "error"):
                yield "3.50.3: level"
        for result in run["results"]:
            yield from result_demands(result, rules)


def result_demands(result, rules):
    if rules[result["ruleIndex"]]["id"] != result["ruleId"]:
        yield "3.27.6: ruleIndex points at ruleId"
    if result["level"] not in ("none", "note", "warning", "error") or not result["message"]["text"]:
        yield "3.27.10, 3.11: level and message"
    for location in result["locations"]:
        place = location["physicalLocation"]
        region = place["region"]
        if " " in place["artifactLocation"]["uri"]:
            yield "3.4.3: a valid URI"
        if region["startLine"] < 1 or region["startColumn"] < 1:
            yield "3.30.5, 3.30.6: positive"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_broken_file_makes_a_valid_log(path):
    log = log_of(path)
    assert list(demands(log)) == []
    assert path.stem.partition("-")[0] in {result["ruleId"] for result in log["runs"][0]["results"]}


def test_a_result_whole():
    log = log_of(FOLDER / "L015.yaml")
    assert log["runs"][0]["results"] == [
        {
            "ruleId": "L015",
            "ruleIndex": 0,
            "level": "warning",
            "message": {"text": "type 'a8' is used nowhere"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "targets/L015.yaml"},
                        "region": {
                            "startLine": 7,
                            "startColumn": 9,
                            "snippet": {"text": "types: {a8: {storage: i8}}"},
                        },
                    }
                }
            ],
        }
    ]


def test_a_clean_target_has_an_empty_log():
    target = load_target("teaching-npu")
    assert sarif_of_findings(target, lint(target))["runs"][0]["results"] == []
