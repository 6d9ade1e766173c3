"""Version 2 of QONNX's operators: `IntQuant` for `Quant`, `Trunc` with an output scale, domain version 2.

A Trunc of version 1 has neither an output scale nor an end to its integers, so in version 2 it is the plain
ops that compute it. In: a graph in QONNX's dialect. Source: QONNX operator pages, "Since version".
"""

from dataclasses import replace

from planner.errors import UnsupportedExport
from planner.formats.onnx.quantized.dialect import INT_QUANT, QONNX, QUANT, TRUNC
from planner.formats.onnx.quantized.lowering import LOWERINGS, draft_of
from planner.ir.graph import Graph


def in_version_2(graph: Graph) -> Graph:
    """The graph with QONNX's operators of version 2.

    Raises:
      UnsupportedExport: a Trunc of version 1 whose parameters are computed at run time.
    """
    draft = draft_of(graph)
    for op in graph.ops:
        if op.attributes.get("rounding_mode") == "ROUND_TO_ZERO":
            # A name of older pages, which the qonnx executor does not know.
            op = replace(op, attributes={**op.attributes, "rounding_mode": "DOWN"})  # noqa: PLW2901 - renamed
        if op.type == QUANT:
            draft.ops.append(replace(op, type=INT_QUANT))
        elif op.type != TRUNC or len(op.inputs) == 6:
            draft.ops.append(op)
        elif not LOWERINGS[TRUNC](op, draft):
            raise UnsupportedExport(
                f"qonnx-2 cannot say Trunc at {op.name!r} (port {op.name}.in[0]): its scale, zero point or "
                f"widths are computed at run time",
                hint="version 2 has an output scale; qonnx writes version 1",
            )
    done = draft.finish()
    used = any(op.type.startswith(QONNX) for op in done.ops)
    return replace(done, opsets={**done.opsets, QONNX: 2} if used else done.opsets)
