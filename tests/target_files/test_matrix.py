"""Models on every shipped target: nothing crashes, nothing is in float without a reason; the page's words."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import planner
from benchmarks.matrix_page import page, shorten, totals
from benchmarks.samples import model_folder
from benchmarks.target_matrix import measure, model_names, problems
from benchmarks.target_matrix_side import main, record
from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
from planner.target.load import load_target, target_ids

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
SMALL = (
    "mlperf-tiny/ad01_fp32",
    "mlperf-tiny/pretrainedResnet",
    "qonnx/bnn_model_fc_1layer",
    "qonnx/kwsmlp_w3a3",
    "qonnx/qkeras_jettagging",
    "sequence/bilstm_ctc",
    "vision/mnist",
)
LARGE = ("light_vgg19", "light_zfnet512")
"""Half a gigabyte of weights each, and no kernel that light_bvlc_alexnet lacks."""
PINNED = "port w ('34') has the fixed type !quant.uniform<i3<-3:3>:f32:1, {0.1,0.2}>"


@pytest.fixture(scope="module")
def digits():
    graph = read_onnx(DIGITS / "digits.onnx")
    return annotate(graph, stats=calibrate(graph, DIGITS / "calibration.npz"))


@pytest.mark.parametrize("target", ["edgetpu", "ethos-u55", "k210-kpu"])
def test_the_example_of_one_picture(digits, target):
    """Compilers that want every size have no kernel for an open batch; samples or `dims` tell it."""
    graph = read_onnx(DIGITS / "digits.onnx")
    stats = replace(calibrate(graph, DIGITS / "calibration.npz"), sizes={})
    found = record("digits", annotate(graph, stats=stats), target)
    assert list(problems([found])) == []
    assert all("is not fixed" in entry["reason"] for entry in found["floats"] if "conv" in entry["kernel"])
    assert "k210" not in target or found["kernels"] == {}
    kernels = {
        "edgetpu": {"conv2d": 6, "depthwise_conv2d": 1, "fully_connected": 1, "MaxPool": 2, "Softmax": 1},
        "ethos-u55": {"conv2d": 6, "depthwise_conv2d": 1, "fully_connected": 1},
        "k210-kpu": {"kpu_conv2d": 6, "kpu_depthwise_conv2d": 1},
    }[target]
    one = read_onnx(DIGITS / "digits.onnx", dims={"N": 1})
    for sized in (digits, annotate(one, stats=stats)):
        served = record("digits", sized, target)
        assert list(problems([served])) == []
        assert kernels.items() <= served["kernels"].items()


@pytest.mark.parametrize("target", sorted(set(target_ids()) - {"edgetpu", "k210-kpu"}))
def test_the_example(digits, target):
    found = record("digits", digits, target)
    assert list(problems([found])) == []
    assert sum(found["kernels"].values()) > 0
    floats = [entry["kernel"] for entry in found["floats"]]
    if target not in ("llm-w4", "onnxruntime-dynamic"):
        assert floats in ([], ["Softmax"])


@pytest.mark.parametrize("target", sorted(set(target_ids()) - {"llm-w4"}))
def test_the_example_keeps_its_numbers(digits, target):
    """The reference interpreter and onnxruntime, from the exported file, both stay near the float model."""
    with np.load(DIGITS / "test.npz") as archive:
        sample = {name: archive[name][:16] for name in digits.inputs}
    plan = planner.plan(digits, target)
    reference = session((DIGITS / "digits.onnx").read_bytes()).run(None, sample)[0]
    ours = planner.evaluate(digits, plan, sample).reals[digits.outputs[0]]
    form = "onnx-integer" if target == "onnxruntime-dynamic" else "onnx-qdq"
    runner = session(planner.export(digits, plan, form))
    singles = [{name: array[i : i + 1] for name, array in sample.items()} for i in range(16)]
    # A target of fixed sizes has the batch of the calibration samples.
    is_fixed = load_target(target).files.sizes == "fixed"
    theirs = np.concatenate([runner.run(None, one)[0] for one in (singles if is_fixed else [sample])])
    assert sqnr(reference, ours) > 40
    assert sqnr(reference, theirs) > 40


def session(data):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def sqnr(reference, found):
    return 10 * np.log10(np.sum(reference**2) / np.sum((reference - found) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=pytest.mark.soak if name in LARGE else ()) for name in model_names()]
)
def test_a_model_and_its_row_of_the_page(models, model, tmp_path):
    """The cells of docs/results/matrix.md are those of today."""
    assert models == model_folder()
    main([model, str(tmp_path / "records.json"), *target_ids()])
    found = json.loads((tmp_path / "records.json").read_text(encoding="utf-8"))
    assert list(problems(found)) == []
    assert model not in SMALL or [entry["target"] for entry in found if "refused" in entry] == []
    written = (ROOT / "docs" / "results" / "matrix.md").read_text(encoding="utf-8")
    assert set(table(page(found))[:3]) <= set(table(written))


def test_the_page_adds_its_rows_up(models):
    """The names are those of today's models, the last row is the sum of the others."""
    assert models == model_folder()
    written = (ROOT / "docs" / "results" / "matrix.md").read_text(encoding="utf-8")
    _, _, *rows, last = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(written)]
    assert [name for name, *_ in rows] == model_names()
    for said, *cells in zip(*[row[1:] for row in (last, *rows)], strict=True):
        counts = [[int(number) for number in cell.split(" / ")] for cell in cells if "/" in cell]
        assert said == " / ".join(str(sum(column)) for column in zip(*counts, strict=True))


