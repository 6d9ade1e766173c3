"""onnx-qdq: QuantizeLinear/DequantizeLinear pairs around float ops, weights stored as integers.

Each kernel reads DequantizeLinear and gives QuantizeLinear, which is what onnxruntime fuses into integer
kernels. A fused Relu or Clip goes where the type's range already cuts; otherwise it follows the
QuantizeLinear, so the kernel in front of it stays integer. Source: design 05; onnxruntime's QDQ groups.
"""

from typing import Final

import numpy as np

from planner.exporters.common.blocks import Block
from planner.exporters.onnx.float_blocks import write_clamp_alone, write_real
from planner.exporters.onnx.model_builder import ModelBuilder
from planner.exporters.onnx.port_support import Accepts
from planner.exporters.onnx.write import Form, write_form
from planner.ir.graph import Graph
from planner.plans.plan import Plan


def write_qdq(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as ONNX with Q/DQ pairs; see `write.write_form`."""
    return write_form(graph, plan, FORM)


def write_block(builder: ModelBuilder, block: Block) -> None:
    """Write one region: a Relu or Clip on its own on integers where that is exact, else in float."""
    if not write_clamp_alone(builder, block):
        write_real(builder, block)


# onnxruntime on x86 turns i8 activations into u8, but not across a Clip on i8: the kernel in front of it
# would fall back to float.
FORM: Final = Form(Accepts("onnx-qdq"), frozenset({np.dtype(np.uint8)}), write_block)
