"""The verbs of `qplan target` beyond list and show: what each prints and how it ends."""

import json

import numpy as np
import onnxruntime
import pytest

import planner
from tests.cli.conftest import MODEL

BROKEN = """apiVersion: planner/v1
kind: Target
id: my-npu
version: 0.1.0
defaults: {port: {storage: i8}}
kernels:
  - {kernel: Relu, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
tests:
  - name: relu runs
    model: "y = Relu(x) : f32[4] {0, 1}"
    expect: {kernels: {Relu: 2}}
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(BROKEN)
    return path


def test_test_says_each_test(qplan):
    answer = qplan("target", "test", "teaching-npu")
    assert (answer.code, answer.err) == (0, "")
    assert ": ok: concat unifies its inputs" in answer.out
    assert answer.out.splitlines()[-1].endswith("tests, 0 failed")


def test_a_failing_test_ends_with_1(qplan, mine):
    answer = qplan("target", "test", mine)
    assert answer.code == 1
    assert answer.out == (
        "mine.yaml:9: FAILED: relu runs\n"
        "    kernels: expected Relu: 2, found Relu: 1\n"
        "my-npu: 1 test, 1 failed\n"
    )
    document = qplan("target", "test", mine, "--json").json
    assert document["ok"] is False
    assert document["tests"][0]["problems"] == ["kernels: expected Relu: 2, found Relu: 1"]
    assert qplan("target", "test", mine, "--only", "nothing").code == 2


def test_lint_quotes_the_line_and_writes_sarif(qplan, mine):
    mine.write_text(BROKEN.replace("id: my-npu", "id: my-npu\ntypes: {a8: {storage: i8}}"))
    answer = qplan("target", "lint", mine)
    assert answer.code == 0
    assert answer.out == (
        "mine.yaml:4:9: L015 type 'a8' is used nowhere [warning] | types: {a8: {storage: i8}}\n"
        "my-npu: 1 finding\n"
    )
    (found,) = qplan("target", "lint", mine, "--json").json["findings"]
    assert found["quote"] == "types: {a8: {storage: i8}}"
    (result,) = qplan("target", "lint", mine, "--sarif").json["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], place["artifactLocation"]["uri"]) == ("L015", str(mine))


def test_lint_writes_sarif_of_a_file_that_does_not_load(qplan, mine):
    mine.write_text(BROKEN.replace("\nkernels:", "\nkernls:"))
    answer = qplan("target", "lint", mine, "--sarif")
    assert answer.code == 1
    assert [result["ruleId"] for result in answer.json["runs"][0]["results"]] == ["T012"]


def test_doc_writes_markdown_html_and_json(qplan, tmp_path):
    assert qplan("target", "doc", "teaching-npu").out.startswith("# A small NPU to learn from (teaching-npu")
    page = tmp_path / "page.html"
    assert qplan("target", "doc", "teaching-npu", "--html", "-o", page).out == f"wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert qplan("target", "doc", "teaching-npu", "--json").json["rows"][0]["kernel"] == "conv"


def test_doc_does_not_write_over_its_target(qplan, mine):
    answer = qplan("target", "doc", mine, "-o", mine)
    assert (answer.code, mine.read_text()) == (2, BROKEN)


def test_diff_ends_with_1_where_something_differs(qplan, mine):
    assert qplan("target", "diff", mine, mine).code == 0
    answer = qplan("target", "diff", mine, "teaching-npu")
    assert (answer.code, answer.out.splitlines()[0]) == (1, "~ head id: my-npu -> teaching-npu")
    assert qplan("target", "diff", mine, "teaching-npu", "--json").json["equal"] is False


def test_new_extends_a_shipped_target_or_a_file(qplan, mine, tmp_path):
    for base in ("litert-int8", mine):
        path = tmp_path / "new" / ("shipped.yaml" if base == "litert-int8" else "file.yaml")
        assert qplan("target", "new", "newer", "--from", base, "-o", path).code == 0
        assert qplan("target", "lint", path).out == "newer: 0 findings\n"
    assert qplan("target", "new", "newer").out.startswith("# yaml-language-server")
    assert qplan("target", "new", "no id").code == 2


def test_coverage_lists_what_is_missing(qplan, mine):
    answer = qplan("target", "coverage", MODEL, "-t", mine)
    assert answer.code == 1
    assert answer.out.startswith("digits on my-npu: ")
    assert "- {kernel: MaxPool, in: {x: {storage: i8}}, out: {y: {storage: i8}}, rules:" in answer.out
    assert qplan("target", "coverage", MODEL, "-t", mine, "--json").json["complete"] is False
    assert qplan("target", "coverage", MODEL, "-t", "litert-int8").code == 0


def test_kit_writes_a_folder_per_row(qplan, tmp_path):
    answer = qplan("target", "kit", "teaching-npu", "-o", tmp_path / "kit")
    assert (answer.code, answer.err) == (0, "")
    index = json.loads((tmp_path / "kit" / "kit.json").read_text())
    names = ["expected.npz", "inputs.npz", "model.onnx", "onnx-qoperator.onnx", "plan.json"]
    first = tmp_path / "kit" / index["items"][0]["name"]
    assert sorted(path.name for path in first.iterdir()) == names
    assert qplan("target", "kit", "teaching-npu", "-o", tmp_path / "kit", "--format", "nothing").code == 2


def test_probe_writes_a_target(qplan, tmp_path):
    path = tmp_path / "probed.yaml"
    assert qplan("target", "probe", "--kernel", "MaxPool", "--kernel", "conv", "-o", path).code == 0
    assert qplan("target", "lint", path).code == 0
    answer = qplan("target", "probe", "--kernel", "MaxPool", "--json").json
    assert [item["runs"] for item in answer["answers"]] == [True, True, False, False]
    assert qplan("target", "probe", "--engine", "none").code == 2


def test_rows_are_probed_on_an_engine(qplan, tmp_path):
    """Exit code 1 where a row runs otherwise than it says, unless that is allowed; a line names each row."""
    target = tmp_path / "claims.yaml"
    target.write_text(
        "apiVersion: planner/v1\nkind: Target\nid: claims\nversion: 1.0.0\n"
        "types: {u8: {storage: u8}, u16: {storage: u16}}\ndefaults: {port: u8, requantize: float32_even}\n"
        "kernels:\n  - {kernel: Sigmoid, in: {x: u16}, out: {y: u16}}\n"
        "  - {kernel: MaxPool, in: {x: u8}, out: {y: u8}, rules: [{same_scale: [x, y]}]}\n"
    )
    answer = qplan("target", "probe", "-t", target)
    assert answer.code == 1
    assert answer.out.splitlines() == [
        "claims.yaml:8  Sigmoid-1  float: Sigmoid",
        "claims.yaml:9  MaxPool-1  integers",
        f"claims on onnxruntime (onnxruntime {onnxruntime.__version__}): 1 float, 1 integers",
    ]
    assert qplan("target", "probe", "-t", target, "--allow", "float").code == 0
    assert qplan("target", "probe", "-t", target, "--kernel", "MaxPool").code == 0
    found = qplan("target", "probe", "-t", target, "--json")
    assert (found.code, found.json["holds"], found.json["counts"]) == (1, False, {"float": 1, "integers": 1})
    assert found.json["rows"][0]["verdict"] == "float"
    before = tmp_path / "before.json"
    told = {**found.json, "version": "onnxruntime 1.0"}
    told["rows"][1].update(verdict="float", detail="MaxPool")
    before.write_text(json.dumps(told))
    answer = qplan("target", "probe", "-t", target, "--before", before)
    # The row in float was so before: what changed is no failure.
    assert (answer.code, answer.out.splitlines()[:2]) == (
        0,
        ["MaxPool-1: float (MaxPool) -> integers", "1 of 2 rows changed; before onnxruntime 1.0"],
    )
    told["rows"][0].update(verdict="integers", detail="")
    before.write_text(json.dumps(told))
    answer = qplan("target", "probe", "-t", target, "--before", before, "--json")
    changes = {change["after"]["name"]: change["before"]["verdict"] for change in answer.json["changes"]}
    assert (answer.code, changes) == (1, {"Sigmoid-1": "integers", "MaxPool-1": "float"})
    assert qplan("target", "probe", "-t", target, "--before", before, "--allow", "float").code == 0
    assert qplan("target", "probe", "--before", before).code == 2
    engine = tmp_path / "device.py"
    engine.write_text("def run(file, inputs):\n    raise ValueError(f'{len(inputs)} too many')\n")
    answer = qplan("target", "probe", "-t", target, "--engine", f"{engine}:run", "--format", "qonnx")
    assert "refused: ValueError: 1 too many" in answer.out
    # A wrong file is told of before the engine is asked, which may take minutes.
    asked = tmp_path / "asked"
    engine.write_text(f"def run(file, inputs):\n    open({str(asked)!r}, 'w').close()\n    return {{}}\n")
    answer = qplan("target", "probe", "-t", target, "--engine", f"{engine}:run", "--before", target)
    assert (answer.code, asked.exists()) == (2, False)
    assert "holds no findings of an earlier probe" in answer.err
    for wrong in (
        ["--engine", "none"],
        ["--allow", "all"],
        ["--before", target],
        ["--format", "doc"],
        ["--engine", f"{engine}:go"],
    ):
        assert qplan("target", "probe", "-t", target, *wrong).code == 2


def test_results_are_compared_with_a_kit(qplan, tmp_path):
    kit, results = tmp_path / "kit", tmp_path / "results"
    assert qplan("target", "kit", "teaching-npu", "-o", kit).code == 0
    names = [item["name"] for item in json.loads((kit / "kit.json").read_text())["items"]]
    for name in names:
        (results / name).mkdir(parents=True)
        (results / name / "results.npz").write_bytes((kit / name / "expected.npz").read_bytes())
    answer = qplan("target", "kit", "--check", kit, results)
    assert (answer.code, answer.out.splitlines()[-1]) == (0, f"{results} beside {kit}: {len(names)} integers")

    before = qplan("target", "kit", "--check", kit, results, "--json").out
    with np.load(kit / names[0] / "expected.npz") as archive:
        np.savez(results / names[0] / "results.npz", **{key: archive[key] ^ 1 for key in archive})
    (results / names[1] / "results.npz").unlink()
    (tmp_path / "before.json").write_text(before)
    answer = qplan("target", "kit", "--check", kit, results, "--before", tmp_path / "before.json")
    assert (answer.code, answer.out.splitlines()[2]) == (1, f"2 of {len(names)} rows changed")
    answer = qplan("target", "kit", "--check", kit, results)
    lines = answer.out.splitlines()
    assert (answer.code, "differ, by 1 at most" in lines[0]) == (1, True)
    assert lines[1].endswith("no answer")
    (results / names[0] / "results.npz").write_bytes(b"not an archive")
    for wrong in ((kit, tmp_path / "none"), (results, results), (kit, results)):
        assert qplan("target", "kit", "--check", *wrong).code == 2
    assert qplan("target", "kit", "teaching-npu").code == 2
    assert qplan("target", "kit", "teaching-npu", "--before", tmp_path / "before.json").code == 2


def test_schema_offers_the_types_of_a_target(qplan, tmp_path):
    """Ports take them; a partial type over an inherited one is no error to an editor."""
    page = tmp_path / "mine.schema.json"
    assert qplan("target", "schema", "teaching-npu", "-o", page).out == f"wrote {page}\n"
    written, plain = (json.loads(text) for text in (page.read_text(), qplan("target", "schema").out))
    port = written["definitions"]["DefaultsModel"]["properties"]["port"]
    offered = port["oneOf"][0]["anyOf"][0]["anyOf"][0]["enum"]
    assert offered == ["*", *planner.load_target("teaching-npu").document["types"]]
    assert "required" not in plain["definitions"]["TypeModel"]
    assert '"ge"' not in page.read_text()
