"""Annotated models as MLIR modules: `read_mlir` and `write_mlir`, lossless with the JSON form."""

from planner.mlir.moduleread import Module, read_mlir, read_module
from planner.mlir.moduletext import write_mlir

__all__ = ["Module", "read_mlir", "read_module", "write_mlir"]
