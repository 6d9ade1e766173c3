"""Plans as MLIR: the quantized module, exactly and both ways.

Specs are the port types; each rescale is a `quant.region` of kernel `qplan.rescale` on the edge it sits
on; what a module does not show (costs, steps, the target's rows) rides as JSON in the module attribute
`qplan.plan`. Read as a plain model, the module is the planned graph. Source: design 09, "MLIR".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.annotated.jsontext import read_checked, write_compact
from planner.errors import PlanFormatError
from planner.ir.edges import RESCALE
from planner.ir.graph import BOUNDARY, Facts, Graph, Op, Region, Value, port_address
from planner.ir.types.qtypes import FloatType, Uniform
from planner.mlir.module import Module, read_module, write_mlir
from planner.plans.plan import Plan
from planner.plans.planjson import (
    VERSION,
    TypeTexts,
    assemble,
    plan_rest,
    row_keys,
    row_texts,
    target_from_document,
)
from planner.plans.planschema import PLAN_REST
from planner.plans.records import KernelPlan, Port, PortTyped, Rescale


def plan_to_mlir(plan: Plan) -> str:
    """Write a plan as a quantized module; `plan_from_mlir` gives an equal plan back."""
    planned = _planned_graph(plan)
    rows = row_texts(plan.target)
    extras = {
        region.name: _extras(region, plan.kernels.get(region.name), rows) for region in plan.graph.regions
    }
    attributes: dict[str, Any] = {"qplan.plan": write_compact(plan_rest(plan, TypeTexts()))}
    order = tuple([kernel.name for kernel in plan.kernels_in_order])
    if order != tuple([region.name for region in plan.graph.regions if region.name in plan.kernels]):
        attributes["qplan.order"] = order
    return write_mlir(planned, extras=extras, attributes=attributes, specs="ports")


def plan_from_mlir(text: str | bytes) -> Plan:
    """Read a plan from its quantized module.

    Raises:
      ModelError: `line:column: ` and what is wrong with the module.
      PlanFormatError: a module without a plan, or whose rescales are not those of its port types.
    """
    module = read_module(text)
    carried = module.attributes.get("qplan.plan")
    if not isinstance(carried, str):
        raise PlanFormatError("this module holds no plan: it has no attribute qplan.plan; plan it as a model")
    rest = read_checked(carried, PLAN_REST, VERSION)
    target = target_from_document(rest["target"])
    keys = row_keys(target)
    rescales = [region for region in module.graph.regions if region.kernel == RESCALE]
    sources: dict[str, str] = {}
    for region in rescales:
        sources[region.outputs[0]] = sources.get(region.inputs[0], region.inputs[0])
    kernels = {
        region.name: _kernel(region, module.extras.get(region.name, {}), keys, sources)
        for region in module.graph.regions
        if region.kernel != RESCALE and "qplan.dead" not in module.extras.get(region.name, {})
    }
    order = module.attributes.get("qplan.order", tuple(kernels))
    if sorted(order) != sorted(kernels):
        raise PlanFormatError("qplan.order does not list the kernels of this module")
    graph = _source_graph(module, sources)
    plan = assemble(rest, graph, target, tuple([kernels[name] for name in order]), TypeTexts())
    _check_rescales(plan, rescales, sources)
    return plan


@dataclass
class _Edges:
    """Where rescales put new values: by use edge and by source, and all new names."""

    graph: Graph
    feeds: dict[tuple[str, int], str] = field(default_factory=dict)
    regions: dict[str, list[Region]] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)

    def add(self, rescale: Rescale, taken: set[str]) -> None:
        before = self.regions.setdefault(rescale.value, [])
        source = next((r.outputs[0] for r in before if r.attributes["to_pin"]), rescale.value)
        name = rescale.id
        while name in taken or name in self.graph.values:
            name += "'"
        taken.add(name)
        self.values[name] = replace(self.graph.values[rescale.value], name=name, facts=())
        before.append(
            Region(
                name=name,
                kernel=RESCALE,
                inputs=(source,),
                outputs=(name,),
                attributes={"kind": rescale.kind, "to_pin": rescale.to_pin},
                input_facts=_port_facts([rescale.from_type]),
                output_facts=_port_facts([rescale.to_type]),
            )
        )
        self.feeds |= dict.fromkeys(rescale.consumers, name)


def _planned_graph(plan: Plan) -> Graph:
    graph, edges = plan.graph, _Edges(plan.graph)
    taken = {region.name for region in graph.regions}
    for rescale in plan.rescales:
        edges.add(rescale, taken)
    regions = [region for name in graph.inputs for region in edges.regions.get(name, ())]
    for region in graph.regions:
        kernel = plan.kernels.get(region.name)
        regions.append(region if kernel is None else _planned_region(region, kernel, edges.feeds))
        regions += [new for name in region.outputs for new in edges.regions.get(name, ())]
    outputs = [edges.feeds.get((BOUNDARY, i), name) for i, name in enumerate(graph.outputs)]
    return replace(
        graph, regions=tuple(regions), values={**graph.values, **edges.values}, outputs=tuple(outputs)
    )


def _planned_region(region: Region, kernel: KernelPlan, feeds: Mapping[tuple[str, int], str]) -> Region:
    inputs = tuple([feeds.get((region.name, i), name) for i, name in enumerate(region.inputs)])
    first = dict(reversed(list(zip(region.inputs, inputs, strict=True))))
    return replace(
        region,
        inputs=inputs,
        ops=tuple([_renamed(op, first) for op in region.ops]),
        input_facts=_port_facts(port.type for port in kernel.inputs),
        output_facts=_port_facts(port.type for port in kernel.outputs),
    )


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    return replace(op, inputs=tuple([names.get(name, name) for name in op.inputs]))


def _port_facts(types: Iterable[PortTyped]) -> tuple[Facts, ...]:
    facts: tuple[Facts, ...] = tuple([() if kind is None else (kind,) for kind in types])
    return facts if any(facts) else ()


def _extras(region: Region, kernel: KernelPlan | None, rows: Mapping[str, str]) -> dict[str, Any]:
    if kernel is None:
        return {"qplan.dead": True}
    told = {
        "qplan.row": None if kernel.row is None else rows[kernel.row],
        "qplan.reason": kernel.reason,
        "qplan.accumulator_bits": kernel.accumulator_bits,
        "qplan.given_inputs": region.input_facts or None,
        "qplan.given_outputs": region.output_facts or None,
    }
    return {key: item for key, item in told.items() if item is not None}


def _kernel(
    region: Region,
    extras: Mapping[str, Any],
    keys: Mapping[str | None, str | None],
    sources: Mapping[str, str],
) -> KernelPlan:
    row = extras.get("qplan.row")
    if row not in keys:
        raise PlanFormatError(f"kernel {region.name!r}: {row!r} is no row of the plan's target")
    inputs = [sources.get(name, name) for name in region.inputs]
    return KernelPlan(
        name=region.name,
        kernel=region.kernel,
        row=keys[row],
        reason=extras.get("qplan.reason"),
        inputs=_ports(region.name, "in", inputs, region.input_facts),
        outputs=_ports(region.name, "out", region.outputs, region.output_facts),
        accumulator_bits=extras.get("qplan.accumulator_bits"),
        trip_count=region.trip_count,
    )


def _ports(kernel: str, side: str, names: Iterable[str], facts: tuple[Facts, ...]) -> tuple[Port, ...]:
    ports = []
    for i, name in enumerate(names):
        address = port_address(kernel, side, i)
        types = facts[i] if facts else ()
        kind = types[0] if types else None
        if len(types) > 1 or not isinstance(kind, Uniform | FloatType | None):
            raise PlanFormatError(f"{address}: {' and '.join(map(str, types))} is no port type")
        ports.append(Port(address, name, kind))
    return tuple(ports)


def _source_graph(module: Module, sources: Mapping[str, str]) -> Graph:
    """The graph that was planned: without rescales, with the facts that were given."""
    graph, regions = module.graph, []
    for region in module.graph.regions:
        extras = module.extras.get(region.name, {})
        if region.kernel == RESCALE:
            continue
        if "qplan.dead" in extras:
            regions.append(region)
            continue
        regions.append(
            replace(
                region,
                inputs=tuple([sources.get(name, name) for name in region.inputs]),
                ops=tuple([_renamed(op, sources) for op in region.ops]),
                input_facts=extras.get("qplan.given_inputs", ()),
                output_facts=extras.get("qplan.given_outputs", ()),
            )
        )
    return replace(
        graph,
        regions=tuple(regions),
        values={name: value for name, value in graph.values.items() if name not in sources},
        outputs=tuple([sources.get(name, name) for name in graph.outputs]),
    )


def _check_rescales(plan: Plan, regions: Iterable[Region], sources: Mapping[str, str]) -> None:
    listed = [
        (sources[region.outputs[0]], region.input_facts, region.output_facts, region.attributes.get("kind"))
        for region in regions
    ]
    derived = [
        (rescale.value, _port_facts([rescale.from_type]), _port_facts([rescale.to_type]), rescale.kind)
        for rescale in plan.rescales
    ]
    needed = set(derived)
    for found in listed:
        if found not in needed:
            raise PlanFormatError(f"the module rescales {found[0]!r} where the port types need none")
    if len(listed) != len(derived):
        raise PlanFormatError(f"{len(listed)} rescales in the module, but the port types need {len(derived)}")
