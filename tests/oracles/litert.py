"""Asking LiteRT's interpreter in the environment of `make oracles`; see `engines.environment`."""

from pathlib import Path

import pytest

from planner.target_tests.engines.environment import run_litert

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "litert" / "bin" / "python"


def run(folder, files, *, kernels="reference"):
    """What files compute: for each the outputs per sample, by the names of its signature, or the refusal."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/litert: run make oracles")
    return run_litert(str(PYTHON), Path(folder), files, kernels=kernels)
