"""Check a plan for correctness, from the plan, its rows, the model and the target alone.

Independent: it neither runs nor reads propagation's matcher, rules or orders, and has its own reading of
the rows. With the model, the plan's figures are recomputed (`figures`); near a plan that is said to be
optimal it looks for cheaper ones, which proves nothing. Out of its sight: functions of `fn` rules, the
fusions that made the kernels. Source: docs/specification.md, section 6.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from planner.checker.edges import check_edges
from planner.checker.engines import check_engines
from planner.checker.facts import check_facts
from planner.checker.figures.clips import check_clips
from planner.checker.figures.losses import check_lost, check_price, losses_of
from planner.checker.figures.optimal import check_optimal
from planner.checker.figures.ranges import ranges_of, stored_parts
from planner.checker.figures.sums import check_room, check_sums
from planner.checker.kernel_ports import (
    Served,
    check_signature,
    check_wildcards,
    own_facts,
    refuse,
    shape_problem,
    type_problem,
)
from planner.checker.log import (
    check_steps,
    check_told,
    check_totals,
    check_values,
)
from planner.checker.numbers import Judged, check_constants
from planner.checker.origins import check_key, check_model, check_options, check_target
from planner.checker.rows.asked import check_asked
from planner.checker.rows.predicates import broken_predicate
from planner.checker.rows.reading import Reading, read_row
from planner.checker.rules import check_rules, one_class
from planner.ir.borders import bonds, carried_pairs
from planner.ir.expand import expand
from planner.ir.graph import Constant, Facts, Graph, Region, port_address
from planner.ir.operators.standard_op import SPELLS, misses_its_name, spelling_of
from planner.ir.roles import function_of_one, is_product_of_rows
from planner.ir.types.pinned_numbers import lies_on
from planner.ir.types.qtypes import AnyType, Calibrated, FloatType, QType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, StepRow, step_rows
from planner.target.records import Row, Target


@dataclass(slots=True)
class _Notes:
    """Memory of one check, so that each thing is judged once.

    Attributes:
      steps: what the last step of each address says.
      numbers: the model's constants, {} where no model was given; `graph`: the plan's with these.
      binding: values with facts that a port can break.
      types, texts: the problem of a type, "" for none, and its text, by its id (the plan keeps it alive).
      rows: rows read beside ports, by their key, the numbers of inputs and of ports, and which are absent.
      constants: constants known by their range that were judged.
    """

    steps: Mapping[str, StepRow]
    numbers: Mapping[str, Constant]
    graph: Graph
    binding: frozenset[str]
    types: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[str, int, int, tuple[int, ...]], Reading] = field(default_factory=dict)
    constants: set[Judged] = field(default_factory=set)


def check(
    plan: Plan,
    model: Graph | None = None,
    target: Target | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Refuse a plan that breaks a rule of its target, its model or its own log; see `pipeline.check`."""
    check_options(plan)
    if target is not None:
        check_target(plan, target)
    if model is not None:
        model = expand(model)
        check_model(plan, model)
    regions = _check_coverage(plan)
    numbers = model.constants if model is not None else None
    log = step_rows(plan.steps)
    graph = plan.graph if not numbers else replace(plan.graph, constants={**plan.graph.constants, **numbers})
    notes = _Notes(check_steps(log), numbers or {}, graph, frozenset(_binding(plan.graph)))
    check_engines(plan)
    check_totals(plan)
    judged: list[tuple[KernelPlan, Region, Served | None]] = []
    for kernel in plan.kernels_in_order:
        region = regions[kernel.name]
        judged.append((kernel, region, _check_kernel(plan, kernel, region, notes)))
    _check_carried(plan)
    _check_caches(plan.graph)
    ranges = ranges_of(plan, judged, notes.graph) if numbers is not None else None
    for at, (_, _, served) in enumerate(judged):
        if progress is not None:
            progress(at + 1, len(judged))
        if served is None:
            continue
        # Weights before the biases that their scales decide: the first fault is the one to name.
        if ranges is None:
            check_rules(served)
        else:
            extents = check_constants(served, notes.constants, stored_parts(ranges, ranges.steps[at]))
            check_rules(served)
            check_sums(served, extents)
    check_values(plan, log)
    check_edges(plan, target)
    if ranges is not None:
        clips = check_clips(plan, ranges)
        losses = losses_of(ranges)
        check_lost(plan, losses)
        check_price(plan, losses)
        check_optimal(plan, ranges, losses, clips=clips)
    # Last: of a plan that was changed the change is the fault to name.
    check_key(plan, "" if model is None else model.module)


