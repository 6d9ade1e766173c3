"""Work: what a plan costs the device to run, beside the price that planning minimises.

In elements requantized, the unit of `rescale.cost`. A kernel's work is that of its multiply-accumulates, of
the elements that it reads and writes and of its weights, at the rates of its row, or of the target's floats;
the borders of integers are priced by `rescale.cost` alone. Source: docs/specification.md, section 11.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ops import defined, of_form
from planner.ops.forms import Form
from planner.plans.fields import PlanFields
from planner.plans.records import KernelPlan, PortTyped, TargetRef
from planner.target.records import WorkRates

MAC_BITS: Final = 1024
"""A MAC of 32 x 32 bits is one unit where nothing is said."""
ELEMENT_BITS: Final = 32
FREE: Final = of_form(Form.BORDER, Form.VIEW)
"""Kernels of these ops alone read and write nothing: the data lie where they lay."""
CASTS: Final = frozenset({"quantize", "dequantize"})


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that one engine writes and another reads.

    Attributes:
      value: its name.
      source, reader: the engines.
      elements: of all runs together; an unknown dimension counts as 1.
      work: of handing them over, in elements requantized.
    """

    value: str
    source: str
    reader: str
    elements: int
    work: float


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a plan.

    Attributes:
      kernels: of all kernels.
      rescales: of changes between integer types.
      borders: of quantize and dequantize.
      crossings: of values that another engine reads.
    """

    kernels: float
    rescales: float
    borders: float
    crossings: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.kernels + self.rescales + self.borders + self.crossings


def work_of(plan: PlanFields) -> Work:
    """Add up the work of a plan; an unknown dimension counts as 1."""
    regions = {region.name: region for region in plan.graph.regions}
    kernels = sum(
        kernel_work(kernel, regions[kernel.name], plan.graph, plan.target) for kernel in plan.kernels_in_order
    )
    borders = sum(rescale.cost for rescale in plan.rescales if rescale.kind in CASTS)
    rescales = sum(rescale.cost for rescale in plan.rescales) - borders
    return Work(kernels, rescales, borders, sum(crossing.work for crossing in crossings_of(plan)))


def float_work_of(plan: PlanFields) -> float:
    """Return the work of the same kernels in float: nothing is rescaled, and no engine hands values over."""
    regions = {region.name: region for region in plan.graph.regions}
    return sum(
        kernel_work(_in_float(kernel), regions[kernel.name], plan.graph, plan.target)
        for kernel in plan.kernels_in_order
    )


def run_time_work_of(plan: PlanFields) -> float:
    """Return the work of a model whose own file multiplies integers that it quantizes at run time.

    Products as the plan has them, everything else in float.
    """
    regions = {region.name: region for region in plan.graph.regions}
    work = 0.0
    for kernel in plan.kernels_in_order:
        region = regions[kernel.name]
        is_product = any(defined(op.type).macs is not None for op in region.ops)
        work += kernel_work(kernel if is_product else _in_float(kernel), region, plan.graph, plan.target)
    return work


def _in_float(kernel: KernelPlan) -> KernelPlan:
    inputs, outputs = (
        tuple([replace(port, type=None) for port in side]) for side in (kernel.inputs, kernel.outputs)
    )
    return replace(kernel, row=None, inputs=inputs, outputs=outputs)


def crossings_of(plan: PlanFields) -> tuple[Crossing, ...]:
    """Values that cross from engine to engine, once for each engine that reads them, in order of definition.

    The model's inputs and outputs are where its caller has them, whatever engine reads them.
    """
    engines = plan.target.engines
    if not engines.names:
        return ()
    rows = {kernel.name: kernel.row for kernel in plan.kernels_in_order}
    on = {name: engines.of(None if row is None else plan.target.rows[row]) for name, row in rows.items()}
    made = {port.value: kernel for kernel in plan.kernels_in_order for port in kernel.outputs if port.value}
    readers: dict[str, dict[str, None]] = {value: {} for value in made}
    for kernel in plan.kernels_in_order:
        for port in kernel.inputs:
            if port.value in made and on[kernel.name] != on[made[port.value].name]:
                readers[port.value][on[kernel.name]] = None
    return tuple(
        Crossing(value, on[made[value].name], reader, elements, elements * engines.crossing)
        for value, others in readers.items()
        for elements in (plan.graph.values[value].elements * made[value].trip_count,)
        for reader in others
    )


def kernel_work(kernel: KernelPlan, region: Region, graph: Graph, target: TargetRef) -> float:
    """Work of one kernel, all its runs together."""
    if region.ops and all(op.type in FREE for op in region.ops):
        return 0.0
    rates = target.float_work if kernel.row is None else target.rows[kernel.row].work
    bits = {port.value: _bits(port.type, port.value, graph) for port in kernel.inputs if port.value}
    dynamic = None if kernel.row is None else target.rows[kernel.row].dynamic
    if dynamic is not None:  # float in the plan, but what is multiplied are integers
        bits[kernel.inputs[0].value] = dynamic.storage.bits
    unsigned = {
        port.value
        for port in kernel.inputs
        if isinstance(port.type, Uniform) and not port.type.storage.signed
    }
    total = _products(region, graph, bits, rates, unsigned)
    for port in (*kernel.inputs, *kernel.outputs):
        if not port.value:
            continue
        width, elements = _bits(port.type, port.value, graph), graph.values[port.value].elements
        if port.value in graph.constants:
            total += elements * width / 8 * (rates.byte or 0.0)
        else:
            total += elements * (width / ELEMENT_BITS if rates.element is None else rates.element)
    return total * kernel.trip_count


def _products(
    region: Region, graph: Graph, bits: Mapping[str, int], rates: WorkRates, unsigned: Container[str]
) -> float:
    """Work of the multiply-accumulates of a kernel's ops; values inside are as wide as its widest operand."""
    inside = max((width for name, width in bits.items() if name not in graph.constants), default=ELEMENT_BITS)
    total = 0.0
    for op in region.ops:
        count = defined(op.type).macs
        if count is not None:
            found = count(op, graph)
            pair = bits.get(found.a, inside) * bits.get(found.w, inside)
            rate = pair / MAC_BITS if rates.mac is None else rates.mac
            if found.w in unsigned and rates.mac_unsigned is not None:
                rate = rates.mac_unsigned
            total += found.macs * rate
    return total


def _bits(kind: PortTyped, value: str, graph: Graph) -> int:
    """Width in bits of a port."""
    if isinstance(kind, Uniform):
        return kind.storage.bits
    return NUMPY[kind.name if isinstance(kind, FloatType) else graph.values[value].dtype].itemsize * 8
