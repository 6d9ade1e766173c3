"""Propagation: decide a uniform type (or float) for every port, and record why.

In: a Graph with regions, a Target. Out: a Plan. Nothing here reads YAML or ONNX. Rows are chosen
first, then ranges flow forward and what uses keep flows back, then each component of classes is
labelled, and constants and derived ports follow. Source: MLIR quantization RFC, "Propagation pass";
design 01, sections 3 to 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from planner.errors import Conflict, InputError, unknown_name
from planner.ir.graph import BOUNDARY, Constant, Graph, port_address
from planner.ir.qtypes import FloatType, Storage
from planner.ir.topology import live, topological
from planner.plans.plan import Origin, Plan, plan_key
from planner.plans.records import KernelPlan, PortTyped, Rescale, TargetRef, ValuePlan
from planner.plans.records import Port as PlanPort
from planner.propagation.components import Unit, components_of, settle_losses, units_of
from planner.propagation.concessions import Concession, explained
from planner.propagation.derived import derive_again, guess_derived
from planner.propagation.extents import backward, demote, forward
from planner.propagation.findings import clip_of, warnings_of
from planner.propagation.given import give_slices
from planner.propagation.greedy import greedy
from planner.propagation.islands import BETWEEN_FLOATS, afloat, float_islands
from planner.propagation.labels import UNIT, LabelClass, build_classes, label_of, typed
from planner.propagation.log import Log, kernel_steps
from planner.propagation.network import Kernel, Network, Port, Value, build_network
from planner.propagation.offers import offer_labels
from planner.propagation.parameters import accumulator_bits, derive_parameters
from planner.propagation.plain import settle_plain
from planner.propagation.price import Market, edge_price, loss_units, price_of_labels
from planner.propagation.rows import Choice, choose_rows, in_float, port_facts, refuse_contradictions
from planner.propagation.solve import Solution, solve, unavoidable_casts
from planner.target.records import Costs, Row, Target

Strategy = Literal["minimal", "rfc"]
BiasPins = Literal["error", "derive"]
GIVEN_UP: Final = "what it needs cannot all hold"
DERIVED_ROUNDS: Final = 4
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
    if strategy not in ("minimal", "rfc"):
        raise unknown_name("strategy", strategy, ("minimal", "rfc"))
    if bias_pins not in ("error", "derive"):
        raise unknown_name("policy of bias_pins", bias_pins, ("error", "derive"))
    prices = _with_costs(target.costs, costs)
    request = _Request(strategy, prices, model, best_effort, bias_pins, depths or {})
    if best_effort:
        return _conceding(graph, target, request)
    try:
        return _planned(graph, target, request, Concession())
    except Conflict as conflict:
        raise explained(
            conflict, graph, lambda other: _planned(other, target, request, Concession())
        ) from None


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked for besides graph and target."""

    strategy: Strategy
    costs: Costs
    model: str
    best_effort: bool
    bias_pins: BiasPins
    depths: Mapping[str, int]


def _conceding(graph: Graph, target: Target, request: _Request) -> Plan:
    """Plan, giving up what stands in the way, one conflict after the other."""
    given, notes = Concession(), list[str]()
    while True:
        try:
            plan = _planned(given.graph(graph), given.target(target), request, given)
        except Conflict as conflict:
            more = conflict.concession
            if not isinstance(more, Concession) or given | more == given:
                raise
            given |= more
            notes.append(f"{conflict.message}: {more}")
        else:
            return replace(plan, warnings=(*notes, *plan.warnings))


def _planned(graph: Graph, target: Target, request: _Request, given: Concession) -> Plan:
    refuse_contradictions(graph)
    alive = live(graph)
    regions = topological([region for region in graph.regions if region.name in alive])
    choices = choose_rows(graph, regions, target)
    choices = [in_float(c, GIVEN_UP) if c.row and c.region.name in given.floats else c for c in choices]
    network = _network(graph, choices, target, request)
    while rangeless := forward(network):
        choices = demote(choices, rangeless)
        network = _network(graph, choices, target, request)
    if islands := float_islands(network):
        network = _network(graph, afloat(choices, islands), target, request)
        forward(network)
    backward(network)
    settle_plain(network)
    classes = build_classes(network, request.depths)
    market = Market(request.costs, target.rescale_single_consumer, target.rescale_allowed)
    labelled = _settled(network, classes, market, request.strategy)
    return _assemble(_Outcome(network, classes, labelled, request))


