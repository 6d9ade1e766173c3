"""Totals of a plan, and short words for its rows and ports, for the page, the command and the demo.

Pure functions of a plan. Source: docs/specification.md, sections 3 and 6.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.ir.dtypes import NUMPY
from planner.ir.types.qtypes import Uniform
from planner.plans.explain import type_text
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port
from planner.plans.work import CASTS, Work


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of a plan.

    Attributes:
      kernels, integer: planned kernels, and how many of them are quantized.
      rescales, casts: type changes between integers, and quantize or dequantize at the borders of float.
      cost, bound: in element-rescales; `optimal` where they are known to meet.
      changed: the part of the cost for rescales and casts; the rest is for lost bits.
      work: the cost of a run on the device, in `work_unit`.
      engines: kernels on each engine of a device that names several.
      crossing: values that one of them writes and another reads.
    """

    kernels: int
    integer: int
    rescales: int
    casts: int
    cost: float
    excused: float
    changed: float
    bound: float
    optimal: bool
    fully_quantized: bool
    work: Work
    work_unit: str
    engines: Mapping[str, int]
    crossing: int

    @property
    def cost_text(self) -> str:
        """Cost, and how far from the least it can be."""
        proof = "the least possible" if self.optimal else f"at least {self.bound:,.0f} is needed"
        excused = f" + {self.excused:,.0f} excused" if round(self.excused) else ""
        return f"{self.cost:,.0f}{excused} ({proof})"

    @property
    def engines_text(self) -> str:
        """Kernels by engine, and the values that cross between them; "" on a device with one."""
        shown = ", ".join(f"{count} on {name}" for name, count in self.engines.items())
        return f"{shown}; values that cross: {self.crossing}" if shown else ""

    @property
    def work_text(self) -> str:
        """Work in all, and the part of rescales and borders."""
        parts = f"{self.work.rescales:,.0f} rescales, {self.work.borders:,.0f} borders of floats"
        if self.work.crossings:
            parts += f", {self.work.crossings:,.0f} crossings between engines"
        return f"{self.work.total:,.0f} {self.work_unit} ({parts})"


def totals(plan: Plan) -> Totals:
    """Count the contents of a plan."""
    casts = sum(rescale.kind in CASTS for rescale in plan.rescales)
    engines = [engine for kernel in plan.kernels_in_order if (engine := plan.engine_of(kernel.name))]
    return Totals(
        kernels=len(plan.kernels_in_order),
        integer=sum(is_integer(kernel) for kernel in plan.kernels_in_order),
        rescales=len(plan.rescales) - casts,
        casts=casts,
        cost=plan.cost,
        excused=plan.excused,
        changed=sum(rescale.cost for rescale in plan.rescales),
        bound=plan.bound,
        optimal=plan.optimal,
        fully_quantized=plan.fully_quantized,
        work=plan.work,
        work_unit=plan.target.work_unit or "elements",
        engines=dict(Counter(sorted(engines, key=plan.target.engines.names.index))),
        crossing=len(plan.crossings),
    )


def is_integer(kernel: KernelPlan) -> bool:
    """Whether a kernel is quantized: some port of it is uniform."""
    return any(isinstance(port.type, Uniform) for port in (*kernel.inputs, *kernel.outputs))


def row_text(plan: Plan, kernel: KernelPlan) -> str:
    """`file:line` of the row that serves a kernel, or why none does."""
    row = plan.row_of(kernel.name)
    return kernel.reason or "float" if row is None else row.source or row.key


def port_text(port: Port) -> str:
    """`x: !quant.uniform<...>`; `-` for an absent port."""
    return f"{port.value}: {type_text(port.type)}" if port.value else "-"


class Size(NamedTuple):
    """Bytes of the weights that kernels read: as they are, and as the plan stores them."""

    before: float
    after: float


def size_of(plan: Plan) -> Size:
    """Add up the weights; one that is stored in several types counts once for each."""
    stored: dict[tuple[str, object], float] = {}
    before: dict[str, float] = {}
    for kernel in plan.kernels_in_order:
        for port in kernel.inputs:
            if port.value not in plan.graph.constants:
                continue
            value = plan.graph.values[port.value]
            if value.dtype not in NUMPY:
                continue
            whole = float(value.elements * NUMPY[value.dtype].itemsize)
            before[port.value] = whole
            bits = port.type.storage.bits if isinstance(port.type, Uniform) else None
            stored[port.value, bits] = whole if bits is None else value.elements * bits / 8
    return Size(sum(before.values()), sum(stored.values()))
