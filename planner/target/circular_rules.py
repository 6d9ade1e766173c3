"""Circular rules: `derive` rules of a row that ask for each other's results; do any scales satisfy them?

`y.scale = x.scale * 2` with `x.scale = y.scale / 2` says one thing twice; `x.scale = y.scale * 2` contradicts
it. Found by following the rules round until nothing moves. Source: docs/targets/rules.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from planner.errors import RuleError
from planner.ir.types.qtypes import Storage, Uniform, full_range, round_scale
from planner.target.expressions import parse_expression, references
from planner.target.records import PortPattern, PortType, PortView, Row, Rule
from planner.target.rules import RULES, in_storage

ROUNDS: Final = 256
"""How often rules are followed round a circle before it counts as one that nothing satisfies."""
NEAR: Final = 1e-6
LEAST: Final = 1e-30
"""Scales that shrink below this go on to the least float, which satisfies nothing but the rounding to it."""
STARTS: Final = (1 / 255, 1.0, 40.0)


def circles(row: Row) -> tuple[tuple[Rule, ...], ...]:
    """The rules of each circle, in the order of the row; one that asks for its own port is a circle."""
    asked = {rule.args["port"]: _asked(row, rule) for rule in _derives(row)}
    behind = {port: _reached(port, asked) for port in asked}
    found: dict[frozenset[str], tuple[Rule, ...]] = {}
    for port in asked:
        circle = frozenset(other for other in behind[port] if other in behind and port in behind[other])
        if circle:
            found[circle] = tuple(rule for rule in _derives(row) if rule.args["port"] in circle)
    return tuple(found.values())


def has_answer(row: Row, circle: Iterable[Rule]) -> bool:
    """Whether following a circle's rules comes to rest from one of a few scales."""
    return any(_comes_to_rest(row, tuple(circle), start) for start in STARTS)


def agree(one: Uniform, other: Uniform) -> bool:
    """Whether two types of one port are the same but for the rounding of a scale."""
    near = abs(one.scale - other.scale) <= NEAR * max(one.scale, other.scale)
    return near and one.zero_points == other.zero_points


def at_rest(before: Iterable[Uniform | None], after: Iterable[Uniform | None]) -> bool:
    """Whether going round a circle once more changed no type."""
    return all(
        one == other or (one is not None and other is not None and agree(one, other))
        for one, other in zip(before, after, strict=True)
    )


def _derives(row: Row) -> Iterator[Rule]:
    return (rule for rule in row.rules if rule.kind == "derive")


def asked_by(rule: Rule) -> set[str]:
    """Ports whose scale or zero point a rule's expressions name; the ends of a storage are none."""
    texts = [str(rule.args.get(key, 0)) for key in ("scale", "zero_point")]
    refs = [ref for text in texts for ref in references(parse_expression(text))]
    return {ref.port for ref in refs if ref.attribute in ("scale", "zero_point")}


def _asked(row: Row, rule: Rule) -> set[str]:
    """Ports that a rule's answer rests on: those it asks, and those that share their scale."""
    found = asked_by(rule)
    for other in row.rules:
        if other.kind == "same_scale" and not found.isdisjoint(other.args["ports"]):
            found.update(other.args["ports"])
    return found


def _reached(port: str, asked: Mapping[str, set[str]]) -> set[str]:
    """Ports that a port's rule rests on, through other rules too."""
    found: set[str] = set()
    waiting = [*asked[port]]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += asked.get(one, ())
    return found


def _comes_to_rest(row: Row, circle: tuple[Rule, ...], start: float) -> bool:
    types = {port.name: _started(port, start) for port in (*row.inputs, *row.outputs)}
    for _ in range(ROUNDS):
        before = dict(types)
        for rule in circle:
            try:
                _follow(row, rule, types)
            except RuleError:
                return False
        if at_rest(before.values(), types.values()):
            return all(types[rule.args["port"]].scale > LEAST for rule in circle)
    return False


def _started(port: PortPattern, scale: float) -> Uniform:
    store = port.type.storage
    if not isinstance(store, Storage):
        store = Storage(8, True, *full_range(8, signed=True))
    return Uniform(store, (round_scale(scale, "f32"),), (min(max(0, store.qmin), store.qmax),))


def _follow(row: Row, rule: Rule, types: dict[str, Uniform]) -> None:
    """Give a rule's port, and those that share its scale, what the rule says.

    Raises:
      RuleError: it has no answer, or one that a port cannot store.
    """
    views = [
        PortView(("in", i), port.name, PortType(types[port.name].storage), types[port.name])
        for i, port in enumerate((*row.inputs, *row.outputs))
    ]
    for kind in RULES["derive"](tuple(views), (), rule.args).values():
        name = rule.args["port"]
        joined = [other.args["ports"] for other in row.rules if other.kind == "same_scale"]
        for other in {name}.union(*(ports for ports in joined if name in ports)):
            stored = in_storage(kind, types[other].storage)
            if stored is None:
                raise RuleError(f"port {other!r} has no zero point {kind.zero_point}")
            types[other] = stored
