"""Floor 2: the Plan and its pure consumers (rescales, JSON and MLIR text, explain, the checker).

`cast_module` loads xDSL on first use (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.plans.read_mlir import cast_module

__all__ = ["cast_module"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.plans' has no attribute {name!r}")
    return getattr(importlib.import_module("planner.plans.read_mlir"), name)