def _network(graph: Graph, choices: Sequence[Choice], target: Target, request: _Request) -> Network:
    network = build_network(graph, choices, target)
    network.derives_bias = request.bias_pins == "derive"
    give_slices(network)
    return network


@dataclass(frozen=True, slots=True)
class _Labelled:
    units: list[Unit]
    solutions: dict[int, Solution]
    cost: int
    bound: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    network: Network
    classes: list[LabelClass]
    labelled: _Labelled
    request: _Request


def _with_costs(own: Costs, given: Mapping[str, float | None]) -> Costs:
    known = {field.name for field in fields(Costs)}
    for name, price in given.items():
        if name not in known:
            raise unknown_name("cost", name, known)
        if price is None and name == "max_bits_lost":
            continue
        if not isinstance(price, int | float) or not 0 <= price <= GREATEST_PRICE:
            raise InputError(f"cost {name} is {price!r}; accepted: a number of 0 to {GREATEST_PRICE:g}")
    return replace(own, **given)  # type: ignore[arg-type]


def _settled(network: Network, classes: list[LabelClass], market: Market, strategy: str) -> _Labelled:
    """Label, derive, and label again while a rule yields another type than it was labelled with."""
    guess_derived(network, classes)
    labelled = _label(network, classes, market, strategy)
    _write_types(classes, labelled.solutions)
    for _ in range(DERIVED_ROUNDS):
        if not derive_again(network, classes):
            return labelled
        labelled = _label(network, classes, market, strategy)
        _write_types(classes, labelled.solutions)
    if derive_again(network, classes):
        labelled = _repriced(labelled, classes, market)
    _write_types(classes, labelled.solutions)
    return labelled


def _repriced(labelled: _Labelled, classes: list[LabelClass], market: Market) -> _Labelled:
    """The same labelling at the types that rules yield now."""
    cost, bound, solutions = labelled.cost, labelled.bound, dict(labelled.solutions)
    for unit in labelled.units:
        old = labelled.solutions[unit.classes[0]]
        fixed = {c: label_of(kind) for c in unit.classes if (kind := classes[c].fixed) is not None}
        labels = {**old.labels, **fixed}
        price = price_of_labels(unit, labels, market)[0]
        floor = min(old.bound, price, unavoidable_casts(unit.edges, classes, market))
        solutions |= dict.fromkeys(unit.classes, Solution(labels, price, floor, old.refused))
        cost, bound = cost + price - old.price, bound + floor - old.bound
    return _Labelled(labelled.units, solutions, cost, bound)


def _label(network: Network, classes: list[LabelClass], market: Market, strategy: str) -> _Labelled:
    components, loose = components_of(network, classes)
    for component in components:
        offer_labels(component, classes, network, market.costs.max_clip)
    units = units_of(network, components, len(classes))
    greedily = greedy(network, classes) if strategy == "rfc" else {}
    solutions: dict[int, Solution] = {}
    cost = bound = sum(edge_price(edge, {}, market)[0] for edge in loose)
    for unit in units:
        settle_losses(unit, classes, market.costs.max_bits_lost)
        if strategy == "rfc":
            mine = {c: greedily[c] for c in unit.classes}
            price = price_of_labels(unit, mine, market)[0]
            solution = Solution(mine, price, min(price, unavoidable_casts(unit.edges, classes, market)))
        else:
            solution = solve(unit, classes, market)
        if any(classes[c].fixed_source == "derived" for c in unit.classes):
            # The derived types follow labels of other units, so the least here proves nothing.
            floor = min(solution.bound, unavoidable_casts(unit.edges, classes, market))
            solution = replace(solution, bound=floor)
        cost += solution.price
        bound += solution.bound
        solutions |= dict.fromkeys(unit.classes, solution)
    return _Labelled(units, solutions, cost, bound)


