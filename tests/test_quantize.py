"""`planner.quantize`: one call equals the steps; its verdict; what notebooks show."""

import math
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import planner
from planner.accuracy.metrics import Score
from planner.accuracy.quality import Quality
from planner.accuracy.verdict import verdict_of
from planner.errors import InputError, UnknownName
from planner.notebook import MOST, html_table
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
MODEL, SAMPLES, HELD_OUT = DIGITS / "digits.onnx", DIGITS / "calibration.npz", DIGITS / "test.npz"


@pytest.fixture(scope="module")
def done():
    told = []
    found = planner.quantize(
        MODEL,
        SAMPLES,
        target="litert-int8",
        eval_samples=HELD_OUT,
        progress=lambda *step: told.append(step),
    )
    return found, told


def test_one_call_is_the_steps(done):
    model = planner.load_model(MODEL)
    stats = planner.calibrate(model, SAMPLES)
    ready = planner.correct_biases(planner.annotate(model, stats=stats), "litert-int8", stats)
    plan = planner.plan(ready, "litert-int8", formats=["onnx-qdq"])
    found, _ = done
    assert found.plan.key == plan.key
    assert found.data == planner.export(ready, plan, "onnx-qdq")
    assert found.statistics.to_json() == stats.to_json()
    used = planner.compare(model, found.data, HELD_OUT, optimisation="all")
    assert found.comparison == replace(used, held_out=True)


def test_every_step_is_told(done):
    steps = list(dict.fromkeys(what for what, _, _ in done[1]))
    assert steps == [
        "calibrating",
        "correcting biases",
        "planning",
        "checking",
        "exporting",
        "comparing",
    ]
    assert [step for step in done[1] if step[0] == "comparing"][-1] == ("comparing", 450, 450)


def test_what_it_says(done, tmp_path):
    found, _ = done
    assert str(found.verdict) == "good: top1 99.8 %, 99.8 % as given"
    assert repr(found) == (
        f"<Quantized 'digits' for litert-int8: {len(found.data):,} bytes, good: top1 99.8 %, 99.8 % as given>"
    )
    assert found.warnings[0] == (
        "tools of litert-int8 read litert alone, and this file is onnx-qdq: format='litert' writes theirs"
    )
    assert found.warnings[1].startswith("held-out data take 'res/relu2_out' beyond")
    found.save(tmp_path / "digits.onnx")
    assert (tmp_path / "digits.onnx").read_bytes() == found.data
    with pytest.raises(InputError, match=r"cannot write to .*nowhere.*: No such file"):
        found.save(tmp_path / "nowhere" / "digits.onnx")
    with pytest.raises(
        InputError, match=r"digits.tflite is named as files of litert are, and it is onnx-qdq"
    ):
        found.save(tmp_path / "digits.tflite")
    assert not (tmp_path / "digits.tflite").exists()


def test_by_default_for_the_engine_that_is_installed():
    samples = ({"image": image[None]} for image in np.load(SAMPLES)["image"][:8])
    found = planner.quantize(planner.load_model(MODEL), samples)
    assert (found.plan.target.id, found.format, found.compared) == ("onnxruntime-cpu", "onnx-qdq", "onnx-qdq")
    assert (found.comparison.samples, found.comparison.held_out) == (8, False)


def test_a_format_that_onnxruntime_does_not_run_is_computed_by_the_interpreter():
    """The verdict is that of the file's own integers, which the interpreter has bit for bit."""
    found = planner.quantize(MODEL, SAMPLES, target="tosa-int8", format="tosa")
    assert found.data.startswith(b'"builtin.module"')
    assert (found.format, found.compared, found.comparison.of) == ("tosa", "tosa", "")
    assert "computed by the reference interpreter" in found.comparison.measured_on
    assert found.verdict.level == "good"
    samples = [{"image": image[None]} for image in np.load(SAMPLES)["image"]]
    run = [planner.evaluate(found.model, found.plan, sample).outputs["probabilities"] for sample in samples]
    wanted = [planner.run(MODEL, sample)["probabilities"] for sample in samples]
    noise, signal = np.sum((np.stack(run) - np.stack(wanted)) ** 2.0), np.sum(np.stack(wanted) ** 2.0)
    assert found.comparison.worst_sqnr == pytest.approx(10 * np.log10(signal / noise), abs=0.01)


def test_an_unknown_format_is_refused_first():
    with pytest.raises(UnknownName, match=r"unknown export format 'onnx' .did you mean"):
        planner.quantize("no/such/file", [], format="onnx")


def quality(sqnr, **groups):
    return Quality(sqnr, 0.0, 1, {name: quality(worst) for name, worst in groups.items()})


