"""Pareto: the trade-offs of one component, rescaled elements against the worst bits lost.

The component is cut out and labelled again for falling limits of bits lost, rescaling as little as each
allows; what no other point beats in both is the front. Source: docs/specification.md, section 5,
`max_bits_lost`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from planner.errors import require_name
from planner.formats.writable import unwritten
from planner.ir.graph import Graph
from planner.plans.diff import counted
from planner.plans.plan import Plan, require_plan
from planner.propagation.propagate import propagate
from planner.target.load import TargetSource
from planner.what_if.replan import as_planned
from planner.what_if.vicinity import component_of, cut_out, stands_alone

KEPT: Final = ("free_bits", "max_clip", "wanted_db", "wanted_float")
"""Costs of the plan that the front is made under too."""
UNIT: Final = 1024
"""Bits are compared to 1/1024."""
MOST_BITS: Final = 64
SEARCHED: Final = {
    "bit_price": 0.0,
    "clamp": 1.0,
    "narrow": 1.0,
    "requantize": 1.0,
    "widen": 1.0,
    "zero_point": 1.0,
}
"""Costs under which the price counts rescaled elements."""


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """One point of the front.

    Attributes:
      max_bits_lost: the limit that gives it (`plan(..., max_bits_lost=...)`), None for no limit.
      rescaled_elements: elements that rescales in the component run over.
      rescales: how many there are, casts left out.
      worst_bits_lost: by a consumer in the component.
      types: of every value of the component where it is defined.
      chosen: whether the plan has it. A plan weighs all consumers, the front only the worst, so a plan
        may lie behind the front.
    """

    max_bits_lost: float | None
    rescaled_elements: int
    rescales: int
    worst_bits_lost: float
    types: Mapping[str, str]
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"types": dict(self.types)}


def pareto(
    plan: Plan, address: str, *, model: Graph | None = None, target: TargetSource | None = None
) -> tuple[Tradeoff, ...]:
    """List the trade-offs of the component around a value or rescale, fewest rescaled elements first.

    Args:
      address: a value (`y`) or a rescale (`y#0`).
      model, target: needed for a plan read from a file, as for `replan`.

    Raises:
      UnknownName: no such value or rescale.
    """
    require_plan(plan)
    rescales = {item.id: item.value for item in plan.rescales}
    require_name("value or rescale", address, {**plan.kernels_at, **rescales})
    value = rescales.get(address, address)
    known = as_planned(plan, model, target)
    values, kernels = component_of(known, known.fused, value)
    part = cut_out(known, known.fused, kernels)
    if not stands_alone(known, part):
        part = known.fused
    kept = {key: item for key, item in plan.options.items() if key in (*KEPT, "formats")}

    def at(limit: int | None) -> Tradeoff:
        bits = None if limit is None else limit / UNIT
        wanted = {**kept, **SEARCHED, "max_bits_lost": bits}
        found = propagate(part, known.whole_target, depths=known.wiring.depths, unwritten=unwritten, **wanted)
        return _point(found, values, bits)

    loosest, tightest = at(None), at(0)
    found = [loosest]
    if _figures(loosest) != _figures(tightest):
        _between(at, (MOST_BITS * UNIT, loosest), (0, tightest), found)
    front = [one for one in found if not any(_beats(other, one) for other in found)]
    unique = {_figures(one): one for one in front}
    current = _point(plan, values, None)
    unique[_figures(current)] = replace(unique.get(_figures(current), current), chosen=True)
    return tuple(unique[figures] for figures in sorted(unique))


def _between(
    at: Any, loose: tuple[int, Tradeoff], tight: tuple[int, Tradeoff], found: list[Tradeoff]
) -> None:
    """Bisect the limits between two points that differ, and keep every point met."""
    found.append(tight[1])
    waiting = [(loose, tight)]
    while waiting:
        (high, upper), (low, lower) = waiting.pop()
        if high - low < 2 or _figures(upper) == _figures(lower):
            continue
        middle = (high + low) // 2
        point = at(middle)
        found.append(point)
        waiting += [((high, upper), (middle, point)), ((middle, point), (low, lower))]


def _point(plan: Plan, values: frozenset[str], limit: float | None) -> Tradeoff:
    rescales = [item for item in counted(plan)[0] if item.value in values]
    planned = {name: value for name, value in plan.values.items() if name in values}
    return Tradeoff(
        max_bits_lost=limit,
        rescaled_elements=sum(item.elements for item in rescales),
        rescales=len(rescales),
        worst_bits_lost=max((value.bits_lost for value in planned.values()), default=0.0),
        types={
            name: str(value.type) if value.type is not None else "float" for name, value in planned.items()
        },
    )


def _figures(point: Tradeoff) -> tuple[int, float]:
    return point.rescaled_elements, point.worst_bits_lost


def _beats(a: Tradeoff, b: Tradeoff) -> bool:
    return _figures(a) != _figures(b) and all(x <= y for x, y in zip(_figures(a), _figures(b), strict=True))
