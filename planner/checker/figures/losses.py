"""Verify what types cut off and lose, and the price: clips, lost bits, and their sum are what the plan says.

A use loses as many bits as the coarsest scale that its data passed since it was computed is coarser than that
of its own range. Not verified: bits of data that had a scale per slice or block, or that was moved in float;
how much of the sum is excused, as every plan loses it, which is known between two ends.
Source: docs/specification.md, section 5, the price, items 3 to 5.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from planner.checker.figures.ranges import Ranges, held_in
from planner.checker.figures.steps import Step
from planner.checker.kernel_ports import refuse
from planner.ir.types.held_pins import centring
from planner.ir.types.intervals import Interval, cut_to
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.target.ports.labels import UNIT, clipped_share, label_for, label_of, log_units
from planner.target.records import PortType

NEAR: Final = 1e-9


def check_clips(plan: Plan, ranges: Ranges) -> bool:
    """Clips are those of the types, and a warning tells of each port beyond `max_clip`; whether any is.

    Raises:
      PlanInvalid: a clip of which nothing is said, or another figure.
    """
    worst: dict[str, float] = {}
    max_clip = plan.target.costs.max_clip
    told = {warning.partition(" ")[0] for warning in plan.warnings if " clips " in warning}
    for step in ranges.steps:
        for i, port in enumerate(step.ports):
            extent, kind = step.required[i], port.type
            if extent is None or not isinstance(kind, Uniform) or port.value in plan.graph.constants:
                continue
            share = clipped(extent, kind)
            worst[port.value] = max(share, worst.get(port.value, 0.0))
            if share > max_clip and port.address not in told:
                held = f"cuts off {share:.2%} of [{extent[0]:g}, {extent[1]:g}]"
                accepted = f"at most {max_clip:.2%}, or a warning that says how much"
                refuse(port.address, f"is {brief(kind)} and {held}; accepted: {accepted}")
    for name, value in plan.values.items():
        if abs(value.clip - worst.get(name, 0.0)) > NEAR:
            refuse(
                address_of(plan, name),
                f"is listed as clipping {value.clip!r} of its range; accepted: {worst.get(name, 0.0)!r}",
            )
    return any(share > max_clip for share in worst.values())


def clipped(extent: Interval, kind: Uniform) -> float:
    """Share of a range that a type cuts off, half a step given away at each end."""
    return clipped_share(extent, label_of(kind), kind.storage) if kind.is_per_tensor else 0.0


def address_of(plan: Plan, name: str) -> str:
    """The port that writes a value, its name where none does."""
    made = (port for kernel in plan.kernels_in_order for port in kernel.outputs if port.value == name)
    return next((port.address for port in made), name)


NEVER: Final = -(1 << 40)


class Trail(NamedTuple):
    """The path of some data since it was computed.

    `coarsest`: log2 of the coarsest scale, in 1/1024, `NEVER` for none, and whether it is `sure`; `left`: the
    port type it was stored in last, and whether that is `placed`; `floated`: whether a kernel moved it in
    float.
    """

    coarsest: int = NEVER
    left: PortType | None = None
    sure: bool = True
    placed: bool = True
    floated: bool = False


class Lost(NamedTuple):
    """One consuming use of a value, with its elements and the bits lost in 1/1024, None where not known.

    `floated`: whether its data was moved in float, so that it may lose less than what nobody avoids.
    """

    value: str
    elements: int
    bits: int | None
    floated: bool = False


def check_lost(plan: Plan, losses: Sequence[Lost]) -> None:
    """The bits that the plan says each value loses are those of its worst use.

    Raises:
      PlanInvalid: the first value that loses others.
    """
    most: dict[str, int] = {}
    unsure = {loss.value for loss in losses if loss.bits is None}
    for loss in losses:
        most[loss.value] = max(loss.bits or 0, most.get(loss.value, 0))
    for name, value in plan.values.items():
        bits = most.get(name, 0) / UNIT
        if value.bits_lost < bits - NEAR or (name not in unsure and value.bits_lost > bits + NEAR):
            refuse(
                address_of(plan, name), f"is listed as losing {value.bits_lost!r} bits; accepted: {bits!r}"
            )


def check_price(plan: Plan, losses: Sequence[Lost]) -> None:
    """The price is that of the rescales and of lost bits, split into cost and what is excused.

    Raises:
      PlanInvalid: another sum, a cost below its rescales', or excused bits that nothing lost.
    """
    costs = plan.target.costs
    # Prices are integers in 1/1024 of an element-rescale: each kind's, and each use's for what it loses.
    least = most = 0
    for rescale in plan.rescales:
        price = float(getattr(costs, rescale.kind))
        least += round(rescale.cost / price) * round(price * UNIT) if price else 0
    for loss in losses:
        paid = (loss.bits or 0) - round(costs.free_bits * UNIT)
        most += round(loss.elements * costs.bit_price * paid) if paid > 0 else 0
    known = all(loss.bits is not None for loss in losses)
    if not least - 1 <= plan.cost * UNIT or (known and plan.cost * UNIT > least + most + 1):
        ends = f"{least / UNIT!r} for its rescales, up to {(least + most) / UNIT!r} with lost bits"
        refuse("", f"costs {plan.cost!r}; accepted: {ends}")
    whole = plan.price * UNIT
    # What single uses lose is not always known: it is no more than what the plan says of the worst.
    room = 0.0
    for loss in losses if not known else ():
        worst = plan.values[loss.value].bits_lost if loss.bits is None and loss.value in plan.values else 0.0
        room += math.ceil(loss.elements * costs.bit_price * max(worst, 0.0) * UNIT)
    if not least + most - 1 <= whole <= least + most + room + 1 or not plan.excused >= 0:
        told = f"costs {plan.cost!r} and excuses {plan.excused!r} of lost bits"
        ends = f"{(least + most) / UNIT!r}" + (f" to {(least + most + room) / UNIT!r}" if room else "")
        refuse("", f"{told}; accepted: {ends} together")


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """Data followed through all kernels.

    Attributes:
      trails: the path of each value since it was computed.
      lost: the uses of each step, in order.
      looped: whether a loop hands data back to its start.
    """

    ranges: Ranges
    trails: Mapping[str, Trail]
    lost: Sequence[Sequence[Lost]]
    looped: bool

    @property
    def losses(self) -> list[Lost]:
        """Every consuming use of data, those of the model's results last."""
        of, found = self.ranges.of, [one for uses in self.lost for one in uses]
        results = [name for name in self.ranges.graph.outputs if name in self.trails]
        return found + [_lost(self.ranges, name, self.trails[name], of.get(name)) for name in results]


