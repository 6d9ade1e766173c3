"""Re-verify the claim that a plan is optimal: no label near a class, or classes that share one, is cheaper.

A proof would take a search; this is a search for its contrary. Each class that neither a rule nor a fact
decides is tried at the labels around it and at that of its own range, alone and with all that share its label
without a rescale between them. Source: docs/specification.md, section 5, the price.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from planner.checker.edges import Consumer, Ends, ends_of
from planner.checker.figures.clips import clipped
from planner.checker.figures.losses import UNIT, Lost, losses_of, may_grow, own_label, spec_of
from planner.checker.figures.ranges import Ranges, Step
from planner.checker.kernel_ports import parameter_problem, refuse
from planner.ir.types.intervals import hull
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import Port, PortTyped
from planner.target.records import Costs, PortType

MANY: Final = 64
"""Readers of a value around which no other labels are tried: their product with classes would be large."""
WORK: Final = 10_000
"""Kernels looked at in all trials."""

Place = tuple[int, int]
"""A port: the number of its kernel, and its position there, inputs first."""
Patch = dict[Place, Uniform]
"""Other types at some ports."""


def check_optimal(plan: Plan, ranges: Ranges, losses: Sequence[Lost], *, clips: bool) -> None:
    """No class clips what it could hold, and no other label of one, or of some that share one, is cheaper.

    Args:
      clips: whether any port cuts off more than `max_clip` of what it has to hold.

    Raises:
      PlanInvalid: `max_clip` is broken without need; the plan is said to be optimal, and another is cheaper.
    """
    clips = clips and plan.options.get("strategy") != "rfc"
    inner = any(rescale.from_type and rescale.to_type for rescale in plan.rescales)
    # Without a rescale between kernels the target may allow none; best effort does what it does not allow.
    is_tried = plan.optimal and inner and "best_effort" not in plan.options
    if not clips and not is_tried:
        return
    classes = [places for n, step in enumerate(ranges.steps) for places in _free_classes(ranges, n, step)]
    if clips:
        _check_legal(plan, ranges, classes)
    if not is_tried:
        return
    ends, trips = (
        ends_of(plan, every=True),
        {kernel.name: kernel.trip_count for kernel in plan.kernels_in_order},
    )
    work = WORK
    for group in (*([places] for places in classes), *_sharing(ranges, classes)):
        places = [place for member in group for place in member]
        names = {_at(ranges, place).value for place in places}
        if any(len(ends.readers.get(name, ())) > MANY for name in names):
            continue
        for patch in _patches(plan, ranges, group, ends):
            work -= len(ranges.steps)
            if work < 0:
                return
            other, saved = _with(ranges, ends, patch), 0.0
            for name in names & ends.readers.keys():
                elements = plan.graph.values[name].elements
                saved += ends.price(name, elements, trips) - other.price(name, elements, trips)
            saved += _saved_bits(plan.target.costs, losses, losses_of(_retyped(ranges, patch)))
            if saved > 1e-6 * plan.cost + len(losses) / UNIT:
                first = _at(ranges, places[0])
                told = f"would save {saved:g} of a cost said to be optimal, {plan.cost!r}"
                refuse(first.address, f"as {brief(patch[places[0]])} {told}")


def _check_legal(plan: Plan, ranges: Ranges, classes: Sequence[tuple[Place, ...]]) -> None:
    """Nothing clips more than `max_clip` that its own range's label would hold (the greedy order may)."""
    max_clip = plan.target.costs.max_clip
    for places in classes:
        for n, i in places:
            kind, extent = ranges.steps[n].ports[i].type, ranges.steps[n].required[i]
            if not isinstance(kind, Uniform) or extent is None or clipped(extent, kind) <= max_clip:
                continue
            for own in _own_labels(ranges, [places]):
                patch = _patch(plan, ranges, places, own) if _enters(ranges, (n, i), places) else None
                if patch is not None:
                    told = f"{clipped(extent, kind):.2%} of its range is cut off"
                    refuse(_at(ranges, (n, i)).address, f"{told}, {brief(patch[n, i])} would hold it")


