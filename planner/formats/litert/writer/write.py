"""litert: a planned model as a LiteRT (TensorFlow Lite) file.

Quantized kernels become the runtime's integer operators, and float kernels its float operators, with QUANTIZE
and DEQUANTIZE between. Images are stored channels last, with a TRANSPOSE only where the model's own order is
required. Source: TensorFlow Lite's schema and reference kernels; docs/litert.md.
"""

from collections.abc import Sequence
from typing import Final

from planner.errors import RuleError, UnsupportedExport
from planner.formats.common.basics import with_basics
from planner.formats.common.blocks import clamp_of
from planner.formats.common.control_flow import nested
from planner.formats.common.known_shapes import sizes_blamed
from planner.formats.common.tables import with_rows_apart
from planner.formats.litert.vocabulary import BUILTINS, UNARIES
from planner.formats.litert.writer.calls import NONE, Call
from planner.formats.litert.writer.clamps import fused_activation, written_bounds
from planner.formats.litert.writer.control_flow import write_items
from planner.formats.litert.writer.flatbuffer import file_bytes
from planner.formats.litert.writer.movement import bilinear_options
from planner.formats.litert.writer.operations import Program, Tensor
from planner.formats.litert.writer.program_builder import ProgramBuilder
from planner.formats.litert.writer.recurrent import is_zero
from planner.formats.litert.writer.table import ONE_TYPE, RESCALING, WRITERS
from planner.formats.onnx.writer.port_support import common_problem, pinned_results, refusal, typed_ports
from planner.interpreter.kernels.litert import LITERT
from planner.ir.graph import Constant, Graph, Op, port_address
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.ops import defined
from planner.ops.operands import operands_of
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.target.docs.support import dynamic_text
from planner.target.records import DynamicRange

ACTIVATIONS: Final = "i8 with any zero point, or i16 with zero point 0, one scale each"
CONSTANTS: Final = "i8 and i16, or i32 and more with zero point 0, per tensor or per axis"


