"""Verify the claim that a plan is optimal: no label near a class, or classes that share one, is cheaper.

A proof would take a search; this is a search for its contrary. Each class that neither a rule nor a fact
decides is tried at the labels around it and at that of its own range, alone and with all that share its label
without a rescale between them. Source: docs/specification.md, section 5, the price.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from planner.checker.edges import Ends, ends_of, pins_of
from planner.checker.figures.losses import Followed, Lost, clipped, follow_again, may_grow, spec_of
from planner.checker.figures.ranges import Ranges
from planner.checker.figures.steps import Step
from planner.checker.kernel_ports import refuse
from planner.ir.types.intervals import hull
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import Port, PortTyped
from planner.target.ports.accepts import parameter_problem
from planner.target.ports.labels import UNIT, Label, label_for, label_of
from planner.target.records import Costs

MANY: Final = 64
"""Consumers of a value around which no other labels are tried: their product with classes would be large."""
WORK: Final = 10_000
"""Kernels looked at in all trials."""
FREE: Final = ("free_scale", "multiplier_scale", "same_storage")
"""Rules that leave scales to the ports."""

Place = tuple[int, int]
"""A port: the number of its kernel, and its position there, inputs first."""
Class = tuple[Place, ...]
"""Ports that share a label."""
Patch = dict[Place, Uniform]
"""Other types at some ports."""


def check_optimal(plan: Plan, ranges: Ranges, followed: Followed, *, clips: bool) -> None:
    """No class clips what it could hold, and no other label of one is cheaper.

    Args:
      followed: the plan's own data.
      clips: whether any port cuts off more than `max_clip` of its range.

    Raises:
      PlanInvalid: `max_clip` is broken without need; the plan is said to be optimal, and another is cheaper.
    """
    clips = clips and plan.options.get("strategy") != "rfc"
    inner = any(rescale.from_type and rescale.to_type for rescale in plan.rescales)
    # Without a rescale between kernels the target may allow none; best effort does what it does not allow.
    is_tried = plan.optimal and inner and "best_effort" not in plan.options
    if not clips and not is_tried:
        return
    classes = [one for n, step in enumerate(ranges.steps) for one in _free(ranges, n, step)]
    if clips:
        _check_legal(plan, ranges, classes)
    if is_tried:
        _check_cheapest(plan, ranges, followed, classes)


def _check_cheapest(plan: Plan, ranges: Ranges, followed: Followed, classes: Sequence[Class]) -> None:
    losses = followed.losses
    trips = {kernel.name: kernel.trip_count for kernel in plan.kernels_in_order}
    pins, work = pins_of(plan), WORK
    ends = ends_of(plan, plan.kernels_in_order, pins)
    for one in (*classes, *_sharing(ranges, classes)):
        names = {_at(ranges, place).value for place in one} & ends.readers.keys()
        if any(len(ends.readers[name]) > MANY for name in names):
            continue
        labels = dict.fromkeys((*_labels_around(ends, names), *_own_labels(ranges, one)))
        labels.pop(_label(_at(ranges, one[0]).type), None)
        for patch in filter(None, (_patch(plan, ranges, one, label) for label in labels)):
            work -= len(ranges.steps)
            if work < 0:
                return
            retyped = _retyped(ranges, patch)
            other = ends_of(plan, [step.kernel for step in retyped.steps], pins)
            saved = _saved_bits(plan.target.costs, losses, follow_again(retyped, followed).losses)
            for name in names:
                elements = plan.graph.values[name].elements
                saved += ends.price(name, elements, trips) - other.price(name, elements, trips)
            if saved > 1e-6 * plan.cost + len(losses) / UNIT:
                told = f"would save {saved:g} of a cost said to be optimal, {plan.cost!r}"
                refuse(_at(ranges, one[0]).address, f"as {brief(patch[one[0]])} {told}")


def _check_legal(plan: Plan, ranges: Ranges, classes: Sequence[Class]) -> None:
    """Nothing clips more than `max_clip` that its own range's label would hold (the greedy order may)."""
    for one in classes:
        for place in _entering(ranges, one):
            kind, extent = _at(ranges, place).type, ranges.steps[place[0]].required[place[1]]
            share = clipped(extent, kind) if extent is not None and isinstance(kind, Uniform) else 0.0
            own = _own_labels(ranges, one) if share > plan.target.costs.max_clip else ()
            for patch in filter(None, (_patch(plan, ranges, one, label) for label in own)):
                told = f"{share:.2%} of its range is cut off, {brief(patch[place])} would hold it"
                refuse(_at(ranges, place).address, told)


