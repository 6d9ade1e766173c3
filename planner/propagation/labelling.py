"""Labelling: every class of a network gets its label, by the least price or in the RFC's greedy order.

Rules may derive types from labels, and labels are chosen with those types known: rounds, until nothing
moves. How a unit is labelled for the least price is `solve`. Source: docs/specification.md, sections 4 and 5.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from planner.ir.types.qtypes import Storage
from planner.propagation.network.ports import ports_of
from planner.propagation.parameters.derived_ports import derive_again, guess_derived
from planner.propagation.parameters.typed import Labelled, Typing, known_types
from planner.propagation.selection.chosen import Strategy
from planner.propagation.solver.candidates import offer_labels
from planner.propagation.solver.classes import LabelClass, Offered, Offers, legal
from planner.propagation.solver.components import Sets, components_of, units_of
from planner.propagation.solver.price import CostModel, edge_price, price_of_labels
from planner.propagation.solver.rfc import rfc
from planner.propagation.solver.solve import Solution, solve, unavoidable_casts
from planner.propagation.solver.tie_break import kept_on_grids, moved_late
from planner.propagation.solver.ways import settle_losses
from planner.target.ports.labels import Label, label_of, typed
from planner.target.records import Costs

ROUNDS: Final = 4


def label_all(network: Typing, cost_model: CostModel, strategy: Strategy) -> Labelled:
    """Label all classes, and fill in the types.

    If rules derive types from labels, the least price of one round proves nothing about the next. The greedy
    order is then tried too, by units and as a whole, and used where it costs less and its clips and lost bits
    are allowed.
    """
    classes = network.classes
    every = frozenset(range(len(classes)))
    if strategy == "rfc":
        return _rounds(network, classes, cost_model, every)
    labelled = _rounds(network, classes, cost_model, ())
    if labelled.cost == labelled.bound or not any(map(_is_derived, labelled.classes)):
        return labelled
    greedily = _rounds(network, classes, cost_model, every)
    some = _cheaper(network, labelled, greedily)
    mixed = _rounds(network, classes, cost_model, some)
    # What units save may be lost again where rules derive other types from them: the total decides.
    least = greedily if greedily.cost < labelled.cost and _is_legal(greedily, network.costs) else labelled
    if mixed.cost <= least.cost:
        return mixed
    return _rounds(network, classes, cost_model, every if least is greedily else ())


def _is_derived(entry: LabelClass) -> bool:
    return entry.fixed_source == "derived"


def _cheaper(network: Typing, labelled: Labelled, greedily: Labelled) -> frozenset[int]:
    """Classes that cost less in the greedy order; units that rules derive from each other go together."""
    classes = greedily.classes
    home = {c: i for i, unit in enumerate(greedily.units) for c in unit.classes}
    sets = Sets(len(greedily.units))
    for entry in filter(_is_derived, classes):
        groups = [network.groups[port.id] for port in ports_of(network, network.kernels[entry.kernel])]
        sets.join([home[entry.id], *(home[group] for group in groups if group >= 0)])
    saved = [0] * len(greedily.units)
    fits = [True] * len(greedily.units)
    for i, unit in enumerate(greedily.units):
        one, other = (found.solutions[unit.classes[0]] for found in (labelled, greedily))
        together = sets.find(i)
        saved[together] += one.price - other.price
        fits[together] &= all(_may_have(greedily, c, other.labels[c], network.costs) for c in unit.classes)
    together_of = {entry.id: sets.find(home[entry.id]) for entry in classes}
    return frozenset(c for c, together in together_of.items() if saved[together] > 0 and fits[together])


def _is_legal(labelled: Labelled, costs: Costs) -> bool:
    return all(_may_have(labelled, c, one.labels[c], costs) for c, one in labelled.solutions.items())


def _may_have(labelled: Labelled, c: int, label: Label | None, costs: Costs) -> bool:
    """Whether a label may be a class's: it was offered, or takes part in what rules derive elsewhere."""
    entry = labelled.classes[c]
    if entry.fixed is not None or label in labelled.offered[c]:
        return True
    # Labels that lose too many bits are not offered either, so that limit leaves no others.
    return costs.max_bits_lost is None and label is not None and legal(label, entry, costs.max_clip)


