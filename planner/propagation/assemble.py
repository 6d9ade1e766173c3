"""Assembling: the plan of a labelled network, its records kernel by kernel.

Types of constants and derived ports follow the labels here, and the log is written. Nothing is searched.
Source: design 01, section 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from planner.errors import Conflict
from planner.ir.graph import BOUNDARY, Constant, port_address
from planner.ir.qtypes import FloatType
from planner.plans.plan import Origin, Plan, plan_key
from planner.plans.records import KernelPlan, PortTyped, Rescale, TargetRef, ValuePlan
from planner.plans.records import Port as PlanPort
from planner.propagation.components import Unit
from planner.propagation.concessions import Concession
from planner.propagation.findings import clip_of, warnings_of
from planner.propagation.islands import BETWEEN_FLOATS
from planner.propagation.labels import UNIT, LabelClass
from planner.propagation.log import Log, kernel_steps
from planner.propagation.network import Kernel, Network, Port, Value
from planner.propagation.parameters import accumulator_bits, derive_parameters
from planner.propagation.price import loss_units
from planner.propagation.rows import port_facts
from planner.propagation.solve import Solution
from planner.target.records import Costs, Row, Target

Strategy = Literal["minimal", "rfc"]
BiasPins = Literal["error", "derive"]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for besides graph and target."""

    strategy: Strategy
    costs: Costs
    model: str
    best_effort: bool
    bias_pins: BiasPins
    depths: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label for every class: units with the solution of each class's unit; cost and bound in 1/1024."""

    units: list[Unit]
    solutions: dict[int, Solution]
    cost: int
    bound: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A labelled network, and what was asked for."""

    network: Network
    classes: list[LabelClass]
    labelled: Labelled
    request: Request


def assemble(outcome: Outcome) -> Plan:
    """Make the plan of a labelled network.

    Raises:
      Conflict: sums beyond their accumulator, rescales where the target allows none.
      RuleError: a rule that cannot be applied.
    """
    network, target = outcome.network, outcome.network.target
    network.visits += len(network.kernels)
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
        origin=Origin(network.graph, network.graph, target, warned, network.visits),
    )
    _check_allowed(plan, target)
    return plan


def _options(outcome: Outcome) -> dict[str, Any]:
    """The strategy and policies, and the prices that are not the target's own."""
    own, request = outcome.network.target.costs, outcome.request
    prices = {field.name: getattr(request.costs, field.name) for field in fields(Costs)}
    changed = {name: price for name, price in prices.items() if price != getattr(own, name)}
    policies: dict[str, Any] = {"best_effort": True} if request.best_effort else {}
    policies |= {"bias_pins": request.bias_pins} if request.bias_pins != "error" else {}
    return {"strategy": request.strategy, **policies, **changed}


def _reference(outcome: Outcome, rows: Mapping[str, Row]) -> TargetRef:
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


def _moves_in_float(outcome: Outcome, kernel: Kernel) -> bool:
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


def _value_plans(outcome: Outcome, log: Log) -> dict[str, ValuePlan]:
    network, labelled = outcome.network, outcome.labelled
    lost = dict(network.lost)
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
