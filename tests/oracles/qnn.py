"""Asking Qualcomm's HTP library in the environment of `make oracles`; see `engines.environment`."""

from pathlib import Path

import pytest

from planner.target_tests.engines.environment import run_qnn

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "qnn" / "bin" / "python"


def run(folder, files, **more):
    """What the library takes and computes of files, or the refusal of each."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/qnn: run make oracles")
    return run_qnn(str(PYTHON), Path(folder), files, **more)
