"""The QONNX model zoo in our runner: it imports, runs, and gives the qonnx executor's numbers bit for bit."""

from itertools import product

import numpy as np
import pytest

from planner.conversion.convert import convert
from planner.formats.onnx.quantized.formulas import bipolar, float_quant, quant, trunc, trunc_scaled
from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.models import ModelRunner, run_model
from tests.conversion.files import edges, run_onnxruntime
from tests.oracles.executor import ask

# The qonnx cleanup never returns on the channels-last models, and its executor fails on the branched one.
TREATMENTS = {
    "TFC_1W1A": "cleaned",
    "TFC_1W2A": "cleaned",
    "TFC_2W2A": "cleaned",
    "bnn_model_fc_1layer": "cleaned",
    "espcn_subpixel_quant": "cleaned",
    "kwsmlp_w3a3": "cleaned",
    "qkeras_jettagging": "cleaned",
    "separable_conv_model_ch_last": "as it is",
    "unsw_nb15-mlp-w2a2": "cleaned",
}
WITHOUT_ORACLE = ("branched_model_ch_last", "tfc_w1a1_finn_thresholds")
ZOO = (*TREATMENTS, *WITHOUT_ORACLE)


def sample(graph, name):
    (port,) = graph.inputs
    x = np.random.default_rng(7).normal(size=graph.values[port].shape).astype(np.float32) * 2
    return np.where(x > 0, np.float32(1), np.float32(-1)) if name.startswith("unsw") else x


@pytest.mark.parametrize("name", ZOO)
def test_a_zoo_model_runs_and_is_imported(models, name):
    path = models / "qonnx" / f"{name}.onnx"
    graph = read_written(path)
    got = ModelRunner(graph).run({graph.inputs[0]: sample(graph, name)})
    assert tuple(got) == graph.outputs
    assert all(np.isfinite(array).all() for array in got.values())
    planned = read_onnx(path)
    assert planned.outputs == graph.outputs
    assert not [op.type for op in planned.ops if "::" in op.type]


def test_zoo_models_equal_the_qonnx_executor(models, tmp_path):
    jobs, mine = [], []
    for name, treatment in TREATMENTS.items():
        path = models / "qonnx" / f"{name}.onnx"
        graph = read_written(path)
        x = sample(graph, name)
        jobs.append({"model": str(path), "treatment": treatment, "arrays": {"x": x}})
        mine.append(ModelRunner(graph).run({graph.inputs[0]: x}))
    for name, answer, got in zip(TREATMENTS, ask(tmp_path, jobs), mine, strict=True):
        assert not isinstance(answer, str), f"{name}: {answer}"
        (theirs,), (ours,) = answer.values(), got.values()
        assert theirs.dtype == ours.dtype, name
        assert theirs.tobytes() == ours.tobytes(), name


def test_the_branched_model_is_its_lowering_in_onnxruntime(models):
    path = models / "qonnx" / "branched_model_ch_last.onnx"
    graph = read_written(path)
    feeds = {graph.inputs[0]: sample(graph, "branched")}
    plain = run_onnxruntime(convert(path, "onnx"), feeds)
    got = ModelRunner(graph).run(feeds)
    assert {name: array.tobytes() for name, array in plain.items()} == {
        k: a.tobytes() for k, a in got.items()
    }


def test_the_finn_golden_is_reproduced(models):
    folder = models / "qonnx"
    images = np.load(folder / "tfc_w1a1_finn_input.npy").astype(np.float32)
    wanted = np.load(folder / "tfc_w1a1_finn_expected.npy").reshape(-1)
    runner = ModelRunner(read_written(folder / "tfc_w1a1_finn_thresholds.onnx"))
    got = [runner.run({"global_in": image[None]})["global_out"].item() for image in images]
    assert got == wanted.tolist()


ARRAYS = {
    "scalar": (np.float32(0.173), np.float32(0), np.float32(3)),
    "offset": (np.float32(0.173), np.float32(3), np.float32(5)),
    "negative": (np.float32(0.25), np.float32(-2), np.float32(8)),
    "fractional": (np.float32(0.0371), np.float32(0), np.float32(7.5)),
    "int64": (np.float32(0.173), np.int64(3), np.int64(6)),
    "channels": (np.float32([[0.1], [0.25], [3.0]]), np.float32([[0], [1], [-3]]), np.float32(4)),
    "widths": (np.float32(0.5), np.float32(0), np.float32([[2], [3], [8]])),
    "one bit": (np.float32(0.5), np.float32(1), np.float32(1)),
}
MODES = ("ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")


def test_formulas_equal_qonnx(tmp_path):
    jobs, mine = [], []
    for (scale, zero, bits), signed, narrow, mode in product(ARRAYS.values(), (0, 1), (0, 1), MODES):
        x = np.stack([edges(s, 0, 5) for s in np.resize(scale, 3)])
        arrays = {"x": x, "scale": scale, "zero": zero, "bits": bits}
        options = {"signed": signed, "narrow": narrow, "rounding": mode}
        jobs.append({"formula": "quant", "arrays": arrays, "options": options})
        mine.append(quant(x, scale, zero, bits, signed=bool(signed), narrow=bool(narrow), rounding=mode))
    x = edges(np.float32(0.173), 0, 5)
    scale, zero, bits, out = np.float32(0.173), np.float32(1), np.float32(8), np.float32(4)
    for mode in MODES:
        arrays = {"x": x, "scale": scale, "zero": zero, "bits": bits, "bits_out": out}
        jobs.append({"formula": "trunc", "arrays": arrays, "options": {"rounding": mode}})
        mine.append(trunc(x, scale, zero, bits, out, rounding=mode))
        wide = {**arrays, "scale_out": np.float32(0.173 * 16)}
        options = {"rounding": mode, "signed": 1, "narrow": 0}
        jobs.append({"formula": "trunc_scaled", "arrays": wide, "options": options})
        mine.append(trunc_scaled(x, scale, zero, wide["scale_out"], out, rounding=mode))
    jobs.append({"formula": "bipolar", "arrays": {"x": x, "scale": scale}, "options": {}})
    mine.append(bipolar(x, scale))
    for exponent, mantissa, bias, largest in ((4, 3, 7, 448), (5, 2, 15, 57344), (2, 1, 1, 6)):
        arrays = {
            "x": x[np.isfinite(x)], "scale": scale, "exponent": np.float32(exponent),
            "mantissa": np.float32(mantissa), "bias": np.float32(bias), "largest": np.float32(largest),
        }  # fmt: skip
        jobs.append({"formula": "float", "arrays": arrays, "options": {}})
        mine.append(float_quant(*arrays.values()))
    for job, answer, got in zip(jobs, ask(tmp_path, jobs), mine, strict=True):
        if isinstance(answer, str):
            assert job["formula"] == "quant", (job, answer)
            assert np.size(np.load(tmp_path / job["sample"])["bits"]) > 1, (job, answer)
            continue
        np.testing.assert_array_equal(got, answer["y"], err_msg=str(job))


def test_a_model_may_come_as_bytes(models):
    path = models / "qonnx" / "TFC_2W2A.onnx"
    x = np.zeros((1, 1, 28, 28), np.float32)
    whole, part = run_model(path, {"0": x}), run_model(path.read_bytes(), {"0": x})
    assert whole["90"].tobytes() == part["90"].tobytes()
