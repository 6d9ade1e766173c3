"""Layer 1: MLIR modules on xDSL, read and written. `read_mlir` loads xDSL on first use (PEP 562)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.formats.mlir.module import read_mlir

__all__ = ["read_mlir"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.formats.mlir' has no attribute {name!r}")
    return getattr(importlib.import_module("planner.formats.mlir.module"), name)
