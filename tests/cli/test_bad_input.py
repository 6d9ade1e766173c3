"""Bad input: one clear line, exit code 2, nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest

from planner.cli.app import run
from planner.formats.table import EXPORTERS
from tests.cli.conftest import DATA, DIGITS, MODEL


@pytest.fixture
def refused(qplan, tmp_path):
    """Run a `plan` that must fail; give back its one line without the prefix."""
    out = tmp_path / "result" / "out"

    def call(*arguments, stdin=b""):
        answer = qplan("plan", *arguments, "--out", out, stdin=stdin)
        assert (answer.code, answer.out) == (2, "")
        assert not out.parent.exists()
        (line,) = answer.err.splitlines()
        head, _, text = line.partition("qplan: error: ")
        assert head == ""
        return text

    return call


def edited_stats(stats: Path, path: Path, name: str, entry: dict) -> Path:
    document = json.loads(stats.read_text())
    document["values"][name] = entry
    path.write_text(json.dumps(document))
    return path


def test_no_such_file(refused):
    assert refused("nothing.onnx", "-t", "litert-int8", "--data", DATA) == "nothing.onnx: no such file"


def test_not_onnx(refused, tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("this is no model")
    assert "text.onnx" in refused(path, "-t", "litert-int8", "--data", DATA)


def test_truncated(refused, tmp_path):
    path = tmp_path / "short.onnx"
    path.write_bytes(Path(MODEL).read_bytes()[:20000])
    assert "short.onnx" in refused(path, "-t", "litert-int8", "--data", DATA)


def test_empty(refused, tmp_path):
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert "empty.onnx" in refused(path, "-t", "litert-int8", "--data", DATA)


def test_unknown_target(refused):
    text = refused(MODEL, "-t", "litert-int9", "--data", DATA)
    assert text.startswith("unknown target 'litert-int9' (did you mean 'litert-int8'")


def test_unknown_format(refused):
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "-f", "onnx-qdk")
    assert text.startswith("unknown export format 'onnx-qdk' (did you mean 'onnx-qdq'")


def test_a_format_unlike_any_lists_them(refused):
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "-f", "int8")
    names = ", ".join(repr(name) for name in sorted(EXPORTERS))
    assert text == f"unknown export format 'int8' (known: {names})"


def test_quantize_lists_the_formats_too(capsys):
    assert run(["quantize", str(MODEL), "--data", str(DATA), "-f", "int8"]) == 2
    assert "unknown export format 'int8' (known: 'encodings'," in capsys.readouterr().err


def test_unknown_cost(refused):
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "--set", "bit_prize=1")
    assert text.startswith("unknown cost 'bit_prize' (did you mean 'bit_price'")


@pytest.mark.parametrize("setting", ["bit_price", "bit_price=x", "bit_price=-1", "bit_price=nan"])
def test_cost_that_is_none(refused, setting):
    assert refused(MODEL, "-t", "litert-int8", "--data", DATA, "--set", setting).startswith(
        f"--set '{setting}'"
    )


def test_statistics_of_an_unknown_value(refused, stats, tmp_path):
    path = edited_stats(stats, tmp_path / "s.json", "probabilitys", {"min": 0.0, "max": 1.0})
    text = refused(MODEL, "-t", "litert-int8", "--stats", path)
    assert text.startswith("statistics of 'probabilitys', which is no value of model 'digits'")
    assert "'probabilities'" in text


def test_missing_statistics(refused):
    assert refused(MODEL, "-t", "litert-int8") == (
        "no ranges are known for the values of model 'digits' "
        "(give samples with --data or statistics with --stats)"
    )


def test_samples_without_a_number(refused, tmp_path):
    np.savez(tmp_path / "nan.npz", image=np.full((2, 1, 8, 8), np.nan, np.float32))
    assert refused(MODEL, "-t", "litert-int8", "--data", tmp_path / "nan.npz").endswith(
        "(look at how the samples are made; ranges come from numbers)"
    )


def test_statistics_of_another_model_warn(qplan, stats, tmp_path):
    document = json.loads(Path(stats).read_text())
    (tmp_path / "s.json").write_text(json.dumps(document | {"model": "sha256:0123"}))
    for line in (
        ("plan", MODEL, "-t", "litert-int8", "--stats", tmp_path / "s.json", "-o", tmp_path / "out"),
        ("annotate", MODEL, "--stats", tmp_path / "s.json", "--out", tmp_path / "a.json"),
    ):
        answer = qplan(*line)
        assert answer.code == 0
        assert (
            "warning: the statistics were taken of another model (sha256:0123, this is sha256:" in answer.err
        )


def test_statistics_of_one_value_leave_all_in_float(qplan, stats, tmp_path):
    """The target has rows: it is the ranges that lack."""
    document = json.loads(Path(stats).read_text())
    document["values"] = {"image": document["values"]["image"]}
    (tmp_path / "s.json").write_text(json.dumps(document))
    answer = qplan("plan", MODEL, "-t", "litert-int8", "--stats", tmp_path / "s.json", "-o", tmp_path / "out")
    assert "0 of 15 kernels quantized: 15 lack a range, the plan is all float" in answer.out


def test_a_target_of_weights_alone_asks_for_no_statistics(qplan, tmp_path):
    answer = qplan("plan", MODEL, "-t", "llm-w4", "-o", tmp_path / "out", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["integer"] > 0


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"min": 2.0, "max": 1.0}, "min"),
        ({"min": 0.0, "max": float("nan")}, "NaN"),
        ({"min": 0.0}, "max"),
    ],
)
def test_statistics_that_are_none(refused, stats, tmp_path, entry, words):
    path = edited_stats(stats, tmp_path / "s.json", "probabilities", entry)
    text = refused(MODEL, "-t", "litert-int8", "--stats", path)
    assert "probabilities" in text
    assert words in text


def test_a_target_with_a_wrong_field(refused, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "apiVersion: planner/v1\nkind: Target\nid: bad\nversion: 1.0.0\ntitle: Bad\nmode: fixed\n"
        "types: {a8: {storage: i8}}\nkernels:\n  - {kernel: Relu, in: {x: a8}, out: {y: a8}, whn: {}}\n"
    )
    text = refused(MODEL, "-t", path, "--data", DATA)
    assert text.startswith("bad.yaml:9:")
    assert "unknown field 'whn'" in text
    assert "'when'" in text


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"image": np.zeros((4, 1, 9, 8), np.float32)}, "shape [4, 1, 9, 8]"),
        ({"picture": np.zeros((4, 1, 8, 8), np.float32)}, "no input 'picture'"),
        ({"image": np.full((4, 1, 8, 8), "a")}, "element type"),
    ],
)
def test_a_sample_that_does_not_fit(refused, tmp_path, arrays, words):
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)
    assert words in refused(MODEL, "-t", "litert-int8", "--data", path)


def test_samples_that_are_none(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds no .npz" in refused(MODEL, "-t", "litert-int8", "--data", tmp_path / "empty")


def test_an_annotation_of_nothing(refused, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text('format: qplan.annotations/1\nvalues: {probabilitys: "!quant.none"}\n')
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "--annotations", path)
    assert "'probabilities'" in text


def test_data_and_statistics_together(refused, stats):
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "--stats", stats)
    assert text == "--data and --stats both give ranges (give one of them)"


def test_a_module_that_is_not_there(refused):
    text = refused(MODEL, "-t", "litert-int8", "--data", DATA, "--functions", "no_such_module")
    assert text.startswith("--functions no_such_module: ModuleNotFoundError")


def test_an_output_folder_that_is_a_file(qplan, stats, tmp_path):
    (tmp_path / "out").write_text("mine")
    answer = qplan("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert (tmp_path / "out").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_plan_of_another_version(qplan, planned, tmp_path):
    text = (planned / "plan.json").read_text().replace("qplan.plan/1", "qplan.plan/9")
    (tmp_path / "plan.json").write_text(text)
    answer = qplan("show", tmp_path / "plan.json")
    assert answer.code == 2
    assert "qplan.plan/9" in answer.err


def test_an_address_that_is_not_there(qplan, planned):
    answer = qplan("explain", planned / "plan.json", "probabilitys")
    assert answer.code == 2
    assert "'probabilities'" in answer.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("bogus",), "No such command 'bogus'"),
        (("plan", MODEL, "--bogus"), "No such option"),
        (("plan", MODEL, "-t", "litert-int8"), "Missing option"),
        (("plan", MODEL, "-t", "litert-int8", "-o", "x", "--strategy", "greedy"), "'greedy'"),
        (("compare", MODEL, MODEL, "--data", DATA, "--min-sqnr", "loud"), "--min-sqnr"),
    ],
)
def test_a_command_line_that_is_none(qplan, line, words):
    answer = qplan(*line)
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert words in answer.err


def test_a_model_no_kernel_serves_is_a_float_plan(qplan, stats, tmp_path):
    (tmp_path / "bare.yaml").write_text(
        "apiVersion: planner/v1\nkind: Target\nid: bare\nversion: 1.0.0\ntitle: Bare\nmode: fixed\n"
        "kernels: []\n"
    )
    line = ("plan", MODEL, "-t", tmp_path / "bare.yaml", "--stats", stats, "-o", tmp_path / "out")
    answer = qplan(*line, "-f", "onnx-qdq", "--json")
    assert answer.code == 1  # nothing is quantized
    assert (answer.json["integer"], answer.json["rescales"], answer.json["fully_quantized"]) == (0, 0, False)
    assert "0 of 21 kernels quantized: bare serves none of them, the plan is all float" in qplan(*line).out
    assert "no row is called so" in (tmp_path / "out" / "report.html").read_text()


def test_a_folder_as_a_model(refused, tmp_path):
    assert refused(tmp_path, "-t", "litert-int8", "--data", DATA) == f"{tmp_path}: a folder, not a file"


def test_a_document_of_another_kind_is_named(refused, qplan, stats):
    text = refused(stats, "-t", "litert-int8", "--data", DATA)
    assert text == (
        f"{str(stats)!r} is statistics of a model, and no model that is read here "
        "(give them as --stats, and the model in front)"
    )
    answer = qplan("show", stats)
    assert (answer.code, answer.err.startswith(f"qplan: error: {stats}: format 'qplan.stats/2'")) == (2, True)


def test_two_files_on_standard_input(refused):
    text = refused("-", "-t", "litert-int8", "--stats", "-")
    assert text == "more than one file is - (standard input is one file)"


def test_an_empty_standard_input(refused):
    assert refused("-", "-t", "litert-int8", "--data", DATA) == "standard input, the model here, is empty"


def test_a_limit_that_is_no_number(qplan):
    answer = qplan("compare", MODEL, MODEL, "--data", DATA, "--min-sqnr", "nan")
    assert (answer.code, answer.err) == (2, "qplan: error: --min-sqnr: NaN is no number of decibels\n")


def test_the_model_is_not_written_over(qplan, stats, tmp_path):
    model = tmp_path / "onnx-qdq.onnx"
    model.write_bytes(Path(MODEL).read_bytes())
    answer = qplan("plan", model, "-t", "litert-int8", "--stats", stats, "-f", "onnx-qdq", "-o", tmp_path)
    assert answer.code == 2
    assert answer.err == f"qplan: error: '{model}' would be written over the input (give another --out)\n"
    assert [path.name for path in tmp_path.iterdir()] == ["onnx-qdq.onnx"]
    assert model.read_bytes() == Path(MODEL).read_bytes()


def test_an_error_of_many_rows_is_told_once(qplan, tmp_path):
    text = (DIGITS.parents[1] / "targets" / "teaching-npu.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(text.replace('in: {x: "*"}', 'inn: {x: "*"}'))
    lines = qplan("target", "lint", tmp_path / "bad.yaml").err.splitlines()
    assert any("unknown field 'inn'" in line for line in lines)
    assert len(set(lines)) == len(lines)


def test_a_file_as_the_data_folder_of_the_service(qplan, stats):
    answer = qplan("serve", "--port", "0", "--data", stats)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == f"qplan: error: cannot keep data in '{stats}': it is a file (give a folder)\n"


@pytest.mark.parametrize(
    ("verb", "over"),
    [
        ("calibrate MODEL --data DATA", "MODEL"),
        ("calibrate MODEL --data DATA", "DATA"),
        ("annotate ANNOTATED", "ANNOTATED"),
        ("export PLAN --model ANNOTATED --format onnx-qdq", "PLAN"),
        ("restore PLAN head/softmax --model ANNOTATED --target litert-int8", "ANNOTATED"),
    ],
)
def test_no_input_is_written_over(qplan, stats, tmp_path, verb, over):
    files = {
        "MODEL": "digits.onnx",
        "DATA": "calibration.npz",
        "ANNOTATED": "digits.json",
        "PLAN": "out/plan.json",
    }
    place = {word: str(tmp_path / name) for word, name in files.items()}
    Path(place["MODEL"]).write_bytes(Path(MODEL).read_bytes())
    Path(place["DATA"]).write_bytes(Path(DATA).read_bytes())
    assert qplan("annotate", MODEL, "--stats", stats, "--out", place["ANNOTATED"]).code == 0
    assert qplan("plan", place["ANNOTATED"], "-t", "litert-int8", "-o", str(tmp_path / "out")).code == 0
    before = Path(place[over]).read_bytes()
    answer = qplan(*(place.get(word, word) for word in verb.split()), "--out", place[over])
    assert answer.code == 2
    assert (
        answer.err == f"qplan: error: '{place[over]}' would be written over the input (give another --out)\n"
    )
    assert Path(place[over]).read_bytes() == before
