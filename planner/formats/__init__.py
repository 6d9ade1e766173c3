"""Formats, a folder for each: `reader` makes a graph of a file, `writer` a file of a model and its plan.

A folder's vocabulary maps operators in both directions. `table` lists what can be written, each by a function
that says everything a plan says or refuses with a reason (`UnsupportedExport`). `FORMATS` loads all writers
on first use (PEP 562): a process that only plans may hold no library that writes models.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.formats.table import FORMATS

__all__ = ["FORMATS"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.formats' has no attribute {name!r}")
    return getattr(importlib.import_module("planner.formats.table"), name)
