"""Plan builder: the plan of what was decided, its records kernel by kernel. Nothing is searched.

Source: docs/specification.md, section 6.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.errors import Conflict
from planner.ir.graph import BOUNDARY, Constant, port_address
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import FloatType, Uniform
from planner.plans.plan import Plan, Planned, plan_key
from planner.plans.records import BETWEEN_FLOATS, KernelPlan, PortTyped, Rescale, TargetRef, ValuePlan
from planner.plans.records import Port as PlanPort
from planner.propagation.network.ports import Kernel, Port, Value
from planner.propagation.parameters.accumulators import accumulator_bits
from planner.propagation.parameters.typed import Typed
from planner.propagation.result.plan_warnings import clip_of, refused_copies, warnings_of, warnings_of_all
from planner.propagation.result.step_log import Steps
from planner.propagation.result.unmet import refuse_other_types
from planner.propagation.selection.choice import port_facts
from planner.propagation.selection.conflicts import Concession, refuse
from planner.propagation.selection.wanted_rows import ANNOTATED
from planner.propagation.solver.price import excused_price, loss_units
from planner.target.ports.labels import UNIT
from planner.target.records import Costs, Row


def assemble(outcome: Typed) -> Planned:
    """Make the plan of a labelled network.

    Raises:
      Conflict: rescales where the target allows none.
    """
    network, target, request = outcome, outcome.target, outcome.chosen.request
    refuse(refused_copies(network))
    kernels, warned = _kernels(outcome)
    served = {kernel.row: choice.row for kernel, choice in zip(kernels, outcome.chosen.choices, strict=True)}
    rows = {key: row for key, row in served.items() if key is not None and row is not None}
    refuse_other_types(network.graph, kernels, rows)
    whole = warnings_of_all(network.graph, kernels, rows, outcome.chosen.request.costs, target)
    warned = ({"": whole} if whole else {}) | warned
    options = _options(outcome)
    steps = Steps(outcome)
    plan = Planned(
        key=plan_key(network.graph, request.model, target.digest, options),
        model=request.model,
        target=_reference(outcome, rows),
        options=options,
        graph=replace(network.graph, constants=dict.fromkeys(network.graph.constants, Constant())),
        kernels_in_order=tuple(kernels),
        values=_value_plans(outcome, steps.of_ports()),
        steps=steps,
        cost=outcome.labelled.cost / UNIT,
        excused=_excused(outcome) / UNIT,
        optimal=outcome.labelled.cost == outcome.labelled.bound,
        bound=outcome.labelled.bound / UNIT,
        warnings=tuple(text for texts in warned.values() for text in texts),
        annotated=network.graph,
        fused=network.graph,
        whole_target=target,
        warned=warned,
        apart=frozenset(outcome.chosen.remedies.apart),
        left=frozenset((*outcome.chosen.remedies.left, *outcome.chosen.remedies.let_go)),
        turns=outcome.turns,
        visits=network.visits + len(network.rounds) + len(network.kernels),
    )
    refuse(_forbidden(plan, outcome))
    return plan


def _kernels(outcome: Typed) -> tuple[list[KernelPlan], dict[str, tuple[str, ...]]]:
    """Every kernel, and what some of them have to say."""
    network = outcome
    found: list[KernelPlan] = []
    warned: dict[str, tuple[str, ...]] = {}
    for kernel in network.kernels:
        found.append(_kernel_plan(network, kernel, floats=outcome.moves_in_float(kernel)))
        texts = warnings_of(network, kernel, outcome.chosen.request.costs.max_clip)
        if texts:
            warned[kernel.choice.region.name] = tuple(texts)
    return found, warned


def _options(outcome: Typed) -> dict[str, Any]:
    """The strategy and policies, and the prices that are not the target's own."""
    own, request = outcome.target.costs, outcome.chosen.request
    changed: dict[str, Any] = {}
    if request.costs is not own:
        prices = {field.name: getattr(request.costs, field.name) for field in fields(Costs)}
        changed = {name: price for name, price in prices.items() if price != getattr(own, name)}
    policies: dict[str, Any] = {"best_effort": True} if request.best_effort else {}
    policies |= {"bias_pins": request.bias_pins} if request.bias_pins != "error" else {}
    policies |= {"formats": list(request.formats)} if request.formats else {}
    return {"strategy": request.strategy, **policies, **changed}


def _reference(outcome: Typed, rows: Mapping[str, Row]) -> TargetRef:
    target = outcome.target
    return TargetRef(
        target.id,
        target.version,
        target.digest,
        target.file,
        rows,
        outcome.chosen.request.costs,
        target.rescale_single_consumer,
        target.float_work,
        target.work_unit,
        target.engines,
        target.files,
        target.storages,
    )


def _kernel_plan(network: Typed, kernel: Kernel, *, floats: bool) -> KernelPlan:
    region, row, layout = kernel.choice.region, kernel.choice.row, kernel.choice.layout
    served = row is not None and not floats
    bits = None
    if served:
        bits, _ = accumulator_bits(network, kernel)
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
    network: Typed, name: str, side: str, ids: Sequence[int], *, served: bool
) -> tuple[PlanPort, ...]:
    found = []
    for i, p in enumerate(ids):
        kind: PortTyped = None
        if p >= 0 and served:
            port = network.ports[p]
            store = port.spec.storage
            kind = network.types[p]
            if kind is None and isinstance(store, FloatType) and store.name != "f32":
                kind = store
        elif p >= 0:
            kind = _float_asked_for(network, network.ports[p])
        value = network.values[network.ports[p].value].name if p >= 0 else ""
        found.append(PlanPort(port_address(name, side, i), value, kind))
    return tuple(found)


