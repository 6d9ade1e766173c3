"""Propagation: decide a uniform type (or float) for every port, and record why.

In: a Graph with regions, a Target. Out: a Plan. Nothing here reads YAML or ONNX. Rows are chosen
first; ranges flow forward and what uses keep flows back; values that nothing else has a say in are typed;
then each component of classes is labelled, and constants and derived ports follow. What then does not fit its
row is planned again with a remedy.
Source: MLIR quantization RFC, "Propagation pass"; docs/specification.md, sections 3 to 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final, TypeVar

from planner.errors import Conflict, InputError, require_name, unknown_name
from planner.ir.graph import Graph
from planner.plans.plan import Planned
from planner.plans.records import PortTyped
from planner.propagation.labelling import label_all
from planner.propagation.network.build import build_network
from planner.propagation.network.float_islands import (
    BETWEEN_FLOATS,
    ISLAND,
    afloat,
    float_islands,
    integer_islands,
)
from planner.propagation.network.float_results import may_read_table, read_in_float
from planner.propagation.network.per_axis import give_slices
from planner.propagation.network.ports import Network, present
from planner.propagation.network.presolve import settle_plain
from planner.propagation.network.value_ranges import backward, demote, forward, out_of_reach, unbounded
from planner.propagation.parameters.derived_ports import come_to_rest, refuse_disagreement
from planner.propagation.parameters.fit import grow, unfit
from planner.propagation.result.outcome import BiasPins, Outcome, Request, Strategy, Unwritten
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.apart import served
from planner.propagation.selection.choice import Choice, in_float
from planner.propagation.selection.conflicts import Concession, explained
from planner.propagation.selection.contradictions import refuse_contradictions
from planner.propagation.selection.remedies import NO_REMEDIES, Inapplicable, Remedies, rows_left
from planner.propagation.selection.rows import hand_on_floats, refuse_floats, refuse_unmet
from planner.propagation.selection.signs import with_few_signs
from planner.propagation.selection.too_little import with_wanted_db
from planner.propagation.selection.trained_grids import with_trained_grids
from planner.propagation.solver.classes import build_classes
from planner.propagation.solver.price import CostModel
from planner.target.records import UNLIMITED, Costs, PortId, Target

Found = TypeVar("Found")
GIVEN_UP: Final = "what it needs cannot all hold"
GREATEST_PRICE: Final = 1e9


def propagate(
    graph: Graph,
    target: Target,
    *,
    strategy: Strategy = "minimal",
    model: str = "",
    best_effort: bool = False,
    bias_pins: BiasPins = "error",
    depths: Mapping[str, int] | None = None,
    fuses: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    formats: Sequence[str] = (),
    unwritten: Unwritten | None = None,
    **costs: float | None,
) -> Planned:
    """Plan a fused graph for a target.

    Args:
      graph: with regions (see `fuse`); its values carry the facts.
      strategy: `minimal` (least price) or `rfc` (the RFC's greedy order).
      model: digest of the model the graph came from, kept in the plan.
      best_effort: where constraints cannot all hold, give some up, and warn, instead of raising.
      bias_pins: what to do about a bias whose pinned scale is not the product of its factors':
        `error`, or `derive` it anew.
      depths: of kernels by name (`Plan.wiring`), where the graph is a part of a bigger one.
      fuses: whether kernels that no row serves may be taken apart, as our own fusing made them.
      progress: called with (kernels typed, kernels in all), and again where a try asks for another.
      formats: that the plan is to be written in, kept in it.
      unwritten: gives the reason for each kernel of a plan that has to leave its row, as a format cannot
        write it so; the plan is then made again without these rows.
      costs: keys of the target's cost tables, over its own.

    Raises:
      Conflict: constraints that cannot all hold.
      UnknownName: no such strategy or cost.
      InputError: a cost that is no number of at least 0.
    """
    require_name("strategy", strategy, ("minimal", "rfc"))
    require_name("policy of bias_pins", bias_pins, ("error", "derive"))
    prices = _with_costs(target.costs, costs)
    request = Request(
        strategy,
        prices,
        model,
        best_effort,
        bias_pins,
        depths or {},
        fuses,
        progress,
        tuple(formats),
        unwritten,
    )
    if best_effort:
        plan, notes = _conceding(_planned, graph, target, request)
        return replace(plan, warnings=(*notes, *plan.warnings))
    return _explaining(lambda one, given: _planned(one, given.target(target), request, given), graph)


def operand_types(
    graph: Graph, target: Target, *, fuses: bool
) -> tuple[Graph, dict[str, dict[str, PortTyped]]]:
    """Types at the inputs of kernels that run as integers: value to type, by kernel; no plan is made of it.

    Where constraints cannot all hold the types are those of a best-effort plan: to refuse is for whoever
    makes a plan of it.

    Args:
      graph: with regions.
      fuses: as for `propagate`.

    Returns:
      The graph with the kernels that it would be planned with, and the types.
    """
    request = Request(
        "minimal", target.costs, "", best_effort=True, bias_pins="error", depths={}, fuses=fuses
    )
    outcome, _ = _conceding(_decided, graph, target, request)
    network = outcome.network
    return network.graph, {
        kernel.choice.region.name: {
            network.values[port.value].name: port.type for port in present(network, kernel.inputs)
        }
        for kernel in network.kernels
        if kernel.choice.row is not None and not outcome.moves_in_float(kernel)
    }


def _explaining(work: Callable[[Graph, Concession], Found], graph: Graph) -> Found:
    """Do what constraints may forbid; a conflict names the least facts that make it."""
    try:
        return work(graph, Concession())
    except Conflict as conflict:
        raise explained(conflict, graph, work) from None


def _conceding(
    work: Callable[[Graph, Target, Request, Concession], Found],
    graph: Graph,
    target: Target,
    request: Request,
) -> tuple[Found, list[str]]:
    """Do what constraints may forbid, giving up what stands in the way, one conflict after the other."""
    given, notes = Concession(), list[str]()
    while True:
        try:
            return work(given.graph(graph), given.target(target), request, given), notes
        except Conflict as conflict:
            more = conflict.concession
            if not isinstance(more, Concession) or given | more == given:
                raise
            given |= more
            notes.append(f"{conflict.message}: {more}")


def _planned(graph: Graph, target: Target, request: Request, given: Concession) -> Planned:
    """The plan, made again without the rows of kernels that a format cannot write by them."""
    remedies = Remedies()
    while True:
        outcome = _decided(graph, target, request, given, remedies)
        plan = assemble(outcome)
        refused = {} if request.unwritten is None else request.unwritten(plan)
        if not refused:
            return plan
        graph = outcome.network.graph
        remedies = outcome.remedies | Remedies(rows_left(plan, refused))


def _decided(
    graph: Graph,
    target: Target,
    request: Request,
    given: Concession,
    remedies: Remedies = NO_REMEDIES,
) -> Outcome:
    """From facts to typed ports, tried again with every remedy that a try asks for.

    Args:
      remedies: to begin with.

    Raises:
      Conflict, RuleError: constraints that cannot all hold.
    """
    refuse_contradictions(graph)
    while True:
        choosing = with_wanted_db(target, request.costs)
        graph, choices, remedies = served(graph, choosing, remedies, given.floats, fuses=request.fuses)
        settled, remedies = with_trained_grids(graph, choosing, remedies)
        if settled is not graph:
            graph = settled
            continue
        refuse_unmet(graph, choices, target, settled=False)
        refuse_floats(choices, target)
        choices = [in_float(c, GIVEN_UP) if c.row and c.region.name in given.floats else c for c in choices]
        try:
            outcome = decide(graph, target, choices, request, remedies)
            more = unfit(outcome, remedies)
        except Inapplicable as error:
            more = error.remedy
        if not more:
            refuse_unmet(graph, outcome.choices, target)
            return outcome
        # Before a kernel that left its rows is taken apart: it may have done so for a weight's sake.
        graph, remedies = with_trained_grids(graph, choosing, remedies | more)


def decide(
    graph: Graph, target: Target, choices: list[Choice], request: Request, remedies: Remedies
) -> Outcome:
    """From chosen rows to typed ports.

    Rows without a range, and movers between floats, run in float; as that can take the range or the integer
    neighbour from another kernel, the network is built again. Kernels only ever turn to float, so this ends.
    Rows with float results are chosen last, when all that runs in float is known, and then signs. A table
    that scales leave in float all the same, as one of its consumers stores it anew, is looked at once more.

    Args:
      choices: of all live kernels, in topological order.
      remedies: what grew so far.

    Raises:
      Conflict, RuleError: constraints that cannot all hold.
    """
    choices = demote(graph, choices, out_of_reach(graph, choices))
    choices, network = _ranged(choices, _network(graph, target, choices, request), request)
    if floats := read_in_float(network, unranged=True):
        choices, network = _unranged_handed_on(choices, network, request, floats, remedies)
    if target.islands == "float" and (islands := integer_islands(network)):
        choices = afloat(choices, islands, ISLAND)
        network = _network(graph, target, choices, request, network.visits)
        forward(network)
    if islands := float_islands(network):
        choices = afloat(choices, islands, BETWEEN_FLOATS)
        network = _network(graph, target, choices, request, network.visits)
        forward(network)
    backward(network)
    while infinite := unbounded(network):
        choices = demote(graph, choices, infinite)
        network = _network(graph, target, choices, request, network.visits)
        forward(network)
        backward(network)
    if floats := read_in_float(network):
        choosing = with_wanted_db(target, request.costs)
        choices = hand_on_floats(graph, choices, choosing, floats, remedies.left)
        network = _network(graph, target, choices, request, network.visits)
        forward(network)
        backward(network)
    outcome = _labelled(choices, network, request, remedies)
    if tables := _tables_in_float(outcome):
        choosing = with_wanted_db(target, request.costs)
        choices = hand_on_floats(graph, outcome.choices, choosing, tables, remedies.left)
        network = _network(graph, target, choices, request, outcome.network.visits)
        forward(network)
        backward(network)
        outcome = _labelled(choices, network, request, remedies)
    return replace(outcome, derived=_derived(outcome))


def _labelled(choices: list[Choice], network: Network, request: Request, remedies: Remedies) -> Outcome:
    """Choose signs, then scales."""
    graph, target = network.graph, network.target
    signed, turns = with_few_signs(graph, choices, with_wanted_db(target, request.costs), remedies.left)
    if signed is not choices:
        choices = signed
        network = _network(graph, target, choices, request, network.visits)
        forward(network)
        backward(network)
    network.turns = turns
    grow(network, remedies.grown)
    settle_plain(network)
    classes = build_classes(network, _depths(network, request.depths), request.costs.max_clip)
    cost_model = CostModel(request.costs, target.rescale_single_consumer, target.rescale_allowed)
    labelled = label_all(network, classes, cost_model, request.strategy)
    return Outcome(choices, network, labelled, {}, request, remedies)


def _tables_in_float(outcome: Outcome) -> set[str]:
    """Names of the kernels that would move a table in float, beside a consumer that stores it anew."""
    floats = (kernel for kernel in outcome.network.kernels if outcome.moves_in_float(kernel))
    return {kernel.choice.region.name for kernel in floats if may_read_table(outcome.network, kernel)}


def _ranged(choices: list[Choice], network: Network, request: Request) -> tuple[list[Choice], Network]:
    """The choices with kernels in float that have a port without a range, and their network with ranges."""
    while rangeless := forward(network):
        choices = demote(network.graph, choices, rangeless)
        network = _network(network.graph, network.target, choices, request, network.visits)
    return choices, network


def _unranged_handed_on(
    choices: list[Choice], network: Network, request: Request, floats: set[str], remedies: Remedies
) -> tuple[list[Choice], Network]:
    """The same with rows for kernels whose results alone lack a range: those that are handed on need none.

    Args:
      floats: names of the kernels in float for want of a range whose results nothing stores.
    """
    graph, target = network.graph, network.target
    choosing = with_wanted_db(target, request.costs)
    choices = hand_on_floats(graph, choices, choosing, floats, remedies.left)
    choices, network = _ranged(choices, _network(graph, target, choices, request, network.visits), request)
    # One of them may read, and so store, what another hands on.
    kept = read_in_float(network)
    gone = [i for i, one in enumerate(choices) if one.row and one.region.name in floats - kept]
    choices = demote(graph, choices, gone)
    return _ranged(choices, _network(graph, target, choices, request, network.visits), request)


def _network(
    graph: Graph, target: Target, choices: Sequence[Choice], request: Request, visits: int = 0
) -> Network:
    network = build_network(graph, choices, target, target.files.to_write(request.formats))
    network.visits = visits + len(choices)
    network.derives_bias = request.bias_pins == "derive"
    network.costs = request.costs
    give_slices(network)
    return network


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


def _derived(outcome: Outcome) -> dict[int, Sequence[PortId]]:
    """Type constants and derived ports by the labels; return the derived ports by kernel."""
    network = outcome.network
    found: dict[int, Sequence[PortId]] = {}
    for number, kernel in enumerate(network.kernels):
        if outcome.moves_in_float(kernel):
            continue
        if outcome.request.progress is not None:
            outcome.request.progress(number + 1, len(network.kernels))
        ports = come_to_rest(network, kernel)
        refuse_disagreement(network, kernel)
        if ports:
            found[number] = ports
    return found


def _with_costs(own: Costs, given: Mapping[str, float | None]) -> Costs:
    if not given:
        return own
    known = {field.name for field in fields(Costs)}
    for name, price in given.items():
        if name not in known:
            raise unknown_name("cost", name, known)
        if price is None and name in UNLIMITED:
            continue
        if name == "wanted_float" and price not in (0, 1):
            raise InputError(f"cost {name} is {price!r}; accepted: true or false, or 1 or 0")
        if not isinstance(price, int | float) or not 0 <= price <= GREATEST_PRICE:
            raise InputError(f"cost {name} is {price!r}; accepted: a number of 0 to {GREATEST_PRICE:g}")
    switched = {"wanted_float": bool(given["wanted_float"])} if "wanted_float" in given else {}
    return replace(own, **{**given, **switched})  # type: ignore[arg-type]


__all__ = ["BiasPins", "Strategy", "Unwritten", "operand_types", "propagate"]
