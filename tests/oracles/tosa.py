"""Asking the TOSA reference model in the environment of `make oracles`; see `engines.apart`."""

from pathlib import Path

import pytest

from planner.target_tests.engines.environment import TOSA_EXTENSIONS, TOSA_PROFILES, run_tosa

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "tosa" / "bin" / "python"


def run(folder, modules, *, profiles=TOSA_PROFILES, extensions=TOSA_EXTENSIONS):
    """What modules compute: for each the outputs per sample, or the text of the refusal."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/tosa: run make oracles")
    return run_tosa(str(PYTHON), Path(folder), modules, profiles=profiles, extensions=extensions)
