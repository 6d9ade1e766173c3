"""Verify one kernel by itself: its row serves it, and its ports have the types that row, facts and log say.

A kernel without a row runs in float for a reason, and what that loses is reported. Rules and numbers come
later, in `rules` and `numbers`. Source: docs/specification.md, sections 4 and 6.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.checker.conditions import broken_predicate, check_asked
from planner.checker.facts import check_facts
from planner.checker.kernel_ports import (
    Reading,
    Served,
    check_signature,
    check_wildcards,
    own_facts,
    read_row,
    refuse,
    type_problem,
)
from planner.checker.log import check_told
from planner.checker.numbers import check_room
from planner.errors import quantity
from planner.ir.graph import Constant, Graph, Region
from planner.ir.operators.standard_op import SPELLS, misses_its_name, spelling_of
from planner.ir.roles import function_of_one, is_movement, is_product_of_rows
from planner.ir.types.fit import misfit_of_shape
from planner.ir.types.pinned_numbers import lies_on
from planner.ir.types.qtypes import AnyType, Calibrated, FloatType, QType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, StepRow


@dataclass(slots=True)
class Notes:
    """Memory of one check, so that each thing is verified once.

    Attributes:
      steps: what the last step of each address says.
      numbers: the model's constants, {} where no model was given; `graph`: the plan's with these.
      binding: values with facts that a port can break.
      at_run_time: values that rows quantize while their kernels run, so that a width is met there.
      types, texts: the problem of a type, "" for none, and its text, by its id (the plan keeps it alive).
      rows: rows read beside ports, by their key, the numbers of inputs and of ports, and which are absent.
    """

    steps: Mapping[str, StepRow]
    numbers: Mapping[str, Constant]
    graph: Graph
    binding: frozenset[str]
    at_run_time: frozenset[str] = frozenset()
    types: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[str, int, int, tuple[int, ...]], Reading] = field(default_factory=dict)


def binding(graph: Graph) -> Iterator[str]:
    """Values with facts that a port can break."""
    for name, value in graph.values.items():
        # A calibrated range only advises: a port may clip it. Any other fact can be contradicted by a type.
        if not all(isinstance(fact, Calibrated) for fact in value.facts):
            yield name


def at_run_time(plan: Plan) -> frozenset[str]:
    """Values that rows quantize while their kernels run, also behind data movement."""
    found: set[str] = set()
    regions = {region.name: region for region in plan.graph.regions}
    for kernel in reversed(plan.kernels_in_order):
        row = plan.target.rows.get(kernel.row or "")
        if row is not None and row.dynamic is not None and kernel.inputs:
            found.add(kernel.inputs[0].value)
        if found and not found.isdisjoint(port.value for port in kernel.outputs):
            region = regions.get(kernel.name)
            if region is not None and region.ops and all(is_movement(op, plan.graph) for op in region.ops):
                found.update(port.value for port in kernel.inputs)
    return frozenset(found)


def check_kernel(plan: Plan, kernel: KernelPlan, region: Region, notes: Notes) -> Served | None:
    """A kernel is legal by itself; return it beside its row, None where it has none."""
    ports = (*kernel.inputs, *kernel.outputs)
    _check_types(plan, ports, notes)
    if plan.graph.wanted or kernel.reason is not None:
        check_asked(plan, kernel, region)
    if kernel.row is None:
        _check_float(plan, kernel, region, ports, notes)
        check_told(kernel, notes.steps, notes.texts)
        return None
    reading = _reading(plan, kernel.row, kernel, region, notes)
    row = reading.row
    if row.kernel != kernel.kernel:
        refuse(kernel.name, f"is {kernel.kernel}, {row.source} serves {row.kernel} as {row.key}", row)
    if kernel.reason is not None:
        refuse(kernel.name, f"has a row and a reason to run in float ({kernel.reason!r})", row)
    derives, max_clip = plan.options.get("bias_pins") == "derive", plan.target.costs.max_clip
    served = Served(kernel, region, reading, ports, notes.graph, notes.numbers, max_clip, derives)
    check_signature(served)
    if row.when:
        broken = broken_predicate(served)
        if broken:
            refuse(kernel.name, f"is served by {row.source}, whose `when` does not hold: {broken}", row)
    check_facts(served, notes.binding)
    check_told(kernel, notes.steps, notes.texts)
    check_wildcards(served)
    check_room(kernel, row)
    if row.table is not None and not function_of_one(region.ops, plan.graph):
        refuse(kernel.name, f"is looked up in a table of {row.source}, and is no function of one tensor", row)
    if misses_its_name(region):
        refuse(kernel.name, f"is served by {row.source}, and its ops are no {kernel.kernel}", row)
    if SPELLS in region.attributes and notes.numbers:
        told = spelling_of(region, notes.graph)
        if dict(told) != dict(region.attributes):
            listed = ", ".join(f"{key}: {item}" for key, item in told.items())
            refuse(kernel.name, f"is no operator with {dict(region.attributes)}; accepted: {listed}", row)
    by = row.dynamic
    if by is not None and not is_product_of_rows(region.ops, plan.graph, per_token=by.per_token):
        refuse(kernel.name, f"is quantized at run time by {row.source}, and is no product of such", row)
    return served


def _check_types(plan: Plan, ports: tuple[Port, ...], notes: Notes) -> None:
    for port in ports:
        kind = port.type
        if not isinstance(kind, Uniform):
            continue
        # Thousands of ports share one type object, and the plan keeps it alive, so its id is a safe key.
        problem = notes.types.get(id(kind))
        if problem is None:
            problem = notes.types[id(kind)] = type_problem(kind)
            notes.texts[id(kind)] = brief(kind)
        # One scale fits every shape, and f32 is accepted for
        # tensors of any float type: nothing left to look at.
        if not problem and kind.is_per_tensor and kind.expressed == "f32":
            continue
        if not problem and kind.expressed != "f32":
            problem = _expressed_problem(plan.graph, port, kind)
        shape = plan.graph.values[port.value].shape if port.value else None
        if not problem and not kind.is_per_tensor and shape is not None:
            problem = misfit_of_shape(kind, shape)
        if problem:
            refuse(port.address, f"is {brief(kind)}: {problem}")


def _expressed_problem(graph: Graph, port: Port, kind: Uniform) -> str | None:
    value = graph.values.get(port.value)
    pins = [fact.expressed for fact in value.facts if isinstance(fact, Uniform)] if value else []
    known = ["f32", *([value.dtype] if value else []), *pins]
    return None if kind.expressed in known else f"expressed type {kind.expressed}; accepted: {known[0]}"


def _check_float(
    plan: Plan, kernel: KernelPlan, region: Region, ports: tuple[Port, ...], notes: Notes
) -> None:
    """Without a row every port is float, for a reason; a width or type that is lost so is reported."""
    if not kernel.reason:
        refuse(kernel.name, "has neither a row nor a reason; accepted: one of them")
    if kernel.accumulator_bits is not None:
        refuse(
            kernel.name,
            f"runs in float and has sums of {quantity(kernel.accumulator_bits, 'bit')}; accepted: none",
        )
    bound = bool(region.input_facts or region.output_facts)
    for i, port in enumerate(ports):
        if port.type is None and not bound and port.value not in notes.binding:
            continue
        facts = (*plan.graph.values[port.value].facts, *own_facts(region, i)) if port.value else ()
        # The float that a fact asks for, where it is not the tensor's own.
        asked = next((fact for fact in facts if isinstance(fact, FloatType)), None)
        wanted = asked if asked and asked.name != plan.graph.values[port.value].dtype else None
        if port.type != wanted:
            refuse(
                port.address, f"is {brief(port.type)} in a kernel without a row; accepted: {brief(wanted)}"
            )
        if port.value in notes.at_run_time:
            facts = tuple([fact for fact in facts if not isinstance(fact, AnyType)])
        lost = next((fact for fact in facts if _is_lost(plan.graph, port.value, fact, notes.numbers)), None)
        if lost is not None and not any(port.address in warning for warning in plan.warnings):
            refuse(port.address, f"is float although {port.value!r} carries {lost}; accepted: with a warning")


def _is_lost(graph: Graph, name: str, fact: QType, numbers: Mapping[str, Constant]) -> bool:
    """Whether numbers in float need not be what a fact says: a value's fixed type is where its uses start."""
    if not isinstance(fact, Uniform):
        return isinstance(fact, AnyType)
    if name not in graph.constants:
        return fact not in graph.values[name].facts
    known = numbers.get(name)
    return known is not None and known.array is not None and not lies_on(fact, known)


def _reading(plan: Plan, key: str, kernel: KernelPlan, region: Region, notes: Notes) -> Reading:
    names = (*region.inputs, *region.outputs)
    absent = tuple([i for i, name in enumerate(names) if not name]) if "" in names else ()
    place = (key, len(region.inputs), len(names), absent)
    known = notes.rows.get(place)
    if known is not None:
        return known
    row = plan.target.rows.get(key)
    if row is None:
        refuse(kernel.name, f"names row {key!r}, which the plan does not carry")
    if row.kernel != kernel.kernel or row.key != key:
        refuse(kernel.name, f"is {kernel.kernel}, {row.source} serves {row.kernel} as {row.key}", row)
    found = read_row(row, region)
    if found is None:
        ports = f"{quantity(len(region.inputs), 'input')} and {quantity(len(region.outputs), 'output')}"
        refuse(kernel.name, f"is served by {row.source}, which takes other ports than its {ports}", row)
    notes.rows[place] = found
    return found