def _at(ranges: Ranges, place: Place) -> Port:
    return ranges.steps[place[0]].ports[place[1]]


FREE: Final = ("free_scale", "multiplier_scale", "same_storage")
"""Rules that leave scales to the ports."""


def _free_classes(ranges: Ranges, number: int, step: Step) -> Iterator[tuple[Place, ...]]:
    """Ports that share one label, which neither a rule nor a fact decides."""
    served = step.served
    if served is None or may_grow(step) or step.partner is not None or id(step) in ranges.entered:
        return
    ruled: set[object] = set()
    for rule in served.row.rules:
        if rule.kind == "multiplier_accumulator_scale":
            ruled.add(rule.args.get("port"))
        elif rule.kind not in FREE and (rule.kind != "same_scale" or {*rule.args} != {"ports"}):
            return
    constants, free = ranges.graph.constants, []
    for i, port in enumerate(served.ports):
        kind = port.type
        plain = isinstance(kind, Uniform) and kind.is_per_tensor and port.value not in constants
        free.append(plain and not step.fixed[i] and served.patterns[i].name not in ruled)
    joined = {i for group in served.groups for i in group}
    alone = [(i,) for i in range(len(served.ports)) if i not in joined]
    for group in (*served.groups, *alone):
        present = [i for i in group if served.ports[i].value]
        if present and all(free[i] for i in present):
            yield tuple([(number, i) for i in present])


def _sharing(ranges: Ranges, classes: Sequence[tuple[Place, ...]]) -> Iterator[list[tuple[Place, ...]]]:
    """Classes of one label that values link without a rescale, two or more together."""
    home = {place: n for n, places in enumerate(classes) for place in places}
    group = [*range(len(classes))]
    first: dict[tuple[str, tuple[float, int]], int] = {}
    for place, n in home.items():
        port = _at(ranges, place)
        key = port.value, _label(port.type)
        one, other = group[first.setdefault(key, n)], group[n]
        if one != other and port.value not in ranges.pins:
            group = [one if g == other else g for g in group]
    for root in dict.fromkeys(group):
        found = [classes[n] for n, g in enumerate(group) if g == root]
        if len(found) > 1:
            yield found


def _label(kind: PortTyped) -> tuple[float, int]:
    """Scale, and zero point as signed storage has it."""
    return (kind.scale, kind.zero_point - kind.storage.offset) if isinstance(kind, Uniform) else (0.0, 0)


def _patches(plan: Plan, ranges: Ranges, classes: Sequence[tuple[Place, ...]], ends: Ends) -> Iterator[Patch]:
    """Classes at one of the labels around them, or of the own range of one, as far as it is legal for all."""
    places = [place for members in classes for place in members]
    labels = dict.fromkeys(_labels_around(ends, {_at(ranges, place).value for place in places}))
    labels |= dict.fromkeys(_own_labels(ranges, classes))
    labels.pop(_label(_at(ranges, places[0]).type), None)
    for label in labels:
        found = [_patch(plan, ranges, members, label) for members in classes]
        if all(found):
            yield {place: kind for patch in found if patch for place, kind in patch.items()}


def _own_labels(ranges: Ranges, classes: Sequence[tuple[Place, ...]]) -> Iterator[tuple[float, int]]:
    """The label of each class's own range; a class that a pin enters has the pin's."""
    for members in classes:
        own = [place for place in members if _enters(ranges, place, members)]
        extent = hull(ranges.steps[n].required[i] for n, i in own)
        if extent is not None and not any(_at(ranges, place).value in ranges.pins for place in own):
            yield own_label(extent, _spec(ranges, members[0]))