def _at(ranges: Ranges, place: Place) -> Port:
    return ranges.steps[place[0]].ports[place[1]]


def _free(ranges: Ranges, number: int, step: Step) -> Iterator[Class]:
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

    def is_free(i: int, port: Port) -> bool:
        plain = isinstance(port.type, Uniform) and port.type.is_per_tensor
        decided = step.fixed[i] or port.value in ranges.graph.constants
        return plain and not decided and served.patterns[i].name not in ruled

    free = [is_free(i, port) for i, port in enumerate(step.ports)]
    joined = {i for group in served.groups for i in group}
    for group in (*served.groups, *((i,) for i in range(len(free)) if i not in joined)):
        present = tuple((number, i) for i in group if step.ports[i].value)
        if present and all(free[i] for _, i in present):
            yield present


def _sharing(ranges: Ranges, classes: Sequence[Class]) -> Iterator[Class]:
    """Classes of one label that values link without a rescale, two or more together."""
    # Union and find: a parent stands before its children, so a root is the first class of its group.
    parents = [*range(len(classes))]

    def root(n: int) -> int:
        while parents[n] != n:
            parents[n] = n = parents[parents[n]]
        return n

    first: dict[tuple[str, Label], int] = {}
    for n, one in enumerate(classes):
        for port in (_at(ranges, place) for place in one):
            a, b = sorted((root(first.setdefault((port.value, _label(port.type)), n)), root(n)))
            if port.value not in ranges.pins:
                parents[b] = a
    groups: dict[int, list[Class]] = {}
    for n, one in enumerate(classes):
        groups.setdefault(root(n), []).append(one)
    for found in groups.values():
        if len(found) > 1:
            yield tuple(place for one in found for place in one)


def _entering(ranges: Ranges, one: Class) -> list[Place]:
    """The ports whose ranges a class has to hold: data movement writes what it read."""
    read = {n for n, i in one if i < len(ranges.steps[n].kernel.inputs)}
    moved = {n for n in read if ranges.steps[n].moves}
    return [(n, i) for n, i in one if n not in moved or i < len(ranges.steps[n].kernel.inputs)]


def _label(kind: PortTyped) -> Label:
    return label_of(kind) if isinstance(kind, Uniform) else (0.0, 0)


def _own_labels(ranges: Ranges, one: Class) -> Iterator[Label]:
    """The label of a class's own range; none where a fixed type enters."""
    (n, i), kind, entering = one[0], _at(ranges, one[0]).type, _entering(ranges, one)
    extent = hull(ranges.steps[k].required[j] for k, j in entering)
    pinned = any(_at(ranges, place).value in ranges.pins for place in entering)
    if extent is not None and not pinned and isinstance(kind, Uniform):
        yield label_for(extent, spec_of(ranges, ranges.steps[n], i, kind))


def _labels_around(ends: Ends, names: Iterable[str]) -> Iterator[Label]:
    """Labels at both ends of values, and of their fixed types."""
    for name in sorted(names):
        if name in ends.pins and not isinstance(ends.pins[name], Uniform):
            continue  # float in between: no label passes
        known = (ends.defined.get(name), ends.pins.get(name), *(kind for _, kind in ends.readers[name]))
        yield from (_label(kind) for kind in known if isinstance(kind, Uniform) and kind.is_per_tensor)


def _patch(plan: Plan, ranges: Ranges, one: Class, label: Label) -> Patch | None:
    """The ports of a class at a label; None where it is not legal for them."""
    patch, entering = Patch(), {*_entering(ranges, one)}
    for place in one:
        step, kind = ranges.steps[place[0]], _at(ranges, place).type
        if not isinstance(kind, Uniform):
            return None
        store, zero = kind.storage, label[1] + kind.storage.offset
        if not store.qmin <= zero <= store.qmax:
            return None
        patch[place] = Uniform(store, (label[0],), (zero,), kind.expressed)
        held = step.required[place[1]] if place in entering else None
        clips = held is not None and clipped(held, patch[place]) > plan.target.costs.max_clip
        if clips or parameter_problem(spec_of(ranges, step, place[1], kind), patch[place]):
            return None
    return patch


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
    """The least saving of other types in lost bits; negative: the most they cost.

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
