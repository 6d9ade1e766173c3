"""Asking the TOSA reference model, by files and a subprocess in its own environment; see `tosa_run`."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "tosa" / "bin" / "python"
EXTENSIONS = "int16,int4,doubleround,controlflow"
PROFILES = "pro_int,pro_fp"


def run(folder, modules, *, profiles=PROFILES, extensions=EXTENSIONS):
    """What modules compute: for each the outputs per sample, or the text of the refusal.

    Args:
      folder: an empty one to work in.
      modules: (MLIR bytes, samples) pairs; a sample is a list of arrays in the order of the arguments.
    """
    if not PYTHON.exists():
        pytest.skip("no .oracles/tosa: run make oracles")
    folder = Path(folder)
    jobs = []
    for number, (data, samples) in enumerate(modules):
        (folder / f"module_{number}.mlir").write_bytes(data)
        names = [f"sample_{number}_{k}.npz" for k in range(len(samples))]
        for name, sample in zip(names, samples, strict=True):
            np.savez(folder / name, **{str(i): array for i, array in enumerate(sample)})
        jobs.append(
            {
                "module": f"module_{number}.mlir",
                "inputs": names,
                "profiles": profiles,
                "extensions": extensions,
            }
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).parent / "tosa_run.py"
    subprocess.run([PYTHON, str(script), str(folder)], capture_output=True, check=True)
    return [_answers(folder, number, len(samples)) for number, (_, samples) in enumerate(modules)]


def _answers(folder, number, count):
    refusal = folder / f"answer_{number}.txt"
    if refusal.exists():
        return refusal.read_text()
    found = []
    for k in range(count):
        with np.load(folder / f"answer_{number}_{k}.npz") as archive:
            found.append([archive[key] for key in sorted(archive, key=int)])
    return found
