"""Datatypes, ranges, statistics, pruning, batches beside qonnx's own, on models it ships and its zoo."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from planner.analysis.datatypes import said
from planner.analysis.tensors import tensors
from planner.conversion.convert import convert
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.test_rewrites import DATA, spelled_out
from tests.conversion.test_written import MODELS
from tests.oracles.executor import ask

RNG = np.random.default_rng(5)
SHIPPED = (
    "bsd300x3-espcn/nn_resize/quant_model.onnx",
    "bsd300x3-espcn/subpixel/quant_model.onnx",
    "eltwise_chanlast_testcase.onnx",
    "floatquant_exec/qonnx_act_weight_fp8.onnx",
    "matmul_update/sdp.onnx",
    "mnist-conv/model.onnx",
    "residual_block_clean.onnx",
)
ZOO = (
    "TFC_1W1A",
    "TFC_1W2A",
    "TFC_2W2A",
    "bnn_model_fc_1layer",
    "espcn_subpixel_quant",
    "kwsmlp_w3a3",
    "qkeras_jettagging",
    "tfc_w1a1_finn_thresholds",
    "unsw_nb15-mlp-w2a2",
)
MORE_EXACT = {"DepthToSpace", "Relu", "TopK"}
"""Ops whose results qonnx calls FLOAT32, whatever they move."""
PADDED = {"residual_block_clean.onnx"}
"""A padded Conv of weights above 0: qonnx takes the zeros around an image for numbers of the image."""


def models():
    if DATA is None:
        pytest.skip("no .oracles/qonnx: run make oracles")
    zoo = [MODELS / f"{name}.onnx" for name in ZOO] if MODELS.is_dir() else []
    return [*(DATA / name for name in SHIPPED), *zoo]


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """For each model its cleaned file, our tensors, and qonnx's datatypes and ranges."""
    folder, jobs, mine = tmp_path_factory.mktemp("beside"), [], []
    for number, path in enumerate(models()):
        clean = folder / f"{number}.onnx"
        clean.write_bytes(spelled_out(convert(path, "cleaned")))
        inputs = dict.fromkeys(read_written(clean).inputs, (0.0, 1.0))
        mine.append((path, clean, {tensor.name: tensor for tensor in tensors(clean, inputs=inputs)}))
        jobs += [{"datatypes": str(clean)}, {"ranges": str(clean), "range": [0.0, 1.0]}]
    answers = ask(folder, jobs)
    return list(zip(mine, answers[::2], answers[1::2], strict=True))


@pytest.mark.slow
def test_datatypes_are_those_of_qonnx(beside):
    compared = 0
    for (path, clean, own), theirs, _ in beside:
        assert not isinstance(theirs, str), f"{path.name}: {theirs}"
        writers = {out: node.op_type for node in onnx.load(clean).graph.node for out in node.output}
        for name, kind in zip(theirs["names"].tolist(), theirs["kinds"].tolist(), strict=True):
            # What reads a more exact one is one of these, too.
            if own[name].datatype != kind:
                assert kind == "FLOAT32", (path.name, name, own[name].datatype)
                assert writers[name] in MORE_EXACT, (path.name, name, own[name].datatype)
            compared += own[name].datatype == kind
    assert compared >= (280 if MODELS.is_dir() else 80)


def test_ranges_are_those_of_qonnx_or_within(beside):
    equal = within = 0
    for (path, clean, own), _, theirs in beside:
        if path.name == "sdp.onnx":
            assert theirs == "AssertionError: Uninitialized MatMul weights"
            continue
        assert not isinstance(theirs, str), f"{path.name}: {theirs}"
        for name in theirs.keys() & own.keys():
            bounds, (lo, hi) = own[name].bounds, theirs[name]
            far = 1e-5 * max(1, np.abs(theirs[name]).max())
            if np.allclose(bounds.lo, lo, atol=far) and np.allclose(bounds.hi, hi, atol=far):
                equal += 1
            elif path.name in PADDED:
                assert_holds_where_theirs_does_not(clean, name, bounds, lo)
            else:
                assert np.all(bounds.lo >= lo - far), (path.name, name)
                assert np.all(bounds.hi <= hi + far), (path.name, name)
                within += 1
    assert equal >= (180 if MODELS.is_dir() else 50)
    assert within <= 3


def assert_holds_where_theirs_does_not(clean, name, bounds, lo):
    """A run on zeros, whose least number lies within our bounds and below theirs."""
    port, (x,) = sample_of(clean)
    seen = run_model(convert(clean, "cleaned", outputs=[name]), {port: np.zeros_like(x)})[name]
    assert bounds.lo.min() <= seen.min() < np.min(lo)