def _float_asked_for(network: Typed, port: Port) -> FloatType | None:
    """The float that a fact asks a float port to run in, where that is not the tensor's own."""
    region, value = network.kernels[port.kernel].choice.region, network.values[port.value]
    if not (value.stays_float or region.input_facts or region.output_facts):
        return None
    own = network.graph.values[value.name].dtype
    facts = port_facts(network.graph, region, *port.side)
    return next((fact for fact in facts if isinstance(fact, FloatType) and fact.name != own), None)


def _value_plans(outcome: Typed, steps: Sequence[int]) -> dict[str, ValuePlan]:
    """The outcome for each value; `steps`: number of the step of each port, -1 for none."""
    network = outcome
    lost = _lost(outcome)
    found = {}
    for value in network.values:
        if value.constant or not network.graph.values[value.name].is_float:
            continue
        made = value.definition
        kind = network.types[made] if made >= 0 else value.pin
        decided = steps[made] if kind is not None and made >= 0 else -1
        bits = lost.get(value.name, 0) / UNIT
        found[value.name] = ValuePlan(
            kind, bits, _worst_clip(network, value), decided if decided >= 0 else None
        )
    return found


def _lost(outcome: Typed) -> dict[str, int]:
    """Bits lost in the worst use of each value, in 1/1024."""
    labelled, values = outcome.labelled, outcome.values
    found: dict[str, int] = {}
    for index, bits, _ in outcome.labelled.lost:
        found[values[index].name] = max(bits, found.get(values[index].name, 0))
    for unit in labelled.units:
        labels = labelled.solutions[unit.classes[0]].labels
        known: dict[int, int] = {}
        for loss in unit.losses:
            name = values[loss.value].name
            found[name] = max(found.get(name, 0), loss_units(loss, unit.ways, labels, known))
    return found


def _excused(outcome: Typed) -> int:
    """Price of the bits that facts and rows force uses to lose, in 1/1024."""
    labelled, costs = outcome.labelled, outcome.chosen.request.costs
    free = round(costs.free_bits * UNIT)
    found = sum(
        round(elements * costs.bit_price * max(0, bits - free)) for _, bits, elements in outcome.labelled.lost
    )
    for unit in labelled.units:
        labels = labelled.solutions[unit.classes[0]].labels
        known: dict[int, int] = {}
        found += sum(
            excused_price(loss, loss_units(loss, unit.ways, labels, known), costs) for loss in unit.losses
        )
    return found


def _worst_clip(network: Typed, value: Value) -> float:
    """The largest share of what a port has to hold that its type cuts off."""
    held: dict[tuple[int, Interval], Uniform] = {}
    for p in (value.definition, *value.uses):
        extent = network.required[p] if p >= 0 else None
        kind = network.types[p] if p >= 0 else None
        if kind is not None and extent is not None:
            held[id(kind), extent] = kind
    return max([clip_of(extent, kind) for (_, extent), kind in held.items()]) if held else 0.0


def _forbidden(plan: Plan, outcome: Typed) -> Iterator[Conflict]:
    """The rescales that the target does not allow."""
    target = outcome.target
    if target.rescale_allowed:
        return
    together = _labelled_together(outcome)
    for rescale in plan.rescales:
        at_edge = (rescale.value in plan.graph.inputs and rescale.from_type is None) or all(
            kernel == BOUNDARY for kernel, _ in rescale.consumers
        )
        if not at_edge:
            yield Conflict(
                f"{rescale.value!r} would need a {rescale.kind} before {rescale.consumers[0][0]!r}, "
                f"and {target.id} allows none between kernels",
                facts=(
                    f"value {rescale.value!r}",
                    *_rows_around(plan, rescale),
                    f"{target.file}: rescale: allowed: false",
                ),
                concession=Concession(casts=True),
                about=rescale.value,
                within=together.get(rescale.value, frozenset()),
            )


def _labelled_together(outcome: Typed) -> Mapping[str, frozenset[str]]:
    """For each value that has a label to agree on, those of its component."""
    values, found = outcome.values, dict[str, frozenset[str]]()
    for component in (component for unit in outcome.labelled.units for component in unit.components):
        names = frozenset(values[edge.value].name for edge in component.edges)
        # A value that stays float is cast on both sides, and has a part in two components.
        found |= {name: names | found[name] if name in found else names for name in names}
    return found


def _rows_around(plan: Plan, rescale: Rescale) -> list[str]:
    """The kernels whose rows want the two ends of a rescale, where no fact does."""
    names = [kernel.name for kernel in plan.kernels_in_order if rescale.value in _results(kernel)]
    names += [name for name, _ in rescale.consumers[:1] if name != BOUNDARY]
    rows = [(name, plan.row_of(name)) for name in names]
    asked = [name for name, row in rows if row is None and plan.kernels[name].reason == ANNOTATED]
    return [
        f"kernel {name!r}: {row.source if row else ANNOTATED if name in asked else 'no row'}"
        for name, row in rows
    ]


def _results(kernel: KernelPlan) -> list[str]:
    return [port.value for port in kernel.outputs]
