"""Coverage: what of a model has no row, why, and that the drafted rows serve it."""

from pathlib import Path

import pytest

from planner.formats.onnx.read import read_onnx
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from planner.target_tests.coverage import coverage, drafted

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
BARE = "apiVersion: planner/v1\nkind: Target\nid: bare\nversion: 1.0.0\n"
MODEL = """
w = constant : f32[8,8,3,3] {-0.5, 0.5}
b = constant : f32[8] {-0.5, 0.5}
c = Conv(x, w, b) [pads=[1,1,1,1]] : f32[1,8,4,4] {-2, 2}
d = Conv(c, w) [pads=[1,1,1,1]] : f32[1,8,4,4] {-2, 2}
e, f = Split(d) [axis=1, num_outputs=2] : f32[1,4,4,4], f32[1,4,4,4]
g = Concat(e, f, e, f) [axis=1] : f32[1,16,4,4]
h = Tanh(g) : f32[1,16,4,4] {-1, 1}
i = ArgMax(h) : i64[1,1,4,4]
j = Shape(h) : i64[4]
"""


def test_drafts_of_a_bare_target():
    found = coverage(read_model_text(MODEL, "m"), load_target(BARE))
    assert not found.complete
    assert {item.row for item in found.missing} == {
        (
            "- {kernel: Conv, in: {x: {storage: i8}, w: {storage: i8, range: [-127, 127], granularity: axis, "
            "symmetric: true}, b?: {storage: i32, symmetric: true}}, out: {y: {storage: i8}}, "
            "rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}], axis: {w: out_channel}}"
        ),
        (
            "- {kernel: Conv, in: {x: {storage: i8}, w: {storage: i8, range: [-127, 127], granularity: axis, "
            "symmetric: true}}, out: {y: {storage: i8}}, axis: {w: out_channel}}"
        ),
        "- {kernel: Split, in: {x: {storage: i8}}, out: {y0: {storage: i8}, y1: {storage: i8}}, rules: [{same_scale: [x, y0, y1]}]}",  # noqa: E501
        "- {kernel: Concat, in: {xs*: {storage: i8}}, out: {y: {storage: i8}}, rules: [{same_scale: [xs, y]}]}",  # noqa: E501
        "- {kernel: Tanh, in: {x: {storage: i8}}, out: {y: {storage: i8}}, rules: [{fixed_scale: {port: y, scale: 1/128, zero_point: 0}}]}",  # noqa: E501
        "- {kernel: ArgMax, in: {x: {storage: i8}}, out: {}}",
    }


@pytest.mark.parametrize("model", ["text", "digits"])
@pytest.mark.parametrize("name", ["bare", "teaching-npu"])
def test_the_drafted_rows_serve_what_was_missing(model, name, tmp_path):
    graph = read_model_text(MODEL, "m") if model == "text" else read_onnx(DIGITS)
    (tmp_path / "bare.yaml").write_text(BARE)
    target = load_target(tmp_path / "bare.yaml" if name == "bare" else name)
    found = coverage(graph, target)
    if not found.complete:
        (tmp_path / "drafted.yaml").write_text(drafted(target, found.missing))
        assert coverage(graph, load_target(tmp_path / "drafted.yaml")).complete


def test_a_draft_is_for_the_case_that_a_row_leaves_out():
    """Strides that a row does not take, a second image, a dynamic weight: the draft says them in `when`."""
    model = """
x : f32[1,8,8,8] {-1, 1}
z : f32[2,8,8,8] {-1, 1}
w = constant : f32[8,8,4,4] {-0.5, 0.5}
a = Conv(x, w) [strides=[4,4]] : f32[1,8,2,2] {-2, 2}
b = Conv(z, w) : f32[2,8,5,5] {-2, 2}
c = MatMul(in0, in1) : f32[1,8,8] {-8, 8}
"""
    graph, target = read_model_text(model, "m"), load_target("ethos-u55")
    found = coverage(graph, target)
    rows = {item.example: item.row for item in found.missing}
    assert "when: {Conv.strides: [[4, 4]]" in rows["a"]
    assert 'when: {"x.shape[0]": 2' in rows["b"]
    assert coverage(graph, load_target(drafted(target, found.missing))).complete

    wide = read_model_text(
        model.replace("strides=[4,4]", "strides=[5,4]").replace("8,2,2]", "8,1,2]"), "wide"
    )
    left = coverage(wide, load_target(drafted(target, found.missing)))
    assert [item.kernel for item in left.missing] == ["conv2d"]


def test_what_is_missing_says_why_and_how_often():
    target = load_target("teaching-npu")
    text = "a = Erf(x) : f32[4] {-1, 1}\nb = Erf(a) : f32[4] {-1, 1}\nc = Sin(b) : f32[4] {-1, 1}\nd = Softmax(c) : f32[4] {0, 1}"  # noqa: E501
    found = coverage(read_model_text(text, "m"), target)
    assert (found.model, found.target, dict(found.served)) == ("m", "teaching-npu", {"Softmax": 1})
    assert [(item.kernel, item.count, item.example) for item in found.missing] == [
        ("Erf", 2, "a"),
        ("Sin", 1, "c"),
    ]
    assert found.missing[0].reason == "no fusion of 'teaching-npu' names Erf and no row is called so"


def test_a_target_that_refuses_kernels_without_a_row_is_asked_all_the_same():
    target = load_target(BARE + "defaults: {on_no_kernel: error}\n")
    assert not coverage(read_onnx(DIGITS), target).complete


RECURRENT = """
x : f32[3,1,4]
w = constant : f32[1,16,4] {-0.5, 0.5}
r = constant : f32[1,16,4] {-0.5, 0.5}
u = constant : f32[1,4,4] {-0.5, 0.5}
h : f32[1,1,4]
c : f32[1,1,4]
a, b, d = LSTM(x, w, r, _, _, h, c) [hidden_size=4] : f32[3,1,1,4], f32[1,1,4], f32[1,1,4]
e = LSTM(x, w, r) [hidden_size=4] : f32[3,1,1,4]
f, g = RNN(x, u, u, _, _, h) [hidden_size=4] : f32[3,1,1,4], f32[1,1,4]
"""


def test_a_drafted_recurrent_row_has_classes_of_states_and_serves_every_form(tmp_path):
    target = load_target(BARE)
    found = coverage(read_model_text(RECURRENT, "m"), target)
    assert [(item.kernel, item.count) for item in found.missing] == [("LSTM", 2), ("RNN", 1)]
    assert found.missing[1].row == (
        "- {kernel: RNN, in: {x: {storage: i8}, w: {storage: i8, range: [-127, 127], symmetric: true}, "
        "r: {storage: i8, range: [-127, 127], symmetric: true}, b?: {storage: i32, symmetric: true}, "
        "h_in?: {storage: i8}}, out: {y?: {storage: i8}, h_out?: {storage: i8}}, rules: "
        "[{multiplier_accumulator_scale: {port: b, of: [x, w]}}, {same_scale: [h_in, y, h_out]}]}"
    )
    (tmp_path / "bare.yaml").write_text(BARE)
    (tmp_path / "drafted.yaml").write_text(drafted(load_target(tmp_path / "bare.yaml"), found.missing))
    served = load_target(tmp_path / "drafted.yaml")
    assert coverage(read_model_text(RECURRENT, "m"), served).complete
    assert [rule.args["ports"] for rule in served.rows["LSTM"][0].rules[1:]] == [
        ("h_in", "y", "h_out"),
        ("c_in", "c_out"),
    ]
