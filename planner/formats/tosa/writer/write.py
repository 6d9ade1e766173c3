"""tosa: a planned model as a TOSA 1.0 program: integer operators and RESCALE, MLIR in generic form.

Every row's arithmetic is RESCALE's own, so the stored integers are the reference interpreter's. Integer
kernels there are integer kernels here; float regions become float operators. The function's arguments and
results are stored integers wherever the plan reads or writes them so.
Source: TOSA specification 1.0; docs/specification.md, sections 7 and 8; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from planner.errors import RuleError, UnsupportedExport
from planner.formats.common.basics import with_basics
from planner.formats.common.blocks import Clamp, clamp_of
from planner.formats.common.control_flow import nested
from planner.formats.common.known_shapes import sizes_blamed
from planner.formats.common.tables import with_rows_apart
from planner.formats.mlir.generic import module_text
from planner.formats.onnx.writer.port_support import common_problem, refusal, typed_ports
from planner.formats.tosa.writer.control_flow import write_items
from planner.formats.tosa.writer.elementwise import concat, plus, where
from planner.formats.tosa.writer.floats import FLOAT_OPS, argmax, compare, write_floats, write_real
from planner.formats.tosa.writer.linear import conv, conv_transpose, fully_connected
from planner.formats.tosa.writer.movement import move, pad_with
from planner.formats.tosa.writer.pooling import average_pool, summed
from planner.formats.tosa.writer.program_builder import ProgramBuilder, held
from planner.formats.tosa.writer.recurrent import recurrent
from planner.formats.tosa.writer.resizing import resize, steps_known
from planner.formats.tosa.writer.tables import pointwise
from planner.interpreter.kernels.litert import rounds_so
from planner.interpreter.kernels.table import KERNELS
from planner.ir.graph import BOUNDARY, Graph, Op, port_address
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, is_in_f32, moved_kind, operand_of
from planner.ops import CONCATS
from planner.ops.operands import operands_of
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block, Uniform, Clamp], bool]

FUNCTION: Final = "main"
_ACTIVATIONS: Final = "i8 and u8 (or less) with any zero point, i16 with 0, u16 with 32768, one scale each"
_CONSTANTS: Final = "up to i16, or i32 and more with zero point 0, per tensor or per axis"
_CENTRES: Final = (0, 1 << 15)
_KERNELS_IN_FLOAT: Final = frozenset(
    {("LeakyRelu",), ("ReduceMean",), ("ReduceSum",), ("Resize",), ("Sigmoid",), ("Softmax",)}
)


def write_tosa(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as a module with one function, `main`.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type, kernel or arithmetic that TOSA does not have, with port and row.
    """
    for address, row, value, kind in typed_ports(plan):
        problem = _problem(kind, is_constant=value in graph.constants)
        if problem:
            accepted = _CONSTANTS if value in graph.constants else _ACTIVATIONS
            raise refusal(address, row, value, kind, f"{problem}; tosa accepts {accepted}")
    builder = ProgramBuilder(*with_basics(*with_rows_apart(graph, plan), lambda op: _has(op, graph)))
    write_items(builder, nested(builder.plan), _write_block)
    results = []
    for i, name in enumerate(graph.outputs):
        builder.address = port_address(BOUNDARY, "in", i)
        try:
            results.append(builder.result(name))
        except RuleError as error:
            raise builder.refuse(error.message, error.hint) from error
    function = builder.program.function(FUNCTION, results, "\n".join(builder.notes))
    return module_text([function]).encode()


def _has(op: Op, graph: Graph) -> bool:
    """Whether there is an operator of reals for an op."""
    if op.type == "Resize" and op.attributes.get("mode") == "linear":
        return steps_known(operands_of(op, graph)) is not None
    return op.type in FLOAT_OPS


def _problem(kind: PortTyped, *, is_constant: bool) -> str:
    problem = common_problem(kind)
    if problem or not isinstance(kind, Uniform):
        return problem
    if kind.grid:
        return "scales per block"
    if is_constant:
        if kind.storage.bits > 8 and any(zero not in _CENTRES for zero in kind.zero_points):
            return "a zero point on more than 8 bits"
        return ""
    if kind.ranges or not kind.is_per_tensor:
        return "a scale or a range per slice"
    if kind.storage.bits > 16:
        return f"{kind.storage.bits} bits"
    if kind.storage.bits > 8 and held(kind).zero_point:
        return "a zero point on more than 8 bits"
    return ""


