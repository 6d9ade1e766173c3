"""Conditions on the types of a kernel's ports: `max(a.scale, b.scale) >= 1/256`, the rule `requires`.

Scales are known only once a plan is, so such a condition chooses no row: a kernel whose types do not meet it
leaves the row. Source: docs/targets/reference.md.
"""

from collections.abc import Iterable
from typing import Any

from planner.ir.types.qtypes import Uniform
from planner.target.conditions.grammar import parse_condition
from planner.target.conditions.verdicts import told, verdict
from planner.target.expressions import Ref, Steps
from planner.target.records import PortView


def unmet(text: str, views: Iterable[PortView]) -> str | None:
    """Return the condition with the values that break it; None where it holds, or asks for a float port."""
    types: dict[str, list[Uniform]] = {}
    for view in views:
        if view.type is not None:
            types.setdefault(view.name, []).append(view.type)

    def look(ref: Ref) -> tuple[Any, ...]:
        return tuple(_parameter(kind, ref.attribute) for kind in types.get(ref.port, ()))

    found = verdict(parse_condition(text, of_key=False), look, Steps())
    return told(text, found) if found.holds is False else None


def _parameter(kind: Uniform, name: str) -> Any:
    """A parameter of a type; of one with several scales a list, each of which has to do."""
    if name in ("qmin", "qmax"):
        return getattr(kind.storage, name)
    if kind.is_per_tensor:
        return getattr(kind, name)
    return list(kind.scales if name == "scale" else kind.zero_points)
