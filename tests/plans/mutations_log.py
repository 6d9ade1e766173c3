"""Mutations of what a plan says besides its ports: values, steps, rescales, facts, the model's structure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.ir.graph import Graph, Op, Region
from planner.ir.types.qtypes import AnyType, NoneType, QType, Uniform, storage, uniform
from planner.plans.plan import Plan
from planner.plans.records import Rescale, Step, ValuePlan
from tests.plans.mutations import Mutant, Mutation, activation, weight
from tests.plans.planned import Case, ports_of

OTHER: Final = uniform(storage("i8"), 0.125, 3)


def defining(plan: Plan) -> dict[str, str]:
    """The output port that defines each value."""
    return {port.value: port.address for k in plan.kernels_in_order for port in k.outputs}


def values(change: Callable[[ValuePlan], ValuePlan | None]) -> Mutation:
    """Mutate what the plan lists of a value; None leaves it out."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for name, address in defining(case.plan).items():
            made = change(case.plan.values[name])
            listed = {key: item for key, item in case.plan.values.items() if key != name}
            listed |= {name: made} if made is not None else {}
            yield replace(case.plan, values=listed), case.model, case.target, (address,)

    return mutants


def extra_value(case: Case) -> Iterator[Mutant]:
    listed = {**case.plan.values, "nothing": ValuePlan(None)}
    yield replace(case.plan, values=listed), case.model, case.target, ("nothing",)


def typed_input(case: Case) -> Iterator[Mutant]:
    name = case.model.inputs[0]
    listed = {**case.plan.values, name: ValuePlan(OTHER)}
    yield replace(case.plan, values=listed), case.model, case.target, (name,)


def steps(change: Callable[[Step], Step | None], *, ports: bool = True) -> Mutation:
    """Mutate the steps of ports (or of kernels)."""

    def mutants(case: Case) -> Iterator[Mutant]:
        known = ports_of(case.plan) if ports else case.plan.kernels
        for i, step in enumerate(case.plan.steps):
            made = change(step)
            if step.port not in known or made == step or made is None:
                continue
            log = (*case.plan.steps[:i], made, *case.plan.steps[i + 1 :])
            yield replace(case.plan, steps=log), case.model, case.target, (step.port, made.port)

    return mutants


def told_facts(change: Callable[[Step], Step]) -> Mutation:
    """Mutate the steps of facts."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for i, step in enumerate(case.plan.steps):
            if step.source == "model" and not step.because:
                log = (*case.plan.steps[:i], change(step), *case.plan.steps[i + 1 :])
                yield replace(case.plan, steps=log), case.model, case.target, (step.port,)

    return mutants


def options(change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Mutation:
    def mutants(case: Case) -> Iterator[Mutant]:
        yield replace(case.plan, options=change(case.plan.options)), case.model, case.target, ("",)

    return mutants


def no_steps(case: Case) -> Iterator[Mutant]:
    first = case.plan.kernels_in_order[0].name
    yield replace(case.plan, steps=()), case.model, case.target, (first,)


def rescales(change: Callable[[Rescale], Rescale | None]) -> Mutation:
    """Mutate the list of rescales; None leaves one out."""

    def mutants(case: Case) -> Iterator[Mutant]:
        listed = case.plan.rescales
        for i, rescale in enumerate(listed):
            made = change(rescale)
            if made == rescale:
                continue
            plan = replace(case.plan)
            kept = (made,) if made is not None else ()
            plan.__dict__["rescales"] = (*listed[:i], *kept, *listed[i + 1 :])
            readers = tuple(f"{kernel}.in[{index}]" for kernel, index in rescale.consumers)
            yield plan, case.model, case.target, (rescale.id, made.id) if made else readers

    return mutants


def extra_rescale(case: Case) -> Iterator[Mutant]:
    for rescale in case.plan.rescales:
        plan = replace(case.plan)
        again = replace(rescale, id=f"{rescale.value}#9")
        plan.__dict__["rescales"] = (*case.plan.rescales, again)
        yield plan, case.model, case.target, (again.id,)


def forbidden(case: Case) -> Iterator[Mutant]:
    inner = [r for r in case.plan.rescales if r.from_type is not None and r.to_type is not None]
    for rescale in inner[:1]:
        kernel, index = rescale.consumers[0]
        target = replace(case.target, rescale_allowed=False)
        yield case.plan, case.model, target, (f"{kernel}.in[{index}]",)


def facts(fact: QType, where: Callable[[Case, Any], bool] = activation) -> Mutation:
    """Let the model's structure in the plan carry a fact that the ports do not keep."""

    def mutants(case: Case) -> Iterator[Mutant]:
        seen = set()
        for address, port in ports_of(case.plan).items():
            if where(case, port) and isinstance(port.type, Uniform) and port.value not in seen:
                seen.add(port.value)
                value = case.plan.graph.values[port.value]
                listed = {**case.plan.graph.values, port.value: replace(value, facts=(fact, *value.facts))}
                graph = replace(case.plan.graph, values=listed)
                yield replace(case.plan, graph=graph), None, None, (address,)

    return mutants


