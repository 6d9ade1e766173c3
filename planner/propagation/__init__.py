"""Floor 2: a type for every port. Rows, ranges, classes, labels, the price, and the plan with its log.

`propagation.milp` (HiGHS) loads on first use (PEP 562): most models never need it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.propagation import milp

__all__ = ["milp"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.propagation' has no attribute {name!r}")
    return importlib.import_module(f"planner.propagation.{name}")
