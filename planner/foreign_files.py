"""Foreign files: what a file is that is no model read here, and what its owner does to get one.

Known by their first bytes, by the names in an archive, and folders by what lies in them; nothing is unpacked
or run. Sources: the formats' own pages (zip, HDF5, safetensors, GGUF, pickle, FlatBuffers identifiers).
"""

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import ModelError

HEAD: Final = 4096
_EXPORT: Final = (
    "in Python: torch.onnx.export(model.eval(), example_inputs, 'model.onnx', dynamo=True); "
    "see docs/on-ramps.md"
)
_KERAS: Final = (
    "in Python: keras.saving.load_model(...).export('model.onnx', format='onnx'); see docs/on-ramps.md"
)
_TENSORFLOW: Final = (
    "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx; see docs/on-ramps.md"
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kind of file: what it is, as in "is a ...", and what to do with it."""

    what: str
    advice: str


_PICKLE: Final = Foreign(
    "a Python pickle, which runs code when it is read",
    "of a scikit-learn model: skl2onnx.to_onnx(model, X[:1]); of a PyTorch one: torch.onnx.export; "
    "see docs/on-ramps.md",
)
_TORCH: Final = Foreign("a PyTorch file of weights, without the model's code", _EXPORT)
_SAMPLES: Final = Foreign("an .npz of arrays: samples", "give it as --data, and the model in front")

_MAGIC: Final[tuple[tuple[int, bytes, Foreign], ...]] = (
    (0, b"\x89HDF\r\n\x1a\n", Foreign("an HDF5 file, as Keras saves models", _KERAS)),
    (
        0,
        b"GGUF",
        Foreign("a GGUF file: weights quantized for llama.cpp", "start from the float model's ONNX export"),
    ),
    (
        0,
        b"\x93NUMPY",
        Foreign("a single array of numpy", "a model is an ONNX file; samples are an .npz (numpy.savez)"),
    ),
    (
        4,
        b"ORTM",
        Foreign("a model in onnxruntime's own .ort format", "give the ONNX file that it was converted from"),
    ),
    (
        0,
        b"version https://git-lfs",
        Foreign("a pointer of Git LFS to a file", "git lfs pull fetches the file"),
    ),
    (0, b"\x1f\x8b", Foreign("a gzip archive", "unpack it and give the model that is in it")),
    (0, b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", _TORCH),
)
_DOCUMENTS: Final[tuple[tuple[bytes, Foreign], ...]] = (
    (b"qplan.plan/", Foreign("a plan", "a plan is given to show, explain, export, check and the like")),
    (b"qplan.stats/", Foreign("statistics of a model", "give them as --stats, and the model in front")),
    (b"qplan.annotations/", Foreign("constraints", "give them as --annotations, and the model in front")),
)
_TEXT: Final[tuple[tuple[bytes, Foreign], ...]] = (
    (b"<!doctype html", Foreign("a web page", "the download saved the page and not the file")),
    (b"<html", Foreign("a web page", "the download saved the page and not the file")),
    (b"<?xml", Foreign("an XML file, as OpenVINO has them", "give the ONNX file that it was converted from")),
)


def _is_in(*wanted: str) -> Callable[[tuple[str, ...]], bool]:
    """Whether an archive holds a file of one of these last names."""
    return lambda names: any(name.rpartition("/")[2] in wanted for name in names)


_ARCHIVES: Final[tuple[tuple[Callable[[tuple[str, ...]], bool], Foreign], ...]] = (
    (
        _is_in("serialized_exported_program.json", "archive_format"),
        Foreign(
            "a program of torch.export",
            "in Python: planner.load_model(torch.export.load(path)); see docs/on-ramps.md",
        ),
    ),
    (_is_in("constants.pkl"), Foreign("a TorchScript program", _EXPORT)),
    (_is_in("data.pkl"), _TORCH),
    (_is_in("model.weights.h5"), Foreign("a Keras model", _KERAS)),
    (lambda names: all(name.endswith(".npy") for name in names), _SAMPLES),
    (
        _is_in("coremldata.bin", "Manifest.json"),
        Foreign("a Core ML model", "give the model it was converted from, as ONNX"),
    ),
)
_FOLDERS: Final[Mapping[str, Foreign]] = {
    "saved_model.pb": Foreign("a SavedModel of TensorFlow", _TENSORFLOW),
    "Manifest.json": Foreign("a Core ML package", "give the model it was converted from, as ONNX"),
    "config.json": Foreign(
        "a model folder of Hugging Face",
        "export it first, with optimum or torch.onnx.export; see docs/on-ramps.md",
    ),
    "plan.json": Foreign("the folder of a plan", "the model that was planned is where its plan.json says"),
}
_SUFFIXES: Final[Mapping[str, Foreign]] = {
    ".pb": Foreign("a frozen graph of TensorFlow", _TENSORFLOW),
    ".mlmodel": Foreign("a Core ML model", "give the model it was converted from, as ONNX"),
    ".engine": Foreign("an engine of TensorRT", "give the ONNX file that it was built from"),
    ".py": Foreign("Python source", "run it and export the model that it makes; see docs/on-ramps.md"),
    ".yaml": Foreign("a YAML file", "a target is given with --target, constraints with --annotations"),
}


def foreign_bytes(data: bytes, name: str = "") -> Foreign | None:
    """Return the kind of bytes, if it is known here; None for anything else, an ONNX file say.

    Args:
      data: of the whole file: the names of an archive stand at its end.
      name: of the file, whose suffix is used last.
    """
    head = data[:HEAD]
    for at, magic, found in _MAGIC:
        if head[at:].startswith(magic):
            return found
    if head.startswith(b"PK\x03\x04"):
        return _archived(data)
    if is_safetensors(data):
        return Foreign("a safetensors file: weights without a model", _EXPORT)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and data.endswith(b"."):
        return _PICKLE
    if head.lstrip()[:1] == b"{":
        return next((found for name, found in _DOCUMENTS if b'"format": "' + name in head), None)
    text = head.lstrip().lower()
    for start, found in _TEXT:
        if text.startswith(start):
            return found
    return _SUFFIXES.get(Path(name).suffix.lower())


def is_safetensors(data: bytes) -> bool:
    """Whether bytes begin with the length of a JSON object, and the object."""
    size = int.from_bytes(data[:8], "little")
    return (
        2 <= size <= len(data) - 8 and data[8:9] == b"{" and data[7 + size : 8 + size].strip() in (b"}", b"")
    )


def foreign_folder(path: Path) -> Foreign | None:
    """Return the kind of a folder, by a file that lies in it; None where it is not known."""
    return next((found for name, found in _FOLDERS.items() if (path / name).is_file()), None)


def refuse_foreign(label: str, data: bytes, name: str = "") -> None:
    """Refuse bytes of a known kind that is no model read here.

    Args:
      label: of the file, for the message.

    Raises:
      ModelError: what it is and what to do.
    """
    if (found := foreign_bytes(data, name)) is not None:
        raise ModelError(f"{label} is {found.what}, and no model that is read here", hint=found.advice)


def _archived(data: bytes) -> Foreign:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = tuple(name for name in archive.namelist() if not name.endswith("/"))
    except (zipfile.BadZipFile, OSError, ValueError):
        return Foreign("a zip archive that is cut off or damaged", "fetch it again")
    for is_kind, found in _ARCHIVES if names else ():
        if is_kind(names):
            return found
    shown = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return Foreign(f"a zip archive of {shown or 'nothing'}", "unpack it and give the model that is in it")
