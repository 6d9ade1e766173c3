"""Every stored integer of whole models equals onnxruntime's, for every shipped target.

QLinearAdd is modelled for x86 with AVX2 and FMA3; on another CPU single elements behind an Add can differ.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.samples import models as benchmark_models
from benchmarks.samples import samples as real_samples
from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.writer.qoperator import write_qoperator
from planner.fusion.fuse import fuse
from planner.interpreter.evaluate import Interpreter
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.interpreter.exported import assert_file_agrees, run_everything

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
TARGETS = ("litert-int8", "onnxruntime-cpu", "teaching-npu")
Samples = list[dict[str, np.ndarray]]


def planned(path: Path, samples: Samples, target: str) -> tuple[Graph, Plan]:
    device = load_target(target)
    graph = read_onnx(path)
    annotated = annotate(graph, stats=calibrate(graph, samples))
    return annotated, propagate(fuse(annotated, device), device)


def digits() -> tuple[Path, Samples]:
    folder = ROOT / "examples" / "digits"
    images = np.load(folder / "calibration.npz")["image"]
    return folder / "digits.onnx", [{"image": images[i : i + 1]} for i in range(24)]


def tiny(name: str) -> tuple[Path, Samples]:
    folder = MODELS / "mlperf-tiny"
    if not folder.is_dir():
        pytest.skip(f"no models in {MODELS}")
    x = np.load(folder / f"{name}.io.npz")["x_nhwc"].astype(np.float32)
    x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    rng = np.random.default_rng(0)
    mixed = [rng.permutation(x.reshape(-1)).reshape(x.shape)[:1] for _ in range(2)]
    return folder / f"{name}.onnx", [{"input_1": sample} for sample in (*np.split(x[:4], len(x[:4])), *mixed)]


@pytest.mark.parametrize("target", TARGETS)
def test_digits(target):
    path, samples = digits()
    graph, plan = planned(path, samples, target)
    assert plan.fully_quantized
    assert assert_file_agrees(graph, plan, samples) == 15


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "values"), [("ad01_fp32", 10), ("pretrainedResnet", 17), ("vww_96_float", 32)]
)
def test_mlperf_tiny(name, values, target):
    path, samples = tiny(name)
    graph, plan = planned(path, samples, target)
    assert assert_file_agrees(graph, plan, samples) == values - handed_on(plan)


def handed_on(plan):
    """How many results integer kernels hand on as floats: they are stored nowhere."""
    kernels = [kernel for kernel in plan.kernels_in_order if kernel.row is not None]
    return sum(port.type is None for kernel in kernels for port in kernel.outputs)


LARGER = {
    "bert_l4_h256": 93,
    "bilstm_ctc": 6,
    "mnist": 5,
    "mobilenetv2_100": 64,
    "squeezenet_real_fp32": 41,
    "superres_real": 5,
    "ultraface_slim320_op13": 60,
    "unet_b32_128": 25,
}


def real(name: str) -> tuple[Path, Samples]:
    """A model of the vision or sequence folder, and real inputs."""
    found = {model.name: model.path for model in benchmark_models()}
    if name not in found:
        pytest.skip(f"no models in {MODELS}")
    return found[name], real_samples(name, found[name], 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), LARGER.items())
def test_vision_and_sequence(name, values):
    path, samples = real(name)
    graph, plan = planned(path, samples, "onnxruntime-cpu")
    assert assert_file_agrees(graph, plan, samples[:1]) == values


@pytest.mark.slow
def test_a_model_in_branches():
    """What stands in bodies cannot be watched from outside: the outputs are compared."""
    path, samples = real("silero_vad_16k_op15")
    graph, plan = planned(path, samples, "onnxruntime-cpu")
    got = run_everything(write_qoperator(graph, plan), samples[0])
    for output, array in Interpreter(graph, plan, arithmetic="float32_even").run(samples[0]).outputs.items():
        np.testing.assert_array_equal(array, got[output])


@pytest.mark.parametrize("arithmetic", ["exact_even", "gemmlowp", "tosa_double", "tosa_single"])
def test_arithmetics_differ_by_single_steps(arithmetic):
    """Behind one kernel each arithmetic is at most one step from another, and not always none."""
    path, samples = digits()
    graph, plan = planned(path, samples, "litert-int8")
    even = Interpreter(graph, plan, arithmetic="float32_even")
    other = Interpreter(graph, plan, arithmetic=arithmetic)
    first = next(kernel.outputs[0].value for kernel in plan.kernels_in_order)
    steps = []
    for sample in samples:
        a, b = even.run(sample), other.run(sample)
        steps.append(np.abs(a.stored[first].astype(int) - b.stored[first].astype(int)).max())
        assert {name: array.shape for name, array in a.stored.items()} == {
            name: array.shape for name, array in b.stored.items()
        }
        for name, wanted in a.outputs.items():
            np.testing.assert_allclose(b.outputs[name], wanted, atol=0.1)
    assert max(steps) <= 1
