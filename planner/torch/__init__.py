"""PyTorch: a plan as a module that trains with the plan's types. An extra, which the core never imports."""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.installation import install_command

if TYPE_CHECKING:
    from planner.torch.module import FakeQuantized, fake_quantized

__all__ = ["FakeQuantized", "fake_quantized"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.torch' has no attribute {name!r}")
    if find_spec("torch") is None:
        told = "planner.torch trains with PyTorch, which is not installed"
        raise InputError(told, hint=install_command("torch"))
    return getattr(importlib.import_module("planner.torch.module"), name)
