"""Cuts: casts between stored and float, and what the least of them leave to a search.

Whatever labels are taken, values at which stored and float classes meet are cast. So the least cut between
what is stored for sure and what is float for sure, a greatest flow, bounds the price; where the finest labels
on its stored side cost no more, they are the least. As few classes are float as in any least cut, so of equal
prices this one is taken. Source: Ford and Fulkerson; design 01, section 5, the price, items 4 and 6.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from planner.propagation.solver.classes import UNIT, LabelClass, Offers
from planner.propagation.solver.components import Edge, Unit
from planner.propagation.solver.price import CostModel, price_of_labels
from planner.target.records import Costs

MOST: Final = 100
"""Classes of a unit; more are left to the search."""
FLOAT: Final = -1
STORED: Final = -2
"""Nodes that stand for all that is float, or stored, for sure; other nodes are classes, or ends of values."""

Room = dict[int, dict[int, float]]
"""What may still flow from node to node: what it costs that the first is float and the second stored."""


def worth_a_look(unit: Unit, classes: Sequence[LabelClass], cost_model: CostModel) -> Offers:
    """The labels that the least labelling may take; one each where the cut itself is it.

    Where any labelling costs no more than the least cut, every least one is such a cut: what is float, or
    stored, in all of these is so in it.
    """
    offered: Offers = {c: list(classes[c].labels) for c in unit.classes}
    if len(unit.classes) > MOST or not any(None in labels for labels in offered.values()):
        return offered
    flow, floats, stored = _greatest_flow(_room(unit.edges, classes, cost_model.costs))
    first = {c: None if c in floats else labels[0] for c, labels in offered.items()}
    if price_of_labels(unit, first, cost_model) == (flow, 0, 0):
        return {c: [label] for c, label in first.items()}
    last = {c: labels[0] if c in stored or None not in labels else None for c, labels in offered.items()}
    if price_of_labels(unit, last, cost_model)[0] > flow:
        return offered
    for c, labels in offered.items():
        if c in floats:
            offered[c] = [None]
        elif c in stored:
            offered[c] = [label for label in labels if label is not None]
    return offered


def _room(edges: Sequence[Edge], classes: Sequence[LabelClass], costs: Costs) -> Room:
    """A network in which every cut costs what its casts cost at least."""
    room: Room = defaultdict(lambda: defaultdict(int))
    quantize, dequantize = round(costs.quantize * UNIT), round(costs.dequantize * UNIT)
    fresh = STORED
    for edge in edges:
        source = _node(-1 if edge.definition is None else edge.definition[0], edge.start, classes)
        readers = {_node(use.group, use.goal, classes) for use in edge.uses if not use.follows}
        times = edge.elements * min(use.trips for use in edge.uses)
        into = out = next(iter(readers), source)
        if len(readers) > 1:
            # One cast serves all readers: it stands between the value and an end that they share.
            fresh, into, out = fresh - 2, fresh - 1, fresh - 2
            for reader in readers:
                room[into][reader] = room[reader][out] = math.inf
        if source not in (into, out):
            room[source][into] += quantize * times
            room[out][source] += dequantize * times
    return room


def _node(group: int, kind: object, classes: Sequence[LabelClass]) -> int:
    """The node of a class, or of what is of a given type."""
    if group < 0:
        return FLOAT if kind is None else STORED
    labels = classes[group].labels
    if None not in labels:
        return STORED
    return group if len(labels) > 1 else FLOAT


def _greatest_flow(room: Room) -> tuple[float, set[int], set[int]]:
    """The greatest flow from float to stored, the nodes that more could still get to, and come from."""
    flow: float = 0
    while STORED in (came := _reached(room, FLOAT)):
        way = [STORED]
        while way[-1] != FLOAT:
            way.append(came[way[-1]])
        steps = [(b, a) for a, b in pairwise(way)]
        more = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= more
            room[b][a] += more
        flow += more
    back: Room = defaultdict(dict)
    for a, near in room.items():
        for b, left in near.items():
            back[b][a] = left
    return flow, {*came}, {*_reached(back, STORED)}


def _reached(room: Room, start: int) -> dict[int, int]:
    """The nodes that there is room to get to, each with the one before it on a shortest way."""
    came, queue = {start: start}, [start]
    for node in queue:
        for other, left in room[node].items():
            if left and other not in came:
                came[other] = node
                queue.append(other)
    return came
