"""How this copy of the planner is installed: a checkout, or a wheel.

A checkout has the shipped targets in `targets`, the example in `examples/digits` and the service in `api`. In
a wheel, whose names cannot meet a user's own packages, the first two are data of `planner`, and the service
is `quant_planner_service` (setup.py).
"""

from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Final

_PLANNER: Final = Path(__file__).resolve().parent
_DISTRIBUTION: Final = "quant-planner"
_SHIPPED: Final = _PLANNER / "shipped_targets"
_EXAMPLE: Final = _PLANNER / "shipped_example"


def targets_folder() -> Path:
    """Return the folder of the shipped targets."""
    return _SHIPPED if _SHIPPED.is_dir() else _PLANNER.parent / "targets"


def example_folder() -> Path:
    """Return the folder of the example: `digits.onnx` and `calibration.npz`."""
    return _EXAMPLE if _EXAMPLE.is_dir() else _PLANNER.parent / "examples" / "digits"


def service_package() -> str:
    """Return the name of the package of the service."""
    return "quant_planner_service" if _SHIPPED.is_dir() else "api"


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs.

    It names the packages themselves: `pip install 'quant-planner[...]'` finds nothing where the planner came
    from a checkout or from a file.
    """
    try:
        told = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return f"pip install '{_PLANNER.parent}[{extra}]'"
    ends = (f'extra == "{extra}"', f"extra == '{extra}'")
    needed = sorted(text.partition(";")[0].strip() for text in told if text.endswith(ends))
    return " ".join(("pip install", *(f"'{text}'" for text in needed)))
