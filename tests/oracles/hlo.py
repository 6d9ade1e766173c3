"""Asking jaxlib about StableHLO: jobs go to its own environment by a subprocess; see `hlo_run`."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "mlir" / "bin" / "python"
TO_QDQ = "builtin.module(func.func(stablehlo-legalize-quantized-op-to-qdq))"


def ask(jobs):
    """Answers to jobs, in order; skips the test where the oracle is missing."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/mlir: run make oracles")
    script = Path(__file__).parent / "hlo_run.py"
    done = subprocess.run(
        [PYTHON, str(script)], input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def printed(texts, passes="", *, generic=True):
    """Each module after the passes; a text that starts with `ERROR` where it is refused."""
    found = ask([{"text": text, "passes": passes, "generic": generic} for text in texts])
    return [answer.get("text") or f"ERROR {answer['error']}" for answer in found]


def evaluated(jobs):
    """Results of interpreting modules: jobs are (text, arrays) or (text, arrays, passes)."""
    told = [
        {"text": text, "arguments": [_written(array) for array in arrays], "passes": "".join(passes)}
        for text, arrays, *passes in jobs
    ]
    return [_read(answer, text) for answer, (text, *_) in zip(ask(told), jobs, strict=True)]


def _written(array):
    plain = np.asarray(array, order="C")
    return [plain.dtype.name, plain.shape, plain.tobytes().hex()]


def _read(answer, text):
    assert "error" not in answer, f"{answer.get('error')}\n{text[:3000]}"
    return [
        np.frombuffer(bytes.fromhex(data), dtype).reshape(shape) for dtype, shape, data in answer["arrays"]
    ]
