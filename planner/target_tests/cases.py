"""The tests of a target file: plan the model of each, check the plan, compare it with the expectations.

A test asks for what its `expect` names and for nothing else; kernels are counted by their rows, so a
kernel that fell back to float is missing there. The model is a slice of a bigger one, so quantize and
dequantize cost nothing in a test. Source: docs/targets/reference.md.
"""

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.errors import Conflict, PlanInvalid, PlannerError, unknown_name
from planner.formats.onnx.operators.soundness import refuse_unsound
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.typetext import parse_storage, parse_type
from planner.pipeline import check
from planner.pipeline import plan as plan_model
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import same_scale
from planner.target.expressions import parse_number
from planner.target.modeltext import read_model_text
from planner.target.records import Target, TestCase, without_formats

CASTS: Final = ("quantize", "dequantize")
EARLIER: Final = tuple(
    (re.compile(then), now)
    for then, now in (
        (r"(^|: |; )wanted ", r"\1requires "),
        (r", wanted ", ", must be "),
        (r", and ('[^']*') is pinned\b(?! to )", r", and \1 has a fixed type"),
        (r" is pinned along ", " has a fixed type along "),
        (
            r" is pinned to blocks of which the last is shorter",
            " has a fixed type whose last block is shorter",
        ),
        (r" is pinned to ", " has the fixed type "),
        (r", and derived as ", ", and is derived as "),
        (r"\bdrop the pin\b", "drop the fixed type"),
        (r" is to stay float\b", " is kept in float"),
        (r"\bit serves only kernels that are asked to run so", "it runs on request only"),
        (r" at its readers\b", " at its consumers"),
    )
)
"""Words of reasons and conflicts in earlier versions, and those of today."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one test: `file:line` of it, and each expectation that does not hold, as a sentence."""

    name: str
    source: str
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything expected holds."""
        return not self.problems


def run_cases(target: Target, names: Sequence[str] = ()) -> tuple[CaseResult, ...]:
    """Run the tests of a target, in file order.

    Args:
      target: a loaded target.
      names: names or globs of the tests to run; all without any.

    Raises:
      UnknownName: a name that is none of the tests'.
    """
    for name in names:
        if not any(fnmatch.fnmatchcase(case.name, name) for case in target.tests):
            raise unknown_name("test", name, (case.name for case in target.tests))
    chosen = (
        case
        for case in target.tests
        if not names or any(fnmatch.fnmatchcase(case.name, name) for name in names)
    )
    return tuple(run_case(target, case) for case in chosen)


def run_case(target: Target, case: TestCase) -> CaseResult:
    """Run one test."""
    expect = dict(case.expect)
    wanted = expect.pop("error", None)
    try:
        plan = plan_case(target, case)
    except PlannerError as error:
        problem = _refusal(error, wanted)
        return CaseResult(case.name, case.source, (problem,) if problem else ())
    if wanted is not None:
        return CaseResult(case.name, case.source, (f"error: expected {wanted!r}, the model is planned",))
    problems = tuple(text for key, value in expect.items() for text in EXPECTATIONS[key](plan, value))
    return CaseResult(case.name, case.source, problems)


def plan_case(target: Target, case: TestCase) -> Plan:
    """Plan the model of a test and check the plan.

    Raises:
      TargetError: a model that cannot be read.
      ModelError: one that ONNX would not take.
      Conflict: it has no plan.
      PlanInvalid: the checker refuses the plan.
    """
    model = read_model_text(case.model, case.name)
    refuse_unsound(model)
    plan = plan_model(model, without_formats(target), quantize=0.0, dequantize=0.0)
    check(plan, model, target)
    return plan


def _refusal(error: PlannerError, wanted: str | None) -> str:
    if wanted is not None and isinstance(error, Conflict):
        return (
            ""
            if in_todays_words(wanted) in str(error)
            else f"error: expected {wanted!r}, found {str(error)!r}"
        )
    what = {Conflict: "there is no plan", PlanInvalid: "the plan is not valid"}.get(type(error), "model")
    return f"{what}: {error}"


def _kernels(plan: Plan, wanted: Mapping[str, int]) -> Iterator[str]:
    yield from _counts("kernels", Counter(k.kernel for k in plan.kernels_in_order if k.row), wanted, plan)


def _floats(plan: Plan, wanted: Mapping[str, int]) -> Iterator[str]:
    yield from _counts("floats", Counter(k.kernel for k in plan.kernels_in_order if not k.row), wanted, plan)


def _counts(what: str, found: Counter[str], wanted: Mapping[str, int], plan: Plan) -> Iterator[str]:
    if dict(found) == {kernel: count for kernel, count in wanted.items() if count}:
        return
    reasons = dict.fromkeys(
        f"{k.kernel} {k.name!r} is in float: {k.reason}" for k in plan.kernels_in_order if k.reason
    )
    told = "".join(f"; {reason}" for reason in reasons)
    yield f"{what}: expected {_table(wanted)}, found {_table(found)}{told}"


def _table(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"


def _reasons(plan: Plan, wanted: Mapping[str, str]) -> Iterator[str]:
    for name, text in wanted.items():
        kernel = plan.kernels.get(name)
        if kernel is None:
            yield f"reasons: {unknown_name('kernel', name, plan.kernels)}"
        elif kernel.reason is None:
            yield f"reasons: {name} runs by the row {kernel.row}"
        elif in_todays_words(text) not in kernel.reason:
            yield f"reasons: {name}: expected {text!r}, found {kernel.reason!r}"


def in_todays_words(text: str) -> str:
    """Return a quoted message in today's words: files may quote those of earlier versions."""
    for then, now in EARLIER:
        text = then.sub(now, text)
    return text