def _write_types(classes: Sequence[LabelClass], solutions: Mapping[int, Solution]) -> None:
    for entry in classes:
        label = solutions[entry.id].labels[entry.id]
        for port in entry.ports:
            store = port.spec.storage
            if label is None or not isinstance(store, Storage):
                continue
            port.type = port.fixed or port.pin or typed(label, store)


def _assemble(outcome: _Outcome) -> Plan:
    network, target = outcome.network, outcome.network.target
    log = Log(network)
    log.facts()
    kernels: list[KernelPlan] = []
    rows: dict[str, Row] = {}
    warned: dict[str, tuple[str, ...]] = {}
    for kernel in network.kernels:
        floats = kernel.moves and _moves_in_float(outcome, kernel)
        derived = [] if floats else derive_parameters(network, kernel)
        kernel_steps(log, kernel, derived, outcome.classes, outcome.labelled.solutions)
        planned = _kernel_plan(network, kernel, floats=floats)
        kernels.append(planned)
        row = kernel.choice.row
        if planned.row is not None and row is not None:
            rows[planned.row] = row
        found = warnings_of(network, kernel)
        if found:
            warned[planned.name] = tuple(found)
    options, reference = _options(outcome), _reference(outcome, rows)
    plan = Plan(
        key=plan_key(network.graph, outcome.request.model, target.digest, options),
        model=outcome.request.model,
        target=reference,
        options=options,
        graph=replace(network.graph, constants=dict.fromkeys(network.graph.constants, Constant())),
        kernels_in_order=tuple(kernels),
        values=_value_plans(outcome, log),
        steps=tuple(log.steps),
        cost=outcome.labelled.cost / UNIT,
        optimal=outcome.labelled.cost == outcome.labelled.bound,
        bound=outcome.labelled.bound / UNIT,
        warnings=tuple(text for texts in warned.values() for text in texts),
        origin=Origin(network.graph, network.graph, target, warned),
    )
    _check_allowed(plan, target)
    return plan


def _options(outcome: _Outcome) -> dict[str, Any]:
    """The strategy and policies, and the prices that are not the target's own."""
    own, request = outcome.network.target.costs, outcome.request
    prices = {field.name: getattr(request.costs, field.name) for field in fields(Costs)}
    changed = {name: price for name, price in prices.items() if price != getattr(own, name)}
    policies: dict[str, Any] = {"best_effort": True} if request.best_effort else {}
    policies |= {"bias_pins": request.bias_pins} if request.bias_pins != "error" else {}
    return {"strategy": request.strategy, **policies, **changed}


def _reference(outcome: _Outcome, rows: Mapping[str, Row]) -> TargetRef:
    target = outcome.network.target
    return TargetRef(
        target.id,
        target.version,
        target.digest,
        target.file,
        rows,
        outcome.request.costs,
        target.rescale_single_consumer,
    )


def _moves_in_float(outcome: _Outcome, kernel: Kernel) -> bool:
    """Whether a mover's class took the float label, so that the kernel runs in float after all."""
    ports = outcome.network.ports
    return any(
        outcome.labelled.solutions[ports[p].group].labels[ports[p].group] is None
        for p in (*kernel.inputs, *kernel.outputs)
        if p >= 0 and ports[p].group >= 0
    )


def _kernel_plan(network: Network, kernel: Kernel, *, floats: bool) -> KernelPlan:
    region, row, layout = kernel.choice.region, kernel.choice.row, kernel.choice.layout
    served = row is not None and not floats
    bits = None
    if served and row is not None:
        bits, channel = accumulator_bits(network, kernel)
        if bits is not None and row.accumulator is not None and bits > row.accumulator.bits:
            raise Conflict(
                f"{region.name!r} sums to {bits} bits in channel {channel}, "
                f"the accumulator of {row.source} has {row.accumulator}",
                facts=(
                    f"accumulator {row.accumulator} at {row.source}",
                    f"weights of {region.name!r}",
                ),
                hint="use narrower activations or a row with a wider accumulator",
                concession=Concession(floats=(region.name,)),
            )
    reason = None if served else (BETWEEN_FLOATS if floats else kernel.choice.reason)
    return KernelPlan(
        name=region.name,
        kernel=region.kernel,
        row=layout.key if served and layout is not None else None,
        reason=reason,
        inputs=_plan_ports(network, region.name, "in", kernel.inputs, served=served),
        outputs=_plan_ports(network, region.name, "out", kernel.outputs, served=served),
        accumulator_bits=bits,
        trip_count=region.trip_count,
    )


