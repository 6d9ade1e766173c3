"""Diff: two plans side by side, kernel by kernel, with the reason that changed.

A pure function of plans: of one model for two targets, or before and after an edit. Kernels are matched by
name. Source: docs/specification.md, section 6; ARCHITECTURE.md.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.errors import quantity
from planner.ir.types.qtypes import Uniform
from planner.plans.explain import type_text
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan, PortTyped, Rescale, Step

FORMAT = "qplan.diff/1"
FLOATS = "kernels in float"
LOST = "worst bits lost"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs; `before` or `after` is "" where it is on one side only.

    Attributes:
      at: a port, kernel or rescale.
      why: the rule that decides it on either side.
    """

    at: str
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The differences between two plans.

    Attributes:
      kernels: rows that changed, kernels of one plan only.
      ports: types that changed, at kernels of both.
      rescales: changes of type on use edges of one plan only.
      totals: (before, after) of price (cost and excused), excused, rescales, casts, rescaled elements, worst
        bits lost, float kernels.
    """

    kernels: tuple[Change, ...]
    ports: tuple[Change, ...]
    rescales: tuple[Change, ...]
    totals: Mapping[str, tuple[float, float]]

    @property
    def is_empty(self) -> bool:
        """Whether the plans decide the same."""
        return not (self.kernels or self.ports or self.rescales)

    def to_json(self) -> str:
        """As `qplan.diff/1`."""
        document: dict[str, Any] = {"format": FORMAT}
        for name in ("kernels", "ports", "rescales"):
            document[name] = [asdict(change) for change in getattr(self, name)]
        return json.dumps(document | {"totals": dict(self.totals)}, indent=1)

    def __str__(self) -> str:
        if self.is_empty:
            return "The plans decide the same."
        lines = [f"{name}: {a:g} -> {b:g}" for name, (a, b) in self.totals.items() if a != b]
        lines += [text] if (text := price_note(self.totals)) else []
        for title, changes in (
            ("kernels", self.kernels),
            ("ports", self.ports),
            ("rescales", self.rescales),
        ):
            lines += [f"{title}:"] if changes else []
            lines += [f"  {worded(change)}" for change in changes]
        return "\n".join(lines)


def price_note(totals: Mapping[str, tuple[float, float]]) -> str:
    """Say that a lower price is no better plan, where more kernels run in float for it; "" where not."""
    (before, after), (few, many) = totals["price"], totals[FLOATS]
    if after >= before or many <= few:
        return ""
    return f"the lower price is no better plan: {many - few:g} more kernels run in float, which has no price"


def diff(a: Plan, b: Plan) -> PlanDiff:
    """Compare two plans; `a` is before, `b` after.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> planner.diff(plan, plan).is_empty
      True
    """
    require_plan(a)
    require_plan(b)
    totals = [plan_totals(plan) | {LOST: worst_bits_lost(plan)} for plan in (a, b)]
    return _compared(a, b, totals, lambda port: _why(_step(a, port), _step(b, port)))


def outline(a: Plan, b: Plan) -> PlanDiff:
    """The same without reasons and bits lost.

    Those are in the log, which a plan that was planned again in part writes when it is first looked at; of
    10,000 kernels that takes longer than planning.
    """
    found = _compared(a, b, [plan_totals(a), plan_totals(b)], lambda _: "")
    return replace(found, totals={name: both for name, both in found.totals.items() if name != LOST})


def _compared(a: Plan, b: Plan, totals: Sequence[Mapping[str, float]], why: Callable[[str], str]) -> PlanDiff:
    ours, theirs = _rescales(a), _rescales(b)
    before, after = totals
    gone = [Change(r.id, _rescale_text(r), "") for key, r in ours.items() if key not in theirs]
    new = [Change(r.id, "", _rescale_text(r)) for key, r in theirs.items() if key not in ours]
    return PlanDiff(
        kernels=tuple(_kernels(a, b)),
        ports=tuple(_ports(a, b, why)),
        rescales=(*gone, *new),
        totals={name: (before[name], after[name]) for name in before},
    )


def worded(change: Change) -> str:
    """One line: `+` and `-` for what is on one side only."""
    why = f" ({change.why})" if change.why else ""
    if not change.before:
        return f"+ {change.at}: {change.after}{why}"
    if not change.after:
        return f"- {change.at}: {change.before}{why}"
    return f"{change.at}: {change.before} -> {change.after}{why}"


def _kernels(a: Plan, b: Plan) -> Iterator[Change]:
    for name in dict.fromkeys((*a.kernels, *b.kernels)):
        before, after = a.kernels.get(name), b.kernels.get(name)
        if before is after and a.target.digest == b.target.digest:
            continue
        one, other = _row_text(a, before), _row_text(b, after)
        if one != other:
            yield Change(name, one, other)


def _row_text(plan: Plan, kernel: KernelPlan | None) -> str:
    if kernel is None:
        return ""
    row = plan.target.rows[kernel.row] if kernel.row is not None else None
    return (
        f"{kernel.kernel} by {row.source}"
        if row is not None
        else f"{kernel.kernel} in float: {kernel.reason}"
    )


def _ports(a: Plan, b: Plan, why: Callable[[str], str]) -> Iterator[Change]:
    for name, before in a.kernels.items():
        after = b.kernels.get(name)
        if after is None or after is before:
            continue
        theirs = {port.address: port for port in (*after.inputs, *after.outputs)}
        for port in (*before.inputs, *before.outputs):
            other = theirs.get(port.address)
            if other is not None and port.type != other.type:
                yield Change(port.address, type_text(port.type), type_text(other.type), why(port.address))


def _step(plan: Plan, address: str) -> Step | None:
    return plan.steps[plan.step_at[address]] if address in plan.step_at else None


def _why(before: Step | None, after: Step | None) -> str:
    one, other = (_reason(step) for step in (before, after))
    return one if one == other else f"{one or 'float'} -> {other or 'float'}"


def _reason(step: Step | None) -> str:
    if step is None:
        return ""
    return f"{'fixed type' if step.rule == 'pinned' else step.rule}: {step.source}"


def _rescales(plan: Plan) -> dict[tuple[Any, ...], Rescale]:
    return {(r.value, r.consumers, r.kind, r.to_pin): r for r in plan.rescales}


def _rescale_text(rescale: Rescale) -> str:
    readers = ", ".join(f"{kernel}.in[{i}]" for kernel, i in rescale.consumers)
    return (
        f"{rescale.kind} of {quantity(rescale.elements, 'element')} for {readers}, "
        f"{type_text(rescale.from_type)} to {type_text(rescale.to_type)}"
    )


def plan_totals(plan: Plan) -> dict[str, float]:
    """The totals of a plan that a comparison shows, less the bits lost."""
    rescales, casts = counted(plan)
    return {
        "price": plan.price,
        "excused": plan.excused,
        "rescales": len(rescales),
        "rescaled elements": sum(item.elements for item in rescales),
        "casts": len(casts),
        LOST: 0.0,
        FLOATS: sum(kernel.row is None for kernel in plan.kernels_in_order),
    }


def counted(plan: Plan) -> tuple[list[Rescale], list[Rescale]]:
    """The rescales of a plan, and its quantizes and dequantizes."""
    casts = [item for item in plan.rescales if item.kind in ("quantize", "dequantize")]
    return [item for item in plan.rescales if item.kind not in ("quantize", "dequantize")], casts


def worst_bits_lost(plan: Plan) -> float:
    """Most bits that a consumer loses against a type of its own range."""
    return max((value.bits_lost for value in plan.values.values()), default=0.0)


def types_at(plan: Plan, value: str) -> list[PortTyped]:
    """Types of all ports at a value, in plan order."""
    kernels = [plan.kernels_in_order[at] for at in plan.kernels_at.get(value, ())]
    ports = (port for kernel in kernels for port in (*kernel.outputs, *kernel.inputs))
    return [port.type for port in ports if port.value == value]


def stored_types(plan: Plan, value: str) -> list[Uniform]:
    """The integer types among `types_at`, each once."""
    return list(dict.fromkeys(kind for kind in types_at(plan, value) if isinstance(kind, Uniform)))
