"""Names of files: the name of a model by its file, in the library, the clients and the service alike.

Plans of one model have one key only where it has one name. Formats that name their models themselves, which
are annotated JSON and MLIR, are not called by their files.
"""

from pathlib import PurePath
from typing import Final

CORRECTED: Final = ".corrected-float"
"""The suffix of `qplan plan` for the file of a model with corrected biases; not part of the model's name."""
CALLED_BY_FILE: Final = (".onnx", ".tflite")


def model_name(path: str | PurePath) -> str:
    """Return the name of the model in an ONNX or LiteRT file."""
    return PurePath(path).stem.removesuffix(CORRECTED)


def name_by_file(path: str | PurePath) -> str:
    """Return the name that a model has by its file; empty where its format says it."""
    return model_name(path) if PurePath(path).suffix.lower() in CALLED_BY_FILE else ""
