"""PyTorch: a plan as a module that trains with its types, and as annotations of PyTorch's own quantization.

An extra, which the core never imports.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from planner.errors import InputError
from planner.installation import install_command

if TYPE_CHECKING:
    from planner.torch.module import FakeQuantized, fake_quantized
    from planner.torch.prepared import Prepared, parameter_groups, prepare
    from planner.torch.pt2e import PlanQuantizer

__all__ = ["FakeQuantized", "PlanQuantizer", "Prepared", "fake_quantized", "parameter_groups", "prepare"]
_PLACES: Final = {
    "FakeQuantized": "module",
    "PlanQuantizer": "pt2e",
    "Prepared": "prepared",
    "fake_quantized": "module",
    "parameter_groups": "prepared",
    "prepare": "prepared",
}
_NEEDS: Final = {"module": ("torch", "torch"), "prepared": ("torch", "torch"), "pt2e": ("torchao", "pt2e")}
"""Per module the library that it needs, and the extra that installs it."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'planner.torch' has no attribute {name!r}")
    library, extra = _NEEDS[_PLACES[name]]
    for needed in dict.fromkeys(("torch", library)):
        if find_spec(needed) is None:
            told = f"planner.torch.{name} needs {needed}, which is not installed"
            raise InputError(told, hint=install_command(extra))
    return getattr(importlib.import_module(f"planner.torch.{_PLACES[name]}"), name)
