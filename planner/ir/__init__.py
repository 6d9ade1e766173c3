"""Floor 0: types, graphs and orders. Frozen data and pure functions; no file format is known here.

`ir.cycles` needs networkx and is only for a report that hardly anybody sees: it loads on first use (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.ir import cycles

__all__ = ["cycles"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.ir' has no attribute {name!r}")
    return importlib.import_module(f"planner.ir.{name}")
