"""Lint of rows: signatures, rules and predicates that say something surely not meant.

Checks of `lint.CHECKS`; each yields `file:line` and a message.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from planner.ir.types.qtypes import FloatType, Storage, round_scale
from planner.target.conditions.grammar import parse_condition, refs_of
from planner.target.expressions import parse_expression, parse_number, references
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.terms import asked_of, place, predicate_problem
from planner.target.records import PortPattern, PortType, Row, Rule, Target
from planner.target.yamltree import nearest

Found: TypeAlias = Iterator[tuple[str, str]]
"""Findings of a check: `file:line`, or an address in `Target.places`, and the message."""

DECIDING: Final = ("fixed_scale", "derive", "multiplier_accumulator_scale")
LEAST_ACCUMULATOR: Final = 16


def rows_of(target: Target) -> Iterator[Row]:
    """All rows, kernel by kernel."""
    for rows in target.rows.values():
        yield from rows


def ports_of(row: Row) -> tuple[PortPattern, ...]:
    """Both sides of a signature."""
    return (*row.inputs, *row.outputs)


def unknown_port(target: Target) -> Found:
    """L001: a rule, `axis` or `when` names a port that the row does not have."""
    for row in rows_of(target):
        ports = [port.name for port in ports_of(row)]
        for source, where, name in _named_ports(target, row):
            if name not in ports:
                yield source, f"{where} of {row.kernel} names port {name!r}{nearest(name, ports)}"


def _named_ports(target: Target, row: Row) -> Iterator[tuple[str, str, str]]:
    for rule in row.rules:
        for name in _rule_ports(rule):
            yield rule.source or row.source, rule.kind, name
    for name in row.axis:
        yield row.source, "axis", name
    least = row.when.get("min_bits")
    for name in least if isinstance(least, Mapping) else ():
        yield place(target, row.source, "when", "min_bits"), "when.min_bits", name
    for key, owner in asked_of(row.when):
        if re.fullmatch(r"[a-z_]\w*", owner) and owner != row.kernel:
            yield place(target, row.source, "when", key), "when", owner


def _rule_ports(rule: Rule) -> Iterator[str]:
    if rule.kind == "fn":
        return
    for key in ("ports", "of", "port", "out"):
        value: Any = rule.args.get(key, ())
        yield from [value] if isinstance(value, str) else value
    if rule.kind == "requires":
        yield from (ref.port for ref in refs_of(parse_condition(rule.args["holds"], of_key=False)))
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
    # Which of them serves a kernel, the float results or the stored ones, their order does not say.
    if wide.hands_on_floats != narrow.hands_on_floats:
        return False
    # More predicates only narrow a row: the earlier one covers if its predicates are among the later's.
    if not wide.when.items() <= narrow.when.items():
        return False
    sides = ((wide.inputs, narrow.inputs), (wide.outputs, narrow.outputs))
    return all(
        len(a) == len(b) and all(_covers_port(x, y) for x, y in zip(a, b, strict=True)) for a, b in sides
    )


_DEMANDS: Final = ("symmetric", "power_of_two", "scales", "scale_min", "scale_max", "zero_point")
"""Demands of a port on scales and zero points."""


def _covers_port(wide: PortPattern, narrow: PortPattern) -> bool:
    if (wide.variadic, wide.optional or not narrow.optional) != (narrow.variadic, True):
        return False
    a, b = wide.type, narrow.type
    if wide.type.is_wildcard and narrow.type.granularity == "tensor":
        # A pin on parameters that the earlier does not take makes the later one the better row.
        return all(getattr(a, key) in (getattr(PortType(), key), getattr(b, key)) for key in _DEMANDS)
    free = PortType(a.storage, a.granularity)
    same = PortType(b.storage, b.granularity, block_size=b.block_size, short_block=b.short_block)
    return a == b or (a == free and free == same)


def fixed_outside(target: Target) -> Found:
    """L003: a zero point, fixed or derived in numbers alone, that does not fit the port's storage."""
    for row in rows_of(target):
        types = {port.name: port.type.storage for port in ports_of(row)}
        for rule in row.rules:
            zero_point = _fixed_zero_point(rule)
            store = types.get(rule.args.get("port", ""))
            if zero_point is None:
                continue
            if isinstance(store, Storage) and not store.qmin <= zero_point <= store.qmax:
                message = (
                    f"{rule.kind} of {row.kernel}: zero point {zero_point} lies outside "
                    f"{store.qmin}:{store.qmax} of port {rule.args['port']!r}"
                )
                yield rule.source, message


