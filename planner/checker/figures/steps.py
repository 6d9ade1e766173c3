"""Kernels of a plan as data sees them: which move data, what they cut off, what types are fixed there.

Source: docs/specification.md, sections 3 and 5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.checker.kernel_ports import Served, own_facts
from planner.ir.graph import Constant, Facts, Graph, Region
from planner.ir.roles import is_mover, is_of_other_dialect
from planner.ir.types.intervals import ALL, Interval, cut_to
from planner.ir.types.qtypes import Bipolar, Calibrated, Uniform
from planner.plans.records import KernelPlan, Port
from planner.target.expressions import parse_number
from planner.target.records import Row

ByWidth = Mapping[int, Interval]
HALF: Final = 0.5 + 1e-4
"""Half a step, and what rounding a scale to float32 adds to it."""


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
        if own is not None and (own.is_per_tensor or row is None or not _stores_as(port, own)):
            fixed[i] = own
        if served is not None and row is not None:
            fixed[i] = _fixed(row, served.patterns[i].name, port) or fixed[i]
    return Step(kernel, region, served, moves, _cut(region, graph.constants), fixed, [None] * len(ports))


def _stores_as(port: Port, kind: Uniform) -> bool:
    return isinstance(port.type, Uniform) and port.type.storage == kind.storage


def _moves(graph: Graph, region: Region, served: Served | None, kernel: KernelPlan) -> bool:
    if served is not None and served.row.computes:
        return False
    told = [op for op in region.ops if not is_of_other_dialect(op)]
    if not all(is_mover(op, graph) for op in told):
        return False
    if region.ops and len(told) == len(region.ops):
        return True
    if served is None:
        return kernel.reason == "moves data between float ops"
    present = sum(1 for port in served.ports if port.value)
    groups = served.groups
    return len(groups) == 1 and sum(1 for i in groups[0] if served.ports[i].value) >= present


def _fixed(row: Row, name: str, port: Port) -> Uniform | None:
    for rule in row.rules:
        if rule.kind == "fixed_scale" and rule.args["port"] == name and isinstance(port.type, Uniform):
            scale = float(np.float32(float(parse_number(rule.args["scale"]))))
            return Uniform(port.type.storage, (scale,), (int(rule.args.get("zero_point", 0)),))
    return None


def _cut(region: Region, numbers: Mapping[str, Constant]) -> Interval | None:
    """What the relus and clamps of a kernel leave of what passes it."""
    low, high = ALL
    for op in region.ops:
        if op.type == "Relu":
            low = max(low, 0.0)
        elif op.type == "Clip":
            bounds = [op.inputs[i] if i < len(op.inputs) else "" for i in (1, 2)]
            least, most = (_number(name, numbers) for name in bounds)
            low = low if least is None else max(low, least)
            high = high if most is None else min(high, most)
            # The upper bound wins: below one that is computed anything may come out.
            computed = bool(bounds[1]) and bounds[1] not in numbers
            low = -math.inf if computed else min(low, high)
    return None if (low, high) == ALL else (low, high)


def _number(name: str, numbers: Mapping[str, Constant]) -> float | None:
    constant = numbers.get(name)
    return None if constant is None or constant.array is None else float(constant.array.reshape(-1)[0])


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


def known_range(seen: Interval | None, *kinds: Uniform | None) -> Interval | None:
    """What was observed, cut to fixed types."""
    extent = seen
    for kind in kinds:
        if kind is not None:
            ends = pin_ends(kind, seen)
            extent = ends if extent is None else cut_to(extent, ends)
    return extent


def pin_ends(pin: Uniform, seen: Interval | None) -> Interval:
    """Ends of a fixed type, which cuts nothing off of a range within half a step of them."""
    if seen is None or not pin.is_per_tensor:
        return pin.lo, pin.hi
    below, above = (pin.lo - seen[0]) / pin.scale, (seen[1] - pin.hi) / pin.scale
    return seen[0] if 0 <= below <= HALF else pin.lo, seen[1] if 0 <= above <= HALF else pin.hi


def by_width(facts: Facts) -> ByWidth:
    """The ranges that facts say of a value, by bits."""
    seen = next((fact for fact in facts if isinstance(fact, Calibrated)), None)
    if seen is None or any(isinstance(fact, Bipolar) for fact in facts):
        return {}
    return {width.bits: (width.lo, width.hi) for width in seen.widths}


def narrowed(own: Interval | None, parts: Sequence[ByWidth]) -> ByWidth:
    """By width, a value's own range cut to each part in turn; widths that hold all of it are left out."""
    found: dict[int, Interval] = {}
    for bits in {bits for part in parts for bits in part} if own is not None else ():
        low, high = own or (0.0, 0.0)
        for ends in (part[bits] for part in parts if bits in part):
            low, high = (min(max(end, low), high) for end in ends)
        if (low, high) != own:
            found[bits] = low, high
    return found


def signs_of(graph: Graph, steps: Sequence[Step]) -> frozenset[str]:
    """Values that are plus or minus one number, by their facts, or as movers of nothing else give them."""
    scales = {
        name: fact.scale
        for name, value in graph.values.items()
        for fact in value.facts
        if isinstance(fact, Bipolar)
    }
    for step in steps:
        read = {port.value for port in step.kernel.inputs if port.value} - graph.constants.keys()
        given = {scales.get(name) for name in read}
        if step.moves and len(given) == 1 and None not in given:
            scales |= {port.value: given.copy().pop() or 0.0 for port in step.kernel.outputs if port.value}
    return frozenset(scales)
