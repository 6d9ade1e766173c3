"""Anchors: a proof that one label for all classes is the cheapest although uses lose bits by it.

An anchor has no finer label than that one: it takes it, or a coarser one, or runs in float. A use keeps its
bits only if every class on its way is finer or float, and then each value that such a class shares with an
anchor is rescaled or cast. So where the losses can be dealt out to those values, and none gets more than its
rescale costs, giving up the one label saves less than it costs.
Source: design 01, section 5, the price, items 3 to 5; Hall's condition for covering.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from planner.propagation.components import Edge, Loss
from planner.propagation.labels import UNIT, Label, LabelClass
from planner.target.records import Costs

MOST: Final = 64
"""Losses that are dealt out; more are left to the search."""


def is_anchored(
    label: Label,
    losses: Sequence[tuple[int, Loss]],
    free: Sequence[Edge],
    classes: Mapping[int, LabelClass],
    costs: Costs,
) -> bool:
    """Whether one label for all is cheaper than any other labelling; no two labels may count as one scale.

    Args:
      losses: what is paid for bits lost under that label; nothing else may be paid that others do without.
      free: edges on which some labelling pays nothing.
      classes: of the unit, by their numbers.
    """
    if len(losses) > MOST:
        return False
    anchors = {c for c, entry in classes.items() if all(own is None or own >= label for own in entry.labels)}
    near = _near(anchors, classes, free)
    change = round(min(costs.requantize, costs.quantize, costs.dequantize) * UNIT)
    left = {id(edge): change * edge.elements for edge in free}
    asked: list[tuple[int, list[int]]] = []
    for price, loss in losses:
        if any(c in anchors and None not in classes[c].labels for c in loss.upstream):
            continue  # lost whatever the others do
        asked.append((price + 1, [*dict.fromkeys(e for c in loss.upstream for e in near.get(c, ()))]))
    return _dealt_out(asked, left)


def _near(
    anchors: set[int], classes: Mapping[int, LabelClass], free: Sequence[Edge]
) -> Mapping[int, list[int]]:
    """For each class the edges that cost something if it is neither as coarse as the anchors nor coarser."""
    found: dict[int, list[int]] = {}
    for edge in free:
        groups = edge.groups()
        stored = [c for c in groups if None not in classes[c].labels]
        for c in groups:
            others = stored if c in anchors else [b for b in groups if b in anchors]
            if (c in anchors or c in stored) and any(other != c for other in others):
                found.setdefault(c, []).append(id(edge))
    return found


def _dealt_out(asked: list[tuple[int, list[int]]], left: dict[int, int]) -> bool:
    """Whether every price finds room at its edges: those with the fewest first, at the least asked for."""
    wanted: dict[int, int] = {}
    for _, edges in asked:
        for edge in edges:
            wanted[edge] = wanted.get(edge, 0) + 1
    for price, edges in sorted(asked, key=lambda item: len(item[1])):
        rest = price
        for edge in sorted(edges, key=wanted.__getitem__):
            given = min(rest, left[edge])
            left[edge] -= given
            rest -= given
        if rest:
            return False
    return True
