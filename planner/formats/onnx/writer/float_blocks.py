"""Float blocks: regions as float ops between DequantizeLinear and QuantizeLinear, for all ONNX formats.

Which operand reads which port, borders of bodies, and clamps of results. Nothing here knows a QLinear op.
Source: docs/specification.md, sections 3 and 7.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.common.blocks import Clamp, clamp_of
from planner.formats.onnx.writer.model_builder import SHAPE_READERS, ModelBuilder
from planner.formats.onnx.writer.storage_types import ONNX_FLOATS, held_dtype, whole_range
from planner.ir.borders import border_op
from planner.ir.graph import Op
from planner.ir.structure import JOIN
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import CLAMPS, Block, is_in_f32, split_tail
from planner.lowering.bodies import border_arithmetic
from planner.plans.records import PortTyped


def write_border(builder: ModelBuilder, block: Block) -> bool:
    """Write what hands a value over the border of a body, in the type it has there; False: it is none."""
    op = border_op(block.region)
    if op is None:
        return False
    builder.values.arithmetic = border_arithmetic(builder.plan)
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


def write_real(builder: ModelBuilder, block: Block) -> None:
    """Write a block's ops in float: dequantize what it reads, quantize what it defines.

    In float32 where the block is integer all around, whatever the model's own float: that is the arithmetic
    of a plan, and onnxruntime fuses nothing else into integer kernels.
    """
    is_f32 = is_in_f32(block, builder.graph)
    ports = {port.value: port for port in block.kernel.outputs if port.value}
    reads = _Reads(builder, block, is_f32=is_f32)
    raw = {name: raw_name(builder, name, port.type, is_f32=is_f32) for name, port in ports.items()}
    for op in block.core:
        inputs = reads.operands(op)
        outputs = [raw.get(name, name) for name in op.outputs]
        reads.inner.update(zip(op.outputs, outputs, strict=True))
        builder.file.emit_op(_plain(op), inputs, outputs)
    for name, port in ports.items():
        if not isinstance(port.type, Uniform):
            define_float(builder, name, raw[name], is_f32=is_f32)
            continue
        tensor = raw[name] if block.activation is None else reads.inner[block.result]
        settle(builder, name, tensor if is_f32 else builder.as_f32(name, tensor), port.type, block.activation)


def raw_name(builder: ModelBuilder, value: str, kind: PortTyped, *, is_f32: bool) -> str:
    """Name for what the ops of a block give; one that is cast to another float is none of the model's."""
    is_cast = is_f32 and kind is None and builder.graph.values[value].dtype != "f32"
    return builder.file.fresh(f"{value}_f32") if is_cast else builder.raw_name(value, kind)


def define_float(builder: ModelBuilder, value: str, tensor: str, *, is_f32: bool) -> None:
    """Define a value as a float tensor, cast where it was computed in float32 and is another float."""
    dtype = builder.graph.values[value].dtype
    if is_f32 and dtype != "f32":
        tensor, source = builder.raw_name(value, None), tensor
        builder.file.emit("Cast", [source], [tensor], attributes={"to": ONNX_FLOATS[dtype]})
    builder.values.define_real(value, tensor)


def products(block: Block) -> Iterator[Block]:
    """A block whose result is float as the integer products that may begin it, the longest first.

    A last Relu or Clip is none of a product, and the bias of a MatMul may be added behind it.
    """
    ops, _ = split_tail(block.core)
    for count in range(len(ops) if block.float_result else 0, 0, -1):
        yield replace(block, core=ops[:count])


def hand_on(builder: ModelBuilder, block: Block, product: Block, write: Callable[[str], None]) -> None:
    """Define a float result: `write` gives the product to a tensor, the ops behind it follow in float32."""
    value, rest = block.float_result, block.core[len(product.core) :]
    result = raw_name(builder, value, None, is_f32=True)
    reads = _Reads(builder, block, is_f32=True)
    reads.inner[product.result] = builder.file.fresh(f"{value}_product") if rest else result
    write(reads.inner[product.result])
    for op in rest:
        inputs = reads.operands(op)
        reads.inner[op.outputs[0]] = result if op is rest[-1] else builder.file.fresh(f"{op.outputs[0]}_f32")
        builder.file.emit_op(op, inputs, [reads.inner[op.outputs[0]]])
    define_float(builder, value, result, is_f32=True)


def _plain(op: Op) -> Op:
    """An AveragePool without dilations of 1: onnxruntime's integer kernel knows none."""
    if op.type != "AveragePool" or set(op.attributes.get("dilations", ())) != {1}:
        return op
    return replace(op, attributes={k: v for k, v in op.attributes.items() if k != "dilations"})


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
    if clamp is not None and is_idle(clamp, kind):
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
    if clamp is None or not (is_idle(clamp, kind) or builder.clamps_integers(kind)):
        return False
    whole = builder.stored(ports[0].value, wanted)
    if is_idle(clamp, kind):
        builder.define_stored(ports[1].value, kind, whole)
    else:
        write_clamped(builder, ports[1].value, whole, kind, op)
    return True


def is_idle(clamp: Clamp, kind: Uniform) -> bool:
    """Whether saturation to the tensor's integer type does the same as a clamp."""
    return (clamp.low, clamp.high) == whole_range(kind)


def write_clamped(
    builder: ModelBuilder, value: str, whole: str, kind: Uniform, activation: Op | None
) -> None:
    """Clamp a stored tensor by an activation and the storage range, and define the value as the result.

    The clamp is an integer one where the format's `integer_clamps` has the type; else it goes through float,
    which is exactly the same: stored values survive the way to float and back.
    """
    clamp = clamp_of(builder.values, activation, kind)
    result = builder.stored_name(value, kind)
    if clamp is not None and builder.clamps_integers(kind):
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
    if clamp is not None and (clamp.low, clamp.high) == (kind.zero_point, whole_range(kind)[1]):
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
