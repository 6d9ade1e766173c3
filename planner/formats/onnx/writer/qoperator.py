"""onnx-qoperator: QLinear and contrib operators on stored integers, float only at the borders.

In: regions whose ops `qlinear.CALLS` knows, in types onnxruntime has the kernel for, become one operator;
data-movement operators work on the stored integers as they are; a fused Relu or Clip is a Clip of stored
integers. A kernel that onnxruntime has in float alone runs between DequantizeLinear and QuantizeLinear.
Source: docs/formats.md.
"""

from functools import partial
from typing import Final

import numpy as np

from planner.formats.common.blocks import clamp_of
from planner.formats.onnx.writer.float_blocks import (
    hand_on,
    is_idle,
    products,
    write_clamp_alone,
    write_clamped,
    write_real,
)
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.port_support import LOW_BIT_ACTIVATIONS, LOW_BITS, Accepts
from planner.formats.onnx.writer.qlinear import CALLS, FLOAT_CALLS, Call
from planner.formats.onnx.writer.storage_types import held_dtype
from planner.formats.onnx.writer.write import Form, write_form
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, moved_kind
from planner.ops import OPERATORS, of_form
from planner.ops.forms import Form as Family
from planner.plans.plan import Plan

BYTES: Final = frozenset({np.dtype(np.int8), np.dtype(np.uint8)})

_BYTES: Final = frozenset({8})
_BYTES_AND_WORDS: Final = frozenset({8, 16})
# Widths of stored integers data movement has kernels for in onnxruntime.
INTEGER_MOVEMENT: Final = {
    **{name: _BYTES_AND_WORDS for name, one in OPERATORS.items() if one.indices and name != "Dropout"},
    "ScatterND": _BYTES_AND_WORDS,
    **dict.fromkeys((*of_form(Family.BLOCKS), "Max", "MaxPool", "Min", "Pad"), _BYTES),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "Resize", "Where"), _BYTES),
}


def write_qoperator(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as ONNX with QLinear operators; see `write.write_form`."""
    return write_form(graph, plan, FORM)


def write_qoperator_clip(graph: Graph, plan: Plan) -> bytes:
    """The same with activations under 8 bits too: held in bytes, each result cut by a Clip."""
    return write_form(graph, plan, CLIP_FORM)


def write_block(builder: ModelBuilder, block: Block) -> None:
    """Write one region: on stored integers where a kernel has its types, else in float."""
    writers = (write_clamp_alone, write_movement, write_call, write_call_to_float)
    if not any(write(builder, block) for write in writers):
        write_real(builder, block)


def write_call(builder: ModelBuilder, block: Block) -> bool:
    """Write a region as one integer operator; False where there is none for its ops or types."""
    maker = CALLS.get(tuple(op.type for op in block.core))
    outputs = block.kernel.outputs
    if maker is None or len(outputs) != 1 or not isinstance(outputs[0].type, Uniform):
        return False
    value, kind = outputs[0].value, outputs[0].type
    call = maker(builder, block, kind)
    if call is None:
        return False
    clamp = clamp_of(builder.values, block.activation, kind)
    if clamp is not None and is_idle(clamp, kind):
        result = builder.stored_name(value, kind)
        _emit(builder, block, call, result)
        builder.define_stored(value, kind, result)
    else:
        whole = builder.file.fresh(f"{value}_unclamped")
        _emit(builder, block, call, whole)
        write_clamped(builder, value, whole, kind, block.activation)
    return True


def write_call_to_float(builder: ModelBuilder, block: Block) -> bool:
    """Write a region with a float result as an integer operator, and floats behind it; or say False."""
    for product in products(block):
        maker = FLOAT_CALLS.get(tuple(op.type for op in product.core))
        call = None if maker is None else maker(builder, product)
        if call is not None:
            hand_on(builder, block, product, partial(_emit, builder, block, call))
            return True
    return False


def _emit(builder: ModelBuilder, block: Block, call: Call, result: str) -> None:
    target = builder.file.fresh(f"{result}_flat") if call.reshape else result
    builder.file.emit(
        call.kind,
        call.inputs,
        [target],
        name=block.core[0].name,
        domain=call.domain,
        attributes=call.attributes,
    )
    if call.reshape:
        builder.file.emit("Reshape", [target, call.reshape], [result])


def write_movement(builder: ModelBuilder, block: Block) -> bool:
    """Write data movement on stored integers; False where types differ or the integer kernel is missing."""
    op, kind = block.region.ops[0], moved_kind(block, builder.graph, builder.values.is_same)
    if kind is None or not kind.is_per_tensor or not block.kernel.outputs:
        return False
    if 8 * held_dtype(kind).itemsize not in INTEGER_MOVEMENT.get(op.type, ()):
        return False
    inputs = [
        builder.stored(name, kind) if (op.name, i) in block.kinds else builder.operand(name)
        for i, name in enumerate(op.inputs)
    ]
    written = {
        port.value: builder.stored_name(port.value, kind) for port in block.kernel.outputs if port.value
    }
    builder.file.emit_op(
        op, _padded_with_zero(builder, op, inputs, kind), [written.get(name, name) for name in op.outputs]
    )
    for port in block.kernel.outputs:
        if port.value and isinstance(port.type, Uniform):
            builder.define_stored(port.value, port.type, written[port.value])
    return True


def _padded_with_zero(builder: ModelBuilder, op: Op, inputs: list[str], kind: Uniform) -> list[str]:
    """A pad of real 0 stores the zero point."""
    if op.type != "Pad" or op.attributes.get("mode", "constant") != "constant":
        return inputs
    zero = builder.file.number("int8" if kind.storage.signed else "uint8", kind.zero_point)
    return [*inputs[:2], zero, *inputs[3:]]


FORM: Final = Form(Accepts("onnx-qoperator"), BYTES, write_block, dynamic=True)
CLIP_FORM: Final = Form(
    Accepts("onnx-qoperator-clip", LOW_BITS, LOW_BIT_ACTIVATIONS), BYTES, write_block, dynamic=True
)
