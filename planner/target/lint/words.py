"""Lint of words: names in predicates, rules and `legalize` that stand for nothing, or for themselves.

Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from planner.errors import InputError
from planner.ir.opattributes import attribute_names, default_of
from planner.target.circular_rules import asked_by, circles, has_answer
from planner.target.conditions.grammar import Text, is_condition, parse_condition, refs_of, sides
from planner.target.conditions.verdicts import verdict
from planner.target.expressions import Number, Ref, Steps
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.rows import Found, ports_of, rows_of
from planner.target.lint.terms import place, terms_of
from planner.target.predicates import OPERANDS
from planner.target.records import Target
from planner.target.yamltree import nearest


def unknown_attribute(target: Target) -> Found:
    """L031: a predicate on an attribute that its op does not have, so it never holds."""
    for section, of, predicates, ports, source in _predicates(target):
        for key, op, what in dict.fromkeys(terms_of(predicates)):
            name = what.partition("[")[0]
            if op in ports or op not in ONNX_OPS:
                continue
            known = [
                *attribute_names(op),
                *(key[len(op) + 1 :] for key in OPERANDS if key.startswith(f"{op}.")),
            ]
            known += ["range"] if op == "Clip" else []
            if name not in known:
                yield (
                    place(target, source, section, key),
                    f"{section} of {of}: {op} has no attribute {name!r}{nearest(name, known)}",
                )


def _predicates(target: Target) -> Iterator[tuple[str, str, Mapping[str, Any], tuple[str, ...], str]]:
    for fusion in target.fusions:
        yield "where", fusion.kernel, fusion.where, (), fusion.source
    for row in rows_of(target):
        yield "when", row.kernel, row.when, tuple(port.name for port in ports_of(row)), row.source


def text_for_a_number(target: Target) -> Found:
    """L038: a predicate that compares a number with text, or text with a number, so it never holds."""
    for section, of, predicates, ports, source in _predicates(target):
        for key, wanted in predicates.items():
            kind = _kind(key, ports)
            entries = wanted if isinstance(wanted, list | tuple) else [wanted]
            given = {_given(one) for one in entries} - {""}
            if kind and given and kind not in given:
                message = f"{section} of {of}: {key} is {kind}, expected {given.pop()} ({wanted!r})"
                yield place(target, source, section, key), message


def _kind(key: str, ports: tuple[str, ...]) -> str:
    """The kind of a term's values, a number or text; "" where that is not known."""
    owner, _, what = key.rpartition(".")
    if owner in ports:
        return "text" if what == "dtype" else "a number"
    default = default_of(owner, what) if owner in ONNX_OPS else None
    return (
        "text"
        if isinstance(default, str) and default != "absent"
        else "a number"
        if _is_number(default)
        else ""
    )


def _given(wanted: Any) -> str:
    """The kind that a predicate's value compares with; "" where either may be meant."""
    if not is_condition(wanted):
        plain = isinstance(wanted, str) and wanted != "absent"
        return "text" if plain else "a number" if _is_number(wanted) else ""
    try:
        found = parse_condition(wanted, of_key=True)
    except InputError:
        # L016 says so.
        return ""
    kinds = {
        "text" if isinstance(side, Text) else "" if isinstance(side, Ref) else "a number"
        for side in sides(found)
    }
    kinds.discard("")
    return kinds.pop() if len(kinds) == 1 else ""


def unmet_bounds(target: Target) -> Found:
    """L047: a predicate whose bounds no number meets, so it never holds."""
    for section, of, predicates, ports, source in _predicates(target):
        for key, wanted in predicates.items():
            entries = wanted if isinstance(wanted, list | tuple) else [wanted]
            unmet = [one for one in entries if _is_unmet(key, one, ports)]
            # Of a list one entry is enough, of `holds` all are needed.
            if unmet and (key == "holds" or len(unmet) == len(entries)):
                message = f"{section} of {of} {key}: no number meets {unmet[0]!r}"
                yield place(target, source, section, key), message


def _is_unmet(key: str, text: Any, ports: tuple[str, ...]) -> bool:
    """Whether bounds of one term hold for no number: tried are they, and numbers between and beyond."""
    if not isinstance(text, str) or not (key == "holds" or is_condition(text)):
        return False
    try:
        found = parse_condition(text, of_key=key != "holds")
    except InputError:
        # L016 says so.
        return False
    terms, limits = refs_of(found), set(sides(found))
    bounds = {Fraction(side.value) for side in limits if isinstance(side, Number)}
    if len(terms) != 1 or not bounds or len(limits) != len(bounds) + 1:
        return False
    numbers = {bound + step for bound in bounds for step in (-1, 0, 1)}
    numbers |= {(a + b) / 2 for a, b in itertools.pairwise(sorted(bounds))}
    owner = terms[0].port if key == "holds" else key.rpartition(".")[0]
    if owner in ports:  # ranks, sizes and counts
        numbers = {number for number in numbers if number >= 0}
    return not any(verdict(found, partial(_alone, number), Steps()).holds for number in numbers)


def _alone(number: Fraction, _: Ref) -> tuple[Fraction, ...]:
    return (number,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def legalized_into_nothing(target: Target) -> Found:
    """L032: `legalize` into kernels that the target does not have, or into the kernel itself."""
    known = {*target.rows, *(fusion.kernel for fusion in target.fusions)}
    for kernel, into in target.legalize.items():
        for name in into:
            if name == kernel:
                yield "legalize", f"legalize of {kernel!r} into itself"
            elif name not in known and name not in ONNX_OPS:
                yield (
                    "legalize",
                    f"legalize of {kernel!r} into {name!r}: no kernel{nearest(name, sorted(known))}",
                )


def lone_scale(target: Target) -> Found:
    """L033: same_scale of one port, which shares with nothing."""
    for row in rows_of(target):
        variadic = {port.name for port in ports_of(row) if port.variadic}
        for rule in row.rules:
            if (
                rule.kind in ("same_scale", "same_storage")
                and len({*rule.args["ports"]}) == 1
                and not {*rule.args["ports"]} & variadic
            ):
                yield rule.source, f"{rule.kind} of {row.kernel} lists one port, {rule.args['ports'][0]!r}"


def derived_from_itself(target: Target) -> Found:
    """L034: a port whose parameters are computed from its own (the ends of its storage are none)."""
    for row in rows_of(target):
        for rule in row.rules:
            if rule.kind != "derive":
                continue
            if rule.args["port"] in asked_by(rule):
                yield rule.source, f"derive of {row.kernel} computes port {rule.args['port']!r} from itself"


def derived_in_a_circle(target: Target) -> Found:
    """L036: ports that are computed from each other so that no scales and zero points satisfy it."""
    for row in rows_of(target):
        for circle in circles(row):
            if len(circle) == 1 and circle[0].args["port"] in asked_by(circle[0]):  # L034
                continue
            if not has_answer(row, circle):
                told = ", ".join(f"{rule.args['port']!r} from {_listed(asked_by(rule))}" for rule in circle)
                yield circle[0].source, f"derive of {row.kernel} in a circle that nothing satisfies: {told}"


def _listed(names: set[str]) -> str:
    return " and ".join(map(repr, sorted(names)))
