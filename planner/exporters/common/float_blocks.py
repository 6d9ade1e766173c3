"""Float blocks: planned regions one by one, written as float ops between DequantizeLinear and QuantizeLinear.

What both ONNX formats share: regions with their port types, which operand reads which port, fused
activations as clamps of the stored result, float regions. Nothing here knows a QLinear op.
Source: design 01, sections 3 and 7; design 05, "Traps" (activations fold after propagation only).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.common.values import Values
from planner.exporters.onnx.model_builder import SHAPE_READERS, ModelBuilder
from planner.exporters.onnx.storage_types import held_dtype, whole_range
from planner.ir.borders import border_op
from planner.ir.graph import Op, Region
from planner.ir.roles import NON_PORT_INPUTS
from planner.ir.structure import JOIN
from planner.ir.types.qtypes import Uniform
from planner.onnx.dtypes import NUMPY
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped

CLAMPS: Final = frozenset({"Clip", "Relu"})
BORDER_ARITHMETIC: Final = "float32_even"
"""What a rescale at the border of a body computes by, as the interpreter has it: no row says."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """Bounds in stored units that a fused activation and a narrow storage range leave."""

    low: int
    high: int

    def is_idle(self, kind: Uniform) -> bool:
        """Whether saturation to the tensor's integer type does the same."""
        bounds = whole_range(held_dtype(kind))
        return (self.low, self.high) == (bounds.min, bounds.max)


class Block(NamedTuple):
    """A planned region: its ops, its ports, and its fused activation taken apart.

    Attributes:
      core: the ops but for the activation.
      activation: a last Relu or Clip whose result alone leaves the region, in integers; else None.
      kinds: the port type of each operand that is a port, by (op name, operand index).
    """

    region: Region
    kernel: KernelPlan
    core: tuple[Op, ...]
    activation: Op | None
    kinds: Mapping[tuple[str, int], PortTyped]

    @property
    def is_integer(self) -> bool:
        """Whether any port is stored in integers."""
        return any(isinstance(port.type, Uniform) for port in (*self.kernel.inputs, *self.kernel.outputs))

    @property
    def result(self) -> str:
        """The value the core computes; where there is an activation, what that reads."""
        return self.core[-1].outputs[0]


def blocks(plan: Plan) -> Iterator[Block]:
    """Regions in order: planned ones, and those of shape arithmetic that they or the outputs need."""
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
        activation = _fused_activation(region, kernel)
        core = region.ops[:-1] if activation is not None else region.ops
        yield Block(region, kernel, core, activation, _port_kinds(region, kernel))


def write_border(builder: ModelBuilder, block: Block) -> bool:
    """Write what hands a value over the border of a body, in the type it has there; False: it is none."""
    op = border_op(block.region)
    if op is None:
        return False
    builder.values.arithmetic = BORDER_ARITHMETIC
    value = op.outputs[0]
    outputs = block.kernel.outputs
    kind = outputs[0].type if outputs else None
    steering = op.inputs[:1] if op.type == JOIN else ()
    sources = op.inputs[len(steering) :]
    if isinstance(kind, Uniform):
        tensors = [builder.stored(source, kind) for source in sources]
        result = builder.stored_name(value, kind)
    else:
        tensors = [builder.operand(source) for source in sources]
        result = builder.raw_name(value, None) if builder.graph.values[value].is_float else value
    builder.emit_border(op, [*(builder.operand(name) for name in steering), *tensors], result, kind)
    if isinstance(kind, Uniform):
        builder.define_stored(value, kind, result)
    elif builder.graph.values[value].is_float:
        builder.values.define_real(value, result)
    return True


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
        others = NON_PORT_INPUTS.get(op.type, frozenset())
        for i, name in enumerate(op.inputs):
            if name and name in types and i not in others:
                stack = types[name]
                found[op.name, i] = stack.pop() if len(stack) > 1 else stack[0]
    return found


def _fused_activation(region: Region, kernel: KernelPlan) -> Op | None:
    last = region.ops[-1]
    if len(region.ops) < 2 or last.type not in CLAMPS or len(kernel.outputs) != 1:
        return None
    if last.outputs[0] != kernel.outputs[0].value or not isinstance(kernel.outputs[0].type, Uniform):
        return None
    return last if last.inputs[0] == region.ops[-2].outputs[0] else None


