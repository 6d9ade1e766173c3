"""What-if tasks: A plan made again from its request, and asked for other constraints. Runs in a child.

Source: design 01, section 6.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from planner.plans.plan import Plan
from planner.what_if.pareto import Tradeoff, pareto
from planner.what_if.suggest import HARMLESS, Suggestion, suggest

Arguments = Mapping[str, Any]


def suggestions(plan: Plan, arguments: Arguments) -> bytes:
    """Edits that remove a rescale, each verified by planning again, smallest first."""
    rescale = arguments["rescale"]
    found = suggest(plan, rescale)
    lines = [line for n, one in enumerate(found, 1) for line in _suggestion(n, one)]
    nothing = f"no edit of the constraints near {rescale} removes it: its kernels themselves want two types"
    document = {"plan": plan.key, "rescale": rescale, "suggestions": [one.to_dict() for one in found]}
    return json.dumps(document | {"lines": lines or [nothing]}).encode()


def _suggestion(n: int, one: Suggestion) -> list[str]:
    price, rescales, bits = one.price, one.rescales, one.worst_bits_lost
    figures = (
        f"   price {price[0]:,.0f} -> {price[1]:,.0f}, rescales {rescales[0]} -> {rescales[1]}, "
        f"worst bits lost {bits[0]:.2f} -> {bits[1]:.2f}"
    )
    cut = [f"   cuts off {one.cut:.0%} of what was observed"] if one.cut > HARMLESS else []
    return [f"{n}. {one.text}", figures, *cut]


def tradeoffs(plan: Plan, arguments: Arguments) -> bytes:
    """The trade-offs of a component: rescaled elements against the worst bits lost."""
    found = pareto(plan, arguments["component"])
    document = {
        "plan": plan.key,
        "component": arguments["component"],
        "tradeoffs": [one.to_dict() for one in found],
        "lines": [_tradeoff(one) for one in found],
    }
    return json.dumps(document).encode()


def _tradeoff(one: Tradeoff) -> str:
    limit = "no limit" if one.max_bits_lost is None else f"max_bits_lost {one.max_bits_lost:g}"
    how = "as planned" if one.chosen else f"with {limit}"
    return (
        f"{one.rescaled_elements:,} elements in {one.rescales} rescales, "
        f"worst bits lost {one.worst_bits_lost:.2f}, {how}"
    )


STUDIES: Final[Mapping[str, Callable[[Plan, Arguments], bytes]]] = {
    "pareto": tradeoffs,
    "suggest": suggestions,
}
