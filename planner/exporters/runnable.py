"""Runnable: an exported file as one that onnxruntime runs, for comparing it with the float model.

QONNX ops become plain ones; a FINN file is left to the reference interpreter, its thresholds are no ONNX ops,
and so are LiteRT files and programs in MLIR.
"""

import io
import zipfile
from pathlib import Path
from typing import Final

from planner.exporters.qonnx.hls4ml import MODEL_FILE
from planner.onnx.quantized.lowering import lower
from planner.onnx.read import read_written
from planner.onnx.write import write_graph

_OTHERS: Final = frozenset({"finn", "litert", "mlir", "mlir-casts", "stablehlo", "stablehlo-int", "tosa"})


def is_runnable(name: str) -> bool:
    """Whether onnxruntime runs files in a format."""
    return name not in _OTHERS


def runnable(name: str, data: bytes | Path) -> bytes | Path | None:
    """The model of a file in a format, in ONNX and com.microsoft operators; None where it has others."""
    if not is_runnable(name):
        return None
    if name not in ("hls4ml", "qonnx"):
        return data
    if isinstance(data, Path):
        data = data.read_bytes()
    if name == "hls4ml":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(MODEL_FILE)
    return write_graph(lower(read_written(data)))
