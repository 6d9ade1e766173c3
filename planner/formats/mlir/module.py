"""Models as MLIR modules: annotated ones, lossless with the JSON form; StableHLO and TOSA programs."""

from planner.errors import ModelError
from planner.formats.mlir.text import read_module as moduleread
from planner.formats.mlir.text.read_module import Module, read_module
from planner.formats.mlir.text.write_module import write_mlir
from planner.formats.stablehlo.reader.program import read_hlo_model
from planner.formats.tosa.reader.program import read_tosa_model
from planner.ir.graph import Graph

__all__ = ["Module", "read_mlir", "read_module", "write_mlir"]


def read_mlir(text: str | bytes) -> Graph:
    """Read an annotated model, or a StableHLO or TOSA program, from MLIR text.

    Raises:
      ModelError: `line:column: ` and the fault there, a graph that breaks a rule of validity,
        or a type that does not fit its tensor.
    """
    try:
        source = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"not UTF-8 text at byte {error.start}") from None
    found = read_hlo_model(source) or read_tosa_model(source)
    return moduleread.read_mlir(source) if found is None else found