def _rescales(plan: Plan, wanted: int | Mapping[str, int]) -> Iterator[str]:
    kinds = Counter(rescale.kind for rescale in plan.rescales)
    shown = ", ".join(f"{r.id} {r.kind} to {r.to_type or 'float'}" for r in plan.rescales)
    if isinstance(wanted, int):
        count = sum(number for kind, number in kinds.items() if kind not in CASTS)
        if count != wanted:
            yield f"rescales: expected {wanted}, found {count} ({shown})"
        return
    for kind, number in wanted.items():
        found = sum(count for name, count in kinds.items() if name == kind)
        if found != number:
            yield f"rescales: expected {number} of kind {kind}, found {found} ({shown or 'none at all'})"


def _same_scale(plan: Plan, wanted: Iterable[Sequence[str]]) -> Iterator[str]:
    for group in wanted:
        try:
            types = [(name, _type_at(plan, name)) for name in group]
        except PlannerError as error:
            yield f"same_scale: {error}"
            continue
        first, leader = types[0]
        for name, kind in types[1:]:
            if not _one_scale(leader, kind):
                yield f"same_scale: {first} is {leader or 'float'}, {name} is {kind or 'float'}"


def _one_scale(a: PortTyped, b: PortTyped) -> bool:
    if not isinstance(a, Uniform) or not isinstance(b, Uniform) or len(a.scales) != len(b.scales):
        return False
    zeros = ([zero - kind.storage.offset for zero in kind.zero_points] for kind in (a, b))
    return all(map(same_scale, a.scales, b.scales)) and next(zeros) == next(zeros)


def _types(plan: Plan, wanted: Mapping[str, Any]) -> Iterator[str]:
    for name, asked in wanted.items():
        try:
            found = _type_at(plan, name)
            holds = _is_type(found, asked)
        except PlannerError as error:
            yield f"types: {error}"
            continue
        if not holds:
            yield f"types: {name}: expected {_asked(asked)}, found {found or 'float'}"


def _type_at(plan: Plan, name: str) -> PortTyped:
    """Type of a value at its definition, or of a port (`y.in[1]`)."""
    ports = {p.address: p.type for k in plan.kernels_in_order for p in (*k.inputs, *k.outputs) if p.value}
    if name in ports:
        return ports[name]
    if name not in plan.values:
        raise unknown_name("value or port", name, (*plan.values, *ports))
    if plan.values[name].type is not None:
        return plan.values[name].type
    written = (port.type for k in plan.kernels_in_order for port in k.outputs if port.value == name)
    return next((kind for kind in written if isinstance(kind, FloatType)), None)


def _is_type(found: PortTyped, asked: str | Mapping[str, Any]) -> bool:
    if isinstance(asked, Mapping):
        return isinstance(found, Uniform) and all(_FIELDS[key](found, value) for key, value in asked.items())
    if asked == "float":
        return found is None
    if isinstance(found, FloatType) or found is None:
        return str(found) == asked
    if not asked.startswith("!"):
        return found.storage == parse_storage(asked)
    whole = parse_type(asked)
    return (
        isinstance(whole, Uniform)
        and whole.storage == found.storage
        and (whole.axis, whole.grid) == (found.axis, found.grid)
        and whole.zero_points == found.zero_points
        and all(map(same_scale, whole.scales, found.scales))
    )


def _asked(asked: str | Mapping[str, Any]) -> str:
    if isinstance(asked, str):
        return asked
    return ", ".join(f"{key} {value}" for key, value in asked.items())


def _has_scale(found: Uniform, wanted: float | str) -> bool:
    number = float(parse_number(wanted))
    return all(math.isclose(scale, number, rel_tol=1e-6) for scale in found.scales)


_FIELDS: Final[Mapping[str, Callable[[Uniform, Any], bool]]] = {
    "per": lambda found, wanted: wanted == _per(found),
    "scale": _has_scale,
    "storage": lambda found, wanted: found.storage == parse_storage(wanted),
    "zero_point": lambda found, wanted: set(found.zero_points) == {wanted},
}


def _per(found: Uniform) -> str:
    if found.blocks:
        return "block"
    return "tensor" if found.axis is None else "axis"


def _fully_quantized(plan: Plan, wanted: bool) -> Iterator[str]:  # noqa: FBT001 - a value to compare
    if plan.fully_quantized != wanted:
        yield f"fully_quantized: expected {str(wanted).lower()}, found {str(plan.fully_quantized).lower()}"


EXPECTATIONS: Final[Mapping[str, Callable[[Plan, Any], Iterator[str]]]] = {
    "floats": _floats,
    "fully_quantized": _fully_quantized,
    "kernels": _kernels,
    "reasons": _reasons,
    "rescales": _rescales,
    "same_scale": _same_scale,
    "types": _types,
}
"""Expectations of a test, besides `error`; each yields its failures."""
