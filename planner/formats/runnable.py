"""Runnable: an exported file as one that onnxruntime runs, for comparing it with the float model.

QONNX ops become plain ones. A FINN file, whose thresholds are no ONNX ops, a LiteRT file and programs in MLIR
are left to the reference interpreter, which computes their integers (docs/formats.md).
"""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from planner.formats.onnx.quantized.lowering import lower
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import write_graph
from planner.formats.qonnx.hls4ml import MODEL_FILE
from planner.formats.table import FORMATS

ARITHMETICS: Final[Mapping[str, str | None]] = {
    name: form.arithmetic for name, form in FORMATS.items() if form.in_interpreter
}
"""The arithmetic of formats that onnxruntime does not run; None: the arithmetic of each row."""


def is_runnable(name: str) -> bool:
    """Whether onnxruntime runs files in a format."""
    return is_comparable(name) and not FORMATS[name].in_interpreter


def is_engines_own(name: str) -> bool:
    """Whether users run files in a format as they are in onnxruntime; QONNX's are lowered to be compared."""
    return name.startswith("onnx-")


def is_comparable(name: str) -> bool:
    """Whether files in a format can be compared here: by onnxruntime, or by the reference interpreter."""
    return not FORMATS[name].is_types_alone


def not_the_file(name: str, compared: str) -> str:
    """A note on figures of another file than the one in a format; "" where that one was compared."""
    if name == compared:
        return ""
    return f"of the {compared} file of the same plan, not of the {name} file"


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