def write_litert(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as a .tflite file with one subgraph and one signature.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: as `build_litert`; or the packages that write the file are not installed.
    """
    program = build_litert(graph, plan)
    return file_bytes(program, name=graph.name, description=f"planned for {plan.target.id}")


def build_litert(graph: Graph, plan: Plan) -> Program:
    """Build the tensors and operators of a planned model.

    Raises:
      UnsupportedExport: a type, kernel or arithmetic that LiteRT does not have, with port and row.
    """
    for address, row, value, kind in (*typed_ports(plan), *pinned_results(plan)):
        problem = _problem(kind, is_constant=value in graph.constants)
        if problem:
            accepted = CONSTANTS if value in graph.constants else ACTIVATIONS
            raise refusal(address, row, value, kind, f"{problem}; litert accepts {accepted}")
    apart = with_basics(*with_rows_apart(graph, plan), lambda op: _has(op, graph))
    builder = ProgramBuilder(*apart)
    write_items(builder, nested(builder.plan, dynamic=True), _write_block)
    for i, name in enumerate(graph.outputs):
        builder.address = port_address("@model", "in", i)
        builder.result(name)
    return builder.program


def _has(op: Op, graph: Graph) -> bool:
    """Whether there is an operator of floats for an op; LSTM starts at zero."""
    if op.type == "LSTM":
        return all(is_zero(graph.constants.get(name, Constant()).array) for name in op.inputs[5:7] if name)
    if op.type == "Resize" and op.attributes.get("mode") == "linear":
        wanted = graph.values[op.outputs[0]].shape or ()
        return bilinear_options(operands_of(op, graph), wanted) is not None
    builtin = UNARIES.get(op.type)
    return op.type in WRITERS and (builtin is None or builtin.computes(op.attributes))


def _problem(kind: PortTyped, *, is_constant: bool) -> str:
    problem = common_problem(kind)
    if problem or not isinstance(kind, Uniform):
        return problem
    store = kind.storage
    if kind.grid:
        return "scales per block"
    if not store.signed:
        return "no sign"
    if store.bits > 8 and any(kind.zero_points):
        return "a zero point on more than 8 bits"
    if is_constant:
        return ""
    if kind.ranges or not kind.is_per_tensor:
        return "a scale or a range per slice"
    return "" if store.bits in (8, 16) else f"{store.bits} bits"


def _write_block(builder: ProgramBuilder, block: Block) -> None:
    """Write one region."""
    if not builder.begin(block):
        return
    try:
        with sizes_blamed(builder.graph, builder.address):
            is_stored = block.is_integer and not _is_hybrid(builder, block)
            (_write_integers if is_stored else _write_floats)(builder, block)
    except RuleError as error:
        raise builder.refuse(error.message, error.hint) from error


def _is_hybrid(builder: ProgramBuilder, block: Block) -> bool:
    """Whether a kernel of the runtime quantizes its operand while it runs, as the row says.

    Raises:
      UnsupportedExport: the row quantizes otherwise than the runtime.
    """
    by = None if block.row is None else block.row.dynamic
    if by is None or block.row is None:
        return False
    op, kind = block.core[0], block.kinds.get((block.core[0].name, 1))
    per_channel = isinstance(kind, Uniform) and not kind.is_per_tensor
    per_channel |= op.attributes.get("group", 1) != 1  # the depthwise kernel knows no other
    runs = DynamicRange(
        by.storage,
        per_token=op.type != "Conv",
        per_batch=op.type == "Conv",
        symmetric=op.type != "Conv" or not per_channel,
    )
    if block.row.requantize != LITERT or by != runs or by.storage.name != "i8":
        raise builder.refuse(
            f"kernel {block.kernel.name!r} quantizes while it runs: {dynamic_text(by)}, by "
            f"{block.arithmetic}; litert accepts there {dynamic_text(runs)}, by {LITERT}"
        )
    return True


def _write_floats(builder: ProgramBuilder, block: Block) -> None:
    """The ops of a float region, one by one; the first of a hybrid kernel has stored weights."""
    ports = {port.value for port in block.kernel.outputs}
    for op in block.region.ops:
        kinds = {i: kind for (name, i), kind in block.kinds.items() if name == op.name}
        found = _results(Call(builder, op, kinds, None))
        if found is None:
            reason = f" ({block.kernel.reason})" if block.kernel.reason else ""
            raise builder.refuse(
                f"kernel {block.kernel.name!r} runs {op.type} in float{reason}; {_accepted((op,), 'there ')}"
            )
        for name, tensor in zip(op.outputs, found, strict=False):
            if name in ports or not builder.graph.values[name].is_float:
                builder.values.define_real(name, tensor)
            elif name:
                builder.values.enter(name, None, tensor)


def _write_integers(builder: ProgramBuilder, block: Block) -> None:
    """One operator on stored integers, with its bias and activation."""
    builder.checked_arithmetic()
    op = block.core[0]
    typed = {port.value: port.type for port in block.kernel.outputs if port.value}
    y = next((kind for kind in typed.values() if isinstance(kind, Uniform)), None)
    bias = _added_bias(builder, block)
    is_one = len(block.core) == 1 or (len(block.core) == 2 and bias is not None)
    kinds = {i: kind for (name, i), kind in block.kinds.items() if name == op.name}
    if not (is_one and _is_whole(builder, op, kinds) and _is_one_type(builder, op, kinds, y)):
        raise _refusal(builder, block)
    if None in typed.values():
        raise _refusal(builder, block)
    clamp = None if y is None else clamp_of(builder.values, block.activation, y)
    if y is not None and clamp is None:
        raise _refusal(builder, block)
    activation = fused_activation(block, clamp, y) if clamp is not None and y is not None else NONE
    activation = activation if op.type in BUILTINS and BUILTINS[op.type].fuses else NONE
    found = _results(Call(builder, op, kinds, y, bias, activation))
    if found is None and activation != NONE:  # BATCH_MATMUL has none inside
        activation = NONE
        found = _results(Call(builder, op, kinds, y, bias, activation))
    results = block.core[-1].outputs if block.activation is None else block.activation.outputs
    if found is None or len([name for name in results if name]) > len(found):
        raise _refusal(builder, block)
    # What only moves integers of a type with a part of its format yields no others.
    inside = None if y is None or is_movement(op, builder.graph) else written_bounds(y, activation)
    for name, tensor in zip(results, found, strict=False):
        if name:
            kind = typed.get(name)
            is_like = isinstance(kind, Uniform) and y is not None and kind.storage == y.storage
            builder.settle(name, kind, tensor, clamp if is_like else None, inside)


def _added_bias(builder: ProgramBuilder, block: Block) -> tuple[str, PortTyped] | None:
    """The constant that a second op adds to a product: its value and type."""
    if tuple(op.type for op in block.core) != ("MatMul", "Add"):
        return None
    product, add = block.core
    side = 1 if add.inputs[0] == product.outputs[0] else 0
    name = add.inputs[side]
    kind = block.kinds.get((add.name, side))
    is_constant = builder.values.is_constant(name) and isinstance(kind, Uniform)
    return (name, kind) if is_constant else None


def _is_whole(builder: ProgramBuilder, op: Op, kinds: dict[int, PortTyped]) -> bool:
    """Whether all data of an op is quantized."""
    others, values = defined(op.type).parameters, builder.graph.values
    if op.type == "Pow" and builder.values.is_constant(op.inputs[1]) and kinds.get(1) is None:
        others |= {1}  # a stored square, see `power`
    data = (i for i, name in enumerate(op.inputs) if name and i not in others and values[name].is_float)
    return all(isinstance(kinds.get(i), Uniform) for i in data)


def _is_one_type(builder: ProgramBuilder, op: Op, kinds: dict[int, PortTyped], y: Uniform | None) -> bool:
    """Whether ops that hand integers on as they are have one type on both sides."""
    is_rescaled = op.type in RESCALING or not (is_movement(op, builder.graph) or op.type in ONE_TYPE)
    return y is None or is_rescaled or all(builder.values.is_same(kind, y) for kind in kinds.values())


def _results(call: Call) -> list[Tensor] | None:
    writer = None if call.op.captures else WRITERS.get(call.op.type)
    found = None if writer is None else writer(call)
    return None if found is None else list(found)


def _refusal(builder: ProgramBuilder, block: Block) -> UnsupportedExport:
    ops = "+".join(op.type for op in block.region.ops)
    told = _accepted(block.region.ops, "with all data quantized ")
    return builder.refuse(f"no LiteRT operator computes {ops} on these operands; {told}")


def _accepted(ops: Sequence[Op], where: str) -> str:
    """The operators of the format; of one that it has, that its operands or attributes are what it lacks."""
    if all(op.type in WRITERS for op in ops):
        kinds = " and ".join(dict.fromkeys(op.type for op in ops))
        return f"litert has {kinds} with other operands or attributes (docs/litert.md)"
    return f"litert accepts {where}{', '.join(sorted(WRITERS))}"
