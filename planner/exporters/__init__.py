"""Exporters: a float model and its plan to the bytes of a file, one module a format; see `table`.

An exporter says everything a plan says or refuses with a reason (`UnsupportedExport`). `FORMATS` loads them
on first use (PEP 562): a process that only plans may hold no library that reads or writes models.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.exporters.table import FORMATS

__all__ = ["FORMATS"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.exporters' has no attribute {name!r}")
    return getattr(importlib.import_module("planner.exporters.table"), name)
