"""Schema: the packages of the extra `litert`, imported where a file is read or written."""

from importlib import import_module
from types import ModuleType
from typing import Final

from planner.errors import PlannerError

INSTALL: Final = "pip install 'quant-planner[litert]'"


def package(name: str, done: str, error: type[PlannerError]) -> ModuleType:
    """A package of the extra `litert`.

    Args:
      done: what is done with it: `read` or `written`.
      error: to be raised where it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as cause:
        raise error(
            f"litert files are {done} with the packages flatbuffers and tflite: {cause}", hint=INSTALL
        ) from cause
