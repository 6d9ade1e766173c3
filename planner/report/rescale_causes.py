"""Causes of rescales and casts: groups of those that one change of the model or plan would remove together.

In: a plan. Out: a few sentences with the rescales of each, most expensive first. `causes` has the sentences
on float kernels.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.accuracy.coverage import Fallback, reason_text
from planner.ir.graph import BOUNDARY, port_address
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Rescale
from planner.report.causes import cause_of, causes_of, kinds_listed

INPUTS: Final = "The model's inputs are float"
OUTPUTS: Final = "The model's outputs are float"
CONSTANTS: Final = "Constants are quantized while the model runs"
PINNED: Final = "The type of the value is fixed by an annotation or by the model"
FLOATS: Final = "Kernels fall back to float"
RULES: Final[Mapping[str, str]] = {
    "fixed_scale": "The target fixes the scale of a port",
    "same_scale": "All ports of a kernel share one scale",
}
"""By the rule that decided the type of the consumer's port."""
STORAGE: Final = "The consumer stores other integers"
OWN: Final = "The consumer has a scale of its own"


@dataclass(frozen=True, slots=True)
class RescaleCause:
    """Rescales with one cause.

    Attributes:
      text: the cause: `Kernels fall back to float: 2 operators are not supported by npu: Div (2)`.
      rescales: by place in the plan, in its order.
      cost: of them all.
    """

    text: str
    rescales: tuple[int, ...]
    cost: float


def rescale_causes(plan: Plan) -> list[RescaleCause]:
    """Group the rescales and casts of a plan, the most expensive group first."""
    kernels = {kernel.name: kernel for kernel in plan.kernels_in_order}
    makers = {port.value: kernel for kernel in plan.kernels_in_order for port in kernel.outputs if port.value}
    places: dict[tuple[str, str], list[int]] = {}
    about: dict[tuple[str, str], dict[str, KernelPlan]] = {}
    for at, rescale in enumerate(plan.rescales):
        near = [kernels[name] for name, _ in rescale.consumers if name != BOUNDARY]
        head, these = _cause(plan, rescale, near, makers.get(rescale.value))
        key = (head, str(cause_of(reason_text(these[0]))) if head == FLOATS and these else "")
        places.setdefault(key, []).append(at)
        about.setdefault(key, {}).update({kernel.name: kernel for kernel in these})
    found = [
        RescaleCause(_text(key[0], list(about[key].values())), tuple(mine), _cost(plan, mine))
        for key, mine in places.items()
    ]
    return sorted(found, key=lambda one: (-one.cost, one.rescales))


def _cost(plan: Plan, places: list[int]) -> float:
    return sum(plan.rescales[at].cost for at in places)


def _cause(
    plan: Plan, rescale: Rescale, near: list[KernelPlan], maker: KernelPlan | None
) -> tuple[str, list[KernelPlan]]:
    """The cause of a rescale, and the kernels that it is about."""
    if rescale.to_pin:
        return PINNED, near
    if rescale.kind == "quantize":
        if maker is not None:
            return FLOATS, [maker]
        return (CONSTANTS, near) if rescale.value in plan.graph.constants else (INPUTS, [])
    if rescale.kind == "dequantize":
        floats = [kernel for kernel in near if not any(isinstance(p.type, Uniform) for p in kernel.outputs)]
        return (FLOATS, floats or near) if near else (OUTPUTS, [])
    ends = (rescale.from_type, rescale.to_type)
    stores = {end.storage for end in ends if isinstance(end, Uniform)}
    if len(stores) > 1:
        return STORAGE, near
    addresses = [port_address(name, "in", index) for name, index in rescale.consumers]
    rules = [plan.steps[plan.step_at[one]].rule for one in addresses if one in plan.step_at]
    return next((RULES[rule] for rule in rules if rule in RULES), OWN), near


def _text(head: str, kernels: list[KernelPlan]) -> str:
    if not kernels:
        return head
    if head != FLOATS:
        return f"{head}: {kinds_listed(Counter(kernel.kernel for kernel in kernels))}"
    named: dict[str, Counter[str]] = {}
    for kernel in kernels:
        named.setdefault(reason_text(kernel), Counter())[kernel.kernel] += 1
    causes = causes_of([Fallback(reason, 0, kinds, "") for reason, kinds in named.items()])
    return f"{head}: {'; '.join(cause.text() for cause in causes)}"