def _fixed_zero_point(rule: Rule) -> int | None:
    if rule.kind == "fixed_scale":
        return int(rule.args.get("zero_point", 0))
    text = str(rule.args.get("zero_point", 0)) if rule.kind == "derive" else ""
    return None if not text or references(parse_expression(text)) else round(parse_number(text))


def differing_storages(target: Target) -> Found:
    """L004: same_scale or same_storage over differing storages (a wildcard takes the others')."""
    for row in rows_of(target):
        types = {port.name: port.type for port in ports_of(row)}
        for rule in row.rules:
            if rule.kind not in ("same_scale", "same_storage"):
                continue
            listed = [name for name in rule.args["ports"] if name in types and not types[name].is_wildcard]
            stores = {str(types[name].storage) for name in listed}
            if len(stores) > 1:
                shown = ", ".join(f"{name}: {types[name].storage}" for name in listed)
                yield rule.source, f"{rule.kind} of {row.kernel} joins differing storages: {shown}"


def wildcard_without_default(target: Target) -> Found:
    """L012: a port is `*` and `defaults.port`, its fallback, is left out."""
    if target.document.get("defaults", {}).get("port") is not None:
        return
    for row in rows_of(target):
        for port in ports_of(row):
            if port.type.is_wildcard:
                message = f"port {port.name!r} of {row.kernel} is '*' and defaults.port is not given"
                yield row.source, message


def idle_axis(target: Target) -> Found:
    """L013: an axis for a port that is quantized per tensor."""
    for row in rows_of(target):
        for port in ports_of(row):
            if port.name in row.axis and port.type.granularity == "tensor" and not port.type.is_wildcard:
                yield row.source, f"axis of {row.kernel} names port {port.name!r}, which is per tensor"


def decided_twice(target: Target) -> Found:
    """L014: two rules of a row decide the same port."""
    for row in rows_of(target):
        first: dict[str, Rule] = {}
        for rule in row.rules:
            if rule.kind not in DECIDING:
                continue
            before = first.setdefault(rule.args["port"], rule)
            if before is not rule:
                name = rule.args["port"]
                yield rule.source, f"{rule.kind} and {before.kind} of {row.kernel} both decide port {name!r}"


def unreadable_when(target: Target) -> Found:
    """L016: a predicate of a row that cannot be read."""
    for row in rows_of(target):
        names = {port.name: "" for port in ports_of(row)}
        for key, wanted in row.when.items():
            problem = predicate_problem(key, wanted, names, of_row=True)
            # A port that is not there is L001's.
            if problem and (key[:1].isupper() or key.partition(".")[0] in {*names, "holds", "min_bits"}):
                yield place(target, row.source, "when", key), f"when of {row.kernel}: {problem}"


def overlapping_rows(target: Target) -> Found:
    """L018: two partial signatures that both take some types, neither taking all of the other's."""
    for rows in target.rows.values():
        for i, row in enumerate(rows):
            for earlier in rows[:i]:
                shown = _overlap(earlier, row)
                if shown:
                    message = (
                        f"row of {row.kernel} overlaps {earlier.source}, which comes first: both take {shown}"
                    )
                    yield row.source, message
                    break


def _overlap(a: Row, b: Row) -> str:
    """A signature that both rows take although each is stricter at some port; "" where there is none."""
    pairs = [*zip(a.inputs, b.inputs, strict=False), *zip(a.outputs, b.outputs, strict=False)]
    if a.hands_on_floats != b.hands_on_floats or a.when != b.when:
        return ""
    if (len(a.inputs), len(a.outputs)) != (len(b.inputs), len(b.outputs)):
        return ""
    # Each row is stricter at one port at least; if only one of them is, order alone decides, and rightly.
    wild = {(x.type.is_wildcard, y.type.is_wildcard) for x, y in pairs}
    alike = all(x.type == y.type or x.type.is_wildcard or y.type.is_wildcard for x, y in pairs)
    if not alike or not {(True, False), (False, True)} <= wild:
        return ""
    return ", ".join(f"{y.name}: {x.type if y.type.is_wildcard else y.type}" for x, y in pairs)


