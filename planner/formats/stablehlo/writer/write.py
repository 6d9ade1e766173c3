"""Write: a planned model as one StableHLO function, region by region, in either form.

A region is a clamp of stored values, a data-movement operator on them, a kernel of the form, or else float
operations between dequantize and quantize. Source: docs/formats.md; docs/specification.md, section 7.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from planner.errors import UnsupportedExport
from planner.formats.common.basics import with_basics
from planner.formats.common.blocks import Clamp, clamp_of
from planner.formats.common.control_flow import nested
from planner.formats.common.known_shapes import fold, left_open, sizes_blamed
from planner.formats.common.tables import with_rows_apart
from planner.formats.mlir.generic import Function, module_text
from planner.formats.onnx.writer.port_support import Accepts, refuse_unsupported
from planner.formats.stablehlo.writer.calls import Call
from planner.formats.stablehlo.writer.control_flow import write_items
from planner.formats.stablehlo.writer.floats.table import OPS
from planner.formats.stablehlo.writer.floats.windows import completed
from planner.formats.stablehlo.writer.function import Array
from planner.formats.stablehlo.writer.integers.kernels import (
    INTEGER,
    INTEGER_KERNELS,
    linear,
    linear_to_float,
)
from planner.formats.stablehlo.writer.integers.kernels import clamped as clamp_integers
from planner.formats.stablehlo.writer.integers.tables import tabulated
from planner.formats.stablehlo.writer.operations import convert
from planner.formats.stablehlo.writer.program_builder import ProgramBuilder
from planner.formats.stablehlo.writer.quantized import QUANTIZED, QUANTIZED_KERNELS, hybrid
from planner.formats.stablehlo.writer.quantized import clamped as clamp_quantized
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.formats.stablehlo.writer.verbatim import is_verbatim, restate
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.ir.types.written_scales import written_scales
from planner.lowering.blocks import CLAMPS, Block, moved_kind, split_tail
from planner.plans.plan import Plan
from planner.plans.records import Port

_ACTIVATIONS: Final = "integers of 2 to 32 bits (a narrower range too), per tensor or per axis"
_CONSTANTS: Final = "integers of 2 to 32 bits, per tensor, per axis or per block"


def write_stablehlo(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as StableHLO with quantized element types, in generic form.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type or kernel the specification has nothing for; names port, row and constraint.
    """
    return _write(ProgramBuilder(*with_basics(*with_rows_apart(graph, plan), _has), QUANTIZED))


