"""Blocks: planned regions as the interpreter runs them, each with its ports, core and fused activation.

A last Relu or Clip is no op of the core but a clamp of the stored result. Consecutive float regions become
one step. Written independently of the exporters' reading of a plan, so that each can be checked against the
other.
Source: docs/specification.md, sections 3 and 7.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import ModelError
from planner.interpreter.requantize import Array
from planner.ir.graph import Graph, Op, Region, once_per_graph
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.ops import defined
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped
from planner.target.records import Row

CLAMPS: Final = frozenset({"Clip", "Relu"})
_DEFAULT_ARITHMETIC: Final = "float32_even"
_GATING: Final = "htp"
"""The arithmetic whose library makes one operator of `x * Sigmoid(x)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A planned region with an integer port.

    Attributes:
      core: the ops but for a fused activation.
      activation: the last Relu or Clip, where its result is the region's only one and quantized.
      kinds: integer types of the operands that are ports, by (op name, operand index).
      arithmetic: of the row, or the requested one.
      row: of the target, where the arithmetic is its own or the activation is quantized at run time.
      others: values without a type (indices, masks) that something outside reads.
    """

    kernel: KernelPlan
    core: tuple[Op, ...]
    activation: Op | None
    kinds: Mapping[tuple[str, int], Uniform]
    arithmetic: str
    others: tuple[str, ...]
    row: Row | None = None

    @property
    def result(self) -> Uniform | None:
        """The type of the only result, if there is one and it is quantized."""
        kinds = [port.type for port in self.kernel.outputs if port.value]
        only = kinds[0] if len(kinds) == 1 else None
        return only if isinstance(only, Uniform) else None

    @property
    def float_result(self) -> str:
        """The only result, if there is one and it is handed on as float; else ""."""
        ports = [port for port in self.kernel.outputs if port.value]
        return ports[0].value if len(ports) == 1 and ports[0].type is None else ""


@dataclass(frozen=True, slots=True, eq=False)
class Floats:
    """Consecutive regions without an integer port: their ops, and the values read outside."""

    ops: tuple[Op, ...]
    outputs: tuple[str, ...]


Stage: TypeAlias = Block | Floats


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
        kernel = plan.kernels.get(region.name) or KernelPlan(region.name, region.kernel, None, None, (), ())
        if not region.ops:
            raise ModelError(
                f"kernel {kernel.name!r} ({kernel.kernel}) has no ops inside, so it cannot be computed",
                hint="plan the model from its ONNX file",
            )
        others = _others(graph, region, readers)
        if any(isinstance(port.type, Uniform) for port in (*kernel.inputs, *kernel.outputs)):
            found += _joined(waiting, graph, readers)
            block = _block(plan, kernel, replace(region, ops=ops_to_run(region)), arithmetic, others)
            found.append(_gated(plan, block, makers) if block.arithmetic == _GATING else block)
            continue
        ports = tuple(port.value for port in kernel.outputs if port.value)
        waiting.append((region, (*ports, *others)))
        if any(name in pinned for name in ports):
            found += _joined(waiting, graph, readers)
    found += _joined(waiting, graph, readers)
    return tuple(found)


def is_in_f32(block: Block, graph: Graph) -> bool:
    """Whether a block's floats are float32 whatever the model's are: all around it is stored, or constant."""
    outputs = () if block.float_result else block.kernel.outputs
    ports = [port for port in (*block.kernel.inputs, *outputs) if port.value]
    if not all(isinstance(port.type, Uniform) for port in ports):
        return False
    values, inside = graph.values, {name for op in block.core for name in op.outputs}

    def is_seen(op: Op, i: int, name: str) -> bool:
        typed = (op.name, i) in block.kinds or name in inside or name in graph.constants
        return typed or not name or not values[name].is_float

    return all(
        not op.captures
        and all(not name or values[name].is_float for name in op.outputs[:1])
        and all(is_seen(op, i, name) for i, name in enumerate(op.inputs))
        for op in block.core
    )


def moved_kind(block: Block, graph: Graph) -> Uniform | None:
    """The one per-tensor type of all ports of a block that only moves 32-bit floats; None: it computes."""
    ports = [port for port in (*block.kernel.inputs, *block.kernel.outputs) if port.value]
    kind = ports[0].type if ports else None
    is_lone = len(block.core) == 1 and block.activation is None and bool(block.kernel.outputs)
    if not is_lone or not is_movement(block.core[0], graph) or not isinstance(kind, Uniform):
        return None
    is_uniform = kind.is_per_tensor and kind.storage.bits <= 16
    is_f32 = all(graph.values[port.value].dtype == "f32" for port in ports)
    return kind if is_uniform and is_f32 else None


def clamped(stored: Array, kind: Uniform, op: Op | None, numbers: Mapping[str, Array]) -> Array:
    """Cut stored integers to their storage range and by a Relu or Clip.

    Bounds act at their stored values. If a type has several scales or floats they act on reals instead.

    Args:
      stored: integers of `kind`.
      op: the activation; None: the storage range alone.
      numbers: arrays of the operands that hold the bounds.
    """
    whole: Array = np.clip(stored, kind.storage.qmin, kind.storage.qmax).astype(stored.dtype, copy=False)
    if op is None:
        return whole
    lo, hi = _bounds(op, numbers)
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


def split_tail(ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The ops but for a last Relu or Clip of what the one before it computes, and that one."""
    is_tail = len(ops) > 1 and ops[-1].type in CLAMPS and ops[-1].inputs[0] == ops[-2].outputs[0]
    return (ops[:-1], ops[-1:]) if is_tail else (ops, ())


def clamped_reals(reals: Array, op: Op, numbers: Mapping[str, Array]) -> Array:
    """Cut reals by a Relu or Clip; where its bounds cross, the upper one wins."""
    lo, hi = _bounds(op, numbers)
    low = reals if lo is None else np.maximum(reals, np.float32(lo))
    return np.asarray(low if hi is None else np.minimum(low, np.float32(hi)))


def bound_names(op: Op) -> tuple[str, ...]:
    """Names of the operands that hold a Clip's bounds."""
    return tuple(name for name in op.inputs[1:3] if name)


def _bounds(op: Op, numbers: Mapping[str, Array]) -> tuple[float | None, float | None]:
    if op.type == "Relu":
        return 0.0, None
    bounds: list[float | None] = [op.attributes.get("min"), op.attributes.get("max")]
    for i, name in enumerate(op.inputs[1:3]):
        if name:
            bounds[i] = float(numbers[name].reshape(()))
    return bounds[0], bounds[1]


def _stored_number(real: float, kind: Uniform) -> int:
    return int(quantize_array(np.asarray(real, np.float32), kind))


def _block(
    plan: Plan, kernel: KernelPlan, region: Region, arithmetic: str | None, others: tuple[str, ...]
) -> Block:
    activation = _activation(region, kernel)
    core = region.ops if activation is None else region.ops[:-1]
    row = plan.row_of(kernel.name)
    if arithmetic is None:
        arithmetic = _DEFAULT_ARITHMETIC if row is None else row.requantize
    elif row is not None and row.dynamic is None:
        row = None  # what quantizes at run time does so in any arithmetic
    return Block(kernel, core, activation, _kinds(region, kernel), arithmetic, others, row)


def _gated(plan: Plan, block: Block, makers: Mapping[str, Region]) -> Block:
    """The block of a Mul of x and its sigmoid with both as its core, and x as their only operand.

    Qualcomm's library computes so, even where the sigmoid is stored and read elsewhere.
    """
    mul = block.core[0]
    if len(block.core) > 1 or mul.type != "Mul":
        return block
    for i, other in ((0, 1), (1, 0)):
        region, kind = makers.get(mul.inputs[other]), block.kinds.get((mul.name, i))
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


def _activation(region: Region, kernel: KernelPlan) -> Op | None:
    last, ports = region.ops[-1], kernel.outputs
    if not split_tail(region.ops)[1] or len(ports) != 1 or last.outputs[0] != ports[0].value:
        return None
    return last if isinstance(ports[0].type, Uniform) else None


def _kinds(region: Region, kernel: KernelPlan) -> Mapping[tuple[str, int], Uniform]:
    """Types by operand; a value on several ports hands its types out in the order of its operands."""
    queues: dict[str, list[PortTyped]] = {}
    for port in kernel.inputs:
        queues.setdefault(port.value, []).append(port.type)
    found: dict[tuple[str, int], Uniform] = {}
    for op in region.ops:
        for i, name in enumerate(op.inputs):
            if not name or name not in queues or i in defined(op.type).parameters:
                continue
            queue = queues[name]
            kind = queue.pop(0) if len(queue) > 1 else queue[0]
            if isinstance(kind, Uniform):
                found[op.name, i] = kind
    return found


def needed_regions(plan: Plan) -> tuple[Region, ...]:
    """Regions that a planned kernel or a model output rests on; shape arithmetic has no plan of its own."""
    values = set(plan.graph.outputs)
    found: list[Region] = []
    for region in reversed(plan.graph.regions):
        written = {name for op in region.ops for name in op.outputs}
        if region.name in plan.kernels or not values.isdisjoint(written):
            found.append(region)
            values.update(name for op in region.ops for name in (*op.inputs, *op.captures))
    return tuple(reversed(found))


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