def kernel_of_nothing(target: Target) -> Found:
    """L019: a row for a kernel that no fusion makes and that is no ONNX op, but looks like one of them."""
    made = {fusion.kernel for fusion in target.fusions}
    for kernel, rows in target.rows.items():
        if kernel in made or kernel in ONNX_OPS or "::" in kernel:
            continue
        # Kernels of a target's own are legal, so only a name
        # in ONNX's spelling, or close to a known one, is odd.
        hint = nearest(kernel, sorted(made | ONNX_OPS), cutoff=0.75, listed=False)
        if kernel[:1].isupper() or hint:
            yield rows[0].source, f"no fusion makes {kernel!r} and no op of ONNX is called so{hint}"


def narrow_accumulator(target: Target) -> Found:
    """L022: a port that holds sums of products in few bits, or without a zero."""
    for row in rows_of(target):
        types = {port.name: port.type.storage for port in ports_of(row)}
        for rule in row.rules:
            store = types.get(rule.args.get("port", ""))
            if rule.kind != "multiplier_accumulator_scale" or not isinstance(store, Storage):
                continue
            if store.bits < LEAST_ACCUMULATOR or not store.qmin <= 0 <= store.qmax:
                name = rule.args["port"]
                yield rule.source, f"{rule.kind} of {row.kernel}: port {name!r} of {store} is no accumulator"


def too_narrow_for_a_product(target: Target) -> Found:
    """L039: an accumulator that does not hold one product of the ports it sums."""
    for row in rows_of(target):
        types = {port.name: port.type.storage for port in ports_of(row)}
        factors = next((rule.args["of"] for rule in row.rules if rule.kind.startswith("multiplier_")), ())
        stores = [store for name in factors if isinstance(store := types.get(name), Storage)]
        if row.accumulator is None or len(stores) != 2:
            continue
        ends = [[store.qmin, store.qmax] for store in stores]
        products = [a * b for a in ends[0] for b in ends[1]]
        if min(products) < row.accumulator.qmin or max(products) > row.accumulator.qmax:
            shown = f"{min(products)} to {max(products)}"
            yield (
                row.source,
                f"accumulator {row.accumulator} of {row.kernel} is narrower than one product: {shown}",
            )


def fixed_apart(target: Target) -> Found:
    """L040: ports with one scale by `same_scale`, of which `fixed_scale` fixes two differently."""
    for row in rows_of(target):
        fixed = {
            rule.args["port"]: (parse_number(rule.args["scale"]), rule.args.get("zero_point", 0))
            for rule in row.rules
            if rule.kind == "fixed_scale"
        }
        types = {port.name: port.type.storage for port in ports_of(row)}
        for rule in row.rules:
            named = list(dict.fromkeys(rule.args["ports"])) if rule.kind == "same_scale" else []
            found = [name for name in named if name in fixed]
            if len({fixed[name] for name in found}) > 1:
                shown = " and ".join(f"port {name!r}" for name in found)
                yield rule.source, f"same_scale of {row.kernel} joins ports with other fixed scales: {shown}"
                continue
            for name in named if found else ():
                store, zero_point = types.get(name), fixed[found[0]][1]
                if isinstance(store, Storage) and not store.qmin <= zero_point <= store.qmax:
                    message = (
                        f"same_scale of {row.kernel}: the zero point of port {found[0]!r}, {zero_point}, "
                        f"lies outside {store.qmin}:{store.qmax} of port {name!r}"
                    )
                    yield rule.source, message


def forbidden_scale(target: Target) -> Found:
    """L023: a fixed scale that the port's own type rules out."""
    for row in rows_of(target):
        types = {port.name: port.type for port in ports_of(row)}
        for rule in row.rules:
            if rule.kind == "fixed_scale" and rule.args["port"] in types:
                problem = _forbids(types[rule.args["port"]], rule)
                if problem:
                    yield rule.source, f"fixed_scale of {row.kernel}: {problem} (port {rule.args['port']!r})"


