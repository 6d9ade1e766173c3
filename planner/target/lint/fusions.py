"""Lint of fusions: patterns that cannot match, and kernels that nothing serves.

Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

import re
from collections.abc import Iterator

from planner.errors import InputError
from planner.ops import LINEAR
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.rows import Found, rows_of
from planner.target.lint.terms import asked_of, place, predicate_problem
from planner.target.patterns import Pattern, op_types, parse_pattern
from planner.target.records import Fusion, Row, Target
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


def ports_in_another_order(target: Target) -> Found:
    """L042: a row calls its ports as a pattern does, in another order; they are matched by place."""
    for fusion in target.fusions:
        for pattern in _patterns(fusion):
            wanted = [variable.name for variable in pattern.variables]
            for row in target.rows.get(fusion.kernel, ()):
                given = [port.name for port in row.inputs]
                if given[: len(wanted)] != wanted and sorted(given) == sorted(wanted):
                    shown = f"({', '.join(given)}), {pattern.text!r} gives ({', '.join(wanted)})"
                    yield (
                        row.source,
                        f"ports of {row.kernel} are in another order than the pattern's: {shown}",
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
    """L010: a predicate names an op or variable that the kernel does not have, so it always holds."""
    for fusion in target.fusions:
        patterns = _patterns(fusion)
        names = {name for p in patterns for name in (*op_types(p), *(v.name for v in p.variables))}
        for key, owner in asked_of(fusion.where):
            if names and owner not in {*names, "out"}:
                near = nearest(owner, sorted(names))
                message = f"where {key!r} names {owner!r}, which is not in the pattern{near}"
                yield place(target, fusion.source, "where", key), message
    for row, ops in _rows_with_ops(target):
        for key, owner in asked_of(row.when):
            # Ops have capitals or a domain; a port that is not there is L001's.
            if owner not in ops and (owner[:1].isupper() or "::" in owner):
                near = nearest(owner, sorted(ops))
                message = f"when {key!r} of {row.kernel} names {owner!r}, which is not in it{near}"
                yield place(target, row.source, "when", key), message


def _rows_with_ops(target: Target) -> Iterator[tuple[Row, set[str]]]:
    """Rows, and the ops that their kernels may have; one entry of a file may be a row of several kernels.

    Inherited rows are passed over: an entry for a group of kernels may have lost the one it speaks of.
    """
    found: dict[str, list[tuple[Row, set[str] | None]]] = {}
    for row in (row for row in rows_of(target) if row.source.startswith(f"{target.file}:")):
        found.setdefault(row.source, []).append((row, _ops(target, row.kernel)))
    for entry in found.values():
        known = [ops for _, ops in entry if ops is not None]
        if len(known) == len(entry):
            yield entry[0][0], set().union(*known)


def unreadable_where(target: Target) -> Found:
    """L016: a predicate of a fusion that cannot be read."""
    for fusion in target.fusions:
        names = {"out": "", **{variable.name: "" for p in _patterns(fusion) for variable in p.variables}}
        for key, wanted in fusion.where.items():
            # A name that is nowhere in the pattern is L010's.
            name = re.split(r"[.\[]", key)[0]
            known = name in names or name == "holds" or name[:1].isupper()
            problem = predicate_problem(key, wanted, names) if known else ""
            if problem:
                yield place(target, fusion.source, "where", key), f"where of {fusion.kernel}: {problem}"


def idle_accumulator(target: Target) -> Found:
    """L035: an accumulator of a kernel without products, whose sums are never counted."""
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
