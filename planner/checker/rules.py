"""Verify rules: the types of a kernel's ports are those that the rules of its row decide, or allow.

Each rule has one definition, `target.rules`; here its answer is compared with the plan.
`fn` rules are code that no plan carries, so they are not verified. Source: docs/specification.md, section 4.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from planner.checker.conditions import broken_requirement
from planner.checker.kernel_ports import NEAR, Served, one_class, refuse
from planner.checker.moves import check_slices
from planner.errors import PlannerError
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.target.records import PortId, Rule
from planner.target.rules import RULES


def check_rules(served: Served) -> None:
    """Verify every rule of the row, then the classes that its same_scale rules make together."""
    for group in served.groups:
        _check_class(served, group)
    for rule in served.row.rules:
        if rule.kind not in RULES and rule.kind != "fn":
            address = served.kernel.name
            refuse(address, f"rule {rule.kind!r} is unknown; accepted: fn, {', '.join(RULES)}", served.row)
        if rule.kind in CHECKS:
            CHECKS[rule.kind](served, rule)


def _check_class(served: Served, group: tuple[int, ...]) -> None:
    """One scale and zero point, exactly; unsigned storage shifts the zero point by half its values."""
    typed = [(served.ports[i], kind) for i in group if isinstance(kind := served.ports[i].type, Uniform)]
    if all(kind.is_per_tensor and one_class(typed[0][1], kind) for _, kind in typed):
        return
    if any(not kind.is_per_tensor for _, kind in typed) and check_slices(served, group):
        return
    # Most members are right: the odd one is named, not the first that differs from the first.
    friends = [sum(one_class(kind, other) for _, other in typed) for _, kind in typed]
    leader, first = typed[friends.index(max(friends))]
    for port, kind in typed:
        if not one_class(first, kind):
            refuse(
                port.address,
                f"is {brief(kind)}, same_scale of {served.row.source} joins it to {leader.address} of "
                f"{brief(first)}; accepted: the same scale and zero point",
                served.row,
            )


def _answer(served: Served, rule: Rule, port: str) -> Mapping[PortId, Uniform]:
    """The answer of a rule; where it has none, the port that it is about is refused."""
    try:
        return RULES[rule.kind](*served.views, rule.args)
    except (PlannerError, ValueError) as error:
        told = error.message if isinstance(error, PlannerError) else str(error)
        found = served.named(port)
        address = found[0].address if found else served.kernel.name
        refuse(address, f"{told}; {rule.kind} at {rule.source} has no answer", served.row)


def _decides(served: Served, rule: Rule) -> None:
    """The types of the ports that a rule decides are its answer: exactly, or but for one rounding."""
    stored = [port for port in served.named(rule.args["port"]) if isinstance(port.type, Uniform)]
    if not stored:
        return
    answer = _answer(served, rule, rule.args["port"])
    if not answer and rule.kind == "derive":
        refuse(stored[0].address, f"derive at {rule.source} has no answer: a port is float", served.row)
    for i, port in enumerate(served.ports):
        wanted, kind = answer.get(served.side_of(i)), port.type
        if wanted is not None and isinstance(kind, Uniform) and not _agrees(kind, wanted, rule):
            told = f"{rule.kind} at {rule.source} accepts {brief(wanted)}"
            refuse(port.address, f"is {brief(kind)}, {told}", served.row)


def _agrees(kind: Uniform, wanted: Uniform, rule: Rule) -> bool:
    if (kind.zero_points, kind.axis, kind.blocks) != (wanted.zero_points, wanted.axis, wanted.blocks):
        return False
    # A product of scales is rounded otherwise in every tool; a scale that a row fixes is that scale.
    near = 0.0 if rule.kind == "fixed_scale" else NEAR
    return len(kind.scales) == len(wanted.scales) and bool(
        np.allclose(kind.scales, wanted.scales, rtol=near, atol=0.0)
    )


def _multiplies(served: Served, rule: Rule) -> None:
    """Multipliers lie in the range of the device, if it has one."""
    if rule.args.get("range") is not None:
        _answer(served, rule, rule.args["out"])


def _requires(served: Served, rule: Rule) -> None:
    broken = broken_requirement(served, rule.args["holds"])
    if broken:
        refuse(served.kernel.name, f"requires at {rule.source} accepts {broken}", served.row)


CHECKS: Final[Mapping[str, Callable[[Served, Rule], None]]] = {
    "derive": _decides,
    "fixed_scale": _decides,
    "multiplier_accumulator_scale": _decides,
    "multiplier_scale": _multiplies,
    "requires": _requires,
}
"""How rules are verified. Classes are verified as a whole, free scales are free, code is not in the plan."""
