"""Blocks: planned regions one by one as files have them, and their clamps.

An activation folds into stored bounds (`Clamp`). Nothing here writes. Source: docs/specification.md, sections
3 and 7; docs/formats.md (activations fold after propagation only).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.values import Values
from planner.ir.graph import Op
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, block_of, bounds_of, needed_regions, planned
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.records import Row


@dataclass(frozen=True, slots=True)
class Clamp:
    """Bounds in stored units that a fused activation and a narrow storage range leave."""

    low: int
    high: int


def blocks(plan: Plan, *, dynamic: bool = False) -> Iterator[Block]:
    """Regions in order: planned ones, and those of shape arithmetic that they or the outputs need.

    Args:
      dynamic: whether the format has activations that are quantized at run time.

    Raises:
      UnsupportedExport: a row that computes what no format of its kind says.
    """
    for region in needed_regions(plan):
        kernel = planned(plan, region)
        if not region.ops:
            raise UnsupportedExport(
                f"kernel {kernel.name!r} ({kernel.kernel}) has no ops inside, ONNX formats are made of ops",
                hint="plan the model from its ONNX file",
            )
        row = plan.row_of(kernel.name) if kernel.row else None
        if row is not None:
            _refuse_short_accumulator(kernel, row)
            _refuse_table(plan, kernel, row)
            if row.dynamic is not None and not dynamic:
                raise UnsupportedExport(
                    f"kernel {kernel.name!r} (row {kernel.row}) quantizes its first input while it runs, "
                    "which onnx-qdq, onnx-qoperator, onnx-integer and litert alone say",
                    hint="export one of these; `planner.evaluate` computes it",
                )
        yield block_of(plan, region if row is None else replace(region, ops=ops_to_run(region)))


def _refuse_short_accumulator(kernel: KernelPlan, row: Row) -> None:
    """Refuse sums that may leave an accumulator which saturates or wraps: no format says such a one."""
    room, bits = row.accumulator, kernel.accumulator_bits
    if room is not None and row.overflow != "refuse" and bits is not None and bits > room.bits:
        does = "saturates" if row.overflow == "saturate" else "wraps"
        raise UnsupportedExport(
            f"sums of kernel {kernel.name!r} (row {kernel.row}) may need {bits} bits, and its accumulator "
            f"{does} at {room}, which no format says",
            hint="`planner.evaluate` computes it; fewer bits of weights or activations make sums fit",
        )


def _refuse_table(plan: Plan, kernel: KernelPlan, row: Row) -> None:
    """Refuse a function that is looked up in fewer entries than its input has integers: no format says it."""
    if row.table is None:
        return
    kinds = [port.type for port in kernel.inputs if port.value not in plan.graph.constants]
    steps = max((kind.storage.steps + 1 for kind in kinds if isinstance(kind, Uniform)), default=0)
    if row.table.low is not None or row.table.entries < steps:
        raise UnsupportedExport(
            f"kernel {kernel.name!r} (row {kernel.row}) is looked up in {row.table.entries} entries, and no "
            f"format says a table of other entries than its input has integers, {steps}",
            hint="`planner.evaluate` computes it, and `qplan target kit` expects it of the device",
        )


def clamp_of(values: Values[Any], op: Op | None, kind: Uniform) -> Clamp | None:
    """Stored bounds of a Relu or Clip, or of the storage range alone; None: bounds known only at run time.

    A bound b is at its stored value q(b), so a Relu's is the zero point. Bounds that the value's fixed type
    implies are left out.
    """
    low, high = kind.storage.qmin, kind.storage.qmax
    if op is None:
        return Clamp(low, high)
    constants = values.graph.constants
    bounds = bounds_of(op, lambda name: values.array(name) if name in constants else None)
    if bounds is None:
        return None
    lo, hi = bounds
    if not kind.is_per_tensor and (lo or hi is not None or len(set(kind.zero_points)) > 1):
        return None
    if lo is not None:
        low = _stored_number(lo, kind)
    if hi is not None:
        high = _stored_number(hi, kind)
    # ONNX Clip with min > max gives max everywhere.
    low = min(low, high)
    cut = values.cut_to_pin(op.outputs[0], kind)
    if cut is not None and low <= cut.storage.qmin and cut.storage.qmax <= high:
        return Clamp(kind.storage.qmin, kind.storage.qmax)  # that cut comes next
    return Clamp(low, high)


def _stored_number(real: float, kind: Uniform) -> int:
    if not real:
        return kind.zero_point
    one = kind if kind.is_per_tensor else Uniform(kind.storage, kind.scales[:1], kind.zero_points[:1])
    return int(quantize_array(np.asarray(real, np.float32), one))
