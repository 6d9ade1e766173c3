"""Findings of lint, and errors of loading, as a SARIF 2.1.0 log, which code hosts show beside the lines.

Source: OASIS SARIF 2.1.0, sections 3.13 (log), 3.14 (run), 3.27 (result), 3.29 to 3.30 (places).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote as url_quote

from planner.errors import Problem
from planner.target.lint.codes import MEANINGS
from planner.target.lint.findings import CHECKS, Finding, quote
from planner.target.records import Target
from planner.version import VERSION

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True, slots=True)
class _Place:
    """One result: its code, level and message, and the line it is about."""

    code: str
    level: str
    message: str
    file: str
    line: int
    column: int
    quote: str


def sarif_of_findings(target: Target, findings: Iterable[Finding], uri: str = "") -> Mapping[str, Any]:
    """Write findings of a target that loads; `uri` is the path of its file, by default its name."""
    places = [
        _Place(f.code, f.severity, f.message, f.file, f.line, f.column, quote(target, f)) for f in findings
    ]
    return _log(places, {target.file: uri} if uri else {})


def sarif_of_problems(problems: Iterable[Problem], uri: str = "") -> Mapping[str, Any]:
    """Write the problems of a file that `load_target` refused; `uri` is its path, by default its name."""
    places = [_Place(p.code, "error", p.message, p.file, p.line, p.column, p.quote) for p in problems]
    name = uri.rpartition("/")[2]
    return _log(places, {name: uri} if uri else {})


def _log(places: list[_Place], uris: Mapping[str, str]) -> Mapping[str, Any]:
    codes = sorted({place.code for place in places})
    driver = {"name": "qplan target lint", "version": VERSION, "rules": [_rule(code) for code in codes]}
    results = [_result(place, codes.index(place.code), uris) for place in places]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    level = CHECKS[code][0] if code in CHECKS else "error"
    meaning = MEANINGS.get(code, code)
    return {
        "id": code,
        "shortDescription": {"text": meaning[:1].upper() + meaning[1:] + "."},
        "defaultConfiguration": {"level": level},
    }


def _result(place: _Place, index: int, uris: Mapping[str, str]) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": place.line, "startColumn": place.column}
    if place.quote:
        region["snippet"] = {"text": place.quote}
    uri = url_quote(uris.get(place.file, place.file))
    return {
        "ruleId": place.code,
        "ruleIndex": index,
        "level": place.level,
        "message": {"text": place.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
