"""Vicinity: the part of a planned model that a change of facts can reach, as a graph of its own.

A decision at one value reaches another only through a kernel that ties its ports together: data movement, a
rule that joins or derives, a wildcard. Other kernels do not relate their ports, so a change stays inside the
closure of the values it touches. One ring of kernels around it is taken along, so that all ports of the
kernels in the closure see whole components. Source: docs/specification.md, section 5, the price, item 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph, Region, Value
from planner.ir.operators.needs import HANDING, STARTING
from planner.ir.roles import is_movement, is_of_other_dialect
from planner.ir.types.held_pins import held
from planner.ir.types.qtypes import Calibrated, Uniform
from planner.plans.plan import Plan, Planned
from planner.target.records import Row

TYING = frozenset({"derive", "fn", "same_scale"})
"""Rules by which the type of one port says something about another's; so does a range of multipliers."""


@dataclass(frozen=True, slots=True)
class Vicinity:
    """A part of a planned model.

    Attributes:
      values: those that a change reaches.
      kernels: positions (in the plan) of the kernels at them, ascending: theirs is what may change.
      around: positions of those and of a ring around them, ascending: what has to be planned again.
    """

    values: frozenset[str]
    kernels: tuple[int, ...]
    around: tuple[int, ...]


def vicinity(plan: Plan, graph: Graph, seeds: Iterable[str]) -> Vicinity:
    """Find what a change of facts at some values can reach.

    Args:
      graph: the fused model that the plan is for.
      seeds: values; the rows of the kernels at them may change.
    """
    inner = set(seeds)
    inner.update(_values_at(plan, inner))
    inner = _closed(plan, graph, inner)
    outer = _closed(plan, graph, inner | _values_at(plan, inner))
    return Vicinity(frozenset(inner), _positions(plan, inner), _positions(plan, outer))


def component_of(plan: Plan, graph: Graph, value: str) -> tuple[frozenset[str], tuple[int, ...]]:
    """The values that are labelled together with one, and the positions of the kernels at them."""
    values = _closed(plan, graph, {value})
    return frozenset(values), _positions(plan, values)


def cut_out(plan: Plan, graph: Graph, positions: tuple[int, ...]) -> Graph:
    """The kernels at some positions as a graph; values that others write or read are its boundary."""
    regions = [region_of(plan, graph, at) for at in positions]
    written = {name for region in regions for name in region.outputs if name}
    inside = frozenset(positions)
    names = dict.fromkeys(name for region in regions for name in (*region.inputs, *region.outputs) if name)
    values = {name: graph.values[name] for name in names}
    for name in names:
        if name not in written and name not in graph.constants:
            values[name] = _with_range(plan, graph.values[name])
    for region in regions:
        for op in region.ops:
            values |= {n: graph.values[n] for n in (*op.inputs, *op.outputs) if n and n not in values}
    results = frozenset(graph.outputs)
    outputs = tuple(n for n in names if n in results or (n in written and _read_outside(plan, n, inside)))
    missing = (n for region in regions for op in region.ops for n in op.inputs)
    inner = {n for region in regions for op in region.ops for n in op.outputs}
    inputs = dict.fromkeys(
        n
        for n in (*names, *missing)
        if n and n not in written and n not in inner and n not in graph.constants
    )
    return replace(
        graph,
        values=values,
        regions=tuple(regions),
        inputs=tuple(n for n in graph.inputs if n in inputs)
        + tuple(n for n in inputs if n not in graph.inputs),
        outputs=outputs,
        constants={name: graph.constants[name] for name in values if name in graph.constants},
    )


def stands_alone(plan: Plan, part: Graph) -> bool:
    """Whether a part that was cut out has the types of the whole at its border.

    A fixed type there is held in the storage that a kernel outside gives, which the part cannot know: it
    would take the value for one of the model's own, stored in the fixed type.
    """
    border = {*part.inputs, *part.outputs} - {*plan.graph.inputs, *plan.graph.outputs}
    pins = (fact for name in border for fact in part.values[name].facts if isinstance(fact, Uniform))
    return all(held(pin, plan.target.storages, formats=plan.formats) == pin for pin in pins)


def region_of(plan: Plan, graph: Graph, at: int) -> Region:
    """The region of the kernel at a position."""
    return graph.regions[plan.wiring.region_at[at]]