def clamp_of(values: Values[Any], op: Op | None, kind: Uniform) -> Clamp | None:
    """Stored bounds of a Relu or Clip, or of the storage range alone; None: bounds known only at run time.

    A bound b is at its stored value q(b), so a Relu's is the zero point.
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
    return Clamp(min(low, high), high)


def _stored_number(real: float, kind: Uniform) -> int:
    if not real:
        return kind.zero_point
    one = kind if kind.is_per_tensor else Uniform(kind.storage, kind.scales[:1], kind.zero_points[:1])
    return int(quantize_array(np.asarray(real, np.float32), one))


def write_real(builder: ModelBuilder, block: Block) -> None:
    """Write a block's ops in float: dequantize what it reads, quantize what it defines.

    In float32 where the block is integer all around, whatever the model's own float: that is the arithmetic
    of a plan, and onnxruntime fuses nothing else into integer kernels.
    """
    is_f32 = _is_written_in_f32(builder, block)
    ports = {port.value: port for port in block.kernel.outputs if port.value}
    reads = _Reads(builder, block, is_f32=is_f32)
    raw: dict[str, str] = {name: builder.raw_name(name, port.type) for name, port in ports.items()}
    for op in block.core:
        inputs = reads.operands(op)
        outputs = [raw.get(name, name) for name in op.outputs]
        reads.inner.update(zip(op.outputs, outputs, strict=True))
        pools = op.type == "AveragePool"
        written, read = _unfused(builder, block, op, inputs, is_f32=is_f32) if pools else (op, inputs)
        builder.file.emit_op(written, read, outputs)
    for name, port in ports.items():
        if not isinstance(port.type, Uniform):
            builder.values.define_real(name, raw[name])
            continue
        tensor = raw[name] if block.activation is None else reads.inner[block.result]
        settle(builder, name, tensor if is_f32 else builder.as_f32(name, tensor), port.type, block.activation)


def _is_written_in_f32(builder: ModelBuilder, block: Block) -> bool:
    """Whether all a block reads and writes in float is stored in integers, or constant."""
    for port in (*block.kernel.inputs, *block.kernel.outputs):
        if port.value and not isinstance(port.type, Uniform):
            return False
    values, inside = builder.graph.values, {name for op in block.core for name in op.outputs}
    for op in block.core:
        if op.captures or any(name and not values[name].is_float for name in op.outputs[:1]):
            return False
        for i, name in enumerate(op.inputs):
            is_known = (op.name, i) in block.kinds or name in inside or name in builder.graph.constants
            if name and values[name].is_float and not is_known:
                return False
    return True


def _unfused(
    builder: ModelBuilder, block: Block, op: Op, inputs: list[str], *, is_f32: bool
) -> tuple[Op, list[str]]:
    """An AveragePool that onnxruntime does not fuse: its integer kernel lacks dilations."""
    steps = op.attributes.get("dilations", ())
    seen = block.kinds.get((op.name, 0)) or builder.values.bases.get(op.inputs[0])
    if steps and set(steps) == {1}:
        op = replace(op, attributes={k: v for k, v in op.attributes.items() if k != "dilations"})
    elif steps and isinstance(seen, Uniform):
        guard = builder.file.fresh(f"{inputs[0]}_guard")
        dtype = "float32" if is_f32 else NUMPY[builder.graph.values[op.inputs[0]].dtype].name
        builder.file.emit("Max", [inputs[0], builder.file.number(dtype, -math.inf)], [guard])
        inputs = [guard]
    return op, inputs


class _Reads:
    """Which tensor each operand of a region's ops reads; `inner` renames what the region computes."""

    def __init__(self, builder: ModelBuilder, block: Block, *, is_f32: bool) -> None:
        self.inner: dict[str, str] = {}
        self._is_f32 = is_f32
        self._builder = builder
        self._kinds = block.kinds

    def operands(self, op: Op) -> list[str]:
        for name in op.captures:
            if name not in self.inner and self._builder.operand(name) != name:
                raise UnsupportedExport(
                    f"a subgraph of {op.name!r} reads {name!r} in float, and the model's boundary stores it",
                    hint=f"leave {name!r} unpinned",
                )
        return [self._operand(op, i, name) for i, name in enumerate(op.inputs)]

    def _operand(self, op: Op, index: int, name: str) -> str:
        if name in self.inner:
            return self.inner[name]
        if op.type in SHAPE_READERS:
            return self._builder.any_form(name)
        kind = self._kinds.get((op.name, index))
        if self._is_f32 and isinstance(kind, Uniform):
            return self._builder.real_f32(name, kind)
        if (
            self._is_f32
            and name in self._builder.graph.constants
            and self._builder.graph.values[name].is_float
        ):
            return self._builder.constant_f32(name)
        return self._builder.operand(name) if kind is None else self._builder.values.real(name, kind)


