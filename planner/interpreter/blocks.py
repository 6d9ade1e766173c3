"""Stages: planned regions as the interpreter runs them, consecutive float regions as one step.

Source: docs/specification.md, sections 3 and 7.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import ModelError
from planner.interpreter.requantize import Array
from planner.ir.graph import Graph, Op, Region, once_per_graph
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, block_of, bounds_of, moved_kind, planned
from planner.lowering.bodies import DEFAULT_ARITHMETIC
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

_GATING: Final = "htp"
"""The arithmetic whose library makes one operator of `x * Sigmoid(x)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Floats:
    """Consecutive regions without an integer port: their ops, and the values read outside."""

    ops: tuple[Op, ...]
    outputs: tuple[str, ...]


Stage: TypeAlias = Block | Floats
Numbers: TypeAlias = Callable[[str], Array]


def stages_of(
    graph: Graph,
    plan: Plan,
    arithmetic: str | None,
    pinned: Mapping[str, object],
    regions: Sequence[Region],
) -> tuple[Stage, ...]:
    """Steps that run some regions, in order.

    Args:
      graph: the float model.
      plan: of that model.
      arithmetic: for every kernel; None: each row's own.
      pinned: values with a fixed type: their consumers start from it, so it ends a float step.
      regions: of the plan, in order.

    Raises:
      ModelError: a region without ops.
    """
    readers = _readers(plan.graph)
    makers = {name: region for region in regions for op in region.ops for name in op.outputs if name}
    found: list[Stage] = []
    waiting: list[tuple[Region, tuple[str, ...]]] = []
    for region in regions:
        kernel = planned(plan, region)
        if not region.ops:
            raise ModelError(
                f"kernel {kernel.name!r} ({kernel.kernel}) has no ops inside, so it cannot be computed",
                hint="plan the model from its ONNX file",
            )
        others = _others(graph, region, readers)
        if any(isinstance(port.type, Uniform) for port in (*kernel.inputs, *kernel.outputs)):
            found += _joined(waiting, graph, readers)
            block = block_of(plan, replace(region, ops=ops_to_run(region)))
            block = _ready(replace(block, others=others), arithmetic)
            found.append(_gated(plan, block, makers) if block.arithmetic == _GATING else block)
            continue
        ports = tuple(port.value for port in kernel.outputs if port.value)
        waiting.append((region, (*ports, *others)))
        if any(name in pinned for name in ports):
            found += _joined(waiting, graph, readers)
    found += _joined(waiting, graph, readers)
    return tuple(found)


def _ready(block: Block, arithmetic: str | None) -> Block:
    """A block in the requested arithmetic."""
    if arithmetic is None:
        return replace(block, arithmetic=block.arithmetic or DEFAULT_ARITHMETIC)
    # What quantizes at run time does so in any arithmetic.
    is_dynamic = block.row is not None and block.row.dynamic is not None
    return replace(block, arithmetic=arithmetic, row=block.row if is_dynamic else None)


def moved_f32_kind(
    block: Block, graph: Graph, is_same: Callable[[PortTyped, PortTyped], bool]
) -> Uniform | None:
    """The type that a block moves, where it stands for 32-bit floats in 16 bits at most, per tensor."""
    kind = moved_kind(block, graph, is_same) if block.kernel.outputs else None
    is_plain = kind is not None and kind.is_per_tensor and kind.storage.bits <= 16
    return kind if is_plain and all(graph.values[port.value].dtype == "f32" for port in block.ports) else None


def clamped(stored: Array, kind: Uniform, op: Op | None, numbers: Numbers) -> Array:
    """Cut stored integers to their storage range and by a Relu or Clip.

    Bounds act at their stored values. If a type has several scales or floats they act on reals instead.

    Args:
      stored: integers of `kind`.
      op: the activation; None: the storage range alone.
      numbers: gives the arrays of operands that hold bounds.
    """
    whole: Array = np.clip(stored, kind.storage.qmin, kind.storage.qmax).astype(stored.dtype, copy=False)
    if op is None:
        return whole
    lo, hi = bounds_of(op, numbers) or (None, None)
    if kind.is_per_tensor and not kind.storage.float_name:
        low = kind.storage.qmin if lo is None else _stored_number(lo, kind)
        high = kind.storage.qmax if hi is None else _stored_number(hi, kind)
        return np.asarray(np.clip(whole, min(low, high), high))
    real = dequantize_array(whole, kind)
    if lo is not None:
        real = np.maximum(real, np.float32(lo))
    if hi is not None:
        real = np.minimum(real, np.float32(hi))
    return quantize_array(real, kind)


def clamped_reals(reals: Array, op: Op, numbers: Numbers) -> Array:
    """Cut reals by a Relu or Clip; where its bounds cross, the upper one wins."""
    lo, hi = bounds_of(op, numbers) or (None, None)
    low = reals if lo is None else np.maximum(reals, np.float32(lo))
    return np.asarray(low if hi is None else np.minimum(low, np.float32(hi)))


def _stored_number(real: float, kind: Uniform) -> int:
    return int(quantize_array(np.asarray(real, np.float32), kind))


def _gated(plan: Plan, block: Block, makers: Mapping[str, Region]) -> Block:
    """The block of a Mul of x and its sigmoid with both as its core, and x as their only operand.

    Qualcomm's library computes so, even where the sigmoid is stored and read elsewhere.
    """
    mul = block.core[0]
    if len(block.core) > 1 or mul.type != "Mul":
        return block
    for i, other in ((0, 1), (1, 0)):
        region, kind = makers.get(mul.inputs[other]), block.stored_kinds.get((mul.name, i))
        sigmoid = None if region is None else region.ops[0]
        if region is None or sigmoid is None or len(region.ops) > 1 or sigmoid.type != "Sigmoid":
            continue
        gate = plan.kernels.get(region.name)
        if gate is None or sigmoid.inputs != mul.inputs[i : i + 1] or kind is None:
            continue
        if all(port.type == kind for port in gate.inputs):
            kinds = {(sigmoid.name, 0): kind, (mul.name, i): kind}
            return replace(block, core=(sigmoid, mul), kinds=kinds)
    return block


@once_per_graph
def _readers(graph: Graph) -> Mapping[str, set[str]]:
    """Names of the regions that read each value; "" is the model's boundary."""
    readers: dict[str, set[str]] = {name: {""} for name in graph.outputs}
    for region in graph.regions:
        for op in region.ops:
            for name in (*op.inputs, *op.captures):
                readers.setdefault(name, set()).add(region.name)
    return readers


def _others(graph: Graph, region: Region, readers: Mapping[str, set[str]]) -> tuple[str, ...]:
    results = [name for op in region.ops for name in op.outputs if name]
    return tuple(
        name
        for name in results
        if not graph.values[name].is_float and readers.get(name, set()) - {region.name}
    )


def _joined(
    waiting: list[tuple[Region, tuple[str, ...]]], graph: Graph, readers: Mapping[str, set[str]]
) -> Iterator[Floats]:
    """The float regions waiting as one step, and none waiting any more.

    A value that is no tensor (an ONNX sequence) and is read only in the step itself is not handed out.
    """
    regions: Sequence[tuple[Region, tuple[str, ...]]] = tuple(waiting)
    waiting.clear()
    if regions:
        ops = tuple(op for region, _ in regions for op in region.ops)
        inside = {region.name for region, _ in regions}
        results = (name for _, outputs in regions for name in outputs)
        yield Floats(
            ops, tuple(r for r in results if graph.values[r].dtype or readers.get(r, set()) - inside)
        )
