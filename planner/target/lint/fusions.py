"""Lint of fusions: patterns that cannot match, and kernels that nothing serves.

Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

import re

from planner.errors import InputError
from planner.ir.graph import LINEAR
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.rows import Found, predicate_problem, rows_of
from planner.target.patterns import Pattern, op_types, parse_pattern
from planner.target.records import Fusion, Target
from planner.target.rules import expand_ports
from planner.target.yamltree import nearest


def unreadable_pattern(target: Target) -> Found:
    """L005: a fusion pattern that cannot be read."""
    for fusion in target.fusions:
        for text in fusion.patterns:
            problem = _pattern(text)
            if isinstance(problem, str):
                yield fusion.source, problem


def _pattern(text: str) -> Pattern | str:
    try:
        return parse_pattern(text)
    except InputError as error:
        return error.message


def _patterns(fusion: Fusion) -> list[Pattern]:
    return [found for text in fusion.patterns if isinstance(found := _pattern(text), Pattern)]


def never_matches(target: Target) -> Found:
    """L006: a pattern names an op that ONNX does not have."""
    for fusion in target.fusions:
        for pattern in _patterns(fusion):
            for name in sorted(op_types(pattern)):
                if "::" not in name and name not in ONNX_OPS:
                    hint = nearest(name, sorted(ONNX_OPS), cutoff=0.6, listed=False)
                    message = f"pattern {pattern.text!r} never matches: no op is named {name!r}{hint}"
                    yield fusion.source, message


def fused_without_rows(target: Target) -> Found:
    """L007: a fusion makes a kernel that no row serves: it runs in float as a whole."""
    for fusion in target.fusions:
        if fusion.kernel not in target.rows:
            hint = nearest(fusion.kernel, list(target.rows))
            yield fusion.source, f"kernel {fusion.kernel!r} is fused and has no row{hint}"


def ports_do_not_fit(target: Target) -> Found:
    """L008: no row of a fused kernel takes the ports that a pattern gives it."""
    for fusion in target.fusions:
        rows = target.rows.get(fusion.kernel, ())
        for pattern in _patterns(fusion):
            if any(variable.variadic for variable in pattern.variables):
                continue
            required = tuple("" if variable.optional else variable.name for variable in pattern.variables)
            if rows and all(expand_ports(row.inputs, required) is None for row in rows):
                shown = ", ".join(str(variable) for variable in pattern.variables)
                yield (
                    fusion.source,
                    f"no row of {fusion.kernel!r} takes the ports ({shown}) of {pattern.text!r}",
                )


def shadowed_fusion(target: Target) -> Found:
    """L009: an earlier fusion has the same pattern and asks for no more."""
    for i, fusion in enumerate(target.fusions):
        for earlier in target.fusions[:i]:
            again = set(earlier.patterns) & set(fusion.patterns)
            if again and earlier.where.items() <= fusion.where.items():
                yield (
                    fusion.source,
                    f"pattern {min(again)!r} never gets here: {earlier.source} takes it first",
                )


def idle_predicate(target: Target) -> Found:
    """L010: a `where` predicate names neither an op nor a variable of the patterns, so it always holds."""
    for fusion in target.fusions:
        patterns = _patterns(fusion)
        known = {name for p in patterns for name in (*op_types(p), *(v.name for v in p.variables))}
        for key in fusion.where:
            name = re.split(r"[.\[]", key)[0]
            if known and name not in known:
                yield (
                    fusion.source,
                    f"where {key!r} names nothing in the pattern{nearest(name, sorted(known))}",
                )


def unreadable_where(target: Target) -> Found:
    """L016: a predicate of a fusion that cannot be read."""
    for fusion in target.fusions:
        names = {variable.name: "" for p in _patterns(fusion) for variable in p.variables}
        for key, wanted in fusion.where.items():
            # A name that is nowhere in the pattern is L010's.
            name = re.split(r"[.\[]", key)[0]
            problem = predicate_problem(key, wanted, names) if name in names or name[:1].isupper() else ""
            if problem:
                yield fusion.source, f"where of {fusion.kernel}: {problem}"


def idle_accumulator(target: Target) -> Found:
    """L035: an accumulator of a kernel without products, whose sums nobody counts."""
    opened = {kernel: _ops(target, kernel) for kernel in target.rows}
    for row in rows_of(target):
        ops = opened[row.kernel]
        if row.accumulator is not None and ops is not None and ops.isdisjoint(LINEAR):
            counted = ", ".join(sorted(LINEAR))
            yield row.source, f"accumulator of {row.kernel} is not checked: counted are sums of {counted}"


def _ops(target: Target, kernel: str) -> set[str] | None:
    """The ops a kernel may be made of; None where its patterns do not name them, or it is no op."""
    found = {kernel} & ONNX_OPS
    for fusion in target.fusions:
        if fusion.kernel == kernel:
            patterns = _patterns(fusion)
            if not patterns or any(part.scope or part.chain or part.function for part in patterns):
                return None
            found |= {name for pattern in patterns for name in op_types(pattern)}
    return found or None
