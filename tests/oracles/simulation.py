"""Asking hls4ml in the environment of `make oracles`; see `engines.fpga`. It needs a C++ compiler."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from planner.target_tests.engines.fpga import run_hls4ml

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".oracles" / "hls4ml" / "bin" / "python"


def simulate(folder, exports):
    """What the C simulation of each (export, stacked samples) gives; skips where the oracle is missing."""
    files = [(data, [{_input_of(data): x[None]} for x in samples]) for data, samples in exports]
    return [run if isinstance(run, str) else _stacked(run) for run in simulate_all(folder, files)]


def simulate_all(folder, files):
    """The run of each (export, samples by name), or its refusal; skips where the oracle is missing."""
    if not PYTHON.exists() or shutil.which("g++") is None:
        pytest.skip("no .oracles/hls4ml or no g++: run make oracles, install a C++ compiler")
    return run_hls4ml(str(PYTHON), folder, files)


def _stacked(run):
    return np.concatenate([next(iter(sample.values())) for sample in run.outputs])


def _input_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        graph = onnx.load_from_string(archive.read("model.onnx")).graph
    constants = {item.name for item in graph.initializer}
    return next(item.name for item in graph.input if item.name not in constants)
