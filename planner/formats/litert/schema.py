"""Schema: the packages of the extra `litert`, imported where a file is read or written."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from planner.errors import PlannerError
from planner.installation import install_command

PACKAGES: Final = ("flatbuffers", "tflite")


def package(name: str, done: str, error: type[PlannerError]) -> ModuleType:
    """A package of the extra `litert`.

    Args:
      done: what is done with it: `read` or `written`.
      error: to be raised where it is not installed.
    """
    require_packages(done, error)
    return import_module(name)


def require_packages(done: str, error: type[PlannerError]) -> None:
    """Refuse where a package of the extra `litert` is missing; nothing is imported.

    Args:
      done: what is to be done with them: `read` or `written`.
      error: to be raised.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise error(
            f"litert files are {done} with the packages flatbuffers and tflite; not installed: "
            f"{', '.join(missing)}",
            hint=install_command("litert"),
        )
