"""Asking FINN's front half in the environment of `make .oracles/finn/.made`; see `engines.fpga`."""

from pathlib import Path

import pytest

from planner.target_tests.engines.fpga import run_finn

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "finn" / "bin" / "python"


def run(folder, files):
    """What FINN makes of files, or the refusal of each."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/finn: run make .oracles/finn/.made FINN=CHECKOUT")
    return run_finn(str(PYTHON), Path(folder), files)