def follow(ranges: Ranges) -> Followed:
    """Follow the data of a plan."""
    trails: dict[str, Trail] = {}
    for name, pin in ranges.held.items():
        if name in ranges.graph.inputs:
            trails[name] = _stored(Trail(), pin, PortType(pin.storage))
    found = _follow(ranges, trails)
    # A loop hands data back to its start: again, until no trail changes, at most once a loop.
    loops = [step for step in ranges.steps if step.partner is not None]
    for _ in loops:
        before = dict(trails)
        found = _follow(ranges, trails)
        if trails == before:
            break
    return Followed(ranges, trails, found, bool(loops))


def follow_again(retyped: Ranges, known: Followed) -> Followed:
    """Follow the data where a few steps differ from what is known, and the others where it reaches them."""
    if known.looped:
        return follow(retyped)
    trails, changed = dict(known.trails), set[str]()
    found: list[Sequence[Lost]] = []
    for step, before, lost in zip(retyped.steps, known.ranges.steps, known.lost, strict=True):
        if step is before and (not changed or changed.isdisjoint(port.value for port in step.kernel.inputs)):
            found.append(lost)
            continue
        found.append(_pass(retyped, step, None, trails))
        changed.update(port.value for port in step.kernel.outputs
                       if port.value and trails[port.value] != known.trails[port.value])  # fmt: skip
    return Followed(retyped, trails, found, looped=False)


def _follow(ranges: Ranges, trails: dict[str, Trail]) -> list[Sequence[Lost]]:
    """Data through all kernels once, with what each use of it loses."""
    leaving = {id(step.partner): step for step in ranges.steps if step.partner is not None}
    return [_pass(ranges, step, leaving.get(id(step)), trails) for step in ranges.steps]


