"""The ranges that the ports of a plan have to hold, for the checker: forward ranges, backward uses.

A value's range is the one of its facts, cut to its fixed type and to that of the port that writes it, and, if
its kernel only moves data, to what that reads. A use keeps all of it, but for fixed types and kernels that
move data to uses that keep less. Source: docs/specification.md, section 5, the price, item 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.checker.edges import pins_of
from planner.checker.figures.steps import (
    ByWidth,
    Step,
    by_width,
    pin_of,
    seen_in,
    signs_of,
    step_of,
)
from planner.checker.kernel_ports import Served
from planner.ir.borders import carried_pairs
from planner.ir.graph import Facts, Graph, Op, Region
from planner.ir.mapped import let_go
from planner.ir.operators.movement import finite_range, reads_infinity, tells_places
from planner.ir.operators.needs import Around, asks, needs_of
from planner.ir.types.intervals import ALL, Interval, cut_to, hull
from planner.ir.types.qtypes import Calibrated, Storage, Uniform
from planner.ir.types.ranges import cutting, range_of_type, ranges_by_width, within_types
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port


@dataclass(slots=True)
class Ranges:
    """Kernels in order with the ranges of their ports; the range and the fixed type of each value.

    `held`: fixed types as the device holds them; `entered`: identities of the steps through which carried
    values enter their loops; `signs`: values that are plus or minus one number; `formats`: those of the
    plan; `of`: ranges of values; `unfixed`: without the cut of fixed types; `narrow`: by value and width in
    bits, the range that storages of that width hold instead of all of it.
    """

    graph: Graph
    steps: list[Step]
    pins: Mapping[str, Uniform]
    held: Mapping[str, Uniform]
    makers: Mapping[str, Op]
    readers: Mapping[str, Sequence[Step]]
    entered: frozenset[int]
    signs: frozenset[str]
    formats: tuple[str, ...]
    of: dict[str, Interval | None] = field(default_factory=dict)
    unfixed: dict[str, Interval | None] = field(default_factory=dict)
    narrow: dict[str, ByWidth] = field(default_factory=dict)


def ranges_of(
    plan: Plan, kernels: Sequence[tuple[KernelPlan, Region, Served | None]], graph: Graph
) -> Ranges:
    """Ranges of a plan's values, and what its ports have to hold.

    Args:
      graph: the plan's with the numbers of its constants.
    """
    steps = [step_of(graph, *entry) for entry in kernels]
    by_name = {step.kernel.name: step for step in steps}
    ends = 0
    for begin, end in carried_pairs(graph):
        if begin in by_name and end in by_name:
            by_name[end].partner, ends = by_name[begin], ends + 1
    pins = {name: kind for name, value in graph.values.items() if (kind := pin_of(value.facts)) is not None}
    entered = frozenset(id(step.partner) for step in steps if step.partner is not None)
    makers = {name: op for step in steps for op in step.region.ops for name in op.outputs}
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for port in step.kernel.inputs:
            readers.setdefault(port.value, []).append(step)
    held = {name: kind for name, kind in pins_of(plan).items() if isinstance(kind, Uniform)}
    signs = signs_of(graph, steps)
    found = Ranges(graph, steps, pins, held, makers, readers, entered, signs, plan.formats)
    _start(found)
    _forward(found)
    # What a loop hands to its next trip is known only behind its body: again, until nothing new comes.
    for _ in range(2 * ends):
        if not _hand_on(found):
            break
        _forward(found)
    kept = _backward(found)
    for _ in range(2 * ends):
        if not _ask_for(found, kept):
            break
        kept = _backward(found)
    return found


def stored_parts(found: Ranges, step: Step) -> dict[str, Interval]:
    """The reals that a kernel's constants are cut to where it stores them: by its needs, or by its ports."""
    parts = dict(step.needed)
    for port, required in zip(step.ports, step.required, strict=True):
        constant = found.graph.constants.get(port.value)
        if constant is None or constant.array is None or required is None or port.value in parts:
            continue
        total = float(constant.array.sum(dtype=np.float64))
        if not math.isfinite(total) and not np.isnan(constant.array).any():
            parts[port.value] = required
        let_go(constant.array)
    return parts


def _given(found: Ranges, name: str) -> Interval | None:
    """The range of an input or constant."""
    readers = found.readers.get(name, ())
    value = found.graph.values[name]
    known = within_types(seen_in(value.facts), found.pins.get(name))
    if known is None and 0 in (value.shape or ()):
        return 0.0, 0.0
    constant = found.graph.constants.get(name)
    if known is not None or constant is None or not value.is_float:
        return known
    array = constant.array
    if array is None or not array.size:
        return (min(constant.lo), max(constant.hi)) if constant.lo else None if array is None else (0.0, 0.0)
    lo, hi = float(array.min()), float(array.max())
    let_go(array)
    if math.isfinite(lo) and math.isfinite(hi):
        return lo, hi
    return finite_range(array, [(step.region, step.moves) for step in readers])[0]


