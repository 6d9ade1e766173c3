"""Asking LiteRT's interpreter, by files and a subprocess in its own environment; see `litert_run`."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "litert" / "bin" / "python"


def run(folder, files, *, kernels="reference"):
    """What files compute: for each the outputs per sample, by the names of its signature, or the refusal.

    Args:
      folder: an empty one to work in.
      files: (bytes, samples) pairs; a sample is a mapping of arrays by the names of the signature.
      kernels: `reference`, or `optimized`, those that a runtime takes by default.
    """
    if not PYTHON.exists():
        pytest.skip("no .oracles/litert: run make oracles")
    folder, jobs = Path(folder), []
    for number, (data, samples) in enumerate(files):
        (folder / f"file_{number}.tflite").write_bytes(data)
        names = []
        for k, sample in enumerate(samples):
            names.append([f"sample_{number}_{k}.npz", sorted(sample)])
            arrays = {str(i): sample[key] for i, key in enumerate(sorted(sample))}
            np.savez(folder / names[-1][0], **arrays)
        jobs.append({"file": f"file_{number}.tflite", "samples": names, "kernels": kernels})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).parent / "litert_run.py"
    done = subprocess.run([PYTHON, str(script), str(folder)], capture_output=True, check=False, text=True)
    assert not done.returncode, done.stderr[-2000:]
    return [_answers(folder, number, len(samples)) for number, (_, samples) in enumerate(files)]


def _answers(folder, number, count):
    refusal = folder / f"answer_{number}.txt"
    if refusal.exists():
        return refusal.read_text()
    names = json.loads((folder / f"answer_{number}.json").read_text())
    found = []
    for k in range(count):
        with np.load(folder / f"answer_{number}_{k}.npz") as archive:
            found.append({name: archive[str(i)] for i, name in enumerate(names)})
    return found
