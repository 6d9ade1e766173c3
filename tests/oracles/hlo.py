"""Asking jaxlib and XLA about StableHLO: jobs go to their environments by a subprocess; see `hlo_run`."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "mlir" / "bin" / "python"
JAX = ROOT / ".oracles" / "jax" / "bin" / "python"
TO_QDQ = "builtin.module(func.func(stablehlo-legalize-quantized-op-to-qdq))"


def ask(jobs, python=PYTHON, script="hlo_run.py"):
    """Answers to jobs, in order; skips the test where the oracle is missing."""
    if not python.exists():
        pytest.skip(f"no {python.relative_to(ROOT)}: run make oracles")
    done = subprocess.run(
        [python, str(Path(__file__).parent / script)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def printed(texts, passes="", *, generic=True):
    """Each module after the passes; a text that starts with `ERROR` where it is refused."""
    found = ask([{"text": text, "passes": passes, "generic": generic} for text in texts])
    return [answer.get("text") or f"ERROR {answer['error']}" for answer in found]


def evaluated(jobs):
    """Results of interpreting modules: jobs are (text, arrays) or (text, arrays, passes)."""
    told = [_told(text, arrays) | {"passes": "".join(passes)} for text, arrays, *passes in jobs]
    return [_read(answer, text) for answer, (text, *_) in zip(ask(told), jobs, strict=True)]


def compiled(jobs):
    """Results of modules that XLA compiles: jobs are (text, arrays)."""
    answers = ask([_told(text, arrays) for text, arrays in jobs], JAX, "xla_run.py")
    return [_read(answer, text) for answer, (text, _) in zip(answers, jobs, strict=True)]


def _told(text, arrays):
    return {"text": text, "arguments": [_written(array) for array in arrays]}


def _written(array):
    plain = np.asarray(array, order="C")
    return [plain.dtype.name, plain.shape, plain.tobytes().hex()]


def _read(answer, text):
    assert "error" not in answer, f"{answer.get('error')}\n{text[:3000]}"
    return [
        np.frombuffer(bytes.fromhex(data), dtype).reshape(shape) for dtype, shape, data in answer["arrays"]
    ]
