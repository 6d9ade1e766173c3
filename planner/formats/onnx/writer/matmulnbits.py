"""onnx-matmulnbits: matrices of weights in blocks of 2, 4 or 8 bits, activations in float.

Each becomes com.microsoft MatMulNBits with float32 sums; a bias is an Add behind it. Other widths lie in the
next of these. A table read by Gather becomes GatherBlockQuantized, so that engines dequantize the rows they
read. Other quantized kernels of the plan are written with Q/DQ pairs. Source: onnxruntime's contrib operator
pages MatMulNBits, GatherBlockQuantized.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.onnx.writer.block_packing import Steps, packed_blocks
from planner.formats.onnx.writer.model_builder import MICROSOFT, ModelBuilder
from planner.formats.onnx.writer.port_support import ONNX_STORAGES, Accepts
from planner.formats.onnx.writer.qdq import write_block as write_pairs
from planner.formats.onnx.writer.qoperator import BYTES
from planner.formats.onnx.writer.storage_types import Array
from planner.formats.onnx.writer.write import Form, write_form
from planner.ir.graph import Graph
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.ir.types.scales import holds_scales
from planner.lowering.blocks import Block
from planner.plans.plan import Plan

WIDTHS: Final = (2, 4, 8)
LEAST_BLOCK: Final = 16
LEVELS: Final = range(5)
FLOAT32: Final = 1
_CONSTANTS: Final = (
    "i2..i8 or u2..u8 in blocks of a power of two of at least 16 along the sum of a MatMul or Gemm"
)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A weight as the operator takes it, all arrays with the output column first.

    Attributes:
      stored: (N, blocks, block * bits / 8) bytes, low bits first.
      scales: (N * blocks,) float32.
      zero_points: (N, ceil(blocks * bits / 8)) bytes, None for half the range.
    """

    stored: Array
    scales: Array
    zero_points: Array | None
    depth: int
    columns: int
    block: int
    bits: int


def write_matmulnbits(graph: Graph, plan: Plan, accuracy_level: int = FLOAT32) -> bytes:
    """Serialise a planned model with MatMulNBits; see `write.write_form`, and `form_at` for the level.

    Raises:
      UnsupportedExport: also another level, and where no weight of the plan becomes a MatMulNBits.
    """
    return write_form(graph, plan, form_at(accuracy_level))


def form_at(accuracy_level: int) -> Form:
    """The format at an accuracy level.

    Args:
      accuracy_level: the least accuracy of activations inside the operator: 0 leaves it to the engine, 1 is
        float32, 2 float16, 3 bfloat16, 4 int8. The interpreter computes 1.

    Raises:
      UnsupportedExport: another level.
    """
    if accuracy_level not in LEVELS:
        raise UnsupportedExport(
            f"accuracy level {accuracy_level!r}; MatMulNBits accepts 0 (the engine's choice), 1 (float32), "
            "2 (float16), 3 (bfloat16) and 4 (int8)"
        )
    return replace(FORM, write_block=partial(write_block, level=accuracy_level))


def write_block(builder: ModelBuilder, block: Block, *, level: int = FLOAT32) -> None:
    """Write one region: a product with a weight in blocks, a table in blocks, or as onnx-qdq does."""
    if not (_write_product(builder, block, level) or _write_rows(builder, block)):
        write_pairs(builder, block)


