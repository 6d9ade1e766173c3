"""Figures of each kernel for the page: multiply-accumulates, work, bits lost, its share of the noise.

Pure functions of a plan and its losses. Source: docs/accuracy.md, docs/search.md.
"""

from typing import Any, Final

from planner.accuracy.coverage import kernel_macs
from planner.accuracy.losses import Losses
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.plans.work import kernel_work

DIGITS: Final = 5
"""Significant digits of work and shares."""


def figures(plan: Plan, losses: Losses | None) -> dict[str, dict[str, Any]]:
    """By kernel name `macs`, `work` (the target's unit), `lost` (bits), `share` (of noise), `sqnr` (dB).

    `lost` is the most that a consumer of its results loses. Share and SQNR are None where nothing was
    measured, SQNR also where a kernel has no noise of its own.
    """
    regions = {region.name: region for region in plan.graph.regions}
    noise = {one.name: one for one in losses.kernels} if losses is not None else {}
    found = {}
    for kernel in plan.kernels_in_order:
        region, own = regions[kernel.name], noise.get(kernel.name)
        found[kernel.name] = {
            "macs": kernel_macs(kernel, region, plan.graph),
            "work": _short(kernel_work(kernel, region, plan.graph, plan.target)),
            "lost": _lost(plan, kernel),
            "share": None if own is None else _short(own.share),
            "sqnr": None if own is None or not own.share else round(own.sqnr, 2),
        }
    return found


def _lost(plan: Plan, kernel: KernelPlan) -> float:
    lost = [plan.values[port.value].bits_lost for port in kernel.outputs if port.value in plan.values]
    return round(max(lost, default=0.0), 3)


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