def sample_of(path, count=1):
    graph = read_written(path)
    (port,) = graph.inputs
    shape = [dim if isinstance(dim, int) else 1 for dim in graph.values[port].shape]
    x = RNG.uniform(0, 1, (count, *shape)).astype(np.float32)
    # qonnx refuses other numbers of an input than its annotation says: UINT8, or BIPOLAR.
    if graph.values[port].facts:
        x = 2 * np.round(x) - 1 if said(graph, port) == "BIPOLAR" else np.round(x)
    return port, x


def test_statistics_are_those_of_qonnx(tmp_path):
    path = next(path for path in models() if path.name == "model.onnx")
    clean = tmp_path / "clean.onnx"
    clean.write_bytes(convert(path, "cleaned"))
    port, samples = sample_of(clean, 5)
    own = {
        tensor.name: tensor for tensor in tensors(clean, samples={port: samples}, inputs={port: (0.0, 1.0)})
    }
    names = [name for name, tensor in own.items() if not tensor.is_constant and len(tensor.shape) > 1]
    jobs = []
    for name in names:
        # One batch: of several qonnx keeps the last one's.
        ending = convert(clean, "cleaned", outputs=[name]) if name != port else None
        seen = [x if ending is None else run_model(ending, {port: x})[name] for x in samples]
        jobs.append({"stats": 1, "arrays": {"seen": np.concatenate(seen)}})
    for name, theirs in zip(names, ask(tmp_path, jobs), strict=True):
        seen, bounds = own[name].seen, own[name].bounds
        assert np.array_equal(seen.lo, theirs["lo"]), name
        assert np.array_equal(seen.hi, theirs["hi"]), name
        assert np.all(seen.lo >= bounds.lo - 1e-4 * np.abs(bounds.lo)), name
        assert np.all(seen.hi <= bounds.hi + 1e-4 * np.abs(bounds.hi)), name


PRUNED = {
    "TFC_2W2A.onnx": {"47": [0, 3, 17], "58": [6]},
    "espcn_subpixel_quant.onnx": {"input.3": [1, 2, 40], "x.20": [5]},
    "residual_block_clean.onnx": {"Relu_0_out0": [2]},
}


def test_pruned_models_are_those_of_qonnx(tmp_path):
    jobs, mine, named = [], [], []
    for path in models():
        if path.name not in PRUNED:
            continue
        clean, plain = tmp_path / path.name, tmp_path / f"plain-{path.name}"
        clean.write_bytes(spelled_out(convert(path, "cleaned")))
        done = convert(clean, "cleaned", prune=PRUNED[path.name])
        plain.write_bytes(done)
        port, (x,) = sample_of(plain)
        mine.append((run_model(done, {port: x}), sum(w.size for w in weights(done))))
        named.append(path.name)
        jobs.append({"changed": str(clean), "prune": PRUNED[path.name], "arrays": {"x": x}})
    for name, (got, size), theirs in zip(named, mine, ask(tmp_path, jobs), strict=True):
        assert not isinstance(theirs, str), f"{name}: {theirs}"
        for key, array in got.items():
            assert np.allclose(array, theirs[key], rtol=1e-4, atol=1e-4 * np.abs(array).max()), name
        assert size == theirs["weights"], name


def weights(data):
    """Constants of two axes and more, which a bias spread over an image has not."""
    arrays = [numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(data).graph.initializer]
    return [array for array in arrays if sum(dim > 1 for dim in array.shape) > 1]


@pytest.mark.slow
def test_batches_are_those_of_qonnx(tmp_path):
    jobs, mine, named = [], [], []
    for number, path in enumerate(models()):
        if path.name in ("sdp.onnx", "qonnx_act_weight_fp8.onnx"):
            continue
        clean = tmp_path / f"{number}.onnx"
        clean.write_bytes(spelled_out(convert(path, "cleaned")))
        done = convert(clean, "cleaned", batch=3)
        written = tmp_path / f"done-{number}.onnx"
        written.write_bytes(done)
        port, (x,) = sample_of(written)
        assert x.shape[0] == 3
        mine.append((run_model(done, {port: x}), [run_model(clean, {port: x[i : i + 1]}) for i in range(3)]))
        named.append(path.name)
        jobs.append({"changed": str(clean), "batch": 3, "arrays": {"x": x}})
    for name, (got, ones), theirs in zip(named, mine, ask(tmp_path, jobs), strict=True):
        for key, array in got.items():
            singly = np.concatenate([one[key] for one in ones])
            assert np.allclose(array, singly, rtol=1e-4, atol=1e-4), name
            assert not isinstance(theirs, str), f"{name}: {theirs}"
            assert np.allclose(array, theirs[key], rtol=1e-4, atol=1e-4), name
