"""Vela compiles fully quantized files for the Ethos-U55: every operator on the NPU, none on the CPU."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.formats.litert.reader.file import read_file
from planner.ir.types.qtypes import Uniform
from tests.formats.litert.reader.files import FLOAT, OFFICIAL, path_of

ROOT = Path(__file__).resolve().parents[4]
VELA = ROOT / ".oracles" / "vela" / "bin" / "vela"

pytestmark = pytest.mark.skipif(not VELA.exists(), reason="no .oracles/vela: run make oracles")


def compiled(data, folder):
    """Operators on the CPU and on the NPU, and those of the file that Vela writes."""
    (folder / "model.tflite").write_bytes(data)
    done = subprocess.run(
        [VELA, "model.tflite", "--accelerator-config", "ethos-u55-128", "--output-dir", "."],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
    )
    assert not done.returncode, done.stdout + done.stderr
    counts = [int(re.search(rf"{kind} operators = (\d+)", done.stdout)[1]) for kind in ("CPU", "NPU")]
    written = read_file((folder / "model_vela.tflite").read_bytes())
    return counts, [(item.name, item.is_custom) for item in written.operators]


def with_stored_interface(graph, plan, device):
    """The model planned again with its inputs and outputs pinned to what its kernels read and give."""
    values = dict(graph.values)
    for kernel in plan.kernels_in_order:
        for port in (*kernel.inputs, *kernel.outputs):
            if port.value in (*graph.inputs, *graph.outputs) and isinstance(port.type, Uniform):
                facts = [fact for fact in values[port.value].facts if not isinstance(fact, Uniform)]
                values[port.value] = replace(values[port.value], facts=(*facts, port.type))
    pinned = replace(graph, values=values)
    return pinned, planner.plan(pinned, device)


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_file_planned_again(name, tmp_path):
    if not path_of(name).exists():
        pytest.skip(f"no {path_of(name)}")
    graph = planner.load_model(path_of(name))
    for target in ("litert-int8", "ethos-u55"):
        plan = planner.plan(graph, target)
        assert all(kernel.row is not None for kernel in plan.kernels_in_order)
        (cpu, npu), operators = compiled(planner.export(graph, plan, "litert"), tmp_path)
        assert (cpu, operators) == (0, [("ethos-u", True)])
        assert npu > 0


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_file_planned(name, tmp_path):
    if not path_of(name).exists():
        pytest.skip(f"no {path_of(name)}")
    graph = planner.load_model(path_of(name))
    rng, (key,) = np.random.default_rng(0), graph.inputs
    samples = [{key: rng.uniform(0, 1, graph.values[key].shape).astype(np.float32)} for _ in range(4)]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    graph, plan = with_stored_interface(graph, planner.plan(graph, "ethos-u55"), "ethos-u55")
    (cpu, npu), operators = compiled(planner.export(graph, plan, "litert"), tmp_path)
    assert (cpu, operators) == (0, [("ethos-u", True)])
    assert npu > 0


def test_the_example(tmp_path):
    places = os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "examples/ethos_u55.sh", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PATH": places, "VELA": str(VELA)},
    )
    assert not done.returncode, done.stdout + done.stderr
    assert "CPU operators = 0 (0.0%)" in done.stdout
    assert read_file((tmp_path / "litert_vela.tflite").read_bytes()).operators[0].name == "ethos-u"
