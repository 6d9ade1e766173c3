"""The benchmark of shipped models: its metrics, its count of work and its page, on made-up figures."""

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from benchmarks.shipped import metrics
from benchmarks.shipped.__main__ import PAGE, merged, read
from benchmarks.shipped.data import Task
from benchmarks.shipped.front import Point, on_the_front, picture
from benchmarks.shipped.minilm import read_safetensors, write
from benchmarks.shipped.page import beaten_by, page, points, summary, wanted
from benchmarks.shipped.profiled import multiply_adds, profile
from benchmarks.shipped.sides import Job, Written, make, sides
from benchmarks.shipped.tasks import TASKS
from benchmarks.shipped.texts import word_pieces
from benchmarks.shipped.wheels import ROOT, WHEELS, requirements


@pytest.mark.parametrize(
    ("scores", "truth", "expected"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 1.0),
        ([0.9, 0.8, 0.2, 0.1], [0, 0, 1, 1], 0.0),
        ([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 1], 0.5),  # equal scores decide nothing
        ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),
        ([0.1, np.nan, 0.9, 0.9], [0, 0, 1, 1], 0.5),
    ],
)
def test_auc(scores, truth, expected):
    assert metrics.auc(np.array(scores), np.array(truth)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 1000], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 1, 2, 2], [1, 1, 2, 2], 1.0),  # equal values share a rank
        ([1, 2, 3, 4], [7, 7, 7, 7], 0.0),
        ([1, 2, 3, 4], [1, np.inf, 3, 4], 0.0),
    ],
)
def test_spearman(left, right, expected):
    assert metrics.spearman(np.array(left, float), np.array(right, float)) == pytest.approx(expected)


def test_a_true_box_is_found_once():
    true = [[(0, 0, 10, 10), (20, 0, 30, 10)]]
    assert metrics.box_f1(true, true) == 1.0
    assert metrics.box_f1([[(0, 0, 10, 10), (0, 0, 10, 9)]], true) == pytest.approx(0.5)
    assert metrics.box_f1([[]], true) == 0.0
    assert metrics.box_f1([[]], [[]]) == 1.0


def test_suppression_keeps_the_best_of_those_that_overlap():
    boxes = [(0, 0, 10, 10), (0, 0, 10, 9), (20, 0, 30, 10)]
    assert metrics.suppressed(boxes, [0.5, 0.9, 0.7], 0.45) == [boxes[1], boxes[2]]


def test_a_path_collapses():
    assert metrics.collapse([0, 3, 3, 0, 3, 5, 5, 0]) == [3, 3, 5]
    assert metrics.collapse([]) == []


def test_words_in_pieces():
    vocabulary = {
        piece: at for at, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##do", "cafe", "."])
    }
    assert word_pieces("Undo café. x", vocabulary, 8) == ([2, 4, 5, 6, 7, 1, 3, 0], [1, 1, 1, 1, 1, 1, 1, 0])
    assert word_pieces("undo undo", vocabulary, 4) == ([2, 4, 5, 3], [1, 1, 1, 1])


def test_wheels_have_versions():
    listed = requirements(WHEELS.read_text(encoding="utf-8"))
    assert listed
    assert all(version for version in listed.values())


def event(op, inputs, output):
    args = {
        "op_name": op,
        "input_type_shape": [{"x": dims} for dims in inputs],
        "output_type_shape": [{"x": output}],
    }
    return {"name": f"{op}_kernel_time", "args": args}


def test_work_of_a_profile():
    events = [
        event("Conv", [[1, 3, 8, 8], [4, 3, 3, 3], [4]], [1, 4, 6, 6]),
        event("QLinearConv", [[1, 8, 8, 3], [], [], [4, 3, 3, 3], [], [], [], []], [1, 6, 6, 4]),
        event("DynamicQuantizeMatMul", [[2, 5], [5, 7], [], []], [2, 7]),
        event("QGemm", [[5, 2], [], [], [5, 7], [], []], [2, 7]),  # transposed A: its elements count
        event("Add", [[2, 7], [2, 7]], [2, 7]),
    ]
    conv, product = 4 * 36 * 27, 2 * 5 * 7
    assert multiply_adds(events) == (conv + 2 * product, 2 * conv + 2 * product)