@pytest.mark.parametrize(
    ("outputs", "scores", "said"),
    [
        ({"y": quality(30.0)}, {}, "good: y has 30.00 dB"),
        ({"y": quality(29.99)}, {}, "fair: y has 29.99 dB"),
        ({"y": quality(20.0)}, {}, "fair: y has 20.00 dB"),
        ({"y": quality(19.9)}, {}, "poor: y has 19.90 dB"),
        ({"y": quality(math.nan)}, {}, "poor: y has nan dB"),
        ({"y": quality(math.inf)}, {}, "good: y is exact"),
        ({"y": quality(50.0), "z": quality(40.0, low=8.0)}, {}, "poor: z has 8.00 dB"),
        ({"y": quality(5.0)}, {"top1": Score(0.9, 0.89)}, "good: top1 89.0 %, 90.0 % as given"),
        ({"y": quality(50.0)}, {"top1": Score(0.9, 0.87)}, "fair: top1 87.0 %, 90.0 % as given"),
        ({"y": quality(50.0)}, {"top1": Score(0.9, 0.86)}, "poor: top1 86.0 %, 90.0 % as given"),
        ({"y": quality(50.0)}, {"top1": Score(0.9, 0.95)}, "good: top1 95.0 %, 90.0 % as given"),
        (
            {"y": quality(25.0)},
            {"cross_entropy": Score(1, 9, larger_is_better=False)},
            "fair: y has 25.00 dB",
        ),
    ],
)
def test_verdicts(outputs, scores, said):
    """At a bound the better word; labels come before decibels, other metrics have no bound of ours."""
    assert str(verdict_of(outputs, scores)) == said


def test_nothing_compared_has_no_verdict():
    assert verdict_of({}, {}) is None


def test_compare_takes_paths(done, tmp_path):
    path = tmp_path / "digits-int8.onnx"
    done[0].save(path)
    by_path = planner.compare(str(MODEL), path, SAMPLES)
    assert by_path == planner.compare(planner.load_model(MODEL), path.read_bytes(), SAMPLES)
    assert repr(by_path).startswith("<Comparison on 128 samples against the float model: good: probabilities")


HOSTILE = "<script>alert(1)</script>"


def hostile_model() -> bytes:
    """One Gemm whose input, output and op have the name of a script."""
    node = helper.make_node("Gemm", [HOSTILE, "w"], ["y"], name=HOSTILE)
    graph = helper.make_graph(
        [node],
        HOSTILE,
        [helper.make_tensor_value_info(HOSTILE, TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.eye(4, dtype=np.float32).ravel())],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def test_what_a_notebook_shows_is_escaped_and_short():
    samples = [{HOSTILE: np.linspace(-1, k, 4, dtype=np.float32)[None]} for k in (1, 2)]
    found = planner.quantize(hostile_model(), samples)
    lost = planner.losses(found.model, found.plan, samples)
    searched = planner.search(
        planner.annotate(
            planner.load_model(MODEL), stats=planner.calibrate(planner.load_model(MODEL), SAMPLES)
        ),
        "onnxruntime-cpu",
        [{"image": np.load(SAMPLES)["image"][:1]}],
        goal="sqnr=20",
        trials=2,
    )
    shown = [found, found.model, found.statistics, found.plan, found.comparison, lost, searched]
    classes = {planner.Graph, planner.Statistics, planner.Comparison, planner.Losses, planner.Search}
    assert classes < {type(item) for item in shown}
    for item in shown:
        page = item._repr_html_()
        assert page.startswith("<div><p><b>")
        assert page.endswith("</div>")
        assert "<script" not in page
        assert len(repr(item)) < 200
        assert "\n" not in repr(item)
    assert all("&lt;script&gt;" in item._repr_html_() for item in shown[:4])


def test_long_tables_are_cut_with_a_count():
    page = html_table(("n",), ((k,) for k in range(MOST + 5)))
    assert page.count("<tr>") == 1 + MOST + 1
    assert page.endswith('<tr><td colspan="1">and 5 more</td></tr></table>')
    assert html_table(("n",), []) == ""


def test_a_least_coverage_is_a_bound_of_the_library_too():
    """As `--min-coverage`: a share of the multiply-adds; what is missed is said, the file is there."""
    kept = planner.quantize(MODEL, SAMPLES, target="litert-int8", kernels={"head/gemm": "float"})
    assert (kept.min_coverage, kept.missed) == (None, "")
    share = kept.verdict.covered.mac_share
    assert 0.5 < share < 1
    most = planner.quantize(
        MODEL, SAMPLES, target="litert-int8", kernels={"head/gemm": "float"}, min_coverage=1.0
    )
    assert most.missed.endswith("of multiply-adds are quantized, of at least 100%")
    assert most.data == kept.data
    with pytest.raises(InputError, match="min_coverage 90: a share of the multiply-adds, between 0 and 1"):
        planner.quantize(MODEL, SAMPLES, min_coverage=90)
