"""Propagation: decide a uniform type (or float) for every port, and record why.

In: a Graph with regions, a Target. Out: a Plan. Nothing here reads YAML or ONNX. `decide` decides; here are
the requests, the concessions where constraints cannot all hold, and the plan that results.
Source: MLIR quantization RFC, "Propagation pass"; docs/specification.md, sections 3 to 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final, TypeVar

from planner.errors import Conflict, InputError, require_name, unknown_name
from planner.ir.graph import Graph
from planner.plans.plan import Planned
from planner.plans.records import PortTyped
from planner.propagation.decide import decide
from planner.propagation.network.ports import present
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.chosen import BiasPins, Request, Strategy, Unwritten
from planner.propagation.selection.conflicts import Concession, explained
from planner.propagation.selection.remedies import Remedies, rows_left
from planner.target.records import UNLIMITED, Costs, Target

Found = TypeVar("Found")
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
      bias_pins: what to do about a bias whose fixed scale is not the product of its factors':
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

    If constraints cannot all hold, the types are those of a best-effort plan: refusing is up to the caller
    that makes a plan of it.

    Args:
      graph: with regions.
      fuses: as for `propagate`.

    Returns:
      The graph with the kernels that it would be planned with, and the types.
    """
    request = Request(
        "minimal", target.costs, "", best_effort=True, bias_pins="error", depths={}, fuses=fuses
    )
    network, _ = _conceding(decide, graph, target, request)
    return network.graph, {
        kernel.choice.region.name: {
            network.values[port.value].name: network.types[port.id]
            for port in present(network, kernel.inputs)
        }
        for kernel in network.kernels
        if kernel.choice.row is not None and not network.moves_in_float(kernel)
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
        outcome = decide(graph, target, request, given, remedies)
        plan = assemble(outcome)
        refused = {} if request.unwritten is None else request.unwritten(plan)
        if not refused:
            return plan
        graph = outcome.chosen.graph
        remedies = outcome.chosen.remedies | Remedies(rows_left(plan, refused))


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
