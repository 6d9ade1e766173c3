"""The loop: from facts to a type at every port.

Choose a row for each kernel; give ports their ranges; move to float what has no range, no row or no integer
neighbour; solve; type constants; where a constant does not fit its row, add a remedy and start again.
Source: MLIR quantization RFC, "Propagation pass"; docs/specification.md, sections 3 to 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from planner.ir.graph import Graph
from planner.propagation.labelling import label_all
from planner.propagation.network.demotions import (
    Moves,
    at_run_time,
    between_floats,
    for_no_range,
    infinite,
    islands,
    out_of_reach,
    read_by_floats,
    stored_results,
    unranged_results,
    with_float_results,
    without_range,
)
from planner.propagation.network.float_results import may_read_table
from planner.propagation.network.ports import Network, Ranged, present
from planner.propagation.network.presolve import settle_plain
from planner.propagation.network.value_ranges import give_ranges
from planner.propagation.parameters.derived_ports import come_to_rest, refuse_disagreement
from planner.propagation.parameters.fit import unfit, with_least_scales
from planner.propagation.parameters.typed import Typed, finish_typing, start_typing
from planner.propagation.selection.apart import served
from planner.propagation.selection.choice import Choice, in_float
from planner.propagation.selection.chosen import Chosen, Request
from planner.propagation.selection.conflicts import Concession
from planner.propagation.selection.contradictions import refuse_contradictions
from planner.propagation.selection.remedies import NO_REMEDIES, Inapplicable, Remedies
from planner.propagation.selection.rows import refuse_floats, refuse_unmet
from planner.propagation.selection.signs import with_few_signs
from planner.propagation.selection.too_little import with_wanted_db
from planner.propagation.selection.trained_grids import with_trained_grids
from planner.propagation.solver.classes import build_classes
from planner.propagation.solver.price import CostModel
from planner.target.records import PortId, Target

GIVEN_UP: Final = "its constraints cannot all hold"


class Demotion(NamedTuple):
    """Why kernels leave their rows, and which these are."""

    name: str
    find: Callable[[Ranged], Moves]


DEMOTIONS: Final = (
    Demotion("no range", without_range),
    Demotion("a range, except for results in float", unranged_results),
    Demotion("results without a range that something stores", stored_results),
    Demotion("a range, except where it is found at run time", at_run_time),
    Demotion("an integer island", islands),
    Demotion("data movement between floats", between_floats),
    Demotion("a constant with infinities, needed whole", infinite),
    Demotion("results that nothing stores", read_by_floats),
)
"""In order: the first that finds kernels moves these, and all are looked for anew."""


def decide(
    graph: Graph,
    target: Target,
    request: Request,
    given: Concession,
    remedies: Remedies = NO_REMEDIES,
) -> Typed:
    """From facts to typed ports, tried again with every remedy that a try asks for.

    Args:
      given: what was given up.
      remedies: to begin with.

    Raises:
      Conflict, RuleError: constraints that cannot all hold.
    """
    refuse_contradictions(graph)
    while True:
        chosen = choose(graph, target, request, given, remedies)
        graph, remedies = chosen.graph, chosen.remedies
        try:
            outcome = type_ports(chosen)
            more = unfit(outcome, remedies)
        except Inapplicable as error:
            more = error.remedy
        if not more:
            refuse_unmet(graph, outcome.chosen.choices, target)
            return outcome
        # Before a kernel that left its rows is taken apart: it may have done so for a weight's sake.
        graph, remedies = with_trained_grids(graph, with_wanted_db(target, request.costs), remedies | more)


def choose(graph: Graph, target: Target, request: Request, given: Concession, remedies: Remedies) -> Chosen:
    """Choose a row for each kernel; unfuse kernels and fix the types of trained weights where that helps.

    Raises:
      Conflict: a kernel cannot run as it has to.
    """
    choosing = with_wanted_db(target, request.costs)
    while True:
        graph, choices, remedies = served(graph, choosing, remedies, given.floats, fuses=request.fuses)
        settled, remedies = with_trained_grids(graph, choosing, remedies)
        if settled is graph:
            break
        graph = settled
    refuse_unmet(graph, choices, target, settled=False)
    refuse_floats(choices, target)
    choices = [in_float(c, GIVEN_UP) if c.row and c.region.name in given.floats else c for c in choices]
    return Chosen(graph, target, choices, request, remedies)


def type_ports(chosen: Chosen) -> Typed:
    """From chosen rows to typed ports.

    A table that scales leave in float all the same, as one of its consumers stores it anew, is looked at once
    more when labels are known.

    Raises:
      Conflict, RuleError: constraints that cannot all hold.
    """
    gone = out_of_reach(chosen.graph, chosen.choices)
    outcome = _labelled(moved(chosen, for_no_range(chosen.graph, chosen.choices, gone)))
    if tables := with_float_results(outcome.chosen, _tables_in_float(outcome)):
        outcome = _labelled(replace(moved(outcome.chosen, tables), visits=outcome.visits))
    return replace(outcome, derived=_derived(outcome))


def settle(chosen: Chosen) -> Ranged:
    """Ranges of all ports, with every kernel in float that has to be.

    Kernels only ever move to float, or once from there to a row with float results, so this ends.
    """
    while True:
        ranged = give_ranges(chosen)
        moves = next(filter(None, (demotion.find(ranged) for demotion in DEMOTIONS)), None)
        if moves is None:
            return ranged
        chosen = replace(moved(chosen, moves), visits=ranged.visits)


def moved(chosen: Chosen, moves: Moves) -> Chosen:
    """The rows, with these choices in the place of others."""
    if not moves:
        return chosen
    choices = [*chosen.choices]
    returned = {one.region.name for i, one in moves.items() if one.row is not None and choices[i].row is None}
    for i, choice in moves.items():
        choices[i] = choice
    return replace(chosen, choices=choices, returned=chosen.returned | returned)


def _labelled(chosen: Chosen) -> Typed:
    """Settle rows and signs, then choose scales."""
    ranged = settle(chosen)
    choices, turns = _with_few_signs(ranged.chosen)
    if choices is not ranged.chosen.choices:
        ranged = settle(replace(ranged.chosen, choices=choices, visits=ranged.visits))
    request, target = chosen.request, chosen.target
    ranged = with_least_scales(ranged, chosen.remedies.grown)
    depths = _depths(ranged, request.depths)
    network = start_typing(build_classes(ranged, settle_plain(ranged), depths, request.costs.max_clip))
    cost_model = CostModel(request.costs, target.rescale_single_consumer, target.rescale_allowed)
    return finish_typing(network, label_all(network, cost_model, request.strategy), turns=turns)


def _with_few_signs(chosen: Chosen) -> tuple[Sequence[Choice], bool]:
    target = with_wanted_db(chosen.target, chosen.request.costs)
    return with_few_signs(chosen.graph, chosen.choices, target, chosen.remedies.left)


def _tables_in_float(outcome: Typed) -> set[str]:
    """Names of the kernels that would move a table in float, beside a consumer that stores it anew."""
    floats = (kernel for kernel in outcome.kernels if outcome.moves_in_float(kernel))
    return {kernel.choice.region.name for kernel in floats if may_read_table(outcome, kernel)}


def _depths(network: Network, given: Mapping[str, int]) -> list[int]:
    """By kernel: kernels on the longest way from the model's inputs to it, itself counted.

    In a part of a model, whose inputs lie farther away, they are given.
    """
    deep = [0] * len(network.values)
    found: list[int] = []
    for kernel in network.kernels:
        most = max([deep[port.value] for port in present(network, kernel.inputs)], default=0) + 1
        for port in present(network, kernel.outputs):
            deep[port.value] = most
        found.append(given.get(kernel.choice.region.name, most))
    return found


def _derived(network: Typed) -> dict[int, Sequence[PortId]]:
    """Type constants and derived ports by the labels; return the derived ports by kernel."""
    progress = network.chosen.request.progress
    found: dict[int, Sequence[PortId]] = {}
    for number, kernel in enumerate(network.kernels):
        if network.moves_in_float(kernel):
            continue
        if progress is not None:
            progress(number + 1, len(network.kernels))
        ports = come_to_rest(network, kernel)
        refuse_disagreement(network, kernel)
        if ports:
            found[number] = ports
    return found