def _rounds(
    network: Typing, classes: Sequence[LabelClass], cost_model: CostModel, greedily: Collection[int]
) -> Labelled:
    """Label, derive, and label again while a rule yields another type than it was labelled with.

    Args:
      greedily: classes that follow the greedy order, by whole units.
    """
    network.types[:] = known_types(network)
    labelled = _label(network, guess_derived(network, classes), cost_model, greedily)
    _write_types(network, labelled)
    for _ in range(ROUNDS):
        moved = derive_again(network, labelled.classes)
        if moved is None:
            return labelled
        labelled = _label(network, moved, cost_model, greedily)
        _write_types(network, labelled)
    moved = derive_again(network, labelled.classes)
    if moved is not None:
        labelled = _repriced(labelled, moved, cost_model)
        _write_types(network, labelled)
    return labelled


def _repriced(labelled: Labelled, classes: Sequence[LabelClass], cost_model: CostModel) -> Labelled:
    """The same labelling at the types that rules yield now."""
    cost, bound, solutions = labelled.cost, labelled.bound, dict(labelled.solutions)
    for unit in labelled.units:
        old = labelled.solutions[unit.classes[0]]
        fixed = {c: label_of(kind) for c in unit.classes if (kind := classes[c].fixed) is not None}
        labels = {**old.labels, **fixed}
        price = price_of_labels(unit, labels, cost_model)[0]
        floor = min(old.bound, price, unavoidable_casts(unit.edges, labelled.offered, cost_model))
        solutions |= dict.fromkeys(unit.classes, Solution(labels, price, floor))
        cost, bound = cost + price - old.price, bound + floor - old.bound
    return replace(labelled, classes=classes, solutions=solutions, cost=cost, bound=bound)


def _label(
    network: Typing, classes: Sequence[LabelClass], cost_model: CostModel, greedily: Collection[int]
) -> Labelled:
    parts, loose = components_of(network, classes)
    offered: Offers = {}
    for component in parts:
        labels, component.whole = offer_labels(component, classes, network, cost_model.costs.max_clip)
        offered |= labels
    units, lost = units_of(network, parts)
    first_decided = rfc(network, classes) if greedily else {}
    solutions: dict[int, Solution] = {}
    cost = bound = sum(edge_price(edge, {}, cost_model)[0] for edge in loose)
    for unit in units:
        mine: Offered = {c: offered[c] for c in unit.classes}
        offered |= settle_losses(unit.losses, unit.ways, mine, cost_model.costs.max_bits_lost)
        if unit.classes[0] in greedily:
            taken = {c: first_decided[c] for c in unit.classes}
            price = price_of_labels(unit, taken, cost_model)[0]
            solution = Solution(taken, price, min(price, unavoidable_casts(unit.edges, offered, cost_model)))
        else:
            solution = solve(unit, classes, offered, cost_model)
            kept = kept_on_grids(network, unit, classes, offered, solution.labels, cost_model=cost_model)
            late = moved_late(network, unit, classes, offered, kept, cost_model=cost_model)
            solution = solution if late is solution.labels else replace(solution, labels=late)
        if any(_is_derived(classes[c]) for c in unit.classes):
            # The derived types follow labels of other units, so the least here proves nothing.
            floor = min(solution.bound, unavoidable_casts(unit.edges, offered, cost_model))
            solution = replace(solution, bound=floor)
        cost += solution.price
        bound += solution.bound
        solutions |= dict.fromkeys(unit.classes, solution)
    return Labelled(classes, offered, units, solutions, cost, bound, lost)


def _write_types(network: Typing, labelled: Labelled) -> None:
    for entry in labelled.classes:
        label = labelled.solutions[entry.id].labels[entry.id]
        for port in entry.ports:
            store = port.spec.storage
            if label is None or not isinstance(store, Storage):
                continue
            network.types[port.id] = port.fixed or port.pin or typed(label, store)