def _binding(graph: Graph) -> Iterator[str]:
    for name, value in graph.values.items():
        # A calibrated range only advises: a port may clip it. Any other fact can be contradicted by a type.
        if not all(isinstance(fact, Calibrated) for fact in value.facts):
            yield name


def _check_coverage(plan: Plan) -> Mapping[str, Region]:
    """The kernels are the live regions, with the regions' values at their ports, in an order that runs."""
    graph = plan.graph
    regions = {region.name: region for region in graph.regions}
    operands = {region.name: _operands(region) for region in graph.regions}
    alive = _live(graph, regions, operands)
    unplanned = alive.keys() - {kernel.name for kernel in plan.kernels_in_order}
    for name in regions if unplanned else ():
        if name in unplanned:
            refuse(name, "is live and has no plan; accepted: one kernel per live region")
    known = {"", *graph.inputs, *graph.constants}
    seen: set[str] = set()
    for kernel in plan.kernels_in_order:
        region = regions.get(kernel.name)
        if region is None:
            refuse(kernel.name, "is no region of the model; accepted: one kernel per live region")
        if kernel.name not in alive:
            refuse(kernel.name, "reaches no model output; accepted: live regions only")
        if kernel.name in seen:
            refuse(kernel.name, "is planned twice; accepted: once")
        seen.add(kernel.name)
        _check_shape_of(kernel, region)
        early = operands[kernel.name] - known
        if early:
            name = next((name for name in region.inputs if name in early), min(early))
            refuse(kernel.name, f"reads {name!r} before a kernel defines it; accepted: a later place")
        known.update(region.outputs)
        for op in region.ops:
            known.update(op.outputs)
    return regions


def _check_shape_of(kernel: KernelPlan, region: Region) -> None:
    if (kernel.kernel, kernel.trip_count) != (region.kernel, region.trip_count):
        refuse(
            kernel.name,
            f"is {kernel.kernel} x {kernel.trip_count}; accepted: {region.kernel} x {region.trip_count}",
        )
    for side, ports, names in (("in", kernel.inputs, region.inputs), ("out", kernel.outputs, region.outputs)):
        if len(ports) != len(names):
            refuse(kernel.name, f"has {len(ports)} ports on side {side}; accepted: {len(names)}")
        stem = f"{kernel.name}.{side}["
        for i, port in enumerate(ports):
            if port.address != f"{stem}{i}]":
                address = port_address(kernel.name, side, i)
                refuse(address, f"is addressed as {port.address!r}; accepted: {address!r}")
            if port.value != names[i]:
                refuse(port.address, f"carries {port.value!r}; accepted: {names[i]!r}")


def _operands(region: Region) -> set[str]:
    """Values that a region needs before it runs, integer operands too."""
    needed = set(region.inputs)
    inner: set[str] = set()
    for op in region.ops:
        needed.update(op.inputs)
        needed.update(op.captures)
        inner.update(op.outputs)
    return needed - inner


def _check_carried(plan: Plan) -> None:
    """A value that a loop hands to its next trip has one scale where it enters and where it leaves."""
    for pair in carried_pairs(plan.graph):
        ports = [p for name in pair if name in plan.kernels for p in _present(plan.kernels[name])]
        for port in ports[1:]:
            first, other = ports[0].type, port.type
            # Signedness may differ, as no number changes when
            # storage and zero point shift by the same half range.
            if isinstance(first, Uniform) and isinstance(other, Uniform):
                alike = one_class(first, other)
            else:
                alike = first == other
            if not alike:
                refuse(
                    port.address,
                    f"is {brief(other)}, the next trip reads it as {brief(first)} at {ports[0].address}; "
                    "accepted: one scale and zero point",
                )


def _check_caches(graph: Graph) -> None:
    """What leaves the model and comes back in the next run is read as it was stored."""
    for past, present in graph.caches:
        read, written = (
            [fact for fact in graph.values[name].facts if isinstance(fact, FloatType | Uniform)]
            for name in (past, present)
        )
        if read != written:
            refuse(
                present,
                f"is {brief(written[0]) if written else 'float'}, the next run reads it as "
                f"{brief(read[0]) if read else 'float'} at {past}; accepted: one type",
            )


def _present(kernel: KernelPlan) -> list[Port]:
    return [port for port in (*kernel.inputs, *kernel.outputs) if port.value]