def _start(found: Ranges) -> None:
    """Fill in the ranges of inputs, and of constants that are moved: no others have a say in other ranges."""
    graph, readers = found.graph, found.readers
    moved = [name for name in graph.constants if any(step.moves for step in readers.get(name, ()))]
    for name in (*graph.inputs, *moved):
        found.of[name] = _given(found, name)
    for name in graph.inputs:
        found.narrow[name] = ranges_by_width(found.of[name], by_width(graph.values[name].facts), {})


def _forward(found: Ranges) -> None:
    for step in found.steps:
        moved = _moved(found, step) if step.moves else None
        reads = [found.narrow.get(port.value, {}) for port in step.kernel.inputs if step.moves]
        narrow = {bits: _moved(found, step, bits) for bits in {bits for one in reads for bits in one}}
        told = {bits: extent for bits, extent in narrow.items() if extent is not None}
        for i, port in enumerate(step.kernel.outputs, len(step.kernel.inputs)):
            if not port.value:
                continue
            facts = found.graph.values[port.value].facts
            seen = seen_in(facts)
            found.unfixed[port.value] = seen = cut_to(seen, moved) if seen and moved else seen or moved
            found.of[port.value] = known = within_types(seen, found.pins.get(port.value), step.fixed[i])
            found.narrow[port.value] = ranges_by_width(known, by_width(facts), told)


def _moved(found: Ranges, step: Step, bits: int = 0) -> Interval | None:
    """The range around the inputs of data movement, as storages of `bits` bits hold it.

    Of a value without one a port with a type of its own reads what that holds.
    """
    extents = [step.handed]
    for port, own in zip(step.kernel.inputs, step.fixed, strict=False):
        extent = found.narrow.get(port.value, {}).get(bits, found.of.get(port.value))
        if extent is None and port.value and own is not None and step.served is not None:
            extent = own.lo, own.hi
        extents.append(extent)
    extent = hull(extents)
    return cut_to(extent, step.cut) if extent is not None and step.cut is not None else extent


def held_in(found: Ranges, name: str, store: Storage | None) -> Interval | None:
    """The range of a value as a storage is to hold it, the one of its width if any; None is float."""
    own, narrow = found.of.get(name), found.narrow.get(name, {})
    return own if store is None or store.float_name else narrow.get(store.bits, own)


def _hand_on(found: Ranges) -> bool:
    """Tell where a carried value enters what its other end hands to the next trip; whether it is new."""
    new = False
    for step in found.steps:
        if step.partner is not None:
            handed = hull([found.of.get(port.value) for port in step.kernel.inputs if port.value])
            new |= step.partner.handed != handed
            step.partner.handed = handed
    return new


def _backward(found: Ranges) -> dict[str, Interval | None]:
    """Fill in what ports have to hold; return what the uses of each written value keep."""
    uses: dict[str, list[Interval | None]] = {}
    for name in found.graph.outputs:
        uses.setdefault(name, []).append(ALL)
    kept: dict[str, Interval | None] = {}
    given: dict[str, Interval] = {}
    for step in reversed(found.steps):
        reads = len(step.kernel.inputs)
        for i, port in enumerate(step.kernel.outputs):
            if port.value:
                asked = hull(uses.get(port.value, ()))
                kept[port.value] = _kept(found, step, i, asked)
                stored = None if asked is None else _stored_ends(found, step, i)
                # A kernel gives no more of a result than is stored of it, and than uses keep.
                told = kept[port.value] or ALL
                given[port.value] = told if stored is None or asked is None else cut_to(stored, asked)
                step.required[reads + i] = _required(found, port, kept[port.value])
        through: Interval | None = ALL
        if step.moves:
            through = hull([*(kept[port.value] for port in step.kernel.outputs if port.value), step.asked])
            through = cut_to(through, step.cut) if through is not None and step.cut is not None else through
            through = ALL if tells_places(found.graph, step.region) else through
        else:
            step.needed = _needs(found, step, given)
        for i, port in enumerate(step.kernel.inputs):
            if port.value:
                kind = step.fixed[i]
                keeps = step.needed.get(port.value, through)
                if kind is not None:
                    keeps = range_of_type(kind, found.of.get(port.value))
                uses.setdefault(port.value, []).append(keeps)
                step.required[i] = _required(found, port, keeps)
    return kept


