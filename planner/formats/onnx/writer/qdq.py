"""onnx-qdq: QuantizeLinear/DequantizeLinear pairs around float ops, weights stored as integers.

Each kernel reads DequantizeLinear and gives QuantizeLinear, which is what onnxruntime fuses into integer
kernels. A fused Relu or Clip goes where the type's range already cuts; otherwise it follows the
QuantizeLinear, so the kernel in front of it stays integer. Views have no pair of their own. Activations of
other widths than 8 and 16 bits lie in the next wider of them, cut to their range. A constant with a scale per
block is read by a DequantizeLinear in blocks (opset 21), four bits two to a byte; floats of 4 bits want
opset 23, scales that are exponents 24.
Source: docs/formats.md; onnxruntime's QDQ groups.
"""

from typing import Final

import numpy as np

from planner.formats.onnx.writer.float_blocks import write_clamp_alone, write_real
from planner.formats.onnx.writer.guards.optimisations import CARRIERS
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.port_support import (
    ANY_ACTIVATIONS,
    ANY_BITS,
    CONSTANTS,
    FLOATS,
    ONNX_STORAGES,
    Accepts,
)
from planner.formats.onnx.writer.storage_types import held_dtype
from planner.formats.onnx.writer.write import Form, write_form
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.plans.plan import Plan


def write_qdq(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as ONNX with Q/DQ pairs; see `write.write_form`."""
    return write_form(graph, plan, FORM)


def write_block(builder: ModelBuilder, block: Block) -> None:
    """Write one region: a lone Relu or Clip in integer arithmetic where that is exact, else in float."""
    if not any(write(builder, block) for write in (write_clamp_alone, write_view, write_lookup)):
        write_real(builder, block)


def write_view(builder: ModelBuilder, block: Block) -> bool:
    """Write a view of one type without a pair behind it, its numbers are on the grid already; or say False.

    Engines carry the pair in front of it over it, onnxruntime by `QDQPropagation`.
    """
    op, ports = block.region.ops[0], (*block.kernel.inputs, *block.kernel.outputs)
    if len(block.region.ops) > 1 or op.type not in CARRIERS - {"MaxPool"} or len(ports) != 2:
        return False
    (read, written), kind = ports, ports[1].type
    if not isinstance(kind, Uniform) or read.type != kind or not kind.is_per_tensor:
        return False
    value, is_stored = written.value, written.value in builder.values.pins
    if is_stored or builder.graph.values[value].dtype != "f32" or builder.refuses_carried(kind):
        return False
    inputs = [builder.values.real(read.value, kind), *(builder.operand(name) for name in op.inputs[1:])]
    builder.file.emit_op(op, inputs, [value])
    builder.values.define_seen(value, kind, value)
    return True


def write_lookup(builder: ModelBuilder, block: Block) -> bool:
    """Write a Gather of a table of signed bytes on these; or say False.

    onnxruntime on x86 turns pairs of signed activations into unsigned ones, but none behind a constant: there
    it would dequantize the whole table in every run.
    """
    op, ports = block.region.ops[0], (*block.kernel.inputs, *block.kernel.outputs)
    if len(block.region.ops) > 1 or op.type != "Gather" or op.inputs[0] not in builder.graph.constants:
        return False
    if not ports:  # rows of integers: shapes and indices have no port
        return False
    value, kind = op.outputs[0], ports[-1].type
    if not isinstance(kind, Uniform) or not kind.is_per_tensor or ports[0].type != kind:
        return False
    if not builder.plan.target.files.is_for_cpu_provider or held_dtype(kind) != np.int8:
        return False
    rows, real = builder.file.fresh(f"{value}_rows"), builder.raw_name(value, kind)
    builder.file.emit_op(op, [builder.stored(op.inputs[0], kind), builder.operand(op.inputs[1])], [rows])
    # A pair of its own behind the rows is turned like any other.
    builder.dequantize_f32(rows, kind, real)
    result = builder.stored_name(value, kind)
    builder.quantize_f32(real, kind, result)
    builder.define_stored(value, kind, result)
    return True


# onnxruntime on x86 turns i8 activations into u8, but not across a Clip on i8: the kernel in front of it
# would fall back to float.
FORM: Final = Form(
    Accepts(
        "onnx-qdq",
        ANY_BITS,
        ANY_ACTIVATIONS,
        f"{CONSTANTS} or in blocks, {FLOATS}",
        blocks=True,
        floats=frozenset(ONNX_STORAGES),
    ),
    frozenset({np.dtype(np.uint8)}),
    write_block,
    dynamic=True,
    in_pairs=True,
)
