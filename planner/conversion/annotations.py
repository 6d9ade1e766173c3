"""Annotations of tensors by QONNX and FINN: datatypes, and which matrix is a depthwise Conv's.

Source: QONNX `quantization_annotation`, keys `finn_datatype` and `tensor_sparsity`.
"""

from collections.abc import Mapping

from planner.analysis.datatypes import FLOAT32, said
from planner.formats.onnx.quantized.datatypes import DATATYPE
from planner.formats.onnx.quantized.dialect import BIPOLAR, IM2COL, QUANT
from planner.formats.onnx.quantized.quantizers import reader_of
from planner.ir.graph import Graph

SPARSITY = "tensor_sparsity"


def annotations_of(graph: Graph) -> Mapping[str, Mapping[str, str]]:
    """The annotations of a model in QONNX: datatypes that its file said, windows of depthwise matrices."""
    found: dict[str, dict[str, str]] = {}
    for name in (*graph.inputs, *graph.constants):
        kind = said(graph, name) if graph.values[name].facts else FLOAT32
        if kind != FLOAT32:
            found.setdefault(name, {})[DATATYPE] = kind
    reader = reader_of(graph)
    for op in graph.ops:
        window = reader.op(op.inputs[0], IM2COL) if op.type == "MatMul" else None
        if window is None or not window[1].attributes.get("depthwise", 0):
            continue
        quantizer = reader.op(op.inputs[1], QUANT, BIPOLAR)
        matrix = op.inputs[1] if quantizer is None else quantizer[1].inputs[0]
        kernel = [int(size) for size in window[1].attributes["kernel_size"]]
        found.setdefault(matrix, {})[SPARSITY] = str({"dw": {"kernel_shape": kernel}})
    return found
