"""A JAX program is planned: lowered in JAX's own environment, read, planned and run in ours."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "jax_model.py"
PYTHON = ROOT / ".oracles" / "jax" / "bin" / "python"


def run(python, *arguments):
    done = subprocess.run([python, EXAMPLE, *arguments], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()


def share(line):
    return float(line.partition(": ")[2].split(" ")[0])


@pytest.mark.slow
def test_a_jax_model_is_planned_and_reads_the_digits_as_well(tmp_path):
    if not PYTHON.exists():
        pytest.skip("no .oracles/jax: run make oracles")
    module, out = tmp_path / "model.mlir", tmp_path / "model.onnx"
    (trained,) = run(PYTHON, "lower", module)
    *kernels, planned = run(sys.executable, "plan", module, out)
    assert [line.partition(":")[0] for line in kernels] == [
        "Transpose", "conv", "MaxPool", "conv", "MaxPool", "Transpose", "Reshape", "gemm",
    ]  # fmt: skip
    # The last product hands on floats.
    assert all("None" not in line for line in kernels[:-1])
    assert share(trained) > 85
    assert share(planned) >= share(trained) - 3
    assert out.stat().st_size > 0


def test_the_example_says_how_it_is_used():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "Usage: `python examples/jax_model.py lower MODEL.mlir`" in done.stderr