def _plan_ports(
    network: Network, name: str, side: str, ids: Sequence[int], *, served: bool
) -> tuple[PlanPort, ...]:
    found = []
    for i, p in enumerate(ids):
        kind: PortTyped = None
        if p >= 0 and served:
            port = network.ports[p]
            store = port.spec.storage
            kind = port.type
            if kind is None and isinstance(store, FloatType) and store.name != "f32":
                kind = store
        elif p >= 0:
            kind = _float_asked_for(network, network.ports[p])
        value = network.values[network.ports[p].value].name if p >= 0 else ""
        found.append(PlanPort(port_address(name, side, i), value, kind))
    return tuple(found)


def _float_asked_for(network: Network, port: Port) -> FloatType | None:
    """The float that a fact asks a float port to run in, where that is not the tensor's own."""
    region, value = network.kernels[port.kernel].choice.region, network.values[port.value]
    own = network.graph.values[value.name].dtype
    facts = port_facts(network.graph, region, *port.side)
    return next((fact for fact in facts if isinstance(fact, FloatType) and fact.name != own), None)


def _value_plans(outcome: _Outcome, log: Log) -> dict[str, ValuePlan]:
    network, labelled = outcome.network, outcome.labelled
    lost: dict[int, int] = {}
    for unit in labelled.units:
        labels = labelled.solutions[unit.classes[0]].labels
        for loss in unit.losses:
            lost[loss.value] = max(lost.get(loss.value, 0), loss_units(loss, labels))
    found = {}
    for index, value in enumerate(network.values):
        if value.constant or not network.graph.values[value.name].is_float:
            continue
        port: Port | None = network.ports[value.definition] if value.definition >= 0 else None
        kind = port.type if port is not None else value.pin
        found[value.name] = ValuePlan(
            type=kind,
            bits_lost=lost.get(index, 0) / UNIT,
            clip=_worst_clip(network, value),
            decided_by=log.port_step.get(value.definition) if kind is not None else None,
        )
    return found


def _worst_clip(network: Network, value: Value) -> float:
    """The largest share of what a port has to hold that its type cuts off."""
    ports = [network.ports[p] for p in (value.definition, *value.uses) if p >= 0]
    held = {(id(port.type), port.required): port.type for port in ports}
    clips = [clip_of(e, kind) for (_, e), kind in held.items() if kind is not None and e is not None]
    return max(clips, default=0.0)


def _check_allowed(plan: Plan, target: Target) -> None:
    if target.rescale_allowed:
        return
    for rescale in plan.rescales:
        at_edge = (rescale.value in plan.graph.inputs and rescale.from_type is None) or all(
            kernel == BOUNDARY for kernel, _ in rescale.consumers
        )
        if not at_edge:
            raise Conflict(
                f"{rescale.value!r} would need a {rescale.kind} before {rescale.consumers[0][0]!r}, "
                f"and {target.id} allows none between kernels",
                facts=(
                    f"value {rescale.value!r}",
                    *_rows_around(plan, rescale),
                    f"{target.file}: rescale: allowed: false",
                ),
                concession=Concession(casts=True),
                about=rescale.value,
            )


def _rows_around(plan: Plan, rescale: Rescale) -> list[str]:
    """The kernels whose rows want the two ends of a rescale, where no fact does."""
    names = [kernel.name for kernel in plan.kernels_in_order if rescale.value in _results(kernel)]
    names += [name for name, _ in rescale.consumers[:1] if name != BOUNDARY]
    rows = [(name, plan.row_of(name)) for name in names]
    return [f"kernel {name!r}: {row.source if row else 'no row'}" for name, row in rows]


def _results(kernel: KernelPlan) -> list[str]:
    return [port.value for port in kernel.outputs]


__all__ = ["BiasPins", "Strategy", "propagate"]