def _write_block(builder: ProgramBuilder, block: Block) -> None:
    """Write one region."""
    if not builder.begin(block):
        return
    kernel = block.kernel
    builder.in_f32 = is_in_f32(block, builder.graph)
    types = ", ".join(str(item.type.storage) for item in kernel.outputs if isinstance(item.type, Uniform))
    builder.program.remark(f"{kernel.name}: {kernel.kernel} ({kernel.row or 'float'}) {types}".strip())
    try:
        with sizes_blamed(builder.graph, builder.address):
            _write_kernel(builder, block)
    except RuleError as error:
        raise builder.refuse(error.message, error.hint) from error


def _write_kernel(builder: ProgramBuilder, block: Block) -> None:
    if recurrent(builder, block):
        return
    if not block.is_integer:
        write_floats(builder, block)
        return
    if _write_movement(builder, block) or compare(builder, block) or argmax(builder, block):
        return
    ops = tuple(op.type for op in block.core)
    y = block.y
    if y is not None:
        builder.checked_arithmetic()
        clamp = clamp_of(builder.values, block.activation, held(y))
        writer = WRITERS.get(ops)
        is_float = ops not in KERNELS or ops in _KERNELS_IN_FLOAT
        if clamp is not None and writer is not None and writer(builder, block, y, clamp):
            return
        read = operand_of(block, block.core[0], 0)
        kind = None if read is None else read.kind
        if rounds_so(builder.values.arithmetic, ops, kind) and clamp is not None:
            if pointwise(builder, block, y, clamp):
                return
            raise _refusal(builder, block)
        if clamp is not None and is_float:
            if not pointwise(builder, block, y, clamp):
                write_real(builder, block, y, clamp)
            return
    raise _refusal(builder, block)


def _write_movement(builder: ProgramBuilder, block: Block) -> bool:
    """A lone op that moves stored integers of one type, a Relu or Clip among them."""
    op, kind = block.core[0], moved_kind(block, builder.graph, builder.values.is_same)
    if kind is None:
        return False
    if op.type in ("Clip", "Relu"):
        clamp = clamp_of(builder.values, op, held(kind))
        if clamp is None:
            return False
        builder.settle(
            op.outputs[0], kind, builder.values.integers(op.inputs[0], kind), clamp.low, clamp.high
        )
        return True
    names = [name for i, name in enumerate(op.inputs) if (op.name, i) in block.kinds]
    found = move(builder, op, [builder.operand(name, kind) for name in names], kind)
    if found is None or sum(bool(name) for name in op.outputs) > len(found):
        return False
    for name, tensor in zip(op.outputs, found, strict=False):
        builder.values.define_stored(name, kind, tensor)
    return True


def _refusal(builder: ProgramBuilder, block: Block) -> UnsupportedExport:
    ops = "+".join(op.type for op in block.region.ops)
    linear = "Conv, ConvTranspose (one group, no dilations), Gemm and MatMul of constant weights"
    return builder.refuse(
        f"no TOSA operators compute {ops} on these operands as its row does in {builder.values.arithmetic}; "
        f"tosa accepts {linear}, MatMul, Add, Sub, Mul, Concat, Where, AveragePool, GlobalAveragePool, "
        "comparisons, ops that move data, and ops of the float profile where the row computes in float"
    )


WRITERS: Final[Mapping[tuple[str, ...], Writer]] = {
    **{(kind,): concat for kind in CONCATS},
    ("Add",): plus,
    ("AveragePool",): average_pool,
    ("Conv",): conv,
    ("ConvTranspose",): conv_transpose,
    ("Gemm",): fully_connected,
    ("GlobalAveragePool",): summed,
    ("MatMul",): fully_connected,
    ("MatMul", "Add"): fully_connected,
    ("Mul",): summed,
    ("Pad",): pad_with,
    ("Pow",): summed,
    ("Resize",): resize,
    ("Sub",): plus,
    ("Where",): where,
}