def write_stablehlo_int(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as StableHLO on plain integers, equal to `exact_even` (docs/specification.md,
    section 8).

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type or kernel this form has nothing for; names port and row.
    """
    return _write(ProgramBuilder(*with_basics(*with_rows_apart(graph, plan), _has), INTEGER))


def _has(op: Op) -> bool:
    """Whether there is a form of an op in float."""
    return op.type in OPS


def _write(builder: ProgramBuilder) -> bytes:
    accepts = Accepts(builder.form.name, range(1, 33), _ACTIVATIONS, _CONSTANTS, blocks=True)
    refuse_unsupported(builder.graph, builder.plan, accepts)
    write_items(builder, nested(builder.plan), _write_block)
    results = [(name, builder.result(name)) for name in builder.graph.outputs]
    for _, tensor in results:
        builder.p.settle(tensor.name)
    function = Function(
        "main",
        tuple((tensor.name, tensor.type) for _, tensor in builder.arguments),
        tuple(tensor.name for _, tensor in results),
        tuple(builder.p.operations),
        comment="\n".join(_heading(builder, results)),
    )
    text = module_text([function])
    return written_scales(builder.graph).in_text(text).encode()


def _heading(builder: ProgramBuilder, results: list[tuple[str, Tensor]]) -> Iterator[str]:
    yield f"{builder.form.name} of {builder.graph.name!r} for {builder.plan.target.id}"
    for name, tensor in builder.arguments:
        open_ = " (dimensions left open are 1)" if name in builder.assumed else ""
        yield f"argument {tensor.name}: {name!r}{open_}"
    for name, tensor in results:
        yield f"result {tensor.name}: {name!r}"


def _write_block(builder: ProgramBuilder, block: Block) -> None:
    row = block.kernel.row
    builder.values.arithmetic = builder.form.arithmetic or block.arithmetic
    address = next((port.address for port in block.kernel.outputs), block.kernel.name)
    builder.p.start(block.kernel.name, f"{address} ({'in float' if row is None else f'row {row}'})")
    if block.is_integer:
        builder.p.remark(f"{block.kernel.name}: {block.kernel.kernel}")
    with sizes_blamed(builder.graph, builder.p.place):
        if (
            fold(builder.values, builder.shape, block)
            or _write_movement(builder, block)
            or _write_kernel(builder, block)
        ):
            return
        _write_real(builder, block)


def _write_movement(builder: ProgramBuilder, block: Block) -> bool:
    """Write a data-movement operator, or a clamp alone, on stored elements; False where types differ."""
    op, kind = block.core[0], moved_kind(block, builder.graph, builder.values.is_same)
    if kind is None or not kind.is_per_tensor or not block.kernel.outputs:
        return False
    if op.type in CLAMPS:
        ends = clamp_of(builder.values, op, kind)
        if ends is None:
            return False
        _settle(builder, block, _clamped(builder, builder.values.integers(op.inputs[0], kind), kind, ends))
        return True
    maker = OPS.get(op.type)
    if maker is None or op.type == "TopK":  # sorts reals, and its indices are of no stored type
        return False
    results = maker(_call(builder, block, op, {}, kind))
    for port in block.kernel.outputs:
        if port.value and isinstance(port.type, Uniform):
            tensor = results[op.outputs.index(port.value)]
            builder.values.define_stored(
                port.value, port.type, builder.form.rescale(builder.p, tensor, kind, port.type)
            )
    return True


def _write_kernel(builder: ProgramBuilder, block: Block) -> bool:
    ports = [port for port in block.kernel.outputs if port.value]
    y = ports[0].type if len(ports) == 1 else None
    if builder.form is INTEGER and not ports and len(block.core[-1].outputs) == 1:
        return _write_comparison(builder, block)
    if not isinstance(y, Uniform) or len(block.kernel.outputs) != 1:
        return False
    ends, ops = clamp_of(builder.values, block.activation, y), tuple(op.type for op in block.core)
    if ends is None:
        return False
    if builder.form is INTEGER:
        maker = INTEGER_KERNELS.get(ops)
        tensor = None if maker is None else maker(builder, block, y, ends)
        tensor = tensor or tabulated(builder, block, y, ends)
        if tensor is None:
            return False
        builder.values.define_stored(ports[0].value, y, tensor)
        return True
    kernel = QUANTIZED_KERNELS.get(ops)
    result = None if kernel is None else kernel(builder, block, y)
    if result is None:
        return False
    _settle(builder, block, _clamped(builder, result, y, ends))
    return True


def _write_comparison(builder: ProgramBuilder, block: Block) -> bool:
    tensor = tabulated(builder, block, None, None) if block.is_integer else None
    if tensor is None:
        return False
    builder.values.define_real(block.core[-1].outputs[0], tensor)
    return True


def _clamped(builder: ProgramBuilder, tensor: Tensor, kind: Uniform, ends: Clamp) -> Tensor:
    if (ends.low, ends.high) == (kind.storage.qmin, kind.storage.qmax):
        return tensor
    cut = clamp_integers if builder.form is INTEGER else clamp_quantized
    return cut(builder.p, tensor, kind, ends.low, ends.high)


def _settle(builder: ProgramBuilder, block: Block, tensor: Tensor) -> None:
    port = next(port for port in block.kernel.outputs if port.value)
    if isinstance(port.type, Uniform):
        builder.values.define_stored(port.value, port.type, tensor)


def _write_real(builder: ProgramBuilder, block: Block) -> None:
    """Write a block's ops on floats: dequantize what it reads, quantize what it defines."""
    made: dict[str, Tensor] = {}
    weighed = hybrid(builder, block) if builder.form is QUANTIZED else None
    ops = block.core
    if builder.form is INTEGER and block.float_result:
        ops = _handed_on(builder, block, made)
    for i, op in enumerate(ops):
        maker, call = OPS.get(op.type), _call(builder, block, op, made, None)
        if maker is not None:
            results = maker(call) if i or weighed is None else (completed(call, weighed),)
        elif is_verbatim(op):
            read = [call.tensor_of(index) for index in range(len(op.inputs))]
            results = restate(builder.p, op, read, [builder.values.real(name) for name in op.captures])
        else:
            raise _unknown(builder, op)
        made.update({name: tensor for name, tensor in zip(op.outputs, results, strict=False) if name})
    ports = {port.value: port for port in block.kernel.outputs if port.value}
    if block.activation is not None:
        _quantized_result(builder, block, next(iter(ports.values())), made[block.result])
        return
    for name, tensor in made.items():
        port = ports.get(name)
        if port is not None and isinstance(port.type, Uniform):
            _quantized_result(builder, block, port, tensor)
        else:
            builder.values.define_real(name, tensor)


def _handed_on(builder: ProgramBuilder, block: Block, made: dict[str, Tensor]) -> tuple[Op, ...]:
    """Make the float result of an integer product, and return the ops that are still to be written."""
    whole, tail = split_tail(block.core)
    is_linear = INTEGER_KERNELS.get(tuple(op.type for op in whole)) is linear
    product = linear_to_float(builder, replace(block, core=whole)) if is_linear else None
    if product is None:
        return block.core
    name = whole[-1].outputs[0]
    made[name] = convert(builder.p, product, builder.graph.values[name].dtype)
    return tail


def _quantized_result(builder: ProgramBuilder, block: Block, port: Port, tensor: Tensor) -> None:
    kind = port.type
    assert isinstance(kind, Uniform)  # noqa: S101 - the caller looked
    ends = clamp_of(builder.values, block.activation, kind)
    if ends is None:
        raise UnsupportedExport(
            f"{builder.p.place}: bounds of {block.core[-1].name!r} known only at run time, or per slice",
            hint="use a type per tensor and constant bounds",
        )
    stored = builder.form.quantize(builder.p, convert(builder.p, tensor, "f32"), kind)
    builder.values.define_stored(port.value, kind, _clamped(builder, stored, kind, ends))


def _call(
    builder: ProgramBuilder,
    block: Block,
    op: Op,
    made: dict[str, Tensor],
    kind: Uniform | None,
) -> Call:
    """The op on floats, or on stored elements of one type."""

    def tensor_of(index: int) -> Tensor:
        name = op.inputs[index]
        if name in made:
            return made[name]
        port = block.kinds.get((op.name, index))
        if kind is not None and port is not None:
            return builder.values.integers(name, kind)
        return builder.values.real(name, port)

    def known_of(index: int) -> Array | None:
        name = op.inputs[index]
        return None if name in made else builder.values.known(name)

    return Call(builder.p, op, tensor_of, known_of, kind, left_open(builder.graph))


def _unknown(builder: ProgramBuilder, op: Op) -> UnsupportedExport:
    return UnsupportedExport(
        f"{builder.p.place}: {op.type} at {op.name!r} has no form in StableHLO here; "
        f"{builder.form.name} accepts {', '.join(sorted(OPS))}",
        hint="use an ONNX format, or plan the model without this op",
    )
