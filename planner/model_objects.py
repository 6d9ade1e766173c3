"""Model objects of other libraries in memory, as the bytes or text that an import takes.

Objects are known by the module of their class and used by duck typing, so that nothing is imported that
the caller has not: only `torch.onnx` is, for a `torch.export.ExportedProgram`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from planner.errors import InputError, ModelError

ACCEPTED: Final = (
    "a path, the bytes of a file, an onnx.ModelProto, a torch.export, a jax.export or an MLIR module"
)
_MLIR_WORDS: Final = (b"func.func", b"builtin.module", b"module {", b"module @", b"module attributes")


def as_bytes(source: Any) -> bytes | str | Path:
    """A model as a path or as the bytes of a file of a format that is read here.

    Raises:
      InputError: an object that is no model, or one that its own library has to export first.
    """
    if isinstance(source, bytes | str | Path):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if hasattr(source, "__fspath__"):
        return Path(source)
    for is_kind, convert in _OBJECTS:
        if is_kind(source):
            return convert(source)
    if isinstance(data := _read(source), bytes):
        return data
    kind = type(source)
    hint = _HINTS.get(kind.__module__.partition(".")[0], "")
    base = next((text for name, text in _BASES.items() if name in _names(kind)), "")
    raise InputError(f"a model is read from {ACCEPTED}, not from a {kind.__name__}", hint=base or hint)


def sniffed(data: bytes) -> str:
    """The format of bytes that are a model: `json`, `mlir` or `onnx`."""
    head = data[:4096].lstrip()
    if head[:1] == b"{":
        return "json"
    return "mlir" if any(word in head for word in _MLIR_WORDS) else "onnx"


def _read(source: Any) -> Any:
    """The contents of an open file."""
    return source.read() if callable(getattr(source, "read", None)) else None


def _names(kind: type) -> set[str]:
    return {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__}


def _is_a(module: str, *names: str) -> Callable[[Any], bool]:
    """Whether an object's class, or one it derives from, has one of these names in a package."""
    wanted = {f"{module}.{name}" for name in names}
    return lambda source: bool(wanted & _names(type(source)))


def _of_proto(proto: Any) -> bytes:
    try:
        data: bytes = proto.SerializeToString()
    except ValueError as error:
        raise ModelError(
            f"the ModelProto cannot be written as one message: {error}",
            hint="save it with onnx.save(..., save_as_external_data=True) and give the path",
        ) from error
    return data


def _of_torch(program: Any) -> bytes:
    exporter = import_module("torch.onnx")
    try:
        exported = exporter.export(program, dynamo=True, verbose=False)
    except exporter.OnnxExporterError as error:
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        raise ModelError(
            f"PyTorch's exporter to ONNX refuses the program: {' '.join(str(first).split())}",
            hint="give the float model, not one that a library has quantized; other operators need a "
            "`custom_translation_table` of torch.onnx.export",
        ) from error
    except ImportError as error:
        raise InputError(
            f"PyTorch's exporter to ONNX needs {error.name}, which is not installed",
            hint="pip install onnxscript",
        ) from error
    return _of_proto(exported.model_proto)


def _of_lowered(lowered: Any) -> bytes:
    return _of_module(lowered.compiler_ir("stablehlo"))


def _of_module(module: Any) -> bytes:
    """The generic form of a module of MLIR's own bindings, which is read without them."""
    text: str = module.operation.get_asm(print_generic_op_form=True)
    return text.encode()


_OBJECTS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], bytes]], ...]] = (
    (
        lambda source: type(source).__name__ == "ModelProto" and hasattr(source, "SerializeToString"),
        _of_proto,
    ),
    (_is_a("torch", "ExportedProgram"), _of_torch),
    (_is_a("torch", "ONNXProgram"), lambda program: _of_proto(program.model_proto)),
    (_is_a("jax", "Exported"), lambda exported: str(exported.mlir_module()).encode()),
    (_is_a("jax", "Lowered"), _of_lowered),
    (_is_a("xdsl", "ModuleOp"), lambda module: str(module).encode()),
    (lambda source: hasattr(getattr(source, "operation", None), "get_asm"), _of_module),
)

_EXPORT_FIRST: Final = "export it first: torch.export.export(model.eval(), example_inputs)"
_BASES: Final[Mapping[str, str]] = {
    "torch.Module": _EXPORT_FIRST,
    "keras.Model": "export it first: model.export('model.onnx', format='onnx')",
    "keras.KerasTensor": "give the model, exported: model.export('model.onnx', format='onnx')",
    "sklearn.BaseEstimator": "convert it first: skl2onnx.to_onnx(model, X[:1])",
    "onnxruntime.InferenceSession": "give the file that the session was made from",
}
_HINTS: Final[Mapping[str, str]] = {
    "transformers": _EXPORT_FIRST,
    "tensorflow": "convert it first: tf2onnx, or model.export of Keras; see docs/on-ramps.md",
    "jax": "export it first: jax.export.export(jax.jit(f))(example)",
}
