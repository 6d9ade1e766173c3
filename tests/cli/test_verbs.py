"""Each verb on the digits example: what it prints, what it writes, how it ends."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from planner.cli.app import TARGET_VERBS, VERBS
from tests.cli.conftest import DATA, DIGITS, MODEL


def test_plan_writes_its_folder(planned):
    names = [
        "digits.corrected-float.onnx",
        "onnx-qdq.onnx",
        "onnx-qoperator.onnx",
        "plan.json",
        "plan.mlir",
        "report.html",
    ]
    assert sorted(path.name for path in planned.iterdir()) == names
    plan = planner.plan_from_json((planned / "plan.json").read_text())
    assert plan.target.id == "onnxruntime-cpu"
    assert "onnx-qoperator" in (planned / "report.html").read_text()


def test_a_slow_format_is_told_where_it_is_chosen(qplan, planned, tmp_path):
    told = "onnx-integer spells out every integer, and takes 2 to 50 times as long as the float model"
    assert told in qplan("export", planned, "-f", "onnx-integer", "-o", tmp_path / "i.onnx").err
    named = qplan("export", planned, "-f", "onnx-qdq", "-o", tmp_path / "q.onnx").err
    assert (told in named, "named as files of" in named) == (False, False)
    odd = qplan("export", planned, "-f", "onnx-qdq", "-o", tmp_path / "q.tflite").err
    assert "q.tflite is named as files of litert are, and it is onnx-qdq" in odd
    line = ("plan", MODEL, "-t", "onnxruntime-dynamic", "-f", "onnx-integer", "-o", tmp_path / "dynamic")
    assert told not in qplan(*line).err


def test_plan_leaves_no_draft_behind(planned):
    assert [path.name for path in planned.parent.iterdir()] == ["out"]


def test_plan_says_its_totals(qplan, stats, tmp_path):
    answer = qplan("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out")
    assert (answer.code, answer.err) == (0, "")
    assert "digits on litert-int8 " in answer.out
    assert "kernels quantized" in answer.out
    assert f"wrote {tmp_path / 'out' / 'plan.json'}" in answer.out


def test_plan_says_what_to_do_next_and_it_works(qplan, stats, tmp_path):
    out = tmp_path / "my out"
    text = qplan("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", out).out
    assert (
        f"{out / 'digits.corrected-float.onnx'} is the float model with corrected biases: this plan is for it"
        in text
    )
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith("  qplan ")]
    assert [line[1] for line in lines] == ["explain", "export"]
    assert [qplan(*line[1:]).code for line in lines] == [0, 0]
    assert (out / "onnx-qdq.onnx").is_file()


def test_files_of_an_earlier_plan_are_told(qplan, planned, stats, tmp_path):
    shutil.copytree(planned, tmp_path / "out")
    line = ("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out")
    told = qplan(*line, "-f", "onnx-qdq", "--no-bias-correction").err.splitlines()
    assert told == [
        f"qplan: warning: {tmp_path / 'out' / name} was there before and does not belong to this plan"
        for name in ("digits.corrected-float.onnx", "onnx-qoperator.onnx")
    ]


def test_samples_with_nan_are_told(qplan, tmp_path):
    with np.load(DATA) as archive:
        image = archive["image"].copy()
    image[3, 0, 0, :2] = np.nan
    np.savez(tmp_path / "nan.npz", image=image)
    answer = qplan("plan", MODEL, "-t", "litert-int8", "--data", tmp_path / "nan.npz", "-o", tmp_path / "out")
    assert answer.code == 0
    assert "qplan: warning: the samples make 'image' NaN or infinite 2 times" in answer.err


def test_plan_as_json_is_one_document(qplan, stats, tmp_path):
    answer = qplan("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out", "--json")
    assert answer.code == 0
    assert answer.json["target"]["id"] == "litert-int8"
    assert answer.json["integer"] <= answer.json["kernels"]
    assert answer.json["files"] == [
        str(tmp_path / "out" / n)
        for n in ("plan.json", "plan.mlir", "report.html", "digits.corrected-float.onnx")
    ]


def test_plan_as_json_carries_the_quality(qplan, tmp_path):
    line = ("plan", MODEL, "-t", "onnxruntime-cpu", "--data", DATA, "-f", "onnx-qdq", "-o", tmp_path / "out")
    answer = qplan(*line, "--json")
    assert answer.json["quality"]["onnx-qdq"]["probabilities"]["sqnr"] > 15


def test_plan_twice_is_the_same_plan(qplan, planned, tmp_path):
    line = ("plan", MODEL, "-t", "onnxruntime-cpu", "--data", DATA, "-o", tmp_path / "out")
    assert qplan(*line, "-f", "onnx-qdq", "-f", "onnx-qoperator").code == 0
    for name in ("plan.json", "plan.mlir"):
        assert (tmp_path / "out" / name).read_bytes() == (planned / name).read_bytes()


def test_prices_and_strategy_reach_the_plan(qplan, stats, tmp_path):
    line = ("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out")
    assert qplan(*line, "--set", "bit_price=7", "--strategy", "rfc").code == 0
    plan = planner.plan_from_json((tmp_path / "out" / "plan.json").read_text())
    assert plan.target.costs.bit_price == 7
    assert plan.options["strategy"] == "rfc"


def test_functions_come_from_a_module(qplan, stats, tmp_path):
    (tmp_path / "mine.py").write_text("def keep(inputs, outputs, args):\n    return {}\n")
    (tmp_path / "mine.yaml").write_text(
        "apiVersion: planner/v1\nkind: Target\nid: mine\nversion: 1.0.0\ntitle: Mine\nmode: fixed\n"
        "types: {a8: {storage: i8}}\ndefaults: {port: a8}\n"
        "kernels:\n  - {kernel: Softmax, in: {x: a8}, out: {y: a8}, rules: [{fn: keep}]}\n"
    )
    line = ("plan", MODEL, "-t", tmp_path / "mine.yaml", "--stats", stats, "-o", tmp_path / "out")
    assert qplan(*line).code == 2
    assert qplan(*line, "--functions", tmp_path / "mine.py").code == 0


def test_calibrate_writes_statistics(qplan, stats):
    document = json.loads(stats.read_text())
    assert (document["format"], document["samples"]) == ("qplan.stats/2", 128)
    assert qplan("calibrate", MODEL, "--data", DATA).json["values"] == document["values"]


def test_calibrate_by_percentile(qplan, tmp_path):
    path = tmp_path / "stats.json"
    answer = qplan("calibrate", MODEL, "--data", DATA, "--method", "percentile:99.9", "-o", path, "--json")
    assert answer.json["method"] == "percentile:99.9"
    assert any("bins" in value for value in json.loads(path.read_text())["values"].values())


def test_one_calibration_serves_every_method(qplan, stats, tmp_path):
    """Statistics with histograms give the ranges of another method; those of minmax have none."""
    path = tmp_path / "seen.json"
    assert qplan("calibrate", MODEL, "--data", DATA, "--method", "mse", "-o", path).code == 0
    facts = {
        method: qplan("annotate", MODEL, "--stats", path, *(("--method", method) if method else ())).out
        for method in ("", "mse", "entropy", "percentile:99", "minmax")
    }
    assert facts[""] == facts["mse"]
    assert len(set(facts.values())) == 4
    assert ", 8 = " in facts["mse"]
    assert ", 8 = " not in facts["percentile:99"]
    line = ("plan", MODEL, "-t", "litert-int8", "--stats", path, "--method", "entropy")
    assert qplan(*line, "-o", tmp_path / "out").code == 0
    plan = planner.plan_from_json((tmp_path / "out" / "plan.json").read_text())
    planner.check(plan)
    assert any(fact.widths for value in plan.graph.values.values() for fact in value.facts)
    refused = qplan("plan", MODEL, "-t", "litert-int8", "--stats", stats, "--method", "mse", "-o", tmp_path)
    assert refused.code == 2
    assert "statistics taken by minmax have no histograms for mse" in refused.err
    unknown = qplan("calibrate", MODEL, "--data", DATA, "--method", "kl")
    assert unknown.code == 2
    assert (
        "unknown calibration method 'kl' (minmax, percentile, percentile:99.9, mse, entropy)" in unknown.err
    )


@pytest.mark.parametrize("suffix", [".json", ".mlir"])
def test_annotate_writes_a_model_that_plans(qplan, stats, tmp_path, suffix):
    model = tmp_path / f"annotated{suffix}"
    assert qplan("annotate", MODEL, "--stats", stats, "-o", model).code == 0
    direct, indirect = tmp_path / "direct", tmp_path / "indirect"
    line = ("plan", MODEL, "-t", "teaching-npu", "--stats", stats, "-o", direct, "--no-bias-correction")
    assert qplan(*line).code == 0
    assert not (direct / "digits.corrected-float.onnx").exists()
    assert qplan("plan", model, "-t", "teaching-npu", "-o", indirect).code == 0
    plans = [planner.plan_from_json((out / "plan.json").read_text()) for out in (direct, indirect)]
    assert plans[0].kernels_in_order == plans[1].kernels_in_order


def test_annotations_reach_the_plan(qplan, stats, tmp_path):
    pin = "!quant.uniform<i8:f32, 0.00390625:-128>"
    (tmp_path / "a.yaml").write_text(f'format: qplan.annotations/1\nvalues: {{image: "{pin}"}}\n')
    line = ("plan", MODEL, "-t", "litert-int8", "--stats", stats, "-o", tmp_path / "out")
    assert qplan(*line, "--annotations", tmp_path / "a.yaml").code == 0
    plan = planner.plan_from_json((tmp_path / "out" / "plan.json").read_text())
    assert str(plan.values["image"].type) == pin


def test_export_equals_what_plan_wrote(qplan, planned, tmp_path):
    path = tmp_path / "digits.onnx"
    line = (
        "export",
        planned / "plan.json",
        "--model",
        planned / "digits.corrected-float.onnx",
        "--format",
        "onnx-qdq",
        "-o",
        path,
    )
    assert qplan(*line).code == 0
    assert path.read_bytes() == (planned / "onnx-qdq.onnx").read_bytes()
    answer = qplan(*line, "--accuracy-level", "4")
    assert (answer.code, "onnx-qdq has no accuracy levels" in answer.err) == (2, True)


def test_check_accepts_a_plan(qplan, planned):
    line = (
        "check",
        planned / "plan.json",
        "--model",
        planned / "digits.corrected-float.onnx",
        "--target",
        "onnxruntime-cpu",
    )
    assert qplan(*line).out.startswith("ok: ")
    assert qplan(*line, "--json").json["ok"] is True


@pytest.mark.parametrize(
    "line",
    [("check", "--target", "onnxruntime-cpu"), ("export", "--format", "onnx-qdq", "--out", "never.onnx")],
)
def test_the_model_without_the_corrected_biases_is_refused(qplan, planned, line):
    answer = qplan(line[0], planned / "plan.json", "--model", MODEL, *line[1:])
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        "qplan: error: the plan is for the model with corrected biases, this is the one without: "
        "give the digits.onnx that was written beside the plan\n"
    )
    assert not Path("never.onnx").exists()


def test_corrected_biases_under_a_plan_without_are_refused(qplan, planned, stats, tmp_path):
    line = ("plan", MODEL, "-t", "onnxruntime-cpu", "--stats", stats, "-o", tmp_path / "out")
    assert qplan(*line, "--no-bias-correction").code == 0
    plan, model = tmp_path / "out" / "plan.json", planned / "digits.corrected-float.onnx"
    answer = qplan("check", plan, "--model", model, "--target", "onnxruntime-cpu")
    assert answer.code == 1
    assert "this model has corrected biases, the plan is for the one without" in answer.err


def test_old_statistics_correct_nothing_and_say_so(qplan, stats, tmp_path):
    document = json.loads(stats.read_text())
    for value in document["values"].values():
        value.pop("mean", None)
    (tmp_path / "old.json").write_text(json.dumps(document))
    line = ("plan", MODEL, "-t", "litert-int8", "--stats", tmp_path / "old.json", "-o", tmp_path / "out")
    answer = qplan(*line)
    assert answer.code == 0
    assert "biases are not corrected: the statistics hold no channel means (calibrate again)" in answer.err
    assert not (tmp_path / "out" / "digits.corrected-float.onnx").exists()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_check_refuses_another_target(qplan, planned, options):
    answer = qplan("check", planned / "plan.json", "--model", MODEL, "--target", "litert-int8", *options)
    assert answer.code == 1
    assert answer.json["ok"] is False if options else answer.err.startswith("qplan: error: ")


def test_compare_prints_and_judges(qplan, planned):
    line = ("compare", MODEL, planned / "onnx-qdq.onnx", "--data", DATA)
    assert "probabilities" in qplan(*line).out
    assert qplan(*line, "--min-sqnr", "10").code == 0
    judged = qplan(*line, "--min-sqnr", "300", "--json")
    assert (judged.code, judged.json["ok"]) == (1, False)


def test_compare_names_the_arrays_that_are_no_inputs_and_leaves_them_out(qplan, planned, tmp_path):
    """Labels are none of them: what they are for is known."""
    test = np.load(DIGITS / "test.npz")
    np.savez(tmp_path / "more.npz", writer=np.zeros(3), **test)
    answer = qplan("compare", MODEL, planned / "onnx-qdq.onnx", "--data", tmp_path / "more.npz")
    assert answer.code == 0
    assert "left out of the samples, as the model has no such input: 'writer'\n" in answer.err


@pytest.mark.parametrize("place", ["there", "elsewhere"])
def test_compare_finds_weights_in_a_file_beside(qplan, planned, tmp_path, monkeypatch, place):
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    model = onnx.load(planned / "onnx-qdq.onnx")
    onnx.save(model, there / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    assert (there / "big.data").exists()
    monkeypatch.chdir(tmp_path / place)
    found, wanted = (
        qplan("compare", MODEL, path, "--data", DATA, "--json").json
        for path in (there / "big.onnx", planned / "onnx-qdq.onnx")
    )
    assert found == wanted


def test_show_lists_kernels_and_rescales(qplan, planned):
    text = qplan("show", planned / "plan.json").out
    plan = planner.plan_from_json((planned / "plan.json").read_text())
    shown = qplan("show", planned / "plan.json", "--json").json
    assert [kernel["name"] for kernel in shown["kernel_table"]] == [k.name for k in plan.kernels_in_order]
    assert [rescale["id"] for rescale in shown["rescale_table"]] == [r.id for r in plan.rescales]
    assert "_onnxruntime-kernels.yaml:" in text
    assert all(kernel.name in text for kernel in plan.kernels_in_order)


def test_view_writes_the_page_of_a_plan(qplan, planned, tmp_path):
    plan = planner.plan_from_json((planned / "plan.json").read_text())
    page = planner.write_report(plan)
    assert qplan("view", planned / "plan.json").out == page
    answer = qplan("view", planned / "plan.json", "--out", tmp_path / "page.html")
    assert (answer.code, "wrote" in answer.out) == (0, True)
    assert (tmp_path / "page.html").read_text("utf-8") == page
    drawn = qplan("view", planned / "plan.json", "--json").json
    assert drawn["format"] == "qplan.view/1"
    assert len(drawn["nodes"]["name"]) == len(plan.kernels_in_order) + 2
    against = ("--before", planned / "plan.json", "--json")
    assert qplan("view", planned / "plan.json", *against).json["changes"]["text"] == []
    over = tmp_path / "plan.json"
    over.write_text((planned / "plan.json").read_text())
    assert qplan("view", over, "--out", over).code == 2
    assert planner.plan_from_json(over.read_text()).key == plan.key


def test_explain_names_the_line_of_the_target(qplan, planned):
    plan = planner.plan_from_json((planned / "plan.json").read_text())
    kernel = next(kernel for kernel in plan.kernels_in_order if kernel.row)
    address = kernel.outputs[0].address
    answer = qplan("explain", planned / "plan.json", address)
    assert (answer.code, address in answer.out) == (0, True)
    assert plan.target.rows[kernel.row].source in answer.out
    assert qplan("explain", planned / "plan.json", address, "--json").json["lines"] == answer.out.splitlines()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("@model.in[0]", "probabilities#0: 'probabilities' is !quant.uniform<u8"),
        ("stem/conv_weight", "stem/conv.in[1] is "),
        ("stem/bn_out", "stem/bn_out is inside kernel stem/conv; only values at ports have a type."),
    ],
)
def test_explain_takes_what_show_and_the_model_name(qplan, planned, address, words):
    answer = qplan("explain", planned / "plan.json", address)
    assert (answer.code, answer.out.startswith(words)) == (0, True)


def test_target_list_names_the_shipped_ones(qplan):
    assert [entry["id"] for entry in qplan("target", "list", "--json").json] == list(planner.target_ids())
    assert all(name in qplan("target", "list").out for name in planner.target_ids())


def test_target_show_has_every_row(qplan):
    target = planner.load_target("teaching-npu")
    text = qplan("target", "show", "teaching-npu").out
    assert all(row.source in text for rows in target.rows.values() for row in rows)
    assert qplan("target", "show", "teaching-npu", "--json").json["digest"] == target.digest


def test_target_lint_is_content_with_the_shipped_ones(qplan):
    for name in planner.target_ids():
        assert qplan("target", "lint", name, "--json").json == {"ok": True, "findings": []}


def test_target_lint_finds_what_is_wrong(qplan, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("apiVersion: planner/v1\nkind: Target\nid: bad\nversion: 1.0.0\ntitle: Bad\nmode: fixd\n")
    answer = qplan("target", "lint", path)
    assert answer.code == 1
    assert answer.err.startswith("qplan: error: bad.yaml:6:7: T0")
    found = qplan("target", "lint", path, "--json").json["findings"]
    assert (found[0]["line"], found[0]["column"], found[0]["severity"]) == (6, 7, "error")


def test_standard_input_takes_any_file(qplan, stats, planned, tmp_path):
    model, plan = Path(MODEL).read_bytes(), (planned / "plan.json").read_bytes()
    out = tmp_path / "out"
    line = ("-t", "onnxruntime-cpu", "-o", out)
    assert qplan("plan", "-", *line, "--stats", stats, stdin=model).code == 0
    assert qplan("plan", MODEL, *line, "--stats", "-", stdin=stats.read_bytes()).code == 0
    assert qplan("plan", MODEL, *line, "--data", "-", stdin=Path(DATA).read_bytes()).code == 0
    assert qplan("show", "-", stdin=plan).out == qplan("show", planned / "plan.json").out
    annotated = qplan("annotate", MODEL, "--stats", stats).out.encode()
    assert qplan("plan", "-", *line, stdin=annotated).code == 0


@pytest.mark.parametrize("line", [*VERBS, *(f"target {name}" for name in TARGET_VERBS)])
def test_every_verb_takes_json_and_help(qplan, line):
    answer = qplan(*line.split(), "--help")
    has_option = re.search(r"^│.*--json\s+<bool>", answer.out, re.MULTILINE) is not None
    assert (answer.code, has_option) == (0, line not in ("help", "schema", "target schema"))
