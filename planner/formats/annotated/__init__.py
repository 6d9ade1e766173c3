"""Annotated models as JSON: `qplan.annotated/1`, also the structure part of a plan file.

Its schemas take pydantic a while to build, so `read_annotated` loads them on first use (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.formats.annotated.document import read_annotated

__all__ = ["read_annotated"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.formats.annotated' has no attribute {name!r}")
    return getattr(importlib.import_module("planner.formats.annotated.document"), name)