def _patch(plan: Plan, ranges: Ranges, places: Sequence[Place], label: tuple[float, int]) -> Patch | None:
    """The ports of a class at a label; None where it is not legal for them."""
    patch: Patch = {}
    for place in places:
        n, i = place
        kind, zero = _at(ranges, place).type, label[1]
        if not isinstance(kind, Uniform) or not _fits(zero, kind):
            return None
        patch[place] = Uniform(kind.storage, (label[0],), (zero + kind.storage.offset,), kind.expressed)
        held = ranges.steps[n].required[i] if _enters(ranges, place, places) else None
        clips = held is not None and clipped(held, patch[place]) > plan.target.costs.max_clip
        if clips or parameter_problem(patch[place], _spec(ranges, place)):
            return None
    return patch


def _enters(ranges: Ranges, place: Place, places: Sequence[Place]) -> bool:
    """Whether a class has to hold the range at a port: what a mover writes is what it read."""
    number, position = place
    step, reads = ranges.steps[number], len(ranges.steps[number].kernel.inputs)
    return position < reads or not (step.moves and any(n == number and i < reads for n, i in places))


def _fits(zero: int, kind: Uniform) -> bool:
    return kind.storage.qmin <= zero + kind.storage.offset <= kind.storage.qmax


def _spec(ranges: Ranges, place: Place) -> PortType:
    kind, (step, position) = _at(ranges, place).type, place
    return spec_of(ranges, ranges.steps[step], position, kind) if isinstance(kind, Uniform) else PortType()


def _labels_around(ends: Ends, names: Iterable[str]) -> Iterator[tuple[float, int]]:
    """Labels at both ends of values, and of their pins."""
    for name in sorted(names):
        if name in ends.pins and not isinstance(
            ends.pins[name], Uniform
        ):  # float in between: no label passes
            continue
        for kind in (
            ends.defined.get(name),
            ends.pins.get(name),
            *(kind for _, kind in ends.readers.get(name, ())),
        ):
            if isinstance(kind, Uniform) and kind.is_per_tensor:
                yield _label(kind)


def _with(ranges: Ranges, ends: Ends, patch: Patch) -> Ends:
    """The same ends with other types at some ports."""
    defined, readers = dict[str, PortTyped](), dict[str, list[tuple[Consumer, PortTyped]]]()
    for (n, i), kind in patch.items():
        step, value = ranges.steps[n], ranges.steps[n].ports[i].value
        defined.setdefault(value, ends.defined[value])
        wanted = readers.setdefault(value, ends.readers.get(value, []))
        if i >= len(step.kernel.inputs):
            defined[value] = kind
        else:
            readers[value] = [(who, kind if who == (step.kernel.name, i) else old) for who, old in wanted]
    return Ends(defined, ends.pins, readers, ends.costs, ends.shared)


def _retyped(ranges: Ranges, patch: Patch) -> Ranges:
    """The same steps with other types at some ports."""
    steps = list(ranges.steps)
    for n in {n for n, _ in patch}:
        step, reads = steps[n], len(steps[n].kernel.inputs)
        ports = [replace(port, type=patch.get((n, i), port.type)) for i, port in enumerate(step.ports)]
        kernel = replace(step.kernel, inputs=tuple(ports[:reads]), outputs=tuple(ports[reads:]))
        steps[n] = replace(step, kernel=kernel)
    return replace(ranges, steps=steps)


def _saved_bits(costs: Costs, before: Sequence[Lost], after: Sequence[Lost]) -> float:
    """What other types save at least in lost bits; negative: what they cost at most.

    Nobody pays for what every plan loses, which is no more than either of these does, nor for the free bits.
    Data that is moved in float may lose less than that, as it counts stored: there no saving is sure. Types
    that may lose more than `max_bits_lost` beyond what every plan loses are no plan's, and save nothing.
    """
    saved, most = 0.0, math.inf if costs.max_bits_lost is None else costs.max_bits_lost * UNIT
    for one, other in zip(before, after, strict=True):
        if one.bits is None or other.bits is None or other.bits > max(one.bits, most):
            return -math.inf
        fewer = (one.bits - other.bits) / UNIT
        sure = 0.0 if other.floated else max(fewer - costs.free_bits, 0.0)
        paid = sure if fewer > 0 else fewer
        saved += one.elements * costs.bit_price * paid
    return saved