def _pass(ranges: Ranges, step: Step, leaving: Step | None, trails: dict[str, Trail]) -> Sequence[Lost]:
    """Data through one kernel, and through the end of the loop that it begins; see `_follow`."""
    moved, lost = Trail(), list[Lost]()
    if step.moves:
        read = [*step.kernel.inputs, *(leaving.kernel.inputs if leaving is not None else ())]
        # Constants are stored for this use alone: how coarse theirs is says nothing of other data.
        data = [port for port in read if port.value and port.value not in ranges.graph.constants]
        passed = [(trails.get(port.value, Trail()), port.type) for port in data]
        moved = _joined([_stored(t, k, t.left) if isinstance(k, Uniform) else t for t, k in passed])
    else:
        lost = [*_consumed(ranges, step, trails)]
    for i, port in enumerate(step.kernel.outputs, len(step.kernel.inputs)):
        if port.value:
            trails[port.value] = _made(ranges, step, i, moved)
    return lost


def _made(ranges: Ranges, step: Step, position: int, moved: Trail) -> Trail:
    """The trail of a result."""
    port = step.ports[position]
    if isinstance(port.type, Uniform):
        moved = _stored(moved, port.type, spec_of(ranges, step, position, port.type))
        moved = moved._replace(placed=not may_grow(step))
    elif step.moves:
        # In float: the row that might store it, or that it left, is in no plan.
        moved = moved._replace(placed=False, floated=True)
    pin = ranges.held.get(port.value)
    return moved if pin is None else _stored(moved, pin, PortType(pin.storage))


def _stored(trail: Trail, kind: Uniform, spec: PortType | None) -> Trail:
    if not kind.is_per_tensor:
        return trail._replace(left=spec, sure=False, placed=True)
    return trail._replace(coarsest=max(trail.coarsest, log_units(kind.scale)), left=spec, placed=True)


def _joined(trails: Sequence[Trail]) -> Trail:
    left = next((trail.left for trail in trails if trail.left is not None), None)
    coarsest = max((trail.coarsest for trail in trails), default=NEVER)
    sure, placed = all(trail.sure for trail in trails), all(trail.placed for trail in trails)
    return Trail(coarsest, left, sure, placed, any(trail.floated for trail in trails))


def _consumed(ranges: Ranges, step: Step, trails: Mapping[str, Trail]) -> Iterator[Lost]:
    """The uses of a kernel that computes."""
    for i, port in enumerate(step.kernel.inputs):
        if not port.value or port.value in ranges.graph.constants:
            continue
        trail = trails.get(port.value, Trail())
        if isinstance(port.type, Uniform):
            trail = _stored(trail, port.type, spec_of(ranges, step, i, port.type))
        yield _lost(ranges, port.value, trail, step.required[i])


def spec_of(ranges: Ranges, step: Step, position: int, kind: Uniform) -> PortType:
    """The type of a port of the row, a wildcard in the storage it has."""
    pattern = step.served.patterns[position] if step.served is not None else None
    even = step.ports[position].value in ranges.signs
    plain = PortType() if pattern is None else pattern.type
    is_told = plain.storage == kind.storage and plain.even == even
    if not is_told:
        plain = replace(plain, storage=kind.storage, even=even)
    # What takes any storage takes one of a format's as that format has it.
    is_centred = pattern is not None and pattern.type.is_wildcard and centring(kind.storage, ranges.formats)
    own = step.region.input_facts or step.region.output_facts
    return replace(plain, symmetric=True) if is_centred and plain.zero_point is None and not own else plain


def _lost(ranges: Ranges, name: str, trail: Trail, extent: Interval | None) -> Lost:
    elements, spec = ranges.graph.values[name].elements, trail.left
    if extent is not None and spec is not None and isinstance(spec.storage, Storage):
        # A float use keeps more than the storage that the data left was to hold.
        extent = cut_to(extent, held_in(ranges, name, spec.storage) or extent)
    if trail.sure and (extent is None or trail.coarsest == NEVER):
        return Lost(name, elements, 0, trail.floated)
    if spec is None or extent is None or not (trail.sure and trail.placed):
        return Lost(name, elements, None)
    return Lost(name, elements, max(0, trail.coarsest - log_units(label_for(extent, spec)[0])), trail.floated)


def may_grow(step: Step) -> bool:
    """Whether a device's range of multipliers may have made scales of a kernel coarser than its ports ask."""
    rules = step.served.row.rules if step.served is not None else ()
    return any(rule.kind == "multiplier_scale" and rule.args.get("range") is not None for rule in rules)
