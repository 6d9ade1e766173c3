"""Tie-break: of two places that cost the same, a rescale stands behind the data movement, not before it.

Looks at a finished labelling and moves what costs exactly the same: price, rescales and bits lost stay.
Source: tests/cases, case 11 ("equal cost: after").
"""

from collections.abc import Mapping, Sequence

from planner.ir.borders import border_op
from planner.propagation.network.ports import Ranged
from planner.propagation.solver.classes import LabelClass, Offered
from planner.propagation.solver.components import Edge, Part, Price, Unit
from planner.propagation.solver.price import CostModel, price_of_labels
from planner.target.ports.labels import Label, label_of


def moved_late(
    network: Ranged,
    unit: Unit,
    classes: Sequence[LabelClass],
    offered: Offered,
    labels: Mapping[int, Label | None],
    *,
    cost_model: CostModel,
) -> Mapping[int, Label | None]:
    """The labels, with data movement following its input where that costs the same."""
    if not _rescaled_movement(network, unit, classes, labels):
        return labels
    found = dict(labels)
    around: dict[int, Part] = {}
    for edge in unit.edges:
        for c in edge.groups():
            around.setdefault(c, Part()).edges.append(edge)
    # Topological order passes a chain of data movement in one go.
    losses: Price | None = None
    for c in unit.classes:  # numbered in topological order, so chains of data movement are passed at once
        entry, read = classes[c], _starts(c, around[c].edges, found) if c in around else set()
        # Data movement that reads several labels has none to hand on.
        label = next(iter(read)) if len(read) == 1 else None
        if label in (None, found[c]) or not _moves(network, entry) or label not in offered[c]:
            continue
        before, edges = found[c], price_of_labels(around[c], found, cost_model)
        found[c] = label
        alike = price_of_labels(around[c], found, cost_model) == edges
        if alike:
            # Losses far behind may be by this class, so all are summed up; it is seldom that edges are alike.
            losses = losses or _price_of_losses(unit, {**found, c: before}, cost_model)
            alike = _price_of_losses(unit, found, cost_model) == losses
        if not alike:
            found[c] = before
    return found


def kept_on_grids(
    network: Ranged,
    unit: Unit,
    classes: Sequence[LabelClass],
    offered: Offered,
    labels: Mapping[int, Label | None],
    *,
    cost_model: CostModel,
) -> Mapping[int, Label | None]:
    """The labels, data-movement operators on the grid of a constant's fixed type where that costs the same.

    Each number of such a constant lies on its grid: any other rounds it once more, even the next finer one,
    which ties prefer. All classes that share the label move together.
    """
    found = dict(labels)
    for c in unit.classes:
        grid = _grid_entering(network, classes[c]) if _moves(network, classes[c]) else None
        if grid is None or found[c] in (None, grid) or grid not in offered[c]:
            continue
        sharing = [other for other in unit.classes if found[other] == found[c] and grid in offered[other]]
        moved = {**found, **dict.fromkeys(sharing, grid)}
        if price_of_labels(unit, moved, cost_model)[:2] == price_of_labels(unit, found, cost_model)[:2]:
            found = moved
    return found


def _grid_entering(network: Ranged, entry: LabelClass) -> Label | None:
    """The label of the constants that enter a class, where their fixed types agree on one."""
    values = (network.values[port.value] for port in entry.entering)
    pins = [value.pin for value in values if value.constant]
    if not pins or any(pin is None or not pin.is_per_tensor for pin in pins):
        return None
    grids = {label_of(pin) for pin in pins if pin is not None}
    return grids.pop() if len(grids) == 1 else None


def _price_of_losses(unit: Unit, labels: Mapping[int, Label | None], cost_model: CostModel) -> Price:
    return price_of_labels(Part(losses=unit.losses, ways=unit.ways), labels, cost_model)


def _rescaled_movement(
    network: Ranged, unit: Unit, classes: Sequence[LabelClass], labels: Mapping[int, Label | None]
) -> bool:
    for edge in unit.edges:
        start = _start(edge, labels)
        if start is None:
            continue
        others = (u.group for u in edge.uses if u.group >= 0 and labels[u.group] not in (None, start))
        if any(_moves(network, classes[c]) for c in others):
            return True
    return False


def _moves(network: Ranged, entry: LabelClass) -> bool:
    """Whether a class is data movement; what crosses a border of a body is rescaled outside (case 40)."""
    kernel = network.kernels[entry.kernel]
    return kernel.moves and border_op(kernel.choice.region) is None


def _start(edge: Edge, labels: Mapping[int, Label | None]) -> Label | None:
    """The label that the consumers of an edge start from; None where it is float or has many scales."""
    if edge.definition is not None:
        return labels[edge.definition[0]]
    return label_of(edge.start) if edge.start is not None and edge.start.is_per_tensor else None


def _starts(c: int, edges: Sequence[Edge], labels: Mapping[int, Label | None]) -> set[Label | None]:
    return {_start(edge, labels) for edge in edges if any(use.group == c for use in edge.uses)}
