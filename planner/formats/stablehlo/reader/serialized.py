"""Serialized StableHLO in and out, through jaxlib: MLIR bytecode and portable artifacts.

Text of either is what `program` reads. A portable artifact is written for a version of StableHLO, by default
the oldest that jaxlib still writes, so that older consumers take it. Source: StableHLO, compatibility.
"""

from contextlib import suppress
from io import BytesIO
from typing import Any, Final, Literal, TypeAlias

from planner.errors import ModelError
from planner.formats.stablehlo.identifier import is_portable, payload
from planner.formats.stablehlo.reader.custom_form import bindings, is_available
from planner.installation import install_command

Serial: TypeAlias = Literal["mlirbc", "vhlo"]
SERIALS: Final[tuple[Serial, ...]] = ("mlirbc", "vhlo")


def serialized_text(data: bytes) -> str:
    """The module of bytecode, a portable artifact or a file of `jax.export`, as text.

    Raises:
      ModelError: bytes that jaxlib refuses, or that there is no jaxlib.
    """
    bytecode = payload(data)
    if bytecode is None:
        raise ModelError("no serialized MLIR: it does not hold MLIR's bytecode")
    require_jaxlib("serialized MLIR is read")
    ir, context, stablehlo = bindings()
    with context, ir.Location.unknown():
        try:
            if is_portable(bytecode):
                return str(stablehlo.deserialize_portable_artifact(context, bytecode))
            return str(ir.Module.parse(bytecode))
        except (ir.MLIRError, ValueError) as error:
            raise ModelError(f"serialized MLIR: {' '.join(str(error).split())}") from None


def serialize(text: str, form: Serial, *, version: str = "") -> bytes:
    """A module as bytecode (`mlirbc`) or as a portable artifact (`vhlo`).

    Args:
      version: of StableHLO, of a portable artifact: 1.0.0, say; by default the oldest.

    Raises:
      ModelError: a module that jaxlib refuses or the version cannot hold, or that there is no jaxlib.
    """
    require_jaxlib("serialized MLIR is written")
    ir, context, stablehlo = bindings()
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
            if form == "mlirbc":
                stream = BytesIO()
                module.operation.write_bytecode(stream)
                return stream.getvalue()
            return _portable(stablehlo, str(module), version)
        except (ir.MLIRError, ValueError) as error:
            told = " ".join(str(error).split())
            raise ModelError(f"the module cannot be written as {form}: {told}") from None


def _portable(stablehlo: Any, text: str, version: str) -> bytes:
    """A portable artifact of a version, or of the oldest one that holds the module."""
    oldest = stablehlo.get_minimum_version()
    with suppress(ValueError):
        found: bytes = stablehlo.serialize_portable_artifact_str(text, version or oldest)
        return found
    newest: bytes = stablehlo.serialize_portable_artifact_str(
        text, version or stablehlo.get_current_version()
    )
    return newest


def require_jaxlib(what: str) -> None:
    """Refuse what needs jaxlib where it is not installed."""
    if not is_available():
        raise ModelError(f"{what} through jaxlib, which is not installed", hint=install_command("stablehlo"))
