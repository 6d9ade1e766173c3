"""Kernels of a plan as data sees them: which move data, what they cut off, what types are fixed there.

Source: docs/specification.md, sections 3 and 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.checker.kernel_ports import Served, own_facts
from planner.ir.graph import Facts, Graph, Region
from planner.ir.operators.movement import cut_of
from planner.ir.roles import moves_data
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Bipolar, Calibrated, Uniform
from planner.plans.records import BETWEEN_FLOATS, KernelPlan, Port
from planner.target.expressions import parse_number
from planner.target.records import Row

ByWidth = Mapping[int, Interval]


@dataclass(slots=True)
class Step:
    """One kernel as data sees it.

    Attributes:
      served: the kernel beside its row, None where it runs in float.
      moves: whether it hands data on as it is; `cut`: what a relu or clamp among its ops leaves.
      fixed: by position, inputs first, the type that its row or a fact of the port says.
      required: by position, what the port has to hold, in its width; None where nothing is known.
      needed: by name, what it needs of a value it reads, where that is not everything.
      partner: the kernel at the other end of a carried value, that where it leaves first.
      ports: inputs, then outputs, absent ones too.
    """

    kernel: KernelPlan
    region: Region
    served: Served | None
    moves: bool
    cut: Interval | None
    fixed: list[Uniform | None]
    required: list[Interval | None]
    needed: Mapping[str, Interval] = field(default_factory=dict)
    partner: "Step | None" = None
    handed: Interval | None = None
    asked: Interval | None = None
    ports: tuple[Port, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.ports = (*self.kernel.inputs, *self.kernel.outputs)


def step_of(graph: Graph, kernel: KernelPlan, region: Region, served: Served | None) -> Step:
    """A kernel of a plan beside its row, None where it has none."""
    ports = (*kernel.inputs, *kernel.outputs)
    row = served.row if served is not None else None
    moves = _moves(graph, region, served, kernel)
    fixed: list[Uniform | None] = [None] * len(ports)
    for i, port in enumerate(ports):
        if not port.value:
            continue
        own = pin_of(own_facts(region, i)) if region.input_facts or region.output_facts else None
        # Slices in the port's own storage are its type as they are; they say nothing of one range.
        is_stored = isinstance(port.type, Uniform) and own is not None and port.type.storage == own.storage
        if own is not None and (own.is_per_tensor or row is None or not is_stored):
            fixed[i] = own
        if served is not None and row is not None:
            fixed[i] = _fixed(row, served.patterns[i].name, port) or fixed[i]
    return Step(kernel, region, served, moves, cut_of(graph, region), fixed, [None] * len(ports))


def _moves(graph: Graph, region: Region, served: Served | None, kernel: KernelPlan) -> bool:
    if served is None:
        return moves_data(graph, region, joins_all=kernel.reason == BETWEEN_FLOATS)
    present = sum(1 for port in served.ports if port.value)
    joined = [sum(1 for i in group if served.ports[i].value) for group in served.groups]
    return not served.row.computes and moves_data(graph, region, joins_all=joined == [present])


def _fixed(row: Row, name: str, port: Port) -> Uniform | None:
    for rule in row.rules:
        if rule.kind == "fixed_scale" and rule.args["port"] == name and isinstance(port.type, Uniform):
            scale = float(np.float32(float(parse_number(rule.args["scale"]))))
            return Uniform(port.type.storage, (scale,), (int(rule.args.get("zero_point", 0)),))
    return None


def pin_of(facts: Facts) -> Uniform | None:
    """The type that facts fix; None where they fix none."""
    return next((fact for fact in facts if isinstance(fact, Uniform)), None)


def seen_in(facts: Facts) -> Interval | None:
    """The range that facts say was observed."""
    signs = next((fact for fact in facts if isinstance(fact, Bipolar)), None)
    if signs is not None:
        return -signs.scale, signs.scale
    seen = next((fact for fact in facts if isinstance(fact, Calibrated)), None)
    return None if seen is None else (seen.lo, seen.hi)


def by_width(facts: Facts) -> ByWidth:
    """The ranges that facts say of a value, by bits."""
    seen = next((fact for fact in facts if isinstance(fact, Calibrated)), None)
    if seen is None or any(isinstance(fact, Bipolar) for fact in facts):
        return {}
    return {width.bits: (width.lo, width.hi) for width in seen.widths}


def signs_of(graph: Graph, steps: Sequence[Step]) -> frozenset[str]:
    """Values that are plus or minus one number, by their facts, or as data movement of nothing else."""
    scales = {
        name: fact.scale
        for name, value in graph.values.items()
        for fact in value.facts
        if isinstance(fact, Bipolar)
    }
    for step in steps:
        # Less `constants.keys()` would go through all of them, for each kernel.
        read = {port.value for port in step.kernel.inputs if port.value and port.value not in graph.constants}
        given = {scales.get(name) for name in read}
        if step.moves and len(given) == 1 and None not in given:
            scales |= {port.value: given.copy().pop() or 0.0 for port in step.kernel.outputs if port.value}
    return frozenset(scales)
