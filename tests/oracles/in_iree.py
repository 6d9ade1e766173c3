"""Asking IREE, in the environment of `make oracles`: programs compiled with default flags, and run."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "iree" / "bin" / "python"
BACKENDS = ("llvm-cpu", "vmvx")


def run(folder, programs, *, skips=True):
    """What programs give: for each (text, arguments, backend) its results, or the compiler's error as a text.

    Returns:
      Pairs of results and the seconds that compiling took.
    """
    if not PYTHON.exists():
        if skips:
            pytest.skip("no .oracles/iree: run make oracles")
        raise FileNotFoundError(PYTHON)
    jobs = []
    for i, (text, arguments, backend) in enumerate(programs):
        module = Path(folder) / f"p{i}.mlir"
        module.write_text(text, encoding="utf-8")
        inputs = [module.with_suffix(f".in{k}.npy") for k in range(len(arguments))]
        for path, array in zip(inputs, arguments, strict=True):
            np.save(path, array)
        jobs.append({"module": str(module), "backend": backend, "inputs": list(map(str, inputs))})
    done = subprocess.run(
        [PYTHON, str(Path(__file__).parent / "iree_run.py")],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    return [_answer(line) for line in done.stdout.splitlines()]


def _answer(line):
    answer = json.loads(line)
    if "error" in answer:
        return answer["error"], 0.0
    return [np.load(path) for path in answer["outputs"]], answer["compile_s"]
