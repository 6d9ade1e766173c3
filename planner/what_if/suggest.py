"""Suggest: the smallest edits of the constraints that remove a rescale, each verified by planning again.

Candidates come from both ends of the rescale: facts that could go, types that could be alike. A range that
was observed is no candidate: another would be untrue, and losses would be counted against it. Every
suggestion was planned; none rests on a rule alone. Source: docs/specification.md, section 6.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from planner.errors import PlannerError, require_name
from planner.ir.graph import Graph, Region, port_address
from planner.ir.types.qtypes import AnyType, NoneType, Uniform
from planner.plans.diff import counted, worst_bits_lost
from planner.plans.plan import Plan, require_plan
from planner.plans.records import Rescale
from planner.target.load import TargetSource
from planner.what_if.harm import HARMLESS, Harm, harm
from planner.what_if.replan import made_again, replan

HARD: Final = (AnyType, NoneType, Uniform)
MOST_PAIRS: Final = 200
MOST: Final = 5


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An edit that removes a rescale.

    Attributes:
      edits: as `replan` takes them.
      text: its effect, in a sentence.
      plan: the plan with it.
      harm: the loss by its types, beside that of the plan.
      price, rescales, worst_bits_lost: of the whole plan: (before, after). The price is with what facts
        excuse, as plans under different facts are compared by; `excused`: how much that is of it.
    """

    edits: Mapping[str, Any]
    text: str
    plan: Plan = field(repr=False)
    harm: Harm
    price: tuple[float, float]
    rescales: tuple[int, int]
    worst_bits_lost: tuple[float, float]
    excused: tuple[float, float] = (0.0, 0.0)

    @property
    def size(self) -> int:
        """Facts that it changes."""
        return sum(len(section) for section in self.edits.values())

    @property
    def cut(self) -> float:
        """Largest share of a range that the new types cut off and the old ones did not."""
        return self.harm.cut

    def lines(self) -> Iterator[str]:
        """Its text and its figures, a line each."""
        price, rescales, bits = self.price, self.rescales, self.worst_bits_lost
        excused = f" (excused {self.excused[0]:,.0f} -> {self.excused[1]:,.0f})" if any(self.excused) else ""
        yield self.text
        yield (
            f"price {price[0]:,.0f} -> {price[1]:,.0f}{excused}, rescales {rescales[0]} -> {rescales[1]}, "
            f"worst bits lost {bits[0]:.2f} -> {bits[1]:.2f}"
        )
        told = "; ".join(self.harm.lines())
        if told:
            yield told

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the plan left out."""
        return {
            "edits": {key: section for key, section in self.edits.items() if section},
            "text": self.text,
            **asdict(self.harm),
            "price": list(self.price),
            "excused": list(self.excused),
            "rescales": list(self.rescales),
            "worst_bits_lost": list(self.worst_bits_lost),
        }


@dataclass(frozen=True, slots=True)
class _Idea:
    """A change of one fact."""

    section: str
    key: str
    fact: str
    text: str


def suggest(
    plan: Plan, rescale: str, *, model: Graph | None = None, target: TargetSource | None = None
) -> tuple[Suggestion, ...]:
    """Find edits that remove one rescale (`y#0`) without adding another.

    Smallest first; then those that cut nothing off, cost the fewest decibels, and have the least price.

    Args:
      model, target: needed for a plan read from a file, as for `replan`.

    Returns:
      At most five; none where the kernels themselves want two types, as fixed scales do.

    Raises:
      UnknownName: no such rescale.
    """
    require_plan(plan)
    found = {item.id: item for item in plan.rescales}
    require_name("rescale", rescale, found)
    plan = made_again(plan, model, target)
    ideas = list(dict.fromkeys(_ideas(plan, found[rescale])))
    singles = [_tried(plan, found[rescale], (idea,)) for idea in ideas]
    good = [one for one in singles if one is not None]
    if not good:
        pairs = itertools.islice(itertools.combinations(ideas, 2), MOST_PAIRS)
        tried = (_tried(plan, found[rescale], pair) for pair in pairs)
        good = [one for one in tried if one is not None]
    good.sort(key=_rank)
    return tuple(good[:MOST])


def _rank(one: Suggestion) -> tuple[float, ...]:
    # Half a decibel is no difference that an estimate could tell.
    decibels = round(2 * one.harm.decibels)
    return one.size, one.harm.cut > HARMLESS, decibels, one.price[1], one.worst_bits_lost[1]


def _tried(plan: Plan, rescale: Rescale, ideas: tuple[_Idea, ...]) -> Suggestion | None:
    """Plan with some ideas; None where the rescale stays, moves, or the constraints cannot hold."""
    edits: dict[str, Any] = {"values": {}, "ports": {}, "remove": []}
    for idea in ideas:
        if idea.section == "remove":
            edits["remove"].append(idea.key)
        else:
            edits[idea.section][idea.key] = idea.fact
    try:
        after = replan(plan, edits)
    except PlannerError:
        return None
    (old, casts), (new, casts_after) = counted(plan), counted(after)
    is_cast = rescale.kind in ("quantize", "dequantize")
    fewer = len(casts_after) < len(casts) if is_cast else len(new) < len(old)
    no_more = len(new) <= len(old) if is_cast else len(casts_after) <= len(casts)
    if (
        not fewer
        or not no_more
        or _still_there(after, rescale)
        or _float_kernels(after) > _float_kernels(plan)
    ):
        return None
    return Suggestion(
        edits=edits,
        text="; ".join(idea.text for idea in ideas),
        plan=after,
        harm=harm(plan, after),
        price=(plan.price, after.price),
        excused=(plan.excused, after.excused),
        rescales=(len(old), len(new)),
        worst_bits_lost=(worst_bits_lost(plan), worst_bits_lost(after)),
    )


def _still_there(plan: Plan, rescale: Rescale) -> bool:
    return any(
        item.value == rescale.value and not set(item.consumers).isdisjoint(rescale.consumers)
        for item in plan.rescales
    )


def _float_kernels(plan: Plan) -> int:
    return sum(kernel.row is None for kernel in plan.kernels_in_order)


def _ideas(plan: Plan, rescale: Rescale) -> Iterator[_Idea]:
    """Facts near a rescale that could go, and facts that would make its two ends alike."""
    graph = plan.graph
    regions = {region.name: region for region in graph.regions}
    for kernel in _kernels_near(plan, rescale):
        yield from _port_ideas(regions[kernel])
    near = _near(plan, rescale)
    for name in near:
        if any(isinstance(fact, HARD) for fact in graph.values[name].facts):
            kept = ", ".join(str(fact) for fact in graph.values[name].facts if isinstance(fact, HARD))
            yield _Idea("remove", name, "", f"drop {kept} of {name!r}")
    for kind in (rescale.to_type, rescale.from_type):
        if isinstance(kind, Uniform) and kind.is_per_tensor:
            for name in near:
                yield _Idea("values", name, str(kind), f"fix the type of {name!r} to {kind}")


def _kernels_near(plan: Plan, rescale: Rescale) -> list[str]:
    """The kernel that writes a rescaled value, and those that read it rescaled."""
    around = [plan.kernels_in_order[at] for at in plan.kernels_at[rescale.value]]
    makers = [kernel.name for kernel in around if any(port.value == rescale.value for port in kernel.outputs)]
    return makers + [name for name, _ in rescale.consumers if name in plan.kernels]


def _near(plan: Plan, rescale: Rescale) -> list[str]:
    """The rescaled value, and the others at the kernels near it."""
    names = dict.fromkeys([rescale.value])
    for name in _kernels_near(plan, rescale):
        kernel = plan.kernels[name]
        names.update((port.value, None) for port in (*kernel.inputs, *kernel.outputs) if port.value)
    return [name for name in names if name not in plan.graph.constants]


def _port_ideas(region: Region) -> Iterator[_Idea]:
    for side, sides in (("in", region.input_facts), ("out", region.output_facts)):
        for i, facts in enumerate(sides):
            if any(isinstance(fact, HARD) for fact in facts):
                address = port_address(region.name, side, i)
                yield _Idea("remove", address, "", f"drop {', '.join(map(str, facts))} at {address}")
