"""Verify clips: what types cut off is what the plan says.

Source: docs/specification.md, section 5, the price, item 3.
"""

from typing import Final

from planner.checker.figures.ranges import Ranges
from planner.checker.kernel_ports import refuse
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan

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
    if not kind.is_per_tensor:
        return 0.0
    lo, hi = min(extent[0], 0.0), max(extent[1], 0.0)
    store, half = kind.storage, 0.5 * kind.scale
    below = (store.qmin - kind.zero_point) * kind.scale - half - lo
    above = hi - (store.qmax - kind.zero_point) * kind.scale - half
    cut = max(below, 0.0) + max(above, 0.0)
    return cut / (hi - lo) if cut > 0.0 else 0.0


def address_of(plan: Plan, name: str) -> str:
    """The port that writes a value, its name where none does."""
    made = (port for kernel in plan.kernels_in_order for port in kernel.outputs if port.value == name)
    return next((port.address for port in made), name)
