"""Blocks: planned regions one by one, each with its port types and its fused activation taken apart.

A last Relu or Clip is no op of the core but a clamp of the stored result. Nothing here computes or writes.
Source: docs/specification.md, sections 3 and 7; docs/formats.md (activations fold after propagation only).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy.typing as npt

from planner.ir.graph import Graph, Op, Region
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.ops import defined
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, PortTyped
from planner.target.records import Row

Bounds: TypeAlias = tuple[float | None, float | None]

CLAMPS: Final = frozenset({"Clip", "Relu"})


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A planned region: its ops, its ports, and its fused activation taken apart.

    Attributes:
      core: the ops but for the activation.
      activation: a final Relu or Clip that gives the region's only result, quantized; else None.
      kinds: the port type of each operand that is a port, by (op name, operand index).
      row: of the target; None: the region runs in float, or in another arithmetic than the row's.
      arithmetic: of the row, or the requested one.
      others: values without a type (indices, masks) that something outside reads, for who runs them.
    """

    region: Region
    kernel: KernelPlan
    core: tuple[Op, ...]
    activation: Op | None
    kinds: Mapping[tuple[str, int], PortTyped]
    row: Row | None = None
    arithmetic: str = ""
    others: tuple[str, ...] = ()

    @property
    def ports(self) -> tuple[Port, ...]:
        """Ports that have a value."""
        return tuple(port for port in (*self.kernel.inputs, *self.kernel.outputs) if port.value)

    @property
    def stored_kinds(self) -> Mapping[tuple[str, int], Uniform]:
        """The types of operands that are read as stored integers."""
        return {place: kind for place, kind in self.kinds.items() if isinstance(kind, Uniform)}

    @property
    def is_integer(self) -> bool:
        """Whether any port is quantized."""
        return any(isinstance(port.type, Uniform) for port in (*self.kernel.inputs, *self.kernel.outputs))

    @property
    def y(self) -> Uniform | None:
        """The type of the only result, if there is one and it is quantized."""
        kinds = [port.type for port in self.kernel.outputs if port.value]
        only = kinds[0] if len(kinds) == 1 else None
        return only if isinstance(only, Uniform) else None

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


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and the integer type a port reads it in."""

    value: str
    kind: Uniform


def block_of(plan: Plan, region: Region) -> Block:
    """Take a region of a plan apart."""
    kernel, ops = planned(plan, region), region.ops
    tail, outputs = split_tail(ops)[1], kernel.outputs
    is_fused = len(outputs) == 1 and isinstance(outputs[0].type, Uniform)
    is_fused = is_fused and bool(tail) and tail[0].outputs[0] == outputs[0].value
    core, activation = (ops[:-1], tail[0]) if is_fused else (ops, None)
    row = plan.row_of(kernel.name) if kernel.row else None
    arithmetic = "" if row is None else row.requantize
    return Block(region, kernel, core, activation, _kinds(ops, kernel), row, arithmetic)


def planned(plan: Plan, region: Region) -> KernelPlan:
    """The plan of a region; one without ports of shape arithmetic, which has none of its own."""
    return plan.kernels.get(region.name) or KernelPlan(region.name, region.kernel, None, None, (), ())


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


def _kinds(ops: tuple[Op, ...], kernel: KernelPlan) -> Mapping[tuple[str, int], PortTyped]:
    """Port types by operand; a value on several ports gives them out in the order of its operands."""
    types: dict[str, list[PortTyped]] = {}
    for port in reversed(kernel.inputs):
        types.setdefault(port.value, []).append(port.type)
    found: dict[tuple[str, int], PortTyped] = {}
    for op in ops:
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


def moved_kind(block: Block, graph: Graph, is_same: Callable[[PortTyped, PortTyped], bool]) -> Uniform | None:
    """The one type of all integers that a region's only op moves; None where it has several, or computes.

    Args:
      is_same: whether no rescale stands between two types.
    """
    kinds = [port.type for port in block.ports]
    first = kinds[0] if kinds else None
    is_lone = len(block.region.ops) == 1 and is_movement(block.region.ops[0], graph)
    if not is_lone or not isinstance(first, Uniform):
        return None
    return first if all(is_same(first, kind) for kind in kinds) else None


def is_in_f32(block: Block, graph: Graph) -> bool:
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


def bounds_of(op: Op, numbers: Callable[[str], npt.NDArray[Any] | None]) -> Bounds | None:
    """The bounds of a Relu or Clip in reals; None where `numbers` has none for an operand that holds one."""
    if op.type == "Relu":
        return 0.0, None
    found: list[float | None] = [op.attributes.get("min"), op.attributes.get("max")]
    for i, name in enumerate(op.inputs[1:3]):
        array = numbers(name) if name else None
        if name and array is None:
            return None
        found[i] = found[i] if array is None else float(array.reshape(()))
    return found[0], found[1]


def operand_of(block: Block, op: Op, index: int) -> Operand | None:
    """A quantized operand; None where it is float, inner or absent."""
    kind = block.kinds.get((op.name, index))
    return Operand(op.inputs[index], kind) if isinstance(kind, Uniform) else None


def stored_operands(block: Block, op: Op, indices: Iterable[int]) -> list[Operand] | None:
    """Quantized operands of one scale each; None where one is none such."""
    found = [operand_of(block, op, i) for i in indices]
    kept = [x for x in found if x is not None and x.kind.is_per_tensor]
    return kept if len(kept) == len(found) else None
