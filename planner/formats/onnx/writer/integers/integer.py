"""onnx-integer: integer math only: MatMulInteger, ConvInteger and sums, one requantize per kernel.

A requantize is a multiplication, an addition and a division by a power of two in 64 bits, proved equal to
the row's arithmetic for every accumulator the weights allow; rescales on edges are the same. Input and
weight scales enter nowhere else. Softmax, Sigmoid and other functions are onnxruntime's operators on stored
integers where the row is `float32_even`, and float ops where the plan itself says float32.
Source: docs/specification.md, sections 7 and 8; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from planner.errors import UnsupportedExport
from planner.formats.onnx.writer.float_blocks import write_clamp_alone, write_real
from planner.formats.onnx.writer.integers.averaging import average_pool, global_average_pool
from planner.formats.onnx.writer.integers.elementwise import compare, concat, plus, times, where
from planner.formats.onnx.writer.integers.linear import linear, linear_to_float
from planner.formats.onnx.writer.integers.rescaling import rescale
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.port_support import LOW_BIT_ACTIVATIONS, LOW_BITS, Accepts
from planner.formats.onnx.writer.qoperator import BYTES, write_call, write_movement
from planner.formats.onnx.writer.write import Form, write_form
from planner.interpreter.calls import FLOAT32_EVEN
from planner.interpreter.fixed_point import ARITHMETICS, is_fixed_point
from planner.interpreter.kernels.litert import rounds_so
from planner.interpreter.kernels.table import KERNELS
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of
from planner.ops import CONCATS
from planner.plans.plan import Plan

IntegerKernel: TypeAlias = Callable[[ModelBuilder, Block, Uniform], bool]

# In the reference arithmetic these compute in float unless the row is onnxruntime's own.
_FUNCTIONS: Final = frozenset({("LeakyRelu",), ("Sigmoid",), ("Softmax",)})
# Integer kernels of the reference interpreter in `exact_even` alone.
_EXACT: Final = frozenset({("ReduceMean",), ("ReduceSum",)})


def write_integer(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as integer ONNX operators; see `write.write_form`."""
    return write_form(graph, plan, FORM)


def write_block(builder: ModelBuilder, block: Block) -> None:
    """Write one region in integer arithmetic; in float where the plan's own arithmetic is float there."""
    arithmetic = builder.values.arithmetic = block.arithmetic or FLOAT32_EVEN
    if arithmetic != FLOAT32_EVEN and not is_fixed_point(arithmetic):
        known = ", ".join((FLOAT32_EVEN, *ARITHMETICS))
        raise UnsupportedExport(
            f"{_first(block)} (row {block.kernel.row}) computes in {arithmetic}, which is no "
            f"integer arithmetic; onnx-integer accepts rows of {known} or multipliers of their own",
            hint="use onnx-qdq, or a target whose rows requantize with integer arithmetic",
        )
    if write_clamp_alone(builder, block) or write_movement(builder, block) or _write_kernel(builder, block):
        return
    if builder.values.arithmetic == FLOAT32_EVEN and write_call(builder, block):
        return
    if compare(builder, block) or linear_to_float(builder, block):
        return
    _refuse_integer_kernels(builder, block)
    write_real(builder, block)


def _write_kernel(builder: ModelBuilder, block: Block) -> bool:
    kernel = INTEGER_KERNELS.get(tuple(op.type for op in block.core))
    outputs = block.kernel.outputs
    if kernel is None or len(outputs) != 1 or not isinstance(outputs[0].type, Uniform):
        return False
    return outputs[0].type.is_per_tensor and kernel(builder, block, outputs[0].type)


def _refuse_integer_kernels(builder: ModelBuilder, block: Block) -> None:
    """Refuse an integer kernel that has no form here: a float one would give other numbers."""
    ops = tuple(op.type for op in block.core)
    is_integer = all(isinstance(port.type, Uniform) and not port.type.blocks for port in block.ports)
    is_float = (
        ops not in KERNELS
        or ops in _FUNCTIONS
        or (ops in _EXACT and builder.values.arithmetic != "exact_even")
    )
    x = operand_of(block, block.core[0], 0)
    is_float = is_float and not rounds_so(builder.values.arithmetic, ops, None if x is None else x.kind)
    if builder.values.arithmetic == FLOAT32_EVEN or is_float or not is_integer:
        return
    raise UnsupportedExport(
        f"{_first(block)} (row {block.kernel.row}): no integer ONNX operators compute {'+'.join(ops)} with "
        f"these operands in {builder.values.arithmetic}; onnx-integer accepts constant weights in bytes, "
        "per tensor or per output channel, and explicit padding",
        hint="use onnx-qoperator for onnxruntime's arithmetic, or onnx-qdq",
    )


def _first(block: Block) -> str:
    return next((port.address for port in block.kernel.outputs), block.kernel.name)


INTEGER_KERNELS: Final[Mapping[tuple[str, ...], IntegerKernel]] = {
    **{(kind,): concat for kind in CONCATS},
    ("Add",): plus,
    ("AveragePool",): average_pool,
    ("Conv",): linear,
    ("Gemm",): linear,
    ("GlobalAveragePool",): global_average_pool,
    ("MatMul",): linear,
    ("MatMul", "Add"): linear,
    ("Mul",): times,
    ("Sub",): plus,
    ("Where",): where,
}

FORM: Final = Form(
    Accepts("onnx-integer", LOW_BITS, LOW_BIT_ACTIVATIONS), BYTES, write_block, rescale=rescale, dynamic=True
)
