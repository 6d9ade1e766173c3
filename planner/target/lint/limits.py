"""Lint of limits: expressions, conditions and patterns that take too long, or have too big numbers.

Only the file is checked: the sizes of a model are not known here, and planning ends an evaluation at the same
limits (`expressions`). Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.errors import InputError, LimitError, RuleError
from planner.target.conditions.grammar import Text, is_condition, parse_condition, sides
from planner.target.expressions import Apply, Expression, constant_parts, count_steps, parse_expression
from planner.target.lint.rows import Found, rows_of
from planner.target.lint.terms import place
from planner.target.patterns import parse_pattern, variants
from planner.target.records import Target

MAX_KERNEL_STEPS: Final = 10_000
"""Of all conditions that are tried for one kernel; shipped targets have 200 at most."""
MAX_TREES: Final = 2_000
"""Of all patterns of a target, without their optional ops; shipped targets have 24 at most."""


def beyond_limits(target: Target) -> Found:
    """L044: an exponent or a number that is beyond the limits of the arithmetic language."""
    for source, section, of, predicates in _predicates(target):
        for key, side in _expressions(predicates):
            problem = _problem(side)
            if problem:
                yield place(target, source, section, key), f"{section} of {of} {key}: {problem}"
    for row in rows_of(target):
        for rule in row.rules:
            for key in ("scale", "zero_point") if rule.kind == "derive" else ():
                problem = _problem(parse_expression(str(rule.args.get(key, 0))))
                if problem:
                    yield rule.source or row.source, f"derive of {row.kernel}, {key}: {problem}"


def too_many_steps(target: Target) -> Found:
    """L045: conditions that are tried for one kernel, or patterns of a target, of too many steps together."""
    for kernel, rows in target.rows.items():
        steps = sum(_steps_of(row.when) for row in rows)
        if steps > MAX_KERNEL_STEPS:
            message = f"conditions of the {len(rows)} rows of {kernel} take {steps:,} steps"
            yield rows[0].source, f"{message}; at most {MAX_KERNEL_STEPS:,} for one kernel"
    if not target.fusions:
        return
    steps = sum(_steps_of(fusion.where) * len(fusion.patterns) for fusion in target.fusions)
    if steps > MAX_KERNEL_STEPS:
        message = f"conditions of {len(target.fusions)} fusions take {steps:,} steps"
        yield target.fusions[0].source, f"{message}; at most {MAX_KERNEL_STEPS:,} for one op"
    trees = sum(_trees_of(text) for fusion in target.fusions for text in fusion.patterns)
    if trees > MAX_TREES:
        message = f"the patterns of {len(target.fusions)} fusions stand for {trees:,} trees of ops"
        yield target.fusions[0].source, f"{message}, counted without optional ops; at most {MAX_TREES:,}"


def _predicates(target: Target) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for fusion in target.fusions:
        yield fusion.source, "where", fusion.kernel, fusion.where
    for row in rows_of(target):
        yield row.source, "when", row.kernel, row.when


def _expressions(predicates: Mapping[str, Any]) -> Iterator[tuple[str, Expression]]:
    """The sides of all conditions that are no text, each with the key of its predicate."""
    for key, wanted in predicates.items():
        for text in wanted if isinstance(wanted, list | tuple) else [wanted]:
            if not (isinstance(text, str) and (key == "holds" or is_condition(text))):
                continue
            try:
                found = parse_condition(text, of_key=key != "holds")
            except InputError:  # L016's
                continue
            yield from ((key, side) for side in sides(found) if not isinstance(side, Text))


def _problem(expression: Expression) -> str:
    """The first limit that an expression exceeds whatever the model; "" where there is none."""
    for part in constant_parts(expression):
        try:
            part()
        except LimitError as error:
            return error.message
        except RuleError:  # a number that there is not, as 1 / 0
            continue
    return ""


def _steps_of(predicates: Mapping[str, Any]) -> int:
    plain = sum(len(one) if isinstance(one, list | tuple | Mapping) else 1 for one in predicates.values())
    return plain + sum(count_steps(side) for _, side in _expressions(predicates) if isinstance(side, Apply))


def _trees_of(text: str) -> int:
    try:
        return len(variants(parse_pattern(text)))
    except InputError:  # L005's
        return 0
