"""Whole models in the TOSA reference model: every stored integer is the interpreter's, on 16 inputs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from benchmarks.samples import samples as real_samples
from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
from planner.formats.tosa.writer.write import write_tosa
from planner.fusion.fuse import fuse
from planner.interpreter.evaluate import Interpreter
from planner.ir.graph import Graph
from planner.ir.types.qtypes import NoneType, Uniform
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.formats.test_every_model import sized
from tests.formats.tosa.writer.running import agreed, fed, led, with_all_results
from tests.interpreter.test_whole_models import MODELS, Samples, digits, planned, tiny
from tests.oracles import mlir, tosa

COUNT = 16
# Behind a float softmax: exponentials of two libraries differ in their last bits.
NEARLY = 1e-6
TORCH_MLIR = (
    "builtin.module(tosa-attach-target{specification_version=1.0 profiles=pro_int,pro_fp "
    "extensions=int16,doubleround level=8k},tosa-validate{strict-op-spec-alignment})"
)
# Transposes of a model: in front of the first convolution, and where the model itself needs another order.
TRANSPOSES = {"ad01_fp32": 0, "digits": 0, "pretrainedResnet": 1, "vww_96_float": 1}
OTHERS = {
    "qonnx/TFC_1W1A.onnx": 0,
    "qonnx/TFC_2W2A.onnx": 0,
    "qonnx/bnn_model_fc_1layer.onnx": 0,
    "qonnx/espcn_subpixel_quant.onnx": 3,
    "qonnx/kwsmlp_w3a3.onnx": 0,
    "qonnx/qkeras_jettagging.onnx": 0,
    "qonnx/separable_conv_model_ch_last.onnx": 0,
    "qonnx/unsw_nb15-mlp-w2a2.onnx": 0,
    "vision/mnist.onnx": 1,
    "vision/mobilenetv2_100.onnx": 1,
    "vision/squeezenet_real_fp32.onnx": 1,
    "vision/superres_real.onnx": 1,
    "vision/ultraface_slim320_op13.onnx": 1,
    "vision/unet_b32_128.onnx": 2,
}


def inputs(name: str, known: Samples) -> Samples:
    """`COUNT` real inputs; where the folder has fewer, their numbers shuffled too."""
    real = known[:COUNT]
    if name != "digits":
        x = np.load(MODELS / "mlperf-tiny" / f"{name}.io.npz")["x_nhwc"][:COUNT].astype(np.float32)
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        real = [dict.fromkeys(known[0], x[i : i + 1]) for i in range(len(x))]
    rng = np.random.default_rng(0)
    mixed = [{k: rng.permutation(v.reshape(-1)).reshape(v.shape) for k, v in one.items()} for one in real]
    while len(mixed) < COUNT:
        mixed += mixed
    return (real + mixed)[:COUNT]


def check(graph: Graph, plan: Plan, samples: Samples, folder, *, nearly: float = NEARLY) -> str:
    """Compare every stored value and every output; the module as text."""
    own = write_tosa(graph, plan).decode()
    graph, plan = with_all_results(graph, plan)
    data = write_tosa(graph, plan)
    assert write_tosa(graph, plan) == data
    found = tosa.run(folder, [(data, [fed(graph, plan, sample) for sample in samples])])[0]
    assert not isinstance(found, str), found
    interpreter = Interpreter(graph, plan)
    for sample, got in zip(samples, found, strict=True):
        for name, wanted, array in agreed(interpreter.run(sample), plan, got):
            atol = nearly if wanted.dtype.kind == "f" else 0
            assert array.shape == wanted.shape
            np.testing.assert_allclose(array, wanted, rtol=0, atol=atol, err_msg=name)
    return own


@pytest.mark.parametrize("target", ["litert-int8", "tosa-int8"])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_tiny_models(name, target, tmp_path):
    path, samples = digits() if name == "digits" else tiny(name)
    graph, plan = planned(path, samples, target)
    text = check(graph, plan, inputs(name, samples), tmp_path)
    assert text.count('"tosa.transpose"') == TRANSPOSES[name]
    found = mlir.modules([text], TORCH_MLIR)[0]
    assert not found.startswith("ERROR"), found[:1000]


@pytest.mark.soak
@pytest.mark.parametrize("name", OTHERS)
def test_other_models(name, tmp_path):
    """Random inputs: what counts here are the operators."""
    if not (MODELS / name).exists():
        pytest.skip(f"no {MODELS / name}")
    graph, device, rng = read_onnx(MODELS / name), load_target("tosa-int8"), np.random.default_rng(0)
    sizes = {
        key: [size if isinstance(size, int) else 1 for size in graph.values[key].shape]
        for key in graph.inputs
    }
    sample = {key: rng.normal(size=shape).astype(np.float32) for key, shape in sizes.items()}
    graph = annotate(graph, stats=calibrate(graph, [sample]))
    text = check(graph, propagate(fuse(graph, device), device), [sample], tmp_path)
    assert text.count('"tosa.transpose"') == OTHERS[name]
    found = mlir.modules([text], TORCH_MLIR)[0]
    assert not found.startswith("ERROR"), found[:1000]


@pytest.mark.parametrize("name", ["stories260k", "stories260k_decode"])
def test_a_decoder(name, tmp_path):
    """Its GatherND picks by constants, and moves data by the definition of the operator."""
    path = MODELS / "language" / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"no {path}")
    model, (sample,) = sized(path)
    graph = annotate(model, stats=calibrate(model, [sample]))
    plan = planner.plan(graph, "tosa-int8")
    found = tosa.run(tmp_path, [(planner.export(graph, plan, "tosa"), [fed(graph, plan, sample)])])[0]
    assert not isinstance(found, str), found
    wanted = planner.evaluate(graph, plan, sample)
    kinds = {port.value: port.type for kernel in plan.kernels_in_order for port in kernel.outputs}
    for value, got in zip(graph.outputs, found[0], strict=True):
        kind, real = kinds[value], wanted.outputs[value]
        if isinstance(kind, Uniform):
            real = np.rint(real / kind.scales[0]) + kind.zero_points[0]
        np.testing.assert_array_equal(np.reshape(got, real.shape), real, err_msg=value)


@pytest.mark.soak
def test_bert(tmp_path):
    """Kernel by kernel every integer is the program's; last bits of floats are not, and they grow.

    Ids and mask in 32 bits; no shift says the factor of a sum with -3.4e38, so that stays float.
    """
    path, samples = bert()
    graph, device = read_onnx(path), load_target("tosa-int8")
    masks = [name for name in graph.values if name.endswith(("self/Add_output_0", "m/Where_1_output_0"))]
    kept = {name: replace(graph.values[name], facts=(NoneType(),)) for name in masks}
    graph = replace(graph, values={**graph.values, **kept})
    graph = annotate(graph, stats=calibrate(graph, samples))
    plan = propagate(fuse(graph, device), device)
    assert sum(kernel.row is not None for kernel in plan.kernels_in_order) > 90
    graph, plan = with_all_results(graph, plan, floats=True)
    interpreter, sample = Interpreter(graph, plan), samples[1]
    found = tosa.run(tmp_path, [(write_tosa(graph, plan), [fed(graph, plan, sample)])])[0]
    assert not isinstance(found, str), found
    free = list(agreed(interpreter.run(sample), plan, found[0]))
    own = led(interpreter, graph, plan, sample, {name: array for name, _, array in free})
    assert len(own) == 113
    for name, result, array in own:
        atol = 4e-6 if array.dtype.kind == "f" else 0
        np.testing.assert_allclose(result, array, rtol=0, atol=atol, err_msg=name)
    # what docs/programs.md tells of this sample
    apart = {name: np.abs(a.astype(np.float64) - b) for name, a, b in free}
    first = next(name for name, a, _ in free if a.dtype.kind == "i" and apart[name].any())
    assert (first, apart[first].sum()) == ("/m/encoder/layer.0/attention/self/MatMul_1_output_0", 1)
    assert 0.05 < apart["y"].max() < 0.15


def bert() -> tuple[Path, Samples]:
    path = MODELS / "sequence" / "bert_l4_h256.onnx"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path, real_samples(path.stem, path)
