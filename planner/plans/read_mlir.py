"""Reading a plan from its quantized module.

Regions of kernel `qplan.rescale` are taken out of the graph; they must be the ones that the port types give.
Source: docs/formats.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.errors import PlanFormatError, quantity
from planner.formats.annotated.jsontext import read_checked
from planner.formats.mlir.module import Module, read_module
from planner.formats.mlir.text.cast_module import CastModule, Form, TypedPort, Types
from planner.formats.mlir.text.cast_module import cast_module as write_casts
from planner.ir.edges import RESCALE
from planner.ir.graph import Facts, Graph, Region, port_address
from planner.ir.types.qtypes import FloatType, Uniform
from planner.plans.plan import Plan
from planner.plans.planschema import PLAN_REST
from planner.plans.read_json import PortTypes, assemble, row_keys, target_from_document
from planner.plans.records import KernelPlan, Port
from planner.plans.write_json import VERSION
from planner.plans.write_mlir import RESOURCE, port_facts, renamed


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
    if not carried.startswith("{"):  # modules of before hold the JSON itself
        if RESOURCE not in module.resources:
            raise PlanFormatError(
                f"this module's resource {RESOURCE!r}, which holds the rest of its plan, is gone: some tool "
                "dropped it; plan.json has all of the plan"
            )
        carried = module.resources[RESOURCE]
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
    plan = assemble(rest, graph, target, tuple([kernels[name] for name in order]), PortTypes())
    _check_rescales(plan, rescales, sources)
    return plan


def cast_module(
    text: str, plan: Plan, form: Form = "casts", numbers: Mapping[str, np.ndarray] | None = None
) -> CastModule:
    """The module that a plan was made of, with its types as casts or element types; raises as `write_casts`.

    Args:
      numbers: of constants, where others than the module's are to be written.
    """
    kernels = plan.kernels_in_order
    return write_casts(
        text,
        Types(
            plan.graph,
            {**{name: value.type for name, value in plan.values.items()}, **plan.held_pins},
            {kernel.name: _typed(kernel.inputs) for kernel in kernels},
            {kernel.name: _typed(kernel.outputs) for kernel in kernels},
            numbers or {},
        ),
        form,
    )


def _typed(ports: Iterable[Port]) -> tuple[TypedPort, ...]:
    return tuple([TypedPort(port.address, port.value, port.type) for port in ports])


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
                ops=tuple([renamed(op, sources) for op in region.ops]),
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
        (rescale.value, port_facts([rescale.from_type]), port_facts([rescale.to_type]), rescale.kind)
        for rescale in plan.rescales
    ]
    needed = set(derived)
    for found in listed:
        if found not in needed:
            raise PlanFormatError(f"the module rescales {found[0]!r} where the port types need none")
    if len(listed) != len(derived):
        raise PlanFormatError(
            f"{quantity(len(listed), 'rescale')} in the module, but the port types need {len(derived)}"
        )
