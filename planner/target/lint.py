"""Lint: what is legal in a target and yet surely not meant, by stable code.

`load_target` refuses a target with findings of severity `error`; the others are for `target lint`. No check
looks at a model. One function a code, all in `CHECKS`. Source: design 04, "Tools".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from planner.errors import InputError
from planner.ir.qtypes import Storage
from planner.target.expressions import parse_expression, references
from planner.target.patterns import Pattern, op_types, parse_pattern
from planner.target.records import Fusion, PortPattern, PortType, Row, Rule, Target
from planner.target.rules import expand_ports
from planner.target.yamltree import nearest

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd in a target: where (line and column from 1), its code, how bad, and what."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}"


Found: TypeAlias = Iterator[tuple[str, str]]
"""What a check yields: `file:line` and the message."""


def lint(target: Target) -> tuple[Finding, ...]:
    """List what is odd, by position, then code."""
    found = [
        _finding(target, code, severity, source, message)
        for code, (severity, check) in CHECKS.items()
        for source, message in dict.fromkeys(check(target))
    ]
    return tuple(sorted(found, key=lambda f: (f.file != target.file, f.file, f.line, f.column, f.code)))


def _finding(target: Target, code: str, severity: Severity, source: str, message: str) -> Finding:
    file, _, line = source.rpartition(":")
    return Finding(file, int(line), target.columns.get(source, 1), code, severity, message)


def _top(target: Target) -> str:
    return f"{target.file}:1"


def _rows(target: Target) -> Iterator[Row]:
    for rows in target.rows.values():
        yield from rows


def unknown_port(target: Target) -> Found:
    """L001: a rule, `axis` or `when` names a port that the row does not have."""
    for row in _rows(target):
        ports = [port.name for port in (*row.inputs, *row.outputs)]
        for source, where, name in _named_ports(row):
            if name not in ports:
                yield source, f"{where} of {row.kernel} names port {name!r}{nearest(name, ports)}"


def _named_ports(row: Row) -> Iterator[tuple[str, str, str]]:
    for rule in row.rules:
        for name in _rule_ports(rule):
            yield rule.source or row.source, rule.kind, name
    for name in row.axis:
        yield row.source, "axis", name
    for key, wanted in row.when.items():
        if key == "min_bits" and isinstance(wanted, Mapping):
            for name in wanted:
                yield row.source, "when.min_bits", name
        elif re.fullmatch(r"[a-z_]\w*(\..*)?", key) and not key.startswith(f"{row.kernel}."):
            yield row.source, "when", key.partition(".")[0]


def _rule_ports(rule: Rule) -> Iterator[str]:
    if rule.kind == "fn":
        return
    for key in ("ports", "of", "port", "out"):
        value: Any = rule.args.get(key, ())
        yield from [value] if isinstance(value, str) else value
    if rule.kind == "derive":
        for key in ("scale", "zero_point"):
            for ref in references(parse_expression(str(rule.args.get(key, 0)))):
                yield ref.port


def shadowed_row(target: Target) -> Found:
    """L002: an earlier row takes everything this one takes, at the same storages, so it is never chosen."""
    for rows in target.rows.values():
        for i, row in enumerate(rows):
            for earlier in rows[:i]:
                if _covers(earlier, row):
                    message = f"row of {row.kernel} is never chosen: {earlier.source} takes all it takes"
                    yield row.source, message
                    break


def _covers(wide: Row, narrow: Row) -> bool:
    if not wide.when.items() <= narrow.when.items():
        return False
    sides = ((wide.inputs, narrow.inputs), (wide.outputs, narrow.outputs))
    return all(
        len(a) == len(b) and all(_covers_port(x, y) for x, y in zip(a, b, strict=True)) for a, b in sides
    )


def _covers_port(wide: PortPattern, narrow: PortPattern) -> bool:
    if (wide.variadic, wide.optional or not narrow.optional) != (narrow.variadic, True):
        return False
    a, b = wide.type, narrow.type
    free = PortType(a.storage, a.granularity)
    same = PortType(b.storage, b.granularity, block_size=b.block_size)
    return a == b or (a == free and free == same)


def fixed_outside(target: Target) -> Found:
    """L003: a fixed scale whose zero point does not fit the port's storage."""
    for row in _rows(target):
        types = {port.name: port.type.storage for port in (*row.inputs, *row.outputs)}
        for rule in row.rules:
            if rule.kind != "fixed_scale":
                continue
            store = types.get(rule.args["port"])
            zero_point = rule.args.get("zero_point", 0)
            if isinstance(store, Storage) and not store.qmin <= zero_point <= store.qmax:
                message = (
                    f"fixed_scale of {row.kernel}: zero point {zero_point} lies outside "
                    f"{store.qmin}:{store.qmax} of port {rule.args['port']!r}"
                )
                yield rule.source, message