def tiny_bert(folder: Path) -> Path:
    """The embedder of two layers of four channels."""
    random = np.random.default_rng(0)
    shapes = {"embeddings.word_embeddings.weight": (9, 4), "embeddings.position_embeddings.weight": (16, 4)}
    shapes |= {"embeddings.token_type_embeddings.weight": (2, 4)}
    norms = ["embeddings.LayerNorm"]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        linear = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        for name in [*linear, f"{layer}.attention.output.dense"]:
            shapes |= {f"{name}.weight": (4, 4), f"{name}.bias": (4,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (8, 4), f"{layer}.intermediate.dense.bias": (8,)}
        shapes |= {f"{layer}.output.dense.weight": (4, 8), f"{layer}.output.dense.bias": (4,)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    shapes |= {f"{name}.{part}": (4,) for name in norms for part in ("weight", "bias")}
    weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write(weights, 2, 6, folder / "bert.onnx")
    return folder / "bert.onnx"


def test_the_embedder_is_written_and_its_work_profiled(tmp_path):
    sample = {"input_ids": np.arange(6)[None], "attention_mask": np.array([[1, 1, 1, 1, 0, 0]])}
    linear, attention = 4 * 6 * 4 * 4 + 2 * 6 * 4 * 8, 2 * 6 * 6 * 4
    assert profile(tiny_bert(tmp_path), sample, tmp_path) == (0, 2 * (linear + attention))
    assert list(tmp_path.glob("profile*")) == []


def test_tensors_of_a_wheel_are_read(tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{}}'
    raw = len(header).to_bytes(8, "little") + header + np.array([[1, 2]], "<f4").tobytes()
    (tmp_path / "w.safetensors").write_bytes(raw)
    assert read_safetensors(tmp_path / "w.safetensors")["a"].tolist() == [[1.0, 2.0]]


def test_our_side_is_the_command(tmp_path):
    (tmp_path / "samples").mkdir()
    sample = {"input_ids": np.arange(6)[None], "attention_mask": np.ones((1, 6), np.int64)}
    np.savez(tmp_path / "samples" / "0.npz", **sample)
    job = Job(tiny_bert(tmp_path), tmp_path / "samples", tmp_path / "work", tmp_path, is_transformer=True)
    # So small a model is predicted to become slower, and is kept as it is.
    written = make(sides({"ours": ("--force",)})["ours"], job)
    assert isinstance(written, Written)
    assert written.file.exists()
    assert written.verdict in {"good", "fair", "poor"}
    assert written.rss_mb > 10
    refused = make(sides({"ours": ["--no-such-option"]})["ours"], job)
    assert "no-such-option" in str(refused)


FILES = [
    Point("float", 1.0, 0.95),
    Point("fast", 0.5, 0.90),
    Point("slow", 0.8, 0.85),
    Point("best", 1.5, 0.96),
]


def test_the_front():
    assert [point.name for point in on_the_front(FILES)] == ["fast", "float", "best"]


def test_the_picture_is_xml_and_names_everybody():
    drawn = picture("a model", "top-1", [*FILES, Point("<a> & b", 2.0, 0.1)], is_quiet=False)
    texts = [node.text or "" for node in ET.fromstring(drawn).iter()]  # noqa: S314 - our own
    assert sum("<a> & b" in text for text in texts) >= 2
    assert any("loaded machine" in text for text in texts)


def row(side, metric, latency, **more):
    return {"side": side, "metric": metric, "latency": latency, "size": 2_000_000, **more}


RECORD = {
    "model": "m",
    "samples": 32,
    "others_busy": 0.01,
    "float": {"metric": 0.95, "size": 4_000_000, "ms": 3.0, "multiply_adds": [0, 100]},
    "sides": [
        row("ours", 0.94, 0.6, multiply_adds=[90, 100], seconds=9.0, rss_mb=300.0, verdict="good", said=""),
        row("ours, quick", 0.70, 0.5, verdict="good"),
        row("peer", 0.945, 0.55),
        {"side": "broken", "said": "why"},
    ],
}
TASK = Task("m", "wheel", "top-1", "made-up figures", lambda _: pytest.fail("nothing is made"))
OTHER = Task("n", "wheel", "AUC", "made-up figures", lambda _: pytest.fail("nothing is made"))
RESULTS = {"onnxruntime": "9.9", "threads": 2, "models": [RECORD]}


def test_who_beats_us():
    ours, quick, *_ = RECORD["sides"]
    assert beaten_by(ours, RECORD) == ["peer"]
    assert beaten_by(quick, RECORD) == []
    assert [point.name for point in points(RECORD)] == ["float", "ours", "ours, quick", "peer"]


def test_the_page():
    said = page(RESULTS, [TASK, OTHER], {"wheel": "1.2"})
    for line in [
        "| ours | 0.940 | 0.60 | 90 % | 2.00 | 9 | 300 | good |",
        "| broken |  |  |  |  |  |  |  |",
        "- ours: not within 1 % of float's metric; its verdict of accuracy, good, does not agree with that; beaten by: peer.",  # noqa: E501
        "- broken: why",
        "- The front of metric and latency: ours, quick; peer; float.",
        "Not measured yet: `n`.",
        "| m, top-1 | 0.950 | 0.940 (0.60) | 0.700 (0.50) | 0.945 (0.55) |  |",
    ]:
        assert line in said


def test_what_is_wanted_of_ours():
    line = "within 1 % of float's metric on 0 of 1 models; its verdict of accuracy agrees on 0, "
    line += "is too strict on none, and says good of a worse file on `m`; a peer is ahead in both figures on"
    assert wanted(RESULTS) == [f"- ours: {line} `m`.", f"- ours, quick: {line} none."]


def test_a_verdict_that_is_too_strict_is_told_from_one_that_is_too_lenient():
    row = {"side": "ours", "metric": 0.95, "verdict": "fair"}
    told = wanted({"models": [{"model": "m", "float": {"metric": 0.95}, "sides": [row]}]})
    assert "agrees on 0, is too strict on `m`, and says good of a worse file on none" in told[0]


def test_latency_of_a_loaded_machine_is_marked_and_left_out_of_the_summary():
    loaded = {**RECORD, "others_busy": 0.4}
    assert beaten_by(RECORD["sides"][0], loaded) == []
    assert points({**RECORD, "others_busy": 0.6}) == []
    assert "latency / float (loaded machine)" in page(
        {**RESULTS, "models": [loaded]}, [TASK], {"wheel": "1.2"}
    )
    assert "| 0.940 | 0.700 | 0.945 |  |" in summary({"models": [loaded]}, [TASK])


def test_a_model_that_this_machine_has_no_data_for():
    missing = {"model": "m", "missing": "no fonts"}
    assert "Not measured: no fonts" in page({**RESULTS, "models": [missing]}, [TASK], {"wheel": "1.2"})
    assert summary({"models": [missing]}, [TASK]).count("\n") == 1


def test_a_model_measured_again_takes_its_place():
    first = merged({"models": []}, {"model": "minilm", "float": 0.123456})
    both = merged(first, {"model": "magika", "float": 1.0})
    again = merged(both, {"model": "minilm", "float": 0.5})
    assert [(one["model"], one["float"]) for one in again["models"]] == [("magika", 1.0), ("minilm", 0.5)]
    assert first["models"][0]["float"] == 0.1235


def test_the_page_has_the_results_and_the_readme_leads_there():
    wheels = requirements(WHEELS.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(read(), TASKS, wheels)
    assert "docs/results/shipped.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_whole_jobs_stand_beside_onnxruntimes():
    pairs = [
        {"model": "m", "pass": 0.5, "ours": 2.0, "onnxruntime": 2.5},
        {"model": "n", "pass": 0.5, "ours": 4.5, "onnxruntime": 1.0},
        {"model": "o", "pass": 0.5, "ours": 4.5, "onnxruntime_said": "no"},
    ]
    said = page({**RESULTS, "paired": pairs}, [TASK, OTHER], {"wheel": "1.2"})
    assert "on 1 of\n2 models" in said
    assert "| m | 2.0 | 2.5 | 0.5 | 0.67 |" in said
    assert "| n | 4.5 | 1.0 | 0.5 | 3.00 |" in said
    assert "| o | 4.5 |  | 0.5 |  |" in said
    assert "Time of the whole job" not in page(RESULTS, [TASK, OTHER], {"wheel": "1.2"})
