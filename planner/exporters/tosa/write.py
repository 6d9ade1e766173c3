"""tosa: a planned model as a TOSA 1.0 program: integer operators and RESCALE, MLIR in generic form.

Every row's arithmetic is RESCALE's own, so the stored integers are the reference interpreter's. What is
computed on integers there is computed on integers here; float regions become float operators. The function's
arguments and results are stored integers wherever the plan reads or writes them so.
Source: TOSA specification 1.0; design 01, sections 7 and 8; design 05, "Out".
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from planner.errors import RuleError, UnsupportedExport
from planner.exporters.accepts import common_problem, refusal, typed_ports
from planner.exporters.blocks import Block, Clamp, clamp_of
from planner.exporters.nested import nested
from planner.exporters.shapes import fold, sizes_blamed
from planner.exporters.tosa.bodies import write_items
from planner.exporters.tosa.elementwise import concat, plus, times, where
from planner.exporters.tosa.floats import argmax, compare, write_floats, write_real
from planner.exporters.tosa.linear import conv, conv_transpose, fully_connected
from planner.exporters.tosa.moving import move
from planner.exporters.tosa.pooling import average_pool, global_average_pool
from planner.exporters.tosa.recurrent import recurrent
from planner.exporters.tosa.sheet import Sheet, held
from planner.exporters.tosa.tables import pointwise
from planner.interpreter.kernels import KERNELS
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.qtypes import Uniform
from planner.ir.roles import is_mover
from planner.mlir.generic import module_text
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[Sheet, Block, Uniform, Clamp], bool]

FUNCTION: Final = "main"
_ACTIVATIONS: Final = "i8 and u8 (or less) with any zero point, i16 with 0, u16 with 32768, one scale each"
_CONSTANTS: Final = "up to i16, or i32 and more with zero point 0, per tensor or per axis"
_CENTRES: Final = (0, 1 << 15)
_KERNELS_IN_FLOAT: Final = frozenset(
    {("LeakyRelu",), ("ReduceMean",), ("ReduceSum",), ("Sigmoid",), ("Softmax",)}
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
    sheet = Sheet(graph, plan)
    write_items(sheet, nested(plan), _write_block)
    results = []
    for i, name in enumerate(graph.outputs):
        sheet.address = port_address(BOUNDARY, "in", i)
        results.append(sheet.result(name))
    function = sheet.program.function(FUNCTION, results, "\n".join(sheet.notes))
    return module_text([function]).encode()


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


def _write_block(sheet: Sheet, block: Block) -> None:
    """Write one region; shape arithmetic has no plan and is left out, its readers say what they miss."""
    kernel = block.kernel
    with sizes_blamed(sheet.graph, f"kernel {kernel.name!r}"):
        if kernel.name not in sheet.plan.kernels or fold(sheet, block):
            return
    row = None if kernel.row is None else sheet.plan.row_of(kernel.name)
    sheet.arithmetic = "" if row is None else row.requantize
    port = next((port.address for port in (*kernel.outputs, *kernel.inputs) if port.value), kernel.name)
    sheet.address = f"{port} ({f'row {kernel.row}' if kernel.row else 'in float'})"
    types = ", ".join(str(item.type.storage) for item in kernel.outputs if isinstance(item.type, Uniform))
    sheet.program.remark(f"{kernel.name}: {kernel.kernel} ({kernel.row or 'float'}) {types}".strip())
    try:
        with sizes_blamed(sheet.graph, sheet.address):
            _write_kernel(sheet, block)
    except RuleError as error:
        raise sheet.refuse(error.message, error.hint) from error


def _write_kernel(sheet: Sheet, block: Block) -> None:
    if recurrent(sheet, block):
        return
    if not block.is_integer:
        write_floats(sheet, block)
        return
    if _write_mover(sheet, block) or compare(sheet, block) or argmax(sheet, block):
        return
    ops = tuple(op.type for op in block.core)
    outputs = [port for port in block.kernel.outputs if port.value]
    y = outputs[0].type if len(outputs) == 1 else None
    if isinstance(y, Uniform):
        sheet.checked_arithmetic()
        clamp = clamp_of(sheet, block.activation, held(y))
        writer = WRITERS.get(ops)
        is_float = ops not in KERNELS or ops in _KERNELS_IN_FLOAT
        if clamp is not None and writer is not None and writer(sheet, block, y, clamp):
            return
        if clamp is not None and is_float:
            if not pointwise(sheet, block, y, clamp):
                write_real(sheet, block, y, clamp)
            return
    raise _refusal(sheet, block)


def _write_mover(sheet: Sheet, block: Block) -> bool:
    """A lone op that moves stored integers of one type, a Relu or Clip among them."""
    ports = [port for port in (*block.kernel.inputs, *block.kernel.outputs) if port.value]
    kinds = [port.type for port in ports]
    op, first = block.core[0], kinds[0]
    is_lone = len(block.region.ops) == 1 and is_mover(op, sheet.graph)
    if not is_lone or not isinstance(first, Uniform) or not all(sheet.is_same(first, kind) for kind in kinds):
        return False
    kind = first
    if op.type in ("Clip", "Relu"):
        clamp = clamp_of(sheet, op, held(kind))
        if clamp is None:
            return False
        sheet.settle(op.outputs[0], kind, sheet.stored(op.inputs[0], kind), clamp.low, clamp.high)
        return True
    names = [name for i, name in enumerate(op.inputs) if (op.name, i) in block.kinds]
    found = move(sheet, op, [sheet.operand(name, kind) for name in names], kind)
    if found is None or sum(bool(name) for name in op.outputs) > len(found):
        return False
    for name, tensor in zip(op.outputs, found, strict=False):
        sheet.define_stored(name, kind, tensor)
    return True


def _refusal(sheet: Sheet, block: Block) -> UnsupportedExport:
    ops = "+".join(op.type for op in block.region.ops)
    linear = "Conv, ConvTranspose (one group, no dilations), Gemm and MatMul of constant weights"
    return sheet.refuse(
        f"no TOSA operators compute {ops} on these operands as its row does in {sheet.arithmetic}; "
        f"tosa accepts {linear}, MatMul, Add, Sub, Mul, Concat, Where, AveragePool, GlobalAveragePool, "
        "comparisons, ops that move data, and ops of the float profile where the row computes in float"
    )


WRITERS: Final[Mapping[tuple[str, ...], Writer]] = {
    ("Add",): plus,
    ("AveragePool",): average_pool,
    ("Concat",): concat,
    ("Conv",): conv,
    ("ConvTranspose",): conv_transpose,
    ("Gemm",): fully_connected,
    ("GlobalAveragePool",): global_average_pool,
    ("MatMul",): fully_connected,
    ("MatMul", "Add"): fully_connected,
    ("Mul",): times,
    ("Sub",): plus,
    ("Where",): where,
}
