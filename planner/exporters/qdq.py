"""onnx-qdq: QuantizeLinear/DequantizeLinear pairs around float ops, weights stored as integers.

Each kernel reads DequantizeLinear and gives QuantizeLinear, which is what onnxruntime fuses into integer
kernels. A fused Relu or Clip goes where the type's range already cuts; otherwise it follows the
QuantizeLinear, so the kernel in front of it stays integer. Source: design 05; onnxruntime's QDQ groups.
"""

from typing import Final

import numpy as np

from planner.exporters.accepts import refuse_unsupported
from planner.exporters.blocks import Block, blocks, write_clamp_alone, write_real
from planner.exporters.sheet import Sheet
from planner.ir.graph import Graph
from planner.plans.plan import Plan

# onnxruntime on x86 turns i8 activations into u8, but not across a Clip on i8: the kernel in front of it
# would fall back to float.
INTEGER_CLAMPS: Final = frozenset({np.dtype(np.uint8)})


def write_qdq(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model as ONNX with Q/DQ pairs; IR 10, opset 21 or 20 (`opsets`).

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type or kernel this format cannot say, with port and row.
    """
    refuse_unsupported(graph, plan, "onnx-qdq")
    sheet = Sheet(graph, plan, integer_clamps=INTEGER_CLAMPS)
    for block in blocks(plan):
        write_block(sheet, block)
    return sheet.finish()


def write_block(sheet: Sheet, block: Block) -> None:
    """Write one region: a Relu or Clip on its own on integers where that is exact, else in float."""
    if not write_clamp_alone(sheet, block):
        write_real(sheet, block)
