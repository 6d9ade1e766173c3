"""Asking torch-mlir: jobs go to its own environment by a subprocess; see `mlir_run`."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "mlir" / "bin" / "python"

PIPELINES = {
    "canonicalize": "builtin.module(canonicalize)",
    "cse": "builtin.module(func.func(cse))",
    "inline": "builtin.module(inline{default-pipeline=})",
    "lower-quant-ops": "builtin.module(func.func(lower-quant-ops))",
    "normalize-quant-types": "builtin.module(func.func(normalize-quant-types))",
    "strip-func-quant-types": "builtin.module(strip-func-quant-types)",
}


def ask(jobs):
    """Answers to jobs, in order; skips the test where the oracle is missing."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/mlir: run make oracles")
    script = Path(__file__).parent / "mlir_run.py"
    done = subprocess.run(
        [PYTHON, str(script)], input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def modules(texts, pipeline=""):
    """Each module after the passes, in generic form; a text that starts with `ERROR` where it is refused."""
    found = ask([{"text": text, "passes": pipeline} for text in texts])
    return [answer.get("text") or f"ERROR {answer['error']}" for answer in found]
