"""Quality of a plan, as it is kept with it: a comparison as JSON, and a comparison of that for the report.

JSON has no infinity: null is no error at all (`exact`), or only error. Source: docs/service.md.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.accuracy.coverage import Coverage
from planner.accuracy.decided import Decided
from planner.accuracy.metrics import Score
from planner.accuracy.quality import Quality
from planner.interpreter.compare import Comparison
from planner.report.summary import mark, sqnr_text


def quality_record(found: Comparison, whole: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The record that is kept of a comparison of a plan.

    Args:
      whole: its `outputs` and `metrics` as JSON.
      told: with the request: `format`, `samples`, a digest, and `held_out`.
    """
    known = replace(found, held_out=told["held_out"])
    worst, verdict = known.worst_sqnr, known.verdict
    parts = {} if verdict is None else verdict.to_dict()
    return {
        **told,
        "count": found.samples,
        "reference": found.reference,
        "measured_on": known.measured_on,
        "text": sqnr_text(worst),
        "grade": parts.get("level", mark(worst)),
        "reason": parts.get("reason"),
        "keep_float": parts.get("keep_float"),
        "accuracy": parts.get("accuracy"),
        "coverage": parts.get("coverage"),
        "of": found.of,
        "by": found.by,
        "failure": found.failure,
        "sqnr": worst if math.isfinite(worst) else None,
        "outputs": whole["outputs"],
        "metrics": whole["metrics"],
        "notes": list(found.notes),
    }


def comparisons_of(kept: Mapping[str, Any] | None) -> dict[str, Comparison]:
    """The comparison that was kept, by the name of its format, as a report takes it."""
    if kept is None:
        return {}
    return {
        kept["format"]: Comparison(
            kept["count"],
            {name: _quality(one) for name, one in kept["outputs"].items()},
            scores={name: _score(one) for name, one in kept["metrics"].items()},
            reference=kept["reference"],
            held_out=kept["held_out"],
            notes=tuple(kept["notes"]),
            of=kept.get("of", ""),
            by=kept.get("by", ""),
            failure=kept.get("failure", ""),
            coverage=_coverage(kept.get("coverage")),
        )
    }


def _coverage(one: Mapping[str, Any] | None) -> Coverage | None:
    """Figures of coverage without reasons; None in records of earlier versions, which have no work."""
    if one is None or one.get("float_work") is None:
        return None
    return Coverage(
        one["kernels"],
        one["on_device"],
        one["multiply_adds"],
        one["multiply_adds_on_device"],
        work=one["work"],
        float_work=one["float_work"],
        size=one["bytes"],
        float_size=one["float_bytes"],
    )


def _quality(one: Mapping[str, Any]) -> Quality:
    sqnr = one["sqnr"] if one["sqnr"] is not None else math.inf if one["exact"] else -math.inf
    groups = {label: _quality(group) for label, group in one.get("groups", {}).items()}
    decided = Decided(**one["decided"]) if one.get("decided") else None
    return Quality(sqnr, _real(one["max_error"]), one["elements"], groups, decided)


def _score(one: Mapping[str, Any]) -> Score:
    return Score(_real(one["reference"]), _real(one["quantized"]), one["larger_is_better"])


def _real(number: float | None) -> float:
    return math.inf if number is None else number