def differing_storages(target: Target) -> Found:
    """L004: same_scale over ports of differing storages (a wildcard takes the others')."""
    for row in _rows(target):
        types = {port.name: port.type for port in (*row.inputs, *row.outputs)}
        for rule in row.rules:
            if rule.kind != "same_scale":
                continue
            listed = [name for name in rule.args["ports"] if name in types and not types[name].is_wildcard]
            stores = {str(types[name].storage) for name in listed}
            if len(stores) > 1:
                shown = ", ".join(f"{name}: {types[name].storage}" for name in listed)
                yield rule.source, f"same_scale of {row.kernel} joins differing storages: {shown}"


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
    """L006: a pattern names an op that ONNX cannot have (its standard op types begin with a capital)."""
    for fusion in target.fusions:
        for pattern in _patterns(fusion):
            for name in sorted(op_types(pattern)):
                if "::" not in name and not name[:1].isupper():
                    message = f"pattern {pattern.text!r} never matches: no op is named {name!r}"
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


def without_tests(target: Target) -> Found:
    """L011: the target has no tests."""
    if not target.tests:
        yield _top(target), "the target has no tests"


def wildcard_without_default(target: Target) -> Found:
    """L012: a port is `*` and `defaults.port`, what it falls back to, is left out."""
    if target.document.get("defaults", {}).get("port") is not None:
        return
    for row in _rows(target):
        for port in (*row.inputs, *row.outputs):
            if port.type.is_wildcard:
                message = f"port {port.name!r} of {row.kernel} is '*' and defaults.port is not given"
                yield row.source, message


def idle_axis(target: Target) -> Found:
    """L013: an axis for a port that is quantized per tensor."""
    for row in _rows(target):
        for port in (*row.inputs, *row.outputs):
            if port.name in row.axis and port.type.granularity == "tensor" and not port.type.is_wildcard:
                yield row.source, f"axis of {row.kernel} names port {port.name!r}, which is per tensor"


def decided_twice(target: Target) -> Found:
    """L014: two rules of a row decide the same port."""
    for row in _rows(target):
        first: dict[str, Rule] = {}
        for rule in row.rules:
            if rule.kind not in ("fixed_scale", "derive", "multiplier_accumulator_scale"):
                continue
            before = first.setdefault(rule.args["port"], rule)
            if before is not rule:
                name = rule.args["port"]
                yield rule.source, f"{rule.kind} and {before.kind} of {row.kernel} both decide port {name!r}"


def unused_type(target: Target) -> Found:
    """L015: a named type that no port and no default uses."""
    document = target.document
    used = {spec for row in document.get("kernels", ()) for spec in _specs(row)}
    used.add(str(document.get("defaults", {}).get("port")))
    for name in document.get("types", {}):
        if name not in used:
            yield _top(target), f"type {name!r} is used nowhere"


def _specs(row: Mapping[str, Any]) -> Iterator[str]:
    for side in ("in", "out"):
        for spec in (row.get(side) or {}).values():
            if isinstance(spec, str):
                yield spec


CHECKS: Final[Mapping[str, tuple[Severity, Callable[[Target], Found]]]] = {
    "L001": ("error", unknown_port),
    "L002": ("warning", shadowed_row),
    "L003": ("error", fixed_outside),
    "L004": ("warning", differing_storages),
    "L005": ("error", unreadable_pattern),
    "L006": ("warning", never_matches),
    "L007": ("warning", fused_without_rows),
    "L008": ("warning", ports_do_not_fit),
    "L009": ("warning", shadowed_fusion),
    "L010": ("warning", idle_predicate),
    "L011": ("warning", without_tests),
    "L012": ("warning", wildcard_without_default),
    "L013": ("warning", idle_axis),
    "L014": ("warning", decided_twice),
    "L015": ("warning", unused_type),
}
"""Severity and check by code; codes are never reused."""
