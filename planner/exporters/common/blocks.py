"""Blocks: planned regions one by one, each with its port types and its fused activation taken apart.

An activation folds into stored bounds (`Clamp`). Nothing here writes. Source: docs/specification.md, sections
3 and 7; docs/formats.md (activations fold after propagation only).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.common.values import Values
from planner.ir.graph import Graph, Op, Region
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.ops import defined
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped
from planner.target.records import Row

CLAMPS: Final = frozenset({"Clip", "Relu"})


@dataclass(frozen=True, slots=True)
class Clamp:
    """Bounds in stored units that a fused activation and a narrow storage range leave."""

    low: int
    high: int


class Block(NamedTuple):
    """A planned region: its ops, its ports, and its fused activation taken apart.

    Attributes:
      core: the ops but for the activation.
      activation: a final Relu or Clip that gives the region's only result, quantized; else None.
      kinds: the port type of each operand that is a port, by (op name, operand index).
    """

    region: Region
    kernel: KernelPlan
    core: tuple[Op, ...]
    activation: Op | None
    kinds: Mapping[tuple[str, int], PortTyped]

    @property
    def is_integer(self) -> bool:
        """Whether any port is quantized."""
        return any(isinstance(port.type, Uniform) for port in (*self.kernel.inputs, *self.kernel.outputs))

    @property
    def float_result(self) -> str:
        """The only result, if there is one and an integer kernel gives it as float; else ""."""
        ports = [port for port in self.kernel.outputs if port.value]
        only = ports[0] if len(ports) == 1 and self.is_integer else None
        return only.value if only is not None and only.type is None else ""

    @property
    def result(self) -> str:
        """The value the core computes; where there is an activation, what that reads."""
        return self.core[-1].outputs[0]


def blocks(plan: Plan, *, dynamic: bool = False) -> Iterator[Block]:
    """Regions in order: planned ones, and those of shape arithmetic that they or the outputs need.

    Args:
      dynamic: whether the format has activations that are quantized at run time.

    Raises:
      UnsupportedExport: a row that computes what no format of its kind says.
    """
    needed = _needed(plan)
    for region in plan.graph.regions:
        if region.name not in needed:
            continue
        kernel = plan.kernels.get(region.name) or KernelPlan(region.name, region.kernel, None, None, (), ())
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
                    "which onnx-qdq, onnx-qoperator and onnx-integer alone say",
                    hint="export one of these; `planner.evaluate` computes it",
                )
        if row is not None:
            region = replace(region, ops=ops_to_run(region))  # noqa: PLW2901 - as the row serves it
        activation = _fused_activation(region, kernel)
        core = region.ops[:-1] if activation is not None else region.ops
        yield Block(region, kernel, core, activation, _port_kinds(region, kernel))


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


def _needed(plan: Plan) -> frozenset[str]:
    """Names of the regions that a planned kernel or a model output rests on."""
    values, names = set(plan.graph.outputs), set()
    for region in reversed(plan.graph.regions):
        written = {name for op in region.ops for name in op.outputs}
        if region.name in plan.kernels or not values.isdisjoint(written):
            names.add(region.name)
            values.update(name for op in region.ops for name in (*op.inputs, *op.captures))
    return frozenset(names)


def _port_kinds(region: Region, kernel: KernelPlan) -> Mapping[tuple[str, int], PortTyped]:
    """Port types by operand; a value on several ports gives them out in the order of its operands."""
    types: dict[str, list[PortTyped]] = {}
    for port in reversed(kernel.inputs):
        types.setdefault(port.value, []).append(port.type)
    found: dict[tuple[str, int], PortTyped] = {}
    for op in region.ops:
        others = defined(op.type).parameters
        for i, name in enumerate(op.inputs):
            if name and name in types and i not in others:
                stack = types[name]
                found[op.name, i] = stack.pop() if len(stack) > 1 else stack[0]
    return found


def split_tail(ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The ops but for a last Relu or Clip of what the one before it computes, and that one."""
    if len(ops) < 2 or ops[-1].type not in CLAMPS or ops[-1].inputs[0] != ops[-2].outputs[0]:
        return ops, ()
    return ops[:-1], ops[-1:]


def _fused_activation(region: Region, kernel: KernelPlan) -> Op | None:
    tail = split_tail(region.ops)[1]
    if not tail or len(kernel.outputs) != 1 or tail[0].outputs[0] != kernel.outputs[0].value:
        return None
    return tail[0] if isinstance(kernel.outputs[0].type, Uniform) else None


def moved_kind(values: Values[Any], block: Block) -> Uniform | None:
    """The one type of all integers that a region's only op moves; None where it has several, or computes."""
    kinds = [port.type for port in (*block.kernel.inputs, *block.kernel.outputs) if port.value]
    first = kinds[0] if kinds else None
    is_lone = len(block.region.ops) == 1 and is_movement(block.region.ops[0], values.graph)
    if not is_lone or not isinstance(first, Uniform):
        return None
    return first if all(values.is_same(first, kind) for kind in kinds) else None


def is_written_in_f32(graph: Graph, block: Block) -> bool:
    """Whether every float operand and result of a block is stored quantized, or constant.

    Its floats are float32 then, whatever the model's are.
    """
    outputs = () if block.float_result else block.kernel.outputs
    for port in (*block.kernel.inputs, *outputs):
        if port.value and not isinstance(port.type, Uniform):
            return False
    values, inside = graph.values, {name for op in block.core for name in op.outputs}
    for op in block.core:
        if op.captures or any(name and not values[name].is_float for name in op.outputs[:1]):
            return False
        for i, name in enumerate(op.inputs):
            is_known = (op.name, i) in block.kinds or name in inside or name in graph.constants
            if name and values[name].is_float and not is_known:
                return False
    return True


def clamp_of(values: Values[Any], op: Op | None, kind: Uniform) -> Clamp | None:
    """Stored bounds of a Relu or Clip, or of the storage range alone; None: bounds known only at run time.

    A bound b is at its stored value q(b), so a Relu's is the zero point. Bounds that the value's fixed type
    implies are left out.
    """
    low, high = kind.storage.qmin, kind.storage.qmax
    if op is None:
        return Clamp(low, high)
    lo: float | None = 0.0 if op.type == "Relu" else op.attributes.get("min")
    hi: float | None = op.attributes.get("max")
    for i, name in enumerate(op.inputs[1:3]):
        if not name:
            continue
        if name not in values.graph.constants:
            return None
        number = float(values.array(name).reshape(()))
        lo, hi = (number, hi) if i == 0 else (lo, number)
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


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and the integer type a port reads it in."""

    value: str
    kind: Uniform


def operand_of(block: Block, op: Op, index: int) -> Operand | None:
    """A quantized operand; None where it is float, inner or absent."""
    kind = block.kinds.get((op.name, index))
    return Operand(op.inputs[index], kind) if isinstance(kind, Uniform) else None


def stored_operands(block: Block, op: Op, indices: Iterable[int]) -> list[Operand] | None:
    """Quantized operands of one scale each; None where one is none such."""
    found = [operand_of(block, op, i) for i in indices]
    kept = [x for x in found if x is not None and x.kind.is_per_tensor]
    return kept if len(kept) == len(found) else None
