"""Paths: how a process that is started finds these packages, from the sources or installed.

In a checkout this package is `api`. A wheel installs it as `quant_planner_service` (setup.py), since users
have packages called `api`. So its modules import each other by relative names.
"""

import os
import sysconfig
from pathlib import Path
from typing import Final

PACKAGE: Final = __name__.partition(".")[0]
"""The name of this package here."""


def import_path() -> str:
    """The `PYTHONPATH` of a process that is to import what this one does."""
    root = str(Path(__file__).resolve().parents[1])
    given = os.environ.get("PYTHONPATH", "")
    paths = [given] if root == sysconfig.get_path("purelib") else [root, given]
    return os.pathsep.join(path for path in paths if path)