def _forbids(kind: PortType, rule: Rule) -> str:
    scale = round_scale(float(parse_number(rule.args["scale"])), "f32")
    zero_point = rule.args.get("zero_point", 0)
    if kind.power_of_two and math.frexp(scale)[0] != 0.5:
        return f"scale {rule.args['scale']} is no power of two, which the type requires"
    if scale < (kind.scale_min or 0.0) or scale > (kind.scale_max or math.inf):
        return f"scale {rule.args['scale']} lies outside scale_min and scale_max of the type"
    if kind.symmetric and zero_point:
        return f"zero point {zero_point} of a symmetric type"
    if kind.zero_point is not None and zero_point != kind.zero_point:
        return f"zero point {zero_point}, the type has {kind.zero_point}"
    return "" if kind.granularity == "tensor" else f"one scale for a port per {kind.granularity}"


def unreachable_bits(target: Target) -> Found:
    """L024: `min_bits` asks for more bits than the port's storage has, so the row is never chosen."""
    for row in rows_of(target):
        least = row.when.get("min_bits")
        types = {port.name: port.type.storage for port in ports_of(row)}
        for name, bits in least.items() if isinstance(least, Mapping) else ():
            store = types.get(name)
            if isinstance(store, Storage) and isinstance(bits, int) and bits > store.bits:
                message = (
                    f"row of {row.kernel} is never chosen: min_bits asks {bits} of port {name!r}, {store}"
                )
                yield row.source, message


def axis_left_out(target: Target) -> Found:
    """L026: a per-axis port of a kernel of the target's own, whose axis is given nowhere."""
    fused = {fusion.kernel for fusion in target.fusions}
    for row in rows_of(target):
        if row.kernel in fused or row.kernel in ONNX_OPS:
            continue
        for port in ports_of(row):
            if port.type.granularity == "axis" and port.name not in row.axis:
                yield (
                    row.source,
                    f"port {port.name!r} of {row.kernel} is per axis, and `axis` does not say which",
                )


def idle_computes(target: Target) -> Found:
    """L027: `computes: true` of a row that is not same_scale, so it never counted as data movement."""
    for row in rows_of(target):
        if row.computes and not any(rule.kind == "same_scale" for rule in row.rules):
            yield row.source, f"computes of {row.kernel} says nothing new: no rule is same_scale"


def mixed_granularity(target: Target) -> Found:
    """L028: same_scale over a port with one scale and one with many."""
    for row in rows_of(target):
        types = {port.name: port.type for port in ports_of(row) if not port.type.is_wildcard}
        for rule in row.rules:
            names = [name for name in rule.args.get("ports", ()) if name in types]
            if rule.kind == "same_scale" and len({types[name].granularity for name in names}) > 1:
                shown = ", ".join(f"{name} per {types[name].granularity}" for name in names)
                yield rule.source, f"same_scale of {row.kernel} joins differing granularities: {shown}"


def shift_without_powers(target: Target) -> Found:
    """L029: arithmetic by shifts on a row with scales that need not be powers of two."""
    for row in rows_of(target):
        if row.requantize != "power_of_two" or any(rule.kind == "same_scale" for rule in row.rules):
            continue
        derived = {rule.args["port"] for rule in row.rules if rule.kind in DECIDING}
        for port in ports_of(row):
            free = isinstance(port.type.storage, Storage) and not port.type.power_of_two
            if free and port.name not in derived:
                message = (
                    f"requantize of {row.kernel} is power_of_two, the scale of port {port.name!r} need not be"
                )
                yield row.source, message


def scale_of_a_float(target: Target) -> Found:
    """L037: a rule that decides or bounds the scale of a result that a row hands on as float."""
    for row in rows_of(target):
        floats = {port.name for port in row.outputs if isinstance(port.type.storage, FloatType)}
        for rule in row.rules if floats and not row.float else ():
            named = (
                [name for name in _rule_ports(rule) if name in floats] if rule.kind != "free_scale" else []
            )
            if named:
                yield (
                    rule.source,
                    f"{rule.kind} of {row.kernel} names port {named[0]!r}, a float result without a scale",
                )


def odd_default(target: Target) -> Found:
    """L030: a default port type that holds no integers, or has many scales."""
    kind = target.default_port
    if not isinstance(kind.storage, Storage) or kind.granularity != "tensor":
        yield "defaults", f"defaults.port is {kind}; wildcard ports fall back to an integer type per tensor"