def test_a_model_in_a_process_of_its_own(models, tmp_path):
    """What the page is made with gives the records that tests hold it against."""
    assert models == model_folder()
    main(["vision/mnist", str(tmp_path / "records.json"), "litert-int8"])
    found = json.loads((tmp_path / "records.json").read_text(encoding="utf-8"))
    assert measure("vision/mnist", ["litert-int8"]) == found


def table(text):
    return re.findall(r"^\|.*\|$", text.partition("## ")[0], re.MULTILINE)


def test_the_page_covers_all_targets():
    written = (ROOT / "docs" / "results" / "matrix.md").read_text(encoding="utf-8")
    assert table(written)[0] == f"| model | {' | '.join(target_ids())} |"
    assert re.findall(r"^### (.*)$", written, re.MULTILINE) == list(target_ids())


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (
            f"t.yaml:9: {PINNED}, the row has i8; t.yaml:12: {PINNED}, the row has i4",
            "port w has the fixed type i3<-3:3>, the row has i8 or i4",
        ),
        (
            "no fusion of 'tosa-int8' names Softmax and no row is called so",
            "no fusion names it, no row is called so",
        ),
        ("t.yaml:9: Conv.group is 4, must be 1", "Conv.group is 4, must be 1"),
        ("no range", "no range"),
    ],
)
def test_reasons_lose_what_differs_from_kernel_to_kernel(reason, short):
    assert shorten(reason) == short


def test_what_must_not_be_is_told():
    served = {"model": "m", "target": "t", "kernels": {"conv": 2}, "rescales": 1}
    good = {**served, "floats": [{"kernel": "Erf", "reason": "no row", "count": 3}]}
    bad = {**served, "floats": [{"kernel": "Erf", "reason": "", "count": 1}]}
    lost = {"model": "m", "target": "u", "crash": "KeyError: 'x'"}
    assert list(problems([good])) == []
    assert list(problems([bad, lost])) == [
        "m on t: Erf is in float without a reason",
        "m on u: KeyError: 'x'",
    ]
    assert totals([good, lost]) == {
        "t": {"planned": 1, "served": 2, "float": 3, "rescales": 1},
        "u": {"crashed": 1},
    }
    text = page([good, lost])
    assert "| m | 2 / 3 / 1 | crashed |" in text
    assert "| Erf | no row | 3 | m |" in text
