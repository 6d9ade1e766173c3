"""PlanQuantizer in PyTorch's own flow beside the plan, and ExecuTorch on XNNPACK, in their environments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ORACLES = ROOT / ".oracles"
SCRIPT = ROOT / "tests" / "training" / "in_pt2e.py"
pytestmark = pytest.mark.long  # whichever comes first waits for all answers
STEPS = {"plain": 1.001, "residual": 2.001, "mobile": 2.001}
"""Steps of the output, at most: float rescales round sums and means otherwise than the plan's integers."""


def ask(oracle, *jobs):
    """What another environment answers to jobs, by job."""
    python = ORACLES / oracle / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no .oracles/{oracle}: run make .oracles/{oracle}/.made")
    places = [str(ROOT), *(place for place in sys.path if Path(place).name == "site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    line = [str(python), "-P", str(SCRIPT), *jobs]
    done = subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1_200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers():
    return ask("torch", "plan plain", "plan residual", "train plain", "refused")


@pytest.mark.parametrize("name", ["plain", "residual"])
def test_a_converted_program_computes_what_the_plan_does(answers, name):
    found = answers[f"plan {name}"]
    assert found["in float"] == []
    assert found["off"]["steps"] <= STEPS[name]
    assert found["off"]["share"] < 0.15
    assert found["off"]["answers"] <= 1


def test_training_by_pytorch_keeps_the_plan(answers):
    found = answers["train plain"]
    assert max(found["losses"]) < 1
    assert found["moved"] > 0.001
    assert found["same"]
    assert found["cost"][1] <= found["cost"][0]
    assert found["scales"] > 3
    assert found["off"]["steps"] <= 1.001


@pytest.mark.soak
def test_a_batch_norm_is_trained_and_folded_by_pytorch():
    """In soak: PyTorch looks for BatchNorm by exporting its patterns, a minute."""
    found = ask("torch", "train residual")["train residual"]
    assert max(found["losses"]) < 3
    assert found["moved"] > 0.001
    assert found["answers"] <= 16
    assert "fold BatchNorm into the network" in found["refused"]


def test_what_pt2e_cannot_express_is_named(answers):
    found = answers["refused"]
    assert "PT2E cannot express i4" in found["blocks"]
    assert "is no parameter or buffer of the program" in found["a number"]
    assert "give PyTorch the program that load_model read" in found["another program"]
    assert "a plan is" in found["no plan"]


@pytest.mark.soak
@pytest.mark.parametrize("name", STEPS)
def test_executorch_runs_the_plan_on_xnnpack(name):
    """Every operator is XNNPACK's, which rounds sums and means its own way."""
    found = ask("executorch", f"lower {name}")[f"lower {name}"]
    assert found["left"] == []
    assert found["off"]["steps"] <= STEPS[name]
    assert found["off"]["answers"] <= 1
