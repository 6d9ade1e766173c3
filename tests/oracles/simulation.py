"""Asking hls4ml, by files and a subprocess; a module of its name would hide it. It needs a C++ compiler."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "hls4ml" / "bin" / "python"


def simulate(folder, exports):
    """What the C simulation of each (export, stacked samples) gives; skips where the oracle is missing."""
    if not PYTHON.exists() or shutil.which("g++") is None:
        pytest.skip("no .oracles/hls4ml or no g++: run make oracles, install a C++ compiler")
    jobs = []
    for number, (data, samples) in enumerate(exports):
        (folder / f"{number}.zip").write_bytes(data)
        np.savez(folder / f"sample_{number}.npz", x=samples)
        jobs.append({"archive": str(folder / f"{number}.zip"), "sample": f"sample_{number}.npz"})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).parent / "hls4ml_run.py"
    subprocess.run([PYTHON, str(script), str(folder)], capture_output=True, check=True)
    return [_answer(folder, number) for number in range(len(jobs))]


def _answer(folder, number):
    path = folder / f"answer_{number}.npz"
    if not path.exists():
        return path.with_suffix(".txt").read_text()
    with np.load(path) as archive:
        return archive["y"]
