"""qonnx: the float model with a Quant (or BipolarQuant) where the plan has a type. Any width.

Each op computes in float32 between Quants, which add the zero point and clip before they round: the plan in
`float32_quant`. Weights are the model's own floats behind a Quant. Source: QONNX operator pages;
docs/formats.md.
"""

from collections.abc import Callable, Sequence
from typing import Final

from planner.errors import UnsupportedExport
from planner.formats.common.blocks import blocks
from planner.formats.onnx.writer.port_support import common_problem, refusal, typed_ports
from planner.formats.qonnx.model_builder import FloatModelBuilder
from planner.formats.qonnx.quant_parameters import range_problem
from planner.formats.qonnx.signs import only_of_signs, signs_of
from planner.formats.qonnx.windows import windows
from planner.ir.graph import Graph
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.lowering.blocks import Block
from planner.ops import defined
from planner.plans.plan import Plan

MAX_BITS: Final = 24
_ACCEPTED: Final = f"up to {MAX_BITS} bits, signed or unsigned, narrow or not, per tensor or per axis"


def write_qonnx(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as QONNX; IR 10, the model's opset and `qonnx.custom_op.general` 1.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type no Quant has, with port and row.
    """
    refuse_what_no_quant_has(graph, plan, "qonnx")
    builder = FloatModelBuilder(graph, plan)
    write_blocks(builder, list(blocks(plan)))
    builder.bind_outputs()
    builder.spell_out(windows(graph, list(plan.graph.all_ops())))
    return builder.finish()


def refuse_what_no_quant_has(graph: Graph, plan: Plan, form: str) -> None:
    """Check that a Quant has every type of a plan.

    Raises:
      UnsupportedExport: the first port without one, with its row and what would be accepted.
    """
    for address, row, value, kind in typed_ports(plan):
        problem = common_problem(kind)
        if not problem and isinstance(kind, Uniform) and value not in graph.constants:
            problem = _problem(kind)
        if problem:
            raise refusal(address, row, value, kind, f"{problem}; {form} accepts {_ACCEPTED}")
        dtype = graph.values[value].dtype
        if isinstance(kind, Uniform) and dtype != "f32":
            raise UnsupportedExport(
                f"{address} ({value!r}) is {dtype} in the model; a Quant reads and gives f32",
                hint="export the model in f32",
            )


def _problem(kind: Uniform) -> str:
    if kind.grid:
        return "scales per block"
    if kind.storage.bits > MAX_BITS:
        return f"{kind.storage.bits} bits"
    return range_problem(kind)


def write_blocks(
    builder: FloatModelBuilder,
    parts: Sequence[Block],
    writer: Callable[[FloatModelBuilder, Block], None] | None = None,
) -> None:
    """Write regions, a BipolarQuant where the sign of one is.

    Args:
      writer: of the others; `write_block` without one.
    """
    ops = [op for block in parts for op in block.region.ops]
    signs = signs_of(builder.graph, ops)
    unread = only_of_signs(builder.graph, ops, signs)
    for block in parts:
        value = block.region.ops[-1].outputs[0]
        sign = signs.get(value) if len(block.region.ops) == 1 else None
        if sign is not None and builder.signs(value) == Bipolar("f32", sign.scale):
            builder.define(value, builder.real(sign.source), None)
        elif value not in unread:
            (writer or write_block)(builder, block)


def write_block(builder: FloatModelBuilder, block: Block) -> None:
    """Write one region in float, a Quant behind each result that has a type."""
    ports = {port.value: port for port in block.kernel.outputs if port.value}
    raw = {name: builder.raw_name(name, port.type) for name, port in ports.items()}
    inner: dict[str, str] = {}
    for op in block.region.ops:
        inputs = [
            inner.get(name) or builder.real(name, block.kinds.get((op.name, i)))
            for i, name in enumerate(op.inputs)
        ]
        for name in op.captures:
            if name not in inner:
                builder.real(name)
        outputs = [raw.get(name, name) for name in op.outputs]
        inner.update(zip(op.outputs, outputs, strict=True))
        builder.file.emit_op(op, inputs, outputs)
    moves = _keeps_grid(builder.graph, block)
    for name, port in ports.items():
        builder.define(name, raw[name], port.type, on_grid=moves)


def _keeps_grid(graph: Graph, block: Block) -> bool:
    """Whether a block only moves numbers of one type.

    Not so what cuts: bounds may be off the grid, and FINN has no layer for a Relu without a Quant behind it.
    """
    (op, *others), ports = block.region.ops, (*block.kernel.inputs, *block.kernel.outputs)
    kinds = {port.type for port in ports if port.value}
    # What moves data element by element hands a number on, or cuts it to a bound.
    cuts = defined(op.type).is_pointwise
    return not others and len(kinds) == 1 and is_movement(op, graph) and not cuts