def _needs(found: Ranges, step: Step, given: Mapping[str, Interval]) -> Mapping[str, Interval]:
    """The ranges that a kernel that computes needs of its inputs, by the numbers of its ops."""
    kept = {port.value: given[port.value] for port in step.kernel.outputs if port.value}
    if not asks(step.region, kept.values()):
        return {}
    read = {port.value: port.type for port in reversed(step.kernel.inputs) if port.value}
    results = {port.value: i for i, port in enumerate(step.kernel.outputs) if port.value}

    def extent(name: str) -> Interval | None:
        return _extent(found, name) or _stated(found.graph.values[name].facts)

    def levels(name: str) -> int | None:
        kind = read.get(name)
        return kind.storage.steps if isinstance(kind, Uniform) and not kind.storage.float_name else None

    def step_size(name: str) -> float | None:
        kind = step.kernel.outputs[results[name]].type if name in results else None
        if not isinstance(kind, Uniform) or kind.storage.float_name:
            return None
        fixed, own = step.fixed[len(step.kernel.inputs) + results[name]], held_in(found, name, kind.storage)
        if fixed is not None:
            return fixed.scale if fixed.is_per_tensor else None
        return None if own is None else (max(own[1], 0.0) - min(own[0], 0.0)) / kind.storage.steps or None

    def readers(name: str) -> list[Op]:
        others = (other for other in found.readers.get(name, ()) if other is not step)
        return [op for one in (step, *others) for op in one.region.ops if name in op.inputs]

    around = Around(found.graph, extent, levels, step_size, found.makers.get, readers)
    asked = needs_of(step.region, kept, around)
    cut = {name: cutting(ends, extent(name)) for name, ends in asked.items()}
    return {name: ends for name, ends in cut.items() if ends is not None and ends != ALL}


def _stated(facts: Facts) -> Interval | None:
    """The range that facts give a value inside a kernel."""
    known = [fact for fact in facts if isinstance(fact, Calibrated | Uniform)]
    lo, hi = max((f.lo for f in known), default=math.inf), min((f.hi for f in known), default=-math.inf)
    return (lo, hi) if lo <= hi else None


def _kept(found: Ranges, step: Step, output: int, asked: Interval | None) -> Interval | None:
    name = step.kernel.outputs[output].value
    pin = found.pins.get(name)
    own = ALL if pin is None else range_of_type(pin, found.unfixed.get(name))
    if asked is not None:
        if pin is not None:
            return cut_to(own, asked) if step.moves else own
        return cut_to(_stored_ends(found, step, output) or asked, asked)
    # A recurrent kernel reads its state itself at its next step, whoever else does.
    if step.served is None or step.moves:
        return None
    place = len(step.kernel.inputs) + output
    groups = [group for group in step.served.groups if place in group]
    return own if any(i < len(step.kernel.inputs) for group in groups for i in group) else None


def _stored_ends(found: Ranges, step: Step, output: int) -> Interval | None:
    """Ends of the range of a result that is computed and stored: it saturates there."""
    port = step.kernel.outputs[output]
    kind = port.type
    if step.moves or not isinstance(kind, Uniform) or kind.storage.float_name or _masks(found, step):
        return None
    return held_in(found, port.value, kind.storage)


def _masks(found: Ranges, step: Step) -> bool:
    """Whether a kernel reads infinities (float32's ends), which statistics of its result leave out."""
    read = (port.value for port in step.kernel.inputs if port.value)
    return reads_infinity(step.region, (_extent(found, name) for name in read))


def _extent(found: Ranges, name: str) -> Interval | None:
    """The range of a value, or what its numbers have where it is a constant."""
    known = found.of.get(name)
    return _given(found, name) if known is None and name in found.graph.constants else known


def _required(found: Ranges, port: Port, keeps: Interval | None) -> Interval | None:
    extent = held_in(found, port.value, port.type.storage if isinstance(port.type, Uniform) else None)
    if extent is None:
        return None
    return cut_to(extent, keeps) if keeps is not None else (0.0, 0.0)


def _ask_for(found: Ranges, kept: Mapping[str, Interval | None]) -> bool:
    """Tell both ends of a carried value what the uses behind the other keep; whether it is new."""
    new = False
    for step in found.steps:
        if step.partner is not None:
            ends = (step, step.partner)
            asked = hull(kept[port.value] for end in ends for port in end.kernel.outputs if port.value)
            for end in ends:
                new |= end.asked != asked
                end.asked = asked
    return new
