"""Paths: how a process that is started finds these packages, from the sources or installed."""

import os
import sysconfig
from pathlib import Path


def import_path() -> str:
    """The `PYTHONPATH` of a process that is to import what this one does."""
    root = str(Path(__file__).resolve().parents[2])
    given = os.environ.get("PYTHONPATH", "")
    paths = [given] if root == sysconfig.get_path("purelib") else [root, given]
    return os.pathsep.join(path for path in paths if path)