def _write_rows(builder: ModelBuilder, block: Block) -> bool:
    """Write a Gather of rows of a table in blocks along them; False: it is none."""
    op = block.region.ops[0]
    kind = block.kinds.get((op.name, 0))
    if op.type != "Gather" or op.inputs[0] not in builder.graph.constants or not isinstance(kind, Uniform):
        return False
    result = block.kernel.outputs[0].type
    array = builder.values.array(op.inputs[0])
    is_rows = (
        array.ndim == 2 and op.attributes.get("axis", 0) in (0, -2) and _runs_in(builder, op.inputs[0], kind)
    )
    if len(block.region.ops) > 1 or isinstance(result, Uniform) or not is_rows:
        return False
    packed = pack(array, kind, axis=1)
    let_go(array)
    # Rows of bytes: what fills the last block is left out, as bytes of one row are of no other.
    if packed is None or packed.depth * packed.bits % 8:
        return False
    table, rows = op.inputs[0], (packed.columns, -1)
    stored = packed.stored.reshape(rows)[:, : packed.depth * packed.bits // 8]
    operands = [builder.file.constant(f"{table}_packed", np.ascontiguousarray(stored))]
    operands.append(builder.operand(op.inputs[1]))
    real = builder.graph.values[table].dtype
    operands.append(builder.block_scales(f"{table}_scales", packed.scales.reshape(rows), kind, real))
    if packed.zero_points is not None:
        operands.append(builder.file.constant(f"{table}_zero_points", packed.zero_points.reshape(rows)))
    attributes = {"bits": packed.bits, "block_size": packed.block, "gather_axis": 0, "quantize_axis": 1}
    value = op.outputs[0]
    raw = builder.raw_name(value, None)
    builder.file.emit("GatherBlockQuantized", operands, [raw], domain=MICROSOFT, attributes=attributes)
    builder.values.define_real(value, raw)
    return True


def _write_product(builder: ModelBuilder, block: Block, level: int) -> bool:
    op, rest = block.region.ops[0], block.region.ops[1:]
    kind = block.kinds.get((op.name, 1))
    is_product = op.type in ("Gemm", "MatMul") and not op.attributes.get("transA")
    if not is_product or not isinstance(kind, Uniform) or op.inputs[1] not in builder.graph.constants:
        return False
    if op.attributes.get("alpha", 1.0) != 1.0 or op.attributes.get("beta", 1.0) != 1.0:
        return False
    others = [port for port in (*block.kernel.inputs, *block.kernel.outputs) if port.value != op.inputs[1]]
    if any(isinstance(port.type, Uniform) for port in others) or not _runs_in(builder, op.inputs[0], kind):
        return False
    array = builder.values.array(op.inputs[1])
    packed = pack(array, kind, axis=1 if op.attributes.get("transB") else 0)
    let_go(array)
    if packed is None:
        return False
    raw = {port.value: builder.raw_name(port.value, None) for port in block.kernel.outputs if port.value}
    bias = op.inputs[2] if op.type == "Gemm" and len(op.inputs) > 2 else ""
    product = (
        builder.file.fresh(f"{op.outputs[0]}_product") if bias else raw.get(op.outputs[0], op.outputs[0])
    )
    scales = builder.block_scales(
        f"{op.inputs[1]}_scales", packed.scales, kind, builder.graph.values[op.inputs[0]].dtype
    )
    operands = _operands(builder, op.inputs[1], packed, (builder.operand(op.inputs[0]), scales))
    attributes = {
        "K": packed.depth,
        "N": packed.columns,
        "accuracy_level": level,
        "bits": packed.bits,
        "block_size": packed.block,
    }
    builder.file.emit("MatMulNBits", operands, [product], domain=MICROSOFT, attributes=attributes)
    if bias:
        result = raw.get(op.outputs[0], op.outputs[0])
        builder.file.emit("Add", [product, builder.operand(bias)], [result])
    inner = {op.outputs[0]: raw.get(op.outputs[0], op.outputs[0])}
    for other in rest:
        outputs = [raw.get(name, name) for name in other.outputs]
        builder.file.emit_op(
            other, [inner.get(name) or builder.operand(name) for name in other.inputs], outputs
        )
        inner.update(zip(other.outputs, outputs, strict=True))
    for name, tensor in raw.items():
        builder.values.define_real(name, tensor)
    return True


def _runs_in(builder: ModelBuilder, value: str, kind: Uniform) -> bool:
    """Whether an operator takes reals of a value's float: float16 wants scales that are values of it."""
    dtype = builder.graph.values[value].dtype
    return dtype == "f32" or (dtype == "f16" and holds_scales(kind.scales, "f16"))


def _operands(
    builder: ModelBuilder, weight: str, packed: Packed, data_and_scales: tuple[str, str]
) -> list[str]:
    x, scales = data_and_scales
    operands = [x, builder.file.constant(f"{weight}_packed", packed.stored), scales]
    if packed.zero_points is not None:
        operands.append(builder.file.constant(f"{weight}_zero_points", packed.zero_points.reshape(-1)))
    return operands


def pack(array: Array, kind: Uniform, *, axis: int) -> Packed | None:
    """Pack a matrix of weights.

    Args:
      array: reals.
      kind: with a scale per block of the axis, one column a block across it.
      axis: of the sum, 0 of (K, N) or 1 of (N, K).

    Returns:
      None where the operator has no such blocks.
    """
    depth, columns = int(array.shape[axis]), int(array.shape[1 - axis])
    bits = next((width for width in WIDTHS if kind.storage.bits <= width), 0)
    if kind.storage.float_name or not bits:
        return None
    if len(kind.grid) != array.ndim or kind.grid[1 - axis] != columns:
        return None
    count, block = kind.grid[axis], int(dict(kind.blocks).get(axis, depth))
    if count == 1:  # one block, filled up to the next size that the operator has
        block = max(LEAST_BLOCK, 1 << (max(depth, 1) - 1).bit_length())
    if block < LEAST_BLOCK or block & (block - 1):
        return None
    half = 1 << bits - 1
    shift = 0 if not kind.storage.signed else half
    scales = np.asarray(kind.scales, np.float32).reshape(kind.grid)
    moved = np.asarray(kind.zero_points).astype(np.int64).reshape(kind.grid) + shift
    has_half = bool(np.all(moved == half))
    low, high = kind.storage.qmin + shift, kind.storage.qmax + shift
    zeros = np.asarray(half if has_half else moved, np.float32)
    stored = packed_blocks(array, Steps(scales, zeros, low, high, bits, block), axis=axis)
    return Packed(
        stored,
        np.ascontiguousarray(scales if axis else scales.T).reshape(-1),
        None if has_half else packed_bits(moved if axis else moved.T, bits),
        depth,
        columns,
        block,
        bits,
    )


def packed_bits(numbers: Array, bits: int) -> Array:
    """Non-negative integers of a width along the last axis as bytes, low bits first, the rest of a byte 0."""
    each = 8 // bits
    padding = -numbers.shape[-1] % each
    wide = np.pad(numbers, [*[(0, 0)] * (numbers.ndim - 1), (0, padding)])
    groups = wide.reshape(*wide.shape[:-1], -1, each) << (bits * np.arange(each))
    return np.asarray(groups.sum(axis=-1)).astype(np.uint8)


FORM: Final = Form(
    Accepts(
        "onnx-matmulnbits",
        constants=f"{_CONSTANTS}; else as onnx-qdq",
        blocks=True,
        floats=frozenset(ONNX_STORAGES),
    ),
    BYTES,
    write_block,
    needs=("MatMulNBits", "GatherBlockQuantized"),
)