def _closed(plan: Plan, graph: Graph, start: set[str]) -> set[str]:
    """Add the values that kernels tie to those that are in."""
    found, waiting = set(start), list(start)
    seen: set[int] = set()
    carried = _carried(plan)
    while waiting:
        for at in plan.kernels_at.get(waiting.pop(), ()):
            if at not in seen and _ties(plan, graph, at):
                seen.add(at)
                both = [
                    region_of(plan, graph, at),
                    *(region_of(plan, graph, other) for other in carried.get(at, ())),
                ]
                names = (name for region in both for name in (*region.inputs, *region.outputs))
                new = {n for n in names if n and n not in graph.constants} - found
                found |= new
                waiting += new
    return found


def needing(plan: Plan, graph: Graph) -> set[int]:
    """Positions of the kernels that may need less than all of what they read, or hand on that others do."""
    by_reader: list[str] = []
    found: set[int] = set()
    for at in range(len(plan.kernels_in_order)):
        if any(op.type in STARTING for op in region_of(plan, graph, at).ops):
            found.add(at)
            by_reader += region_of(plan, graph, at).inputs
    made = {
        n: at for at, kernel in enumerate(plan.kernels_in_order) for n in (p.value for p in kernel.outputs)
    }
    waiting, seen, carried = by_reader, set[str](), _carried(plan)
    while waiting:
        name = waiting.pop()
        writer = made.get(name) if name and name not in seen else None
        seen.add(name)
        if writer is None:
            continue
        region = region_of(plan, graph, writer)
        if any(op.type in HANDING for op in region.ops):
            found.add(writer)
        if any(op.type in HANDING or is_movement(op, graph) for op in region.ops):
            waiting += region.inputs
            # What a loop hands to its next trip is read where it leaves.
            waiting += (n for other in carried.get(writer, ()) for n in region_of(plan, graph, other).inputs)
    return found


def _carried(plan: Plan) -> Mapping[int, tuple[int, ...]]:
    """Position of the other end of a carried value, by that of each end."""
    pairs = carried_pairs(plan.graph)
    places = {kernel.name: at for at, kernel in enumerate(plan.kernels_in_order)} if pairs else {}
    known = [(places[a], places[b]) for a, b in pairs if a in places and b in places]
    return {a: (b,) for a, b in known} | {b: (a,) for a, b in known}


def _ties(plan: Plan, graph: Graph, at: int) -> bool:
    region, key = region_of(plan, graph, at), plan.kernels_in_order[at].row
    if region.ops and all(is_movement(op, graph) for op in region.ops):
        return True
    # An op of another dialect moves data by its row, which it has left where all around it is float; of a
    # kernel without ops nobody knows whether it did.
    if key is None and (not region.ops or any(is_of_other_dialect(op) for op in region.ops)):
        return True
    row = plan.target.rows[key] if key is not None else None
    # Until rows were left, others stood there, which may have tied ports.
    left = plan.left if isinstance(plan, Planned) else frozenset()
    if row is None or region.name in left:
        return bool(left)
    wild = any(pattern.type.storage is None for pattern in (*row.inputs, *row.outputs))
    tied = any(rule.kind in TYING or rule.args.get("range") is not None for rule in row.rules)
    return wild or tied or _has_computed_bias(region, row, graph)


def _has_computed_bias(region: Region, row: Row, graph: Graph) -> bool:
    biases = {rule.args["port"] for rule in row.rules if rule.kind == "multiplier_accumulator_scale"}
    named = zip(region.inputs, row.inputs, strict=False)
    return any(pattern.name in biases and name and name not in graph.constants for name, pattern in named)


def _values_at(plan: Plan, values: Iterable[str]) -> set[str]:
    """Values at the kernels at these values, constants left out."""
    found: set[str] = set()
    for name in values:
        for at in plan.kernels_at.get(name, ()):
            kernel = plan.kernels_in_order[at]
            found.update(port.value for port in (*kernel.inputs, *kernel.outputs) if port.value)
    return found - plan.graph.constants.keys()


def _positions(plan: Plan, values: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({at for name in values for at in plan.kernels_at.get(name, ())}))


def _read_outside(plan: Plan, name: str, inside: frozenset[int]) -> bool:
    return any(at not in inside for at in plan.kernels_at.get(name, ()))


def _with_range(plan: Plan, value: Value) -> Value:
    """A value that a kernel outside writes, with some range if it had one: only that it has one matters."""
    if any(isinstance(fact, Calibrated | Uniform) for fact in value.facts):
        return value
    kernels = (plan.kernels_in_order[at] for at in plan.kernels_at.get(value.name, ()))
    made = (port.type for kernel in kernels for port in kernel.outputs if port.value == value.name)
    kind = next(made, None)
    if not isinstance(kind, Uniform):
        return value
    return replace(value, facts=(*value.facts, Calibrated((kind.lo,), (kind.hi,))))
