"""The verbs of `qplan target` beyond list and show: what each prints and how it ends."""

import pytest

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
        "    kernels: wanted Relu: 2, found Relu: 1\n"
        "my-npu: 1 tests, 1 failed\n"
    )
    document = qplan("target", "test", mine, "--json").json
    assert document["ok"] is False
    assert document["tests"][0]["problems"] == ["kernels: wanted Relu: 2, found Relu: 1"]
    assert qplan("target", "test", mine, "--only", "nothing").code == 2


def test_lint_quotes_the_line_and_writes_sarif(qplan, mine):
    mine.write_text(BROKEN.replace("id: my-npu", "id: my-npu\ntypes: {a8: {storage: i8}}"))
    answer = qplan("target", "lint", mine)
    assert (answer.code, answer.out) == (
        0,
        "mine.yaml:4:9: L015 type 'a8' is used nowhere [warning] | types: {a8: {storage: i8}}\n"
        "my-npu: 1 findings\n",
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
