"""Propagation: decide a uniform type (or float) for every port, and record why.

In: a Graph with regions, a Target. Out: a Plan. Nothing here reads YAML or ONNX. Rows are chosen
first; what needs no search is settled column by column. Of the rest ranges flow forward and what uses keep
flows back, then each component of classes is labelled, and constants and derived ports follow.
Source: MLIR quantization RFC, "Propagation pass"; design 01, sections 3 to 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final, NamedTuple, TypeVar

from planner.errors import Conflict, InputError, require_name, unknown_name
from planner.ir.graph import Graph
from planner.ir.topology import running
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.propagation.columns import Columns, columns_of
from planner.propagation.network.build import build_network
from planner.propagation.network.float_islands import afloat, float_islands
from planner.propagation.network.per_axis import give_slices
from planner.propagation.network.ports import Network, present
from planner.propagation.network.presolve import settle_plain
from planner.propagation.network.value_ranges import backward, demote, forward, out_of_reach
from planner.propagation.parameters.constant_types import derive_parameters
from planner.propagation.parameters.multiplier_reach import TOO_FAR, too_far
from planner.propagation.result.outcome import BiasPins, Outcome, Request, Strategy
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.conflicts import Concession, explained
from planner.propagation.selection.rows import Choice, choose_rows, in_float, refuse_contradictions
from planner.propagation.settle import Settled, settle, settle_nothing
from planner.propagation.solver.classes import build_classes
from planner.propagation.solver.labelling import label_all
from planner.propagation.solver.price import CostModel
from planner.target.records import Costs, PortId, Target

Found = TypeVar("Found")
Settler = Callable[[Columns, Sequence[Choice], Graph, Target, Costs | None], Settled]
GIVEN_UP: Final = "what it needs cannot all hold"
GREATEST_PRICE: Final = 1e9
# With fewer kernels than this whose row names what it stores, which movers' do not, planning is sooner done
# port by port than in columns; the plan is the same.
FEW: Final = 20


def propagate(
    graph: Graph,
    target: Target,
    *,
    strategy: Strategy = "minimal",
    model: str = "",
    best_effort: bool = False,
    bias_pins: BiasPins = "error",
    depths: Mapping[str, int] | None = None,
    **costs: float | None,
) -> Plan:
    """Plan a fused graph for a target.

    Args:
      graph: with regions (see `fuse`); its values carry the facts.
      strategy: `minimal` (least price) or `rfc` (the RFC's greedy order).
      model: digest of the model the graph came from, kept in the plan.
      best_effort: where constraints cannot all hold, give some up, and warn, instead of raising.
      bias_pins: what to do about a bias whose pinned scale is not the product of its factors':
        `error`, or `derive` it anew.
      depths: of kernels by name (`Plan.depths`), where the graph is a part of a bigger one.
      costs: keys of the target's cost tables, over its own.

    Raises:
      Conflict: constraints that cannot all hold.
      UnknownName: no such strategy or cost.
      InputError: a cost that is no number of at least 0.
    """
    require_name("strategy", strategy, ("minimal", "rfc"))
    require_name("policy of bias_pins", bias_pins, ("error", "derive"))
    prices = _with_costs(target.costs, costs)
    request = Request(strategy, prices, model, best_effort, bias_pins, depths or {})
    if best_effort:
        plan, notes = _conceding(_planned, graph, target, request)
        return replace(plan, warnings=(*notes, *plan.warnings))
    return _explaining(lambda one: _planned(one, target, request, Concession()), graph)


def operand_types(graph: Graph, target: Target) -> dict[str, dict[str, PortTyped]]:
    """Types at the inputs of kernels that run as integers: value to type, by kernel; no plan is made of it.

    Settled kernels are not among them: those have no constants whose numbers are known. Where constraints
    cannot all hold the types are those of a best-effort plan: to refuse is for whoever makes a plan of it.
    """
    request = Request("minimal", target.costs, "", best_effort=True, bias_pins="error", depths={})
    outcome, _ = _conceding(_decided, graph, target, request)
    network = outcome.network
    return {
        kernel.choice.region.name: {
            network.values[port.value].name: port.type for port in present(network, kernel.inputs)
        }
        for kernel in network.kernels
        if kernel.choice.row is not None and not outcome.moves_in_float(kernel)
    }


def _explaining(work: Callable[[Graph], Found], graph: Graph) -> Found:
    """Do what constraints may forbid; a conflict names the least facts that make it."""
    try:
        return work(graph)
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


def _planned(graph: Graph, target: Target, request: Request, given: Concession) -> Plan:
    return assemble(_decided(graph, target, request, given))


def _decided(graph: Graph, target: Target, request: Request, given: Concession) -> Outcome:
    refuse_contradictions(graph)
    choices = choose_rows(graph, running(graph), target)
    choices = [in_float(c, GIVEN_UP) if c.row and c.region.name in given.floats else c for c in choices]
    storing = [choice for choice in choices if choice.layout is not None and not choice.layout.wild]
    settler = settle if len(storing) >= FEW else settle_nothing
    return decide(graph, target, choices, request, settler)


def decide(
    graph: Graph, target: Target, choices: list[Choice], request: Request, settler: Settler = settle
) -> Outcome:
    """From chosen rows to typed ports.

    Args:
      choices: of all live kernels, in topological order.
      settler: what is settled before there is a network.

    Raises:
      Conflict, RuleError: constraints that cannot all hold.
    """
    columns = columns_of(graph, [choice.region for choice in choices])
    task = _Task(graph, target, request, columns, settler)
    choices = demote(choices, out_of_reach(graph, choices))
    survey = _surveyed(task, choices)
    while rangeless := forward(survey.network):
        choices = demote(choices, [survey.settled.open[i] for i in rangeless])
        survey = _surveyed(task, choices, survey.network.visits)
    if islands := float_islands(survey.network):
        choices = afloat(choices, {survey.settled.open[i] for i in islands})
        survey = _surveyed(task, choices, survey.network.visits)
        forward(survey.network)
    settled, network = survey
    backward(network)
    settle_plain(network)
    classes = build_classes(network, _depths(columns, network, settled, request.depths))
    cost_model = CostModel(request.costs, target.rescale_single_consumer, target.rescale_allowed)
    labelled = label_all(network, classes, cost_model, request.strategy)
    casts = settled.price(cost_model)
    labelled = replace(labelled, cost=labelled.cost + casts, bound=labelled.bound + casts)
    outcome = Outcome(columns, choices, settled, network, classes, labelled, {}, request)
    outcome = replace(outcome, derived=_derived(outcome))
    if far := set(too_far(outcome)):
        choices = [in_float(choice, TOO_FAR) if i in far else choice for i, choice in enumerate(choices)]
        return decide(graph, target, choices, request, settler)
    return outcome


class _Task(NamedTuple):
    graph: Graph
    target: Target
    request: Request
    columns: Columns
    settler: Settler


class _Survey(NamedTuple):
    """What needs no search, and the network of the rest."""

    settled: Settled
    network: Network


def _surveyed(task: _Task, choices: Sequence[Choice], visits: int = 0) -> _Survey:
    costs = task.request.costs if task.request.strategy == "minimal" else None
    settled = task.settler(task.columns, choices, task.graph, task.target, costs)
    opened = [choices[k] for k in settled.open]
    columns = task.columns
    network = build_network(
        task.graph, opened, task.target, settled.by_name(columns), settled.ranges(columns)
    )
    network.visits = visits + len(choices)
    network.derives_bias = task.request.bias_pins == "derive"
    give_slices(network)
    return _Survey(settled, network)


def _depths(columns: Columns, network: Network, settled: Settled, given: Mapping[str, int]) -> Sequence[int]:
    """Of the network's kernels; in a part of a model whose inputs lie farther away they are given."""
    depths = columns.depths() if settled.open else []
    names = [kernel.choice.region.name for kernel in network.kernels]
    return [given.get(name, depths[k]) for name, k in zip(names, settled.open, strict=True)]


def _derived(outcome: Outcome) -> dict[int, Sequence[PortId]]:
    """Type constants and derived ports by the labels; return the derived ports by kernel."""
    network = outcome.network
    found: dict[int, Sequence[PortId]] = {}
    for number, kernel in enumerate(network.kernels):
        ports = () if outcome.moves_in_float(kernel) else derive_parameters(network, kernel)
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
        if price is None and name == "max_bits_lost":
            continue
        if not isinstance(price, int | float) or not 0 <= price <= GREATEST_PRICE:
            raise InputError(f"cost {name} is {price!r}; accepted: a number of 0 to {GREATEST_PRICE:g}")
    return replace(own, **given)  # type: ignore[arg-type]


__all__ = ["BiasPins", "Strategy", "operand_types", "propagate"]