def _live(graph: Graph, regions: Mapping[str, Region], operands: Mapping[str, set[str]]) -> dict[str, None]:
    """Names of the regions that a model output rests on, found from the outputs back."""
    together = bonds(graph)
    writer: dict[str, Region] = {}
    for region in graph.regions:
        for name in region.outputs:
            writer[name] = region
        for op in region.ops:
            writer.update(dict.fromkeys(op.outputs, region))
    alive: dict[str, None] = {}
    waiting = [writer[name] for name in graph.outputs if name in writer]
    while waiting:
        maker = waiting.pop()
        if maker.name not in alive:
            alive[maker.name] = None
            waiting += [writer[name] for name in operands[maker.name] if name in writer]
            # A loop or branch runs as a whole: no data flows from
            # its condition to its body, yet both are needed.
            waiting += [regions[name] for name in together.get(maker.name, ())]
    return alive


def _check_kernel(plan: Plan, kernel: KernelPlan, region: Region, notes: _Notes) -> Served | None:
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
        _refuse_row(kernel, row)
    if kernel.reason is not None:
        refuse(kernel.name, f"has a row and a reason to run in float ({kernel.reason!r})", row)
    derives = plan.options.get("bias_pins") == "derive"
    served = Served(kernel, region, reading, ports, notes.graph, notes.numbers, derives)
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


def _check_types(plan: Plan, ports: tuple[Port, ...], notes: _Notes) -> None:
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
        if not problem and not kind.is_per_tensor and port.value:
            problem = shape_problem(kind, plan.graph.values[port.value].shape)
        if problem:
            refuse(port.address, f"is {brief(kind)}: {problem}")


def _expressed_problem(graph: Graph, port: Port, kind: Uniform) -> str | None:
    value = graph.values.get(port.value)
    pins = [fact.expressed for fact in value.facts if isinstance(fact, Uniform)] if value else []
    known = ["f32", *([value.dtype] if value else []), *pins]
    return None if kind.expressed in known else f"expressed type {kind.expressed}; accepted: {known[0]}"


def _check_float(
    plan: Plan, kernel: KernelPlan, region: Region, ports: tuple[Port, ...], notes: _Notes
) -> None:
    """Without a row every port is float, for a reason; a width or type that is lost so is reported."""
    if not kernel.reason:
        refuse(kernel.name, "has neither a row nor a reason; accepted: one of them")
    if kernel.accumulator_bits is not None:
        refuse(kernel.name, f"runs in float and has sums of {kernel.accumulator_bits} bits; accepted: none")
    bound = bool(region.input_facts or region.output_facts)
    for i, port in enumerate(ports):
        if port.type is None and not bound and port.value not in notes.binding:
            continue
        facts = (*plan.graph.values[port.value].facts, *own_facts(region, i)) if port.value else ()
        wanted = _float_wanted(plan, port, facts) if facts else None
        if port.type != wanted:
            refuse(
                port.address, f"is {brief(port.type)} in a kernel without a row; accepted: {brief(wanted)}"
            )
        lost = next((fact for fact in facts if _is_lost(plan.graph, port.value, fact, notes.numbers)), None)
        if lost is not None and not any(port.address in warning for warning in plan.warnings):
            refuse(port.address, f"is float although {port.value!r} carries {lost}; accepted: with a warning")


def _is_lost(graph: Graph, name: str, fact: QType, numbers: Mapping[str, Constant]) -> bool:
    """Whether numbers in float need not be what a fact says: a value's pin is where its readers start."""
    if not isinstance(fact, Uniform):
        return isinstance(fact, AnyType)
    if name not in graph.constants:
        return fact not in graph.values[name].facts
    known = numbers.get(name)
    return known is not None and known.array is not None and not lies_on(fact, known)


def _float_wanted(plan: Plan, port: Port, facts: Facts) -> FloatType | None:
    """The float that a fact asks for, where it is not the tensor's own."""
    asked = [fact for fact in facts if isinstance(fact, FloatType)]
    return asked[0] if asked and asked[0].name != plan.graph.values[port.value].dtype else None


def _reading(plan: Plan, key: str, kernel: KernelPlan, region: Region, notes: _Notes) -> Reading:
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
        _refuse_row(kernel, row)
    found = read_row(row, region)
    if found is None:
        ports = f"{len(region.inputs)} inputs and {len(region.outputs)} outputs"
        refuse(kernel.name, f"is served by {row.source}, which takes other ports than its {ports}", row)
    notes.rows[place] = found
    return found


def _refuse_row(kernel: KernelPlan, row: Row) -> NoReturn:
    refuse(kernel.name, f"is {kernel.kernel}, {row.source} serves {row.kernel} as {row.key}", row)