def settle(builder: ModelBuilder, value: str, tensor: str, kind: Uniform, activation: Op | None) -> None:
    """Quantize a region's float32 result, clamp it by its activation, and define the value."""
    clamp = clamp_of(builder.values, activation, kind)
    if clamp is not None and clamp.is_idle(kind):
        result = builder.stored_name(value, kind)
        builder.quantize_f32(tensor, kind, result)
        builder.define_stored(value, kind, result)
        return
    whole = builder.file.fresh(f"{value}_unclamped")
    builder.quantize_f32(tensor, kind, whole)
    write_clamped(builder, value, whole, kind, activation)


def write_clamp_alone(builder: ModelBuilder, block: Block) -> bool:
    """Write a Relu or Clip that is a kernel of its own on stored integers; False where that is not exact.

    It is exact where both ends have one type; where the type's range already cuts nothing is written.
    """
    op, ports = block.core[0], (*block.kernel.inputs[:1], *block.kernel.outputs)
    if len(block.region.ops) > 1 or op.type not in CLAMPS or len(ports) < 2:
        return False
    wanted, kind = ports[0].type, ports[1].type
    if (
        not isinstance(kind, Uniform)
        or not isinstance(wanted, Uniform)
        or not builder.values.is_same(wanted, kind)
    ):
        return False
    clamp = clamp_of(builder.values, op, kind)
    if clamp is None or not (clamp.is_idle(kind) or held_dtype(kind) in builder.integer_clamps):
        return False
    whole = builder.stored(ports[0].value, wanted)
    if clamp.is_idle(kind):
        builder.define_stored(ports[1].value, kind, whole)
    else:
        write_clamped(builder, ports[1].value, whole, kind, op)
    return True


def write_clamped(
    builder: ModelBuilder, value: str, whole: str, kind: Uniform, activation: Op | None
) -> None:
    """Clamp a stored tensor by an activation and the storage range, and define the value as the result.

    On integers where the format's `integer_clamps` has the type; else through float, which is exactly
    the same: stored values survive the way to float and back.
    """
    clamp = clamp_of(builder.values, activation, kind)
    result = builder.stored_name(value, kind)
    if clamp is not None and held_dtype(kind) in builder.integer_clamps:
        builder.file.emit("Clip", [whole, *_stored_bounds(builder, clamp, kind)], [result])
    else:
        real, cut = builder.file.fresh(f"{value}_unclamped_f32"), builder.file.fresh(f"{value}_clamped")
        builder.dequantize_f32(whole, kind, real)
        if clamp is None and activation is not None and kind.storage.is_full:
            builder.file.emit(
                "Clip", [real, *(builder.operand(name) for name in activation.inputs[1:])], [cut]
            )
        else:
            _clamp_reals(builder, real, cut, clamp, kind)
        builder.quantize_f32(cut, kind, result)
    builder.define_stored(value, kind, result)


def _stored_bounds(builder: ModelBuilder, clamp: Clamp, kind: Uniform) -> tuple[str, str]:
    dtype = held_dtype(kind).name
    return builder.file.number(dtype, clamp.low), builder.file.number(dtype, clamp.high)


def _clamp_reals(builder: ModelBuilder, real: str, cut: str, clamp: Clamp | None, kind: Uniform) -> None:
    bounds = whole_range(held_dtype(kind))
    if clamp is not None and (clamp.low, clamp.high) == (kind.zero_point, bounds.max):
        builder.file.emit("Relu", [real], [cut])
        return
    if clamp is None or not kind.is_per_tensor:
        raise UnsupportedExport(
            f"the clamp of {real!r} in {kind.storage} has bounds known only at run time, or per slice",
            hint="use a type per tensor with the storage's full range, or constant bounds",
        )
    scale = np.float32(kind.scale)
    lo, hi = (float(np.float32(q - kind.zero_point) * scale) for q in (clamp.low, clamp.high))
    builder.file.emit(
        "Clip", [real, builder.file.number("float32", lo), builder.file.number("float32", hi)], [cut]
    )
