"""Labelling: choose a label for every class of a unit so that the price is least.

First the finest label that all classes of a component can share (provably least where it pays less than
one change of label beyond what nobody can avoid). Then, without the labels that nobody needs: exactly by
eliminating classes, else by a linear program, of large units in blocks (a proven bound), local search, and
branch and bound of the whole or of parts. A result that is not proven optimal carries its bound. Limits are
counts, never wall time.
Source: docs/specification.md, section 5.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from planner.plans.rescales import same_scale
from planner.propagation.solver.canonical_order import in_canonical_order
from planner.propagation.solver.classes import LabelClass, Labels, Offered, Offers
from planner.propagation.solver.components import Component, Edge, Part, Unit, Use
from planner.propagation.solver.dominance import drop_dominated
from planner.propagation.solver.elimination import LARGE, SMALL, eliminate
from planner.propagation.solver.large_neighbourhoods import relabel
from planner.propagation.solver.linear_program import (
    BLOCK,
    EASY,
    HARD,
    Relaxed,
    relax,
    relax_in_blocks,
    solve_exactly,
)
from planner.propagation.solver.local_search import descend
from planner.propagation.solver.price import CostModel, edge_price, price_of_labels
from planner.target.ports.labels import UNIT, Label

FINEST: Final = 8
"""Labels for a whole component that are priced."""
PROGRAM, PROGRAM_LABELS = 4_000, 40_000
"""Classes of a linear program, or labels of all of them, whichever allows more: its time grows faster than
they do (`benchmarks.solver_steps`)."""

FEW: Final = 8
"""Labels of a program that only finds a labelling: so many that most classes may take, and as many more."""
COMMON: Final = 2
"""Labels that so many classes may take that they are worth trying for each."""
WORTH: Final = 2
"""Such a program is worth its time where all labels are so many times as many."""

WHOLE: Final = 480
"""Classes of a unit whose relaxation is one program; that of more is solved in blocks."""
FEW_CUT: Final = 0.1
"""Share of edges between blocks up to which blocks find as cheap a labelling as one program does, sooner."""
NEAR: Final = 1.05
"""How many times its bound a labelling may cost before blocks are cut elsewhere."""

Options = Sequence[tuple[tuple[int, int], Labels]]


@dataclass(frozen=True)
class Solution:
    """A labelling of one unit; `price` and `bound` in 1/1024."""

    labels: Mapping[int, Label | None]
    price: int
    bound: int


def solve(unit: Unit, classes: Sequence[LabelClass], offered: Offered, cost_model: CostModel) -> Solution:
    """Find the cheapest labelling of what is offered; losses must have been settled."""
    # What no labelling avoids is a bound without any search; most units are at it.
    floor = unavoidable_casts(unit.edges, offered, cost_model)
    options = {id(part): _shared_labels(part, classes, offered, cost_model) for part in unit.components}
    if all(options.values()):
        first = [found[0] for found in options.values()]
        finest = _merged(labels for _, labels in first)
        rescales = sum(count for (_, count), _ in first)
        price = sum(paid for (paid, _), _ in first) + _price_of_losses(unit, finest, cost_model)
        # At the bound, without a rescale, and the finest: nothing later in the order of ties can be better.
        if (price, rescales) == (floor, 0):
            return Solution(finest, floor, floor)
    alike = _one_for_all(unit, [*options.values()], classes, cost_model)
    # Two labels in one component differ on some edge. One label for all that pays less than the cheapest
    # such edge is therefore least.
    if alike is not None and alike.price < floor + _least_change(unit, offered, cost_model):
        return alike
    # From here on ties are decided, and must not depend on how the model lists or names its kernels.
    in_canonical_order(unit, classes, offered)
    shared = [options[id(part)] for part in unit.components]
    start = _pick_shared(unit, _own_labels(unit, classes, offered), shared, cost_model)
    mine: Offers = {c: list(offered[c]) for c in unit.classes}
    labels, found, bound = _least(unit, mine, cost_model, start)
    # A label that was not offered might cost less: what is proven of the others proves nothing.
    if not all(component.whole for component in unit.components):
        bound = 0
    return Solution(labels, found, min(max(bound, floor), found))


def _one_for_all(
    unit: Unit, shared: Sequence[Options], classes: Sequence[LabelClass], cost_model: CostModel
) -> Solution | None:
    """The cheapest of one label for all; of labels whose rescales cost the same the finest is."""
    if len(shared) > 1 or not unit.components[0].whole:
        return None
    free = next((c for c in unit.classes if classes[c].fixed is None), unit.classes[0])
    first: dict[tuple[tuple[int, int], bool], Labels] = {}
    for paid, labels in shared[0]:
        first.setdefault((paid, labels[free] is None), labels)
    priced = [(price_of_labels(unit, labels, cost_model), labels) for labels in first.values()]
    if not priced:
        return None
    price, labels = min(priced, key=lambda item: item[0])
    return Solution(labels, price[0], price[0])


def _least_change(unit: Unit, offered: Offered, cost_model: CostModel) -> int:
    """The least cost of two labels in one component; 0 where scales are so close that it may be nothing."""
    scales = sorted({label for c in unit.classes for label in offered[c] if label is not None})
    # Scales that count as one may differ for nothing.
    if any(same_scale(a, b) for (a, _), (b, _) in pairwise(scales)):
        return 0
    costs = cost_model.costs
    least = min((edge.elements for edge in unit.edges if edge.groups()), default=0)
    return round(min(costs.requantize, costs.quantize, costs.dequantize) * UNIT) * least


def _least(unit: Unit, offered: Offers, cost_model: CostModel, start: Labels) -> tuple[Labels, int, int]:
    """A labelling, its price and a lower bound."""
    for component in unit.components:
        drop_dominated(component, offered, cost_model.costs)
    # Where elimination fits it is exact, for units of any size.
    for room in (SMALL, LARGE):
        exact = eliminate(unit, offered, cost_model, room)
        if exact is not None:
            least = price_of_labels(unit, exact, cost_model)[0]
            return exact, least, least
    whole = all(component.whole for component in unit.components)
    is_too_large = len(unit.classes) > PROGRAM and _count(offered) > PROGRAM_LABELS
    in_blocks = whole and len(unit.classes) > WHOLE
    if in_blocks and (is_too_large or _cut_edges(unit) < FEW_CUT):
        return _near_blocks(unit, offered, cost_model, start)
    if is_too_large:
        return *_descended(unit, offered, cost_model, start), 0
    few = _few_labels(offered, start)
    if _count(few) * WORTH > _count(offered):
        few = offered
    relaxed = relax(unit, few, cost_model, EASY if in_blocks else HARD)
    if relaxed is not None and few != offered:
        # Few labels lead a search nearly as well as all do, and prove nothing. That they were easy says that
        # all will not be hard.
        every = relax(unit, offered, cost_model, HARD) if whole and relaxed.is_easy else None
        start = relaxed.nearest if every is None and in_blocks else start
        relaxed = every or (None if in_blocks else relaxed._replace(bound=0))
    if relaxed is not None:
        return _near_relaxed(unit, offered, cost_model, start, relaxed)
    if in_blocks:
        return _near_blocks(unit, offered, cost_model, start)
    return *_relabelled(unit, offered, cost_model, start), 0


def _cut_edges(unit: Unit) -> float:
    """The share of edges between blocks."""
    block = {c: i // BLOCK for i, c in enumerate(unit.classes)}
    return sum(len({block[c] for c in edge.groups()}) > 1 for edge in unit.edges) / max(1, len(unit.edges))


def _near_blocks(
    unit: Unit, offered: Offers, cost_model: CostModel, start: Labels
) -> tuple[Labels, int, int]:
    """A labelling of a large unit, by local search and of few labels; the bound is that of blocks."""
    (price, *_), labels = descend(unit, offered, cost_model, start)
    if price <= unavoidable_casts(unit.edges, offered, cost_model):
        return labels, price, price
    bound = 0
    for relaxed in relax_in_blocks(unit, offered, cost_model):
        bound = max(bound, relaxed.bound)
        if price > bound:
            labels = _best_of_few(unit, offered, cost_model, labels, relaxed)
            (price, *_), labels = descend(unit, offered, cost_model, labels)
        if price <= NEAR * bound:
            break
    if not bound:
        labels, price = _relabelled(unit, offered, cost_model, labels)
    return labels, price, bound


def _best_of_few(
    unit: Unit, offered: Offers, cost_model: CostModel, labels: Labels, relaxed: Relaxed
) -> Labels:
    """A labelling of few labels, no more expensive than the one known: the best of all if tables fit."""
    # Blocks do not agree on one labelling, but a cheap one seldom has a label without a share in any, except
    # one that many classes can share.
    count = Counter(label for own in offered.values() for label in own if label is not None)
    common = sorted(count, key=lambda label: (-count[label], label))[:COMMON]
    few = {
        c: [label for label in mine if label in relaxed.support[c] or label in common or label == labels[c]]
        for c, mine in offered.items()
    }
    exact = eliminate(unit, few, cost_model, LARGE)
    if exact is not None:
        return exact
    for order in (unit.classes, unit.classes[::-1]):
        labels = relabel(unit, few, cost_model, labels, order)
    return labels


def _count(offered: Offered) -> int:
    return sum(map(len, offered.values()))


def _descended(unit: Unit, offered: Offers, cost_model: CostModel, start: Labels) -> tuple[Labels, int]:
    """The best of two local searches; nothing is proven."""
    finest = {c: mine[0] for c, mine in offered.items()}
    tried = [descend(unit, offered, cost_model, one) for one in (start, finest)]
    price, labels = min(tried, key=lambda item: item[0])
    return labels, price[0]


def _relabelled(unit: Unit, offered: Offers, cost_model: CostModel, start: Labels) -> tuple[Labels, int]:
    """A local search, then some dozens of classes at once, twice; nothing is proven."""
    labels, price = _descended(unit, offered, cost_model, start)
    for _ in range(2):
        labels = relabel(unit, _few_labels(offered, labels), cost_model, labels, unit.classes)
        (price, *_), labels = descend(unit, offered, cost_model, labels)
    return labels, price


def _few_labels(offered: Offered, known: Labels) -> Offered:
    """Of each class's labels the finest, its own of a known labelling, and those of a few for all classes.

    Those are the ones that most classes may take, some from over the whole range of scales, and float.
    """
    count = Counter(label for labels in offered.values() for label in labels if label is not None)
    in_order = sorted(count)
    most = sorted(count, key=lambda label: (-count[label], label))[:FEW]
    few = {None, *most, *in_order[:: -(-len(in_order) // FEW) or 1]}
    return {
        c: [label for i, label in enumerate(labels) if i == 0 or label in few or label == known[c]]
        for c, labels in offered.items()
    }


def _near_relaxed(
    unit: Unit, offered: Offers, cost_model: CostModel, start: Labels, relaxed: Relaxed
) -> tuple[Labels, int, int]:
    """A labelling near what a linear program says: by local search, then exactly, whole or part by part."""
    bound = relaxed.bound
    tried = [descend(unit, offered, cost_model, relaxed.nearest)]
    if tried[0][0][0] > bound:
        tried.append(descend(unit, offered, cost_model, start))
    price, labels = min(tried, key=lambda item: item[0])
    if price[0] <= bound:
        return labels, price[0], bound
    exact, proven = solve_exactly(unit, offered, cost_model, labels)
    if exact is None:
        # Too many columns: part by part, and only labels with a share in the relaxation's answer.
        near = {c: [x for x in offered[c] if x in relaxed.support[c] or x == labels[c]] for c in offered}
        exact = relabel(unit, near, cost_model, labels, unit.classes)
    tried.append(descend(unit, offered, cost_model, exact))
    price, labels = min(tried, key=lambda item: item[0])
    return labels, price[0], max(bound, proven)


def unavoidable_casts(edges: Iterable[Edge], offered: Offered, cost_model: CostModel) -> int:
    """Return the price that every labelling pays on these edges: a lower bound."""
    total = 0
    costs = cost_model.costs
    for edge in edges:
        if not edge.groups():
            total += edge_price(edge, {}, cost_model)[0]
        # A float value that something stored reads is quantized, whatever the labels are.
        elif edge.definition is None and edge.start is None:
            trips = [use.trips for use in edge.uses if _surely_stored(use, offered)]
            total += round(costs.quantize * UNIT) * edge.elements * max(trips, default=0)
        elif edge.definition is None or None not in offered[edge.definition[0]]:
            trips = [use.trips for use in edge.uses if use.group < 0 and use.goal is None]
            total += round(costs.dequantize * UNIT) * edge.elements * max(trips, default=0)
    return total


def _surely_stored(use: Use, offered: Offered) -> bool:
    return None not in offered[use.group] if use.group >= 0 else use.goal is not None


def _shared_labels(
    component: Component, classes: Sequence[LabelClass], offered: Offered, cost_model: CostModel
) -> list[tuple[tuple[int, int], Labels]]:
    """Labels that all classes may take (fixed ones keep theirs): cheapest rescales first, then finest."""
    shared: dict[Label | None, None] | None = None
    for c in component.classes:
        if classes[c].fixed is None:
            mine = dict.fromkeys(offered[c])
            shared = mine if shared is None else {label: None for label in shared if label in mine}
    shared = _worth_pricing(shared, component)
    # Edges inside the component are free as soon as all share a label; only the others differ by label.
    paying = Part([edge for edge in component.edges if not _is_free_if_shared(edge, classes)])
    found = []
    for label in {None: None} if shared is None else shared:
        labels = {c: label if classes[c].fixed is None else offered[c][0] for c in component.classes}
        found.append((price_of_labels(paying, labels, cost_model)[:2], labels))
    found.sort(key=lambda item: item[0])
    return found


def _worth_pricing(
    shared: dict[Label | None, None] | None, component: Component
) -> dict[Label | None, None] | None:
    """Of labels for all: the finest few, those of scales that edges start from or want, and float.

    Any other costs as many rescales as the finest and loses more.
    """
    if shared is None or len(shared) <= FINEST:
        return shared
    kinds = {kind for edge in component.edges for kind in (edge.start, *(use.goal for use in edge.uses))}
    scales = {kind.scale for kind in kinds if kind is not None and kind.is_per_tensor}
    return {
        label: None
        for i, label in enumerate(shared)
        if i < FINEST or label is None or any(same_scale(label[0], scale) for scale in scales)
    }


def _is_free_if_shared(edge: Edge, classes: Sequence[LabelClass]) -> bool:
    """Whether both ends of an edge are of one type as soon as their classes have one label."""
    if edge.definition is None:
        return False
    group, store = edge.definition
    return classes[group].fixed is None and all(
        use.group >= 0 and classes[use.group].fixed is None and use.store == store for use in edge.uses
    )


def _price_of_losses(unit: Unit, labels: Labels, cost_model: CostModel) -> int:
    return price_of_labels(Part(losses=unit.losses, ways=unit.ways), labels, cost_model)[0]


def _merged(parts: Iterable[Labels]) -> Labels:
    return {c: label for part in parts for c, label in part.items()}


def _pick_shared(unit: Unit, start: Labels, shared: Sequence[Options], cost_model: CostModel) -> Labels:
    """One label per component, chosen in turn while the price falls; a start for what follows."""
    labels = dict(start)
    for options in shared:
        labels |= options[0][1] if options else {}
    home = {c: i for i, component in enumerate(unit.components) for c in component.classes}
    parts = [Part(component.edges, ways=unit.ways) for component in unit.components]
    for way, (members, _) in unit.ways.items():
        home[way] = home[members[0]]
    for loss in unit.losses:
        for i in dict.fromkeys(home[member] for member in loss.upstream):
            parts[i].losses.append(loss)
    for _ in range(2):
        for part, options in zip(parts, shared, strict=True):
            if len(options) < 2:
                continue
            trials = []
            for _, own in options:
                labels.update(own)
                trials.append((price_of_labels(part, labels, cost_model), own))
            labels.update(min(trials, key=lambda item: item[0])[1])
    return labels


def _own_labels(unit: Unit, classes: Sequence[LabelClass], offered: Offered) -> Labels:
    """Each class's own label, or its finest where that is not among those offered."""
    return {c: own if (own := classes[c].own) in offered[c] else offered[c][0] for c in unit.classes}
