"""Writing a plan as MLIR: the quantized module; `read_mlir` gives an equal plan back.

Specs are the port types; each rescale is a `qplan.region` of kernel `qplan.rescale` on the edge it sits
on; what a module does not show (costs, steps, the target's rows) stands behind it as the resource `qplan`,
JSON laid out as in `plan.json`; the module attribute `qplan.plan` names its format. Read as a plain model,
the module is the planned graph. Source: docs/formats.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from planner.formats.annotated.jsontext import write_lines
from planner.formats.mlir.text.spelling import Spelling
from planner.formats.mlir.text.write_module import write_mlir
from planner.ir.edges import RESCALE
from planner.ir.graph import BOUNDARY, Facts, Graph, Op, Region, Value
from planner.ir.types.qtypes import Uniform
from planner.ir.types.written_scales import WrittenScales, written_scales
from planner.plans.fields import PlanFields
from planner.plans.records import KernelPlan, PortTyped, Rescale
from planner.plans.write_json import VERSION, TypeTexts, plan_rest, row_texts

RESOURCE: Final = "qplan"
"""The resource that holds what a module does not show of its plan."""


def plan_to_mlir(plan: PlanFields, *, spelling: Spelling = "qplan") -> str:
    """Write a plan as a quantized module.

    Args:
      spelling: of what upstream's dialect has not, `qplan.region`, or as in the RFC `quant.region`.
    """
    planned = _planned_graph(plan)
    rows = row_texts(plan.target)
    extras = {
        region.name: _extras(region, plan.kernels.get(region.name), rows) for region in plan.graph.regions
    }
    attributes: dict[str, Any] = {"qplan.plan": VERSION}
    order = tuple([kernel.name for kernel in plan.kernels_in_order])
    if order != tuple([region.name for region in plan.graph.regions if region.name in plan.kernels]):
        attributes["qplan.order"] = order
    return write_mlir(
        planned,
        extras=extras,
        attributes=attributes,
        specs="ports",
        resources={RESOURCE: write_lines(plan_rest(plan, TypeTexts()))},
        spelling=spelling,
    )


def port_facts(types: Iterable[PortTyped], written: WrittenScales | None = None) -> tuple[Facts, ...]:
    """Port types as the facts of a region's side, with the digits that a text gave their scales."""
    facts: tuple[Facts, ...] = tuple(
        [
            () if kind is None else (written.of(kind) if written and isinstance(kind, Uniform) else kind,)
            for kind in types
        ]
    )
    return facts if any(facts) else ()


def renamed(op: Op, names: Mapping[str, str]) -> Op:
    """An op that reads values by other names."""
    return replace(op, inputs=tuple([names.get(name, name) for name in op.inputs]))


@dataclass
class _Edges:
    """The new values of rescales: by use edge and by source, and all new names."""

    graph: Graph
    written: WrittenScales
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
                input_facts=port_facts([rescale.from_type], self.written),
                output_facts=port_facts([rescale.to_type], self.written),
            )
        )
        self.feeds |= dict.fromkeys(rescale.consumers, name)


def _planned_graph(plan: PlanFields) -> Graph:
    graph, edges = plan.graph, _Edges(plan.graph, written_scales(plan.graph))
    taken = {region.name for region in graph.regions}
    for rescale in plan.rescales:
        edges.add(rescale, taken)
    regions = [region for name in graph.inputs for region in edges.regions.get(name, ())]
    for region in graph.regions:
        kernel = plan.kernels.get(region.name)
        regions.append(region if kernel is None else _planned_region(region, kernel, edges))
        regions += [new for name in region.outputs for new in edges.regions.get(name, ())]
    outputs = [edges.feeds.get((BOUNDARY, i), name) for i, name in enumerate(graph.outputs)]
    return replace(
        graph, regions=tuple(regions), values={**graph.values, **edges.values}, outputs=tuple(outputs)
    )


def _planned_region(region: Region, kernel: KernelPlan, edges: _Edges) -> Region:
    inputs = tuple([edges.feeds.get((region.name, i), name) for i, name in enumerate(region.inputs)])
    first = dict(reversed(list(zip(region.inputs, inputs, strict=True))))
    return replace(
        region,
        inputs=inputs,
        ops=tuple([renamed(op, first) for op in region.ops]),
        input_facts=port_facts((port.type for port in kernel.inputs), edges.written),
        output_facts=port_facts((port.type for port in kernel.outputs), edges.written),
    )


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
