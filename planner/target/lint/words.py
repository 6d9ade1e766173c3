"""Lint of words: names in predicates, rules and `legalize` that stand for nothing, or for themselves.

Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.ir.opattributes import attribute_names
from planner.target.circles import asked_by, circles, has_answer
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.rows import Found, ports_of, rows_of
from planner.target.predicates import OPERANDS
from planner.target.records import Target
from planner.target.yamltree import nearest

_TERM = re.compile(r"[A-Za-z_][\w:.]*\.\w+")


def unknown_attribute(target: Target) -> Found:
    """L031: a predicate on an attribute that its op does not have, so it never holds."""
    for where, predicates, ports, source in _predicates(target):
        for term in dict.fromkeys(_terms(predicates)):
            op, _, name = term.rpartition(".")
            if op in ports or op not in ONNX_OPS:
                continue
            known = [
                *attribute_names(op),
                *(key[len(op) + 1 :] for key in OPERANDS if key.startswith(f"{op}.")),
            ]
            known += ["range"] if op == "Clip" else []
            if name not in known:
                yield source, f"{where}: {op} has no attribute {name!r}{nearest(name, known)}"


def _predicates(target: Target) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...], str]]:
    for fusion in target.fusions:
        yield f"where of {fusion.kernel}", fusion.where, (), fusion.source
    for row in rows_of(target):
        ports = tuple(port.name for port in ports_of(row))
        yield f"when of {row.kernel}", row.when, ports, row.source


def _terms(predicates: Mapping[str, Any]) -> Iterator[str]:
    """The term of a predicate and those it is compared with."""
    for key, wanted in predicates.items():
        if _TERM.fullmatch(key):
            yield key
        other = re.sub(r"^\s*[=!<>]+\s*", "", wanted) if isinstance(wanted, str) else ""
        if other != wanted and _TERM.fullmatch(other):
            yield other


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
                rule.kind == "same_scale"
                and len({*rule.args["ports"]}) == 1
                and not {*rule.args["ports"]} & variadic
            ):
                yield rule.source, f"same_scale of {row.kernel} lists one port, {rule.args['ports'][0]!r}"


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
