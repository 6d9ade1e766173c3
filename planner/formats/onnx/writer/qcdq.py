"""onnx-qcdq: QuantizeLinear, Clip, DequantizeLinear around float ops: storage ranges under 8 bits by a Clip.

Stored integers lie in bytes; a Clip of bytes says the range, on weights too, so that a consumer finds it. All
ops, fused activations included, are float ones between the pairs. Source: the QONNX paper, "QCDQ";
docs/formats.md.
"""

from dataclasses import replace
from typing import Final

from planner.formats.onnx.writer.float_blocks import write_real
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.port_support import LOW_BIT_ACTIVATIONS, LOW_BITS, Accepts
from planner.formats.onnx.writer.qoperator import BYTES
from planner.formats.onnx.writer.write import Form, write_form
from planner.ir.graph import Graph
from planner.lowering.blocks import Block
from planner.plans.plan import Plan


def write_qcdq(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as ONNX with QCDQ; see `write.write_form`."""
    return write_form(graph, plan, FORM)


def write_block(builder: ModelBuilder, block: Block) -> None:
    """Write one region in float; its activation is an op of it like any other."""
    write_real(builder, replace(block, core=block.region.ops, activation=None))


FORM: Final = Form(
    Accepts("onnx-qcdq", LOW_BITS, LOW_BIT_ACTIVATIONS), BYTES, write_block, clips_constants=True
)