def port_facts(fact: QType) -> Mutation:
    def change(region: Region) -> Region:
        return replace(region, input_facts=((fact,), *((),) * (len(region.inputs) - 1)))

    def mutants(case: Case) -> Iterator[Mutant]:
        for i, region in enumerate(case.plan.graph.regions):
            yield with_region(case.plan, i, change(region)), None, None, (f"{region.name}.in[0]",)

    return mutants


def with_region(plan: Plan, index: int, region: Region) -> Plan:
    regions = plan.graph.regions
    graph = replace(plan.graph, regions=(*regions[:index], region, *regions[index + 1 :]))
    return replace(plan, graph=graph)


def regions(change: Callable[[Region], Region]) -> Mutation:
    """Mutate a region that the plan carries; the model is as it was."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for i, region in enumerate(case.plan.graph.regions):
            made = change(region)
            if made != region:
                plan = with_region(case.plan, i, made)
                yield plan, case.model, case.target, (region.name, made.name)

    return mutants


def other_op(region: Region) -> Region:
    def change(op: Op) -> Op:
        return replace(op, attributes={**op.attributes, "group": 3})

    return replace(region, ops=tuple(map(change, region.ops)))


def graphs(change: Callable[[Graph], Graph], *, port: str = "") -> Mutation:
    def mutants(case: Case) -> Iterator[Mutant]:
        yield replace(case.plan, graph=change(case.plan.graph)), case.model, case.target, (port,)

    return mutants


def unread(case: Case) -> Iterator[Mutant]:
    """The model ends after its first kernels, the plan goes on."""
    first, later = case.plan.kernels_in_order[:2]
    graph = replace(case.plan.graph, outputs=tuple(port.value for port in first.outputs))
    yield replace(case.plan, graph=graph), None, None, (later.name,)


def reshaped(case: Case) -> Iterator[Mutant]:
    for name, value in case.plan.graph.values.items():
        if value.shape:
            listed = {**case.plan.graph.values, name: replace(value, shape=(*value.shape, 2))}
            plan = replace(case.plan, graph=replace(case.plan.graph, values=listed))
            yield plan, case.model, case.target, (name,)


LOG: Final[Mapping[str, Mutation]] = {
    "value decided by another step": values(lambda v: replace(v, decided_by=0)),
    "value decided by no step": values(lambda v: replace(v, decided_by=None)),
    "value decided by a later step": values(lambda v: replace(v, decided_by=10_000)),
    "value forgotten": values(lambda _: None),
    "value from nowhere": extra_value,
    "value gains bits": values(lambda v: replace(v, bits_lost=-0.5)),
    "value loses infinity": values(lambda v: replace(v, bits_lost=float("nan"))),
    "value cut twice over": values(lambda v: replace(v, clip=2.0)),
    "value of another type": values(lambda v: replace(v, type=OTHER)),
    "value said to be float": values(lambda v: replace(v, type=None)),
    "input said to be stored": typed_input,
    "step forgotten": no_steps,
    "step of another number": steps(lambda s: replace(s, n=s.n + 1)),
    "step of another port": steps(lambda s: replace(s, port="nowhere")),
    "step of another row": steps(lambda s: replace(s, type="conv@1"), ports=False),
    "step of another type": steps(lambda s: replace(s, type=str(OTHER))),
    "strategy of no name": options(lambda o: {**o, "strategy": "best"}),
    "strategy forgotten": options(lambda o: {k: v for k, v in o.items() if k != "strategy"}),
    "step resting on itself": steps(lambda s: replace(s, because=(*s.because, s.n))),
    "step resting on a later one": steps(lambda s: replace(s, because=(10_000,))),
    "step resting on nothing there": steps(lambda s: replace(s, because=(-1,))),
}

REASONS: Final[Mapping[str, Mutation]] = {
    "step by another rule": steps(lambda s: replace(s, rule="derive" if s.rule != "derive" else "range")),
    "step by no rule at all": steps(lambda s: replace(s, rule="because I say so")),
    "step of a row by another rule": steps(lambda s: replace(s, rule="no row"), ports=False),
    "step quoting another line": steps(
        lambda s: replace(s, source="nowhere:1") if s.rule not in ("range", "shared", "pinned") else s
    ),
    "step of a row quoting another line": steps(lambda s: replace(s, source="nowhere:1"), ports=False),
    "step resting on fewer": steps(lambda s: replace(s, because=s.because[1:])),
    "step of a row resting on fewer": steps(
        lambda s: replace(s, because=s.because[1:]) if s.because else s, ports=False
    ),
    "step resting on another one": steps(
        lambda s: replace(s, because=(*s.because, s.n - 1)) if s.n - 1 not in s.because else s
    ),
    "fact of another range": told_facts(lambda s: replace(s, type="!quant.calibrated<f32<-77.0:77.0>>")),
    "fact by another rule": told_facts(lambda s: replace(s, rule="shared")),
    "fact that nobody told": told_facts(lambda s: replace(s, source="a friend")),
}
"""Wrong reasons in the log of a plan whose types are right: they are not verified."""

EDGES: Final[Mapping[str, Mutation]] = {
    "rescale cheaper": rescales(lambda r: replace(r, cost=r.cost / 2)),
    "rescale for another reader": rescales(lambda r: replace(r, consumers=(("stem/conv", 2),))),
    "rescale for nobody": rescales(lambda r: replace(r, consumers=())),
    "rescale forbidden": forbidden,
    "rescale forgotten": rescales(lambda _: None),
    "rescale from another type": rescales(lambda r: replace(r, from_type=OTHER)),
    "rescale of another kind": rescales(lambda r: replace(r, kind="clamp")),
    "rescale of another value": rescales(lambda r: replace(r, value="logits?")),
    "rescale of fewer elements": rescales(lambda r: replace(r, elements=r.elements - 1)),
    "rescale to a pin": rescales(lambda r: replace(r, to_pin=True)),
    "rescale to another type": rescales(lambda r: replace(r, to_type=OTHER)),
    "rescale twice": extra_rescale,
    "rescale under another name": rescales(lambda r: replace(r, id=f"{r.id}0")),
}

MODEL: Final[Mapping[str, Mutation]] = {
    "any narrowed": facts(AnyType(storage("i16"))),
    "any of a weight narrowed": facts(AnyType(storage("i16")), weight),
    "constants forgotten": graphs(lambda g: replace(g, inputs=(*g.inputs, "more"))),
    "kernels that nobody reads": unread,
    "none of a weight broken": facts(NoneType(), weight),
    "op of another attribute": regions(other_op),
    "op forgotten": regions(lambda r: replace(r, ops=r.ops[:-1])),
    "outputs of another model": graphs(lambda g: replace(g, outputs=())),
    "pin of a port broken": port_facts(OTHER),
    "pin of a weight broken": facts(OTHER, weight),
    "port kept in float": port_facts(NoneType()),
    "port not of its ops": regions(lambda r: replace(r, inputs=(*r.inputs[:-1], "elsewhere"))),
    "region under another name": regions(lambda r: replace(r, name=r.name + "?")),
    "value of another shape": reshaped,
}
