"""Verdicts: whether a condition holds on values, and the values by which.

A condition asks for terms; `look` gives the values of each, none where the kernel has no such op or operand.
Source: docs/targets/reference.md.
"""

import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from planner.errors import LimitError, RuleError
from planner.target.conditions.grammar import SUBJECT, Compared, Condition, Negated, Side, Text, refs_of
from planner.target.expressions import Real, Ref, Steps, evaluate

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A term without a value, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition holds, and by which values.

    `holds` is None where it asks for ops or operands that the kernel has not. With `unknown`, a term and why
    it has no value, neither the condition nor its contrary holds.
    """

    holds: bool | None
    values: Mapping[Ref, Any]
    unknown: tuple[Ref, str] | None = None


Look: TypeAlias = Callable[[Ref], tuple[Any, ...]]


def verdict(condition: Condition, look: Look, steps: Steps) -> Verdict:
    """Evaluate a condition.

    Args:
      look: the values of a term, each of which has to do; a list of numbers stands for each of its elements.
      steps: those that are left.

    Raises:
      LimitError: too many steps, or too big a number.
    """
    if isinstance(condition, Compared):
        return _judged(condition, look, steps)
    if isinstance(condition, Negated):
        inner = verdict(condition.part, look, steps)
        return inner if inner.unknown or inner.holds is None else replace(inner, holds=not inner.holds)
    said = [found for part in condition.parts if (found := verdict(part, look, steps)).holds is not None]
    if not said:
        return Verdict(None, {})
    # One part that holds decides an `or`, one that does not an `and`; of unknown ones neither can be said.
    deciding = condition.word == "or"
    for found in said:
        if found.holds is deciding and not found.unknown:
            return found
    values = {ref: value for found in said for ref, value in found.values.items()}
    unknown = next((found.unknown for found in said if found.unknown), None)
    return Verdict(False if unknown else not deciding, values, unknown)


def _judged(test: Compared, look: Look, steps: Steps) -> Verdict:
    """Evaluate a comparison on all values of its terms: of every Conv of the kernel, of a variadic port."""
    refs = refs_of(test)
    found_by = {ref: look(ref) for ref in refs}
    if not all(found_by.values()):
        return Verdict(None, {})
    for ref, found in found_by.items():
        for value in found:
            if isinstance(value, Unknown):
                known = {other: several[0] for other, several in found_by.items() if other != ref}
                return Verdict(False, known, (ref, value.why))
    values: dict[Ref, Any] = {}
    holds = True
    for combination in itertools.product(*found_by.values()):
        values = dict(zip(refs, combination, strict=True))
        try:
            holds = _holds(test, values, steps)
        except LimitError:
            raise
        except RuleError as error:
            return Verdict(False, values, (refs[0] if refs else SUBJECT, error.message))
        if not holds:
            break
    return Verdict(holds, values)


def _holds(test: Compared, values: Mapping[Ref, Any], steps: Steps) -> bool:
    """Evaluate a comparison; lists go element by element, all in step."""
    steps.take()
    lengths = {len(value) for value in values.values() if isinstance(value, list)}
    if not lengths:
        return _COMPARE[test.sign](*_comparable(test, values, steps))
    if len(lengths) > 1:
        return test.sign == "!="
    return all(
        _holds(
            test,
            {ref: value[i] if isinstance(value, list) else value for ref, value in values.items()},
            steps,
        )
        for i in range(lengths.pop())
    )


def _comparable(test: Compared, values: Mapping[Ref, Any], steps: Steps) -> tuple[Any, Any]:
    """Both sides as numbers, or as text where an equality is asked of text."""
    left, right = _of_side(test.left, values, steps), _of_side(test.right, values, steps)
    if test.sign not in ("==", "!=") and not all(
        isinstance(side, Fraction | float) for side in (left, right)
    ):
        word = left if isinstance(left, str) else right
        raise RuleError(f"the text {word!r}, which has no order")
    return left, right


def _of_side(side: Side, values: Mapping[Ref, Any], steps: Steps) -> Any:
    if isinstance(side, Text):
        return side.value
    if isinstance(side, Ref):
        return _exact(values[side])
    return evaluate(side, lambda ref: _number(values[ref]), steps)


def _number(value: Any) -> Real:
    exact = _exact(value)
    if not isinstance(exact, Fraction | float):
        raise RuleError(f"{value!r}, which is no number")
    return exact


def _exact(value: Any) -> Any:
    """A number exactly, a float as the decimal it is written as; what is none, as it is."""
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    return Fraction(value) if isinstance(value, int) else value


def told(text: str, verdict: Verdict) -> str:
    """A condition with the values it was evaluated on: `== x.shape[1] (8)`."""
    shown = {str(ref): value for ref, value in verdict.values.items() if ref != SUBJECT}
    if shown:
        terms = "|".join(map(re.escape, sorted(shown, key=len, reverse=True)))
        text = re.sub(
            rf"(?<![\w.])({terms})(?![\w\[])", lambda found: f"{found[0]} ({shown[found[0]]})", text
        )
    if verdict.unknown is None:
        return text
    ref, why = verdict.unknown
    return f"{text}, where {'it' if ref == SUBJECT else ref} is {why}"
