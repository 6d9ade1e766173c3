"""Failures: problem documents as the planner's own errors where there is one. Source: docs/problems.md."""

from collections.abc import Mapping
from typing import Any, Final

import httpx

from planner.errors import (
    AnnotationError,
    Conflict,
    InputError,
    ModelError,
    PlanInvalid,
    PlannerError,
    Problem,
    QTypeError,
    RuleError,
    StatsError,
    TargetError,
    UnknownName,
    UnsupportedExport,
)

_PREFIX: Final = "urn:qplan:problem:"


class ServiceError(PlannerError):
    """An answer that is a failure of a type no error class stands for, or no answer.

    Attributes:
      problem: the problem document; empty where nothing was understood.
    """

    def __init__(self, message: str, *, problem: Mapping[str, Any] | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = dict(problem or {})

    @property
    def name(self) -> str:
        """Type of the problem, without its prefix; empty where there is none."""
        return str(self.problem.get("type", "")).removeprefix(_PREFIX)


def failure(answer: httpx.Response) -> PlannerError:
    """The error that an answer is."""
    try:
        problem: dict[str, Any] = answer.json()
        return failure_of(problem)
    except (ValueError, KeyError, AttributeError, TypeError):
        return ServiceError(f"the server answered {answer.status_code} {answer.reason_phrase}")


def failure_of(problem: Mapping[str, Any]) -> PlannerError:
    """The error that a problem document is, of an answer or of a job.

    Raises:
      KeyError: it is no problem document.
    """
    name, detail = problem["type"].removeprefix(_PREFIX), problem["detail"]
    hint = problem.get("hint") or _nearest(problem.get("nearest", ()))
    if name in ("conflict", "no-kernel"):
        return Conflict(detail, facts=tuple(problem.get("facts", ())), hint=hint)
    if name == "plan-invalid":
        return PlanInvalid(detail, port=problem.get("port", ""), row=problem.get("row", ""))
    if name == "target-invalid":
        errors = [Problem(file="text", **entry) for entry in problem.get("errors", ())]
        return TargetError(detail, errors=errors, hint=hint)
    if name in _ERRORS:
        return _ERRORS[name](detail, hint=hint)
    return ServiceError(f"{problem['title']}: {detail}", problem=problem, hint=hint)


def _nearest(names: Any) -> str:
    return f"did you mean {' or '.join(repr(name) for name in names)}?" if names else ""


_ERRORS: Final[Mapping[str, type[PlannerError]]] = {
    "annotation-invalid": AnnotationError,
    "input-invalid": InputError,
    "model-invalid": ModelError,
    "rule-invalid": RuleError,
    "stats-invalid": StatsError,
    "type-invalid": QTypeError,
    "unknown-name": UnknownName,
    "unknown-value": StatsError,
    "unsupported-export": UnsupportedExport,
}
