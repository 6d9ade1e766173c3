"""Mirrors: rows that differ in nothing but that activations are signed in one and unsigned in the other.

Source: docs/specification.md, section 4.
"""

from dataclasses import replace
from typing import Any

from planner.checker.kernel_ports import Served
from planner.checker.rows.reading import read_row
from planner.ir.types.qtypes import FloatType, Storage
from planner.target.records import PortPattern, Row, Rule


def mirrors(served: Served, one: Row, other: Row) -> bool:
    """Whether two rows of a kernel are mirrors: activations are signed in one and unsigned in the other."""
    here, there = read_row(one, served.region), read_row(other, served.region)
    if isinstance(here, str) or isinstance(there, str) or one.float or other.float:
        return False
    turns, shifts = set[tuple[bool, bool]](), dict[str, int]()
    for port, a, b in zip(served.ports, here.patterns, there.patterns, strict=True):
        if not port.value:
            continue
        x, y = a.type.storage, b.type.storage
        if x is None or y is None:
            return False
        if port.value in served.graph.constants or isinstance(x, FloatType) or isinstance(y, FloatType):
            if a != b:
                return False
            continue
        if not (_is_whole(a) and _is_whole(b)):
            return False
        shift = y.qmin - x.qmin
        zero = None if a.type.zero_point is None else a.type.zero_point + shift
        if replace(a, type=replace(a.type, storage=y, zero_point=zero)) != b or x.bits != y.bits:
            return False
        turns.add((x.signed, y.signed))
        shifts[a.name] = shift
    if turns not in ({(True, False)}, {(False, True)}):
        return False
    bare = [replace(row, inputs=(), outputs=(), rules=(), source="", mark="") for row in (one, other)]
    return bare[0] == bare[1] and [_said(r, shifts) for r in one.rules] == [_said(r, {}) for r in other.rules]


def activations_signed(served: Served, row: Row) -> bool | None:
    """Whether a row that has mirrors stores activations with a sign; None of others."""
    reading = read_row(row, served.region)
    for port, pattern in zip(
        served.ports, () if isinstance(reading, str) else reading.patterns, strict=False
    ):
        store = pattern.type.storage
        if port.value and port.value not in served.graph.constants and isinstance(store, Storage):
            return store.signed
    return None


def _is_whole(pattern: PortPattern) -> bool:
    """Whether a port stores in all integers of a format, around any zero point."""
    store = pattern.type.storage
    return (
        isinstance(store, Storage) and not store.float_name and store.is_full and not pattern.type.symmetric
    )


def _said(rule: Rule, shifts: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """A rule where the integers of ports are shifted: a fixed zero point is, too."""
    args = dict(rule.args)
    if rule.kind == "fixed_scale":
        args["zero_point"] = int(args.get("zero_point", 0)) + shifts.get(args["port"], 0)
    return rule.kind, args
