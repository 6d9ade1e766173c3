"""The price of a labelling, so that "least" is a number.

A sum of rescales (one per value and required type) and of bits lost at consuming uses beyond what is
unavoidable. Prices are integers in 1/1024 of an element-rescale. Source: docs/specification.md, section 5,
the price, items 4 and 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import kind_of, price_of
from planner.propagation.solver.components import Edge, Price, Use
from planner.propagation.solver.ways import Loss, Way, Ways, coarsest
from planner.target.ports.labels import UNIT, Label, typed
from planner.target.records import Costs

FORBIDDEN: Final = 1 << 30


class Priced(Protocol):
    """A thing that has a price: a `Unit`, or the part of one around a class."""

    edges: list[Edge]
    losses: list[Loss]
    ways: dict[int, Way]


@dataclass(slots=True)
class CostModel:
    """Prices of one target and the cache of pairwise costs.

    `allowed`: False where the device neither rescales nor casts between kernels; that then costs more
    than anything else does.
    """

    costs: Costs
    single_consumer: bool
    allowed: bool = True
    pairs: dict[tuple[Uniform | None, Uniform | None], tuple[int, int]] = field(default_factory=dict)

    def is_free(self, edge: Edge, use: Use) -> bool:
        """Whether the device can change types here: everywhere, or at the model's own interface only."""
        return self.allowed or edge.inlet or use.outer

    def pair(self, source: Uniform | None, wanted: Uniform | None, *, free: bool = True) -> tuple[int, int]:
        """(price per element in 1/1024, 1 if it counts as a rescale) of a change of type."""
        price, is_rescale = self._known(source, wanted)
        return (price if free or not price else FORBIDDEN), is_rescale

    def _known(self, source: Uniform | None, wanted: Uniform | None) -> tuple[int, int]:
        # A net has few pairs of types and asks for them at every edge.
        found = self.pairs.get((source, wanted))
        if found is None:
            kind = kind_of(source, wanted, self.costs)
            if kind is None:
                found = (0, 0)
            else:
                price = round(price_of(kind, self.costs) * UNIT)
                is_rescale = kind not in ("quantize", "dequantize")
                found = (price, int(is_rescale))
            self.pairs[source, wanted] = found
        return found


def edge_price(edge: Edge, assignment: Mapping[int, Label | None], cost_model: CostModel) -> tuple[int, int]:
    """Price and number of the rescales on one edge."""
    base = edge.start
    made, store = None, None
    if edge.definition is not None:
        group, store = edge.definition
        made = assignment[group]
        base = None if made is None else typed(made, store)
    price = count = 0
    wanted: dict[tuple[Uniform | None, bool, int], int] = {}
    for n, use in enumerate(edge.uses):
        kind = use.goal
        if use.group >= 0:
            label = assignment[use.group]
            if store is use.store and label == made:
                continue
            kind = None if label is None or use.store is None else typed(label, use.store)
        # Identity first: most ends share one object, and comparing types is the costly part.
        if kind is not base and kind != base:
            key = (kind, cost_model.is_free(edge, use), n if cost_model.single_consumer else 0)
            wanted[key] = max(use.trips, wanted.get(key, 0))
    for (kind, free, _), trips in wanted.items():
        one, is_rescale = cost_model.pair(base, kind, free=free)
        price += one * trips
        count += is_rescale
    return price * edge.elements, count


def loss_units(loss: Loss, ways: Ways, labels: Mapping[int, Label | None], known: dict[int, int]) -> int:
    """Bits lost at one consuming use, in 1/1024, at least 0; `known` as in `ways.coarsest`."""
    return max(0, coarsest(loss, ways, labels, known) - loss.own)


def loss_price(loss: Loss, lost: int, costs: Costs) -> int:
    """Price of bits lost at a use beyond what is unavoidable and free."""
    # Bits that every labelling loses are nobody's fault, and half a bit is free (docs/specification.md, items
    # 4 and 5).
    paid = lost - loss.unavoidable - round(costs.free_bits * UNIT)
    return loss.times * round(loss.elements * costs.bit_price * paid) if paid > 0 else 0


def excused_price(loss: Loss, lost: int, costs: Costs) -> int:
    """Price of the bits lost at a use that facts and rows force it to lose, which is in no plan's price.

    With `loss_price` it is the price of all bits but the free ones, whatever is unavoidable: fixing a value
    to the type it has moves bits from one to the other, and changes no sum.
    """
    paid = max(0, lost - round(costs.free_bits * UNIT))
    return loss.times * round(loss.elements * costs.bit_price * paid) - loss_price(loss, lost, costs)


def price_of_labels(part: Priced, assignment: Mapping[int, Label | None], cost_model: CostModel) -> Price:
    """Return the price of a labelling of these edges and losses."""
    price = count = lost_total = 0
    for edge in part.edges:
        one, n = edge_price(edge, assignment, cost_model)
        price += one
        count += n
    known: dict[int, int] = {}
    for loss in part.losses:
        lost = loss_units(loss, part.ways, assignment, known)
        price += loss_price(loss, lost, cost_model.costs)
        lost_total += loss.elements * lost * loss.times
    return price, count, lost_total
