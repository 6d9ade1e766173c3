"""Tests inside target files: the shipped ones hold, and a wrong expectation is told in one sentence."""

from pathlib import Path

import pytest

from planner.errors import UnknownName
from planner.target.load import load_target, target_ids
from planner.target_tests.cases import in_todays_words, run_cases

DEMO = Path(__file__).parents[1] / "target" / "demo.yaml"
HEAD = """
apiVersion: planner/v1
kind: Target
id: tiny
version: 1.0.0
types: {a8: {storage: i8}, w8: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true}}
defaults: {port: a8}
kernels:
  - {kernel: MaxPool, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
  - {kernel: Add, in: {a: a8, b: a8}, out: {y: a8}, computes: true, rules: [{same_scale: [a, b, y]}]}
  - {kernel: Conv, in: {x: a8, w: w8}, out: {y: a8}, axis: {w: out_channel}, when: {w: constant}}
"""
MODEL = """
      a = MaxPool(in0) [kernel_shape=[1]] : f32[1,1,8] {-1, 1}
      b = MaxPool(in1) [kernel_shape=[1]] : f32[1,1,8] !quant.uniform<i8:f32, 0.5>
      c = Add(a, b) : f32[1,1,8] {-2, 2}
      y = Erf(c) : f32[1,1,8] {-1, 1}
"""


def problems(expect, model=MODEL, head=HEAD):
    text = f"{head}tests:\n  - name: it\n    model: |{model}    expect: {expect}\n"
    (result,) = run_cases(load_target(text))
    assert result.source == "text:13"
    return list(result.problems)


@pytest.mark.parametrize("name", target_ids())
def test_the_tests_of_a_shipped_target_hold(name):
    results = run_cases(load_target(name))
    assert results
    assert [(result.source, result.name, result.problems) for result in results if not result.ok] == []


def test_the_block_of_the_reference_holds():
    functions = {"my_targets:npu_special": lambda *_: {}}
    results = run_cases(load_target(DEMO, functions))
    assert [(result.name, result.ok) for result in results] == [("concat unifies its inputs", True)]


@pytest.mark.parametrize(
    "expect",
    [
        "{}",
        "{kernels: {MaxPool: 2, Add: 1}, floats: {Erf: 1}, fully_quantized: false}",
        "{rescales: 1}",
        "{rescales: {requantize: 1, dequantize: 1, clamp: 0}}",
        "{same_scale: [[a, c, 'c.in[1]']]}",
        "{types: {b: '!quant.uniform<i8:f32, 0.5>', y: float, a: i8, c: {zero_point: -1, per: tensor}}}",
        "{types: {b: {scale: 1/2}}}",
        "{reasons: {y: no row is called so}}",
    ],
)
def test_what_holds(expect):
    assert problems(expect) == []


ERF = "Erf 'y' is in float: no fusion of 'tiny' names Erf and no row is called so"


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("{kernels: {MaxPool: 3}}", f"kernels: expected MaxPool: 3, found MaxPool: 2, Add: 1; {ERF}"),
        ("{floats: {}}", f"floats: expected none, found Erf: 1; {ERF}"),
        ("{types: {b: i16}}", "types: b: expected i16, found !quant.uniform<i8:f32, 0.5>"),
        ("{types: {b: {scale: 1/4}}}", "types: b: expected scale 1/4, found !quant.uniform<i8:f32, 0.5>"),
        ("{types: {b: {per: axis}}}", "types: b: expected per axis, found !quant.uniform<i8:f32, 0.5>"),
        ("{types: {y: i8}}", "types: y: expected i8, found float"),
        ("{types: {x: i8}}", "types: unknown value or port 'x' "),
        ("{same_scale: [[b, y]]}", "same_scale: b is !quant.uniform<i8:f32, 0.5>, y is float"),
        ("{rescales: 0}", "rescales: expected 0, found 1 ("),
        ("{rescales: {clamp: 1}}", "rescales: expected 1 of kind clamp, found 0 ("),
        ("{reasons: {c: no}}", "reasons: c runs by the row Add@10"),
        ("{reasons: {y: group}}", "reasons: y: expected 'group', found \"no fusion of"),
        ("{fully_quantized: true}", "fully_quantized: expected true, found false"),
        ("{error: no row}", "error: expected 'no row', the model is planned"),
    ],
)
def test_what_does_not_hold(expect, message):
    (problem,) = problems(expect)
    assert problem.startswith(message)


PRODUCT = """
      y = Gemm(x, w) : f32[2,2] {-1, 1}
      x : f32[2,2] {-1, 1}
      w = constant : f32[2,2] {-1, 1}FACT
"""


@pytest.mark.parametrize(
    ("when", "fact", "text"),
    [
        ("{x.rank: 3}", "", "x.rank is 2, wanted 3"),
        ("{holds: 'x.shape[0] == 4'}", "", "wanted x.shape[0] (2) == 4"),
        ("{holds: 'x.shape[0] == 4'}", "", "text:12: wanted x.shape[0] (2) == 4"),
        ("{asked: true}", "", "it serves only kernels that are asked to run so"),
        ("{}", " !quant.none", "port w ('w') is to stay float (!quant.none)"),
        ("{}", " !quant.uniform<i8<-127:127>:f32:0, {0.5, 0.5}>", "port w ('w') is pinned along axis 0, not"),
    ],
)
def test_reasons_in_the_words_of_earlier_versions(when, fact, text):
    row = "{kernel: Gemm, in: {x: a8, w: w8}, out: {y: a8}, axis: {w: 1}, when: WHEN}".replace("WHEN", when)
    expect = '{reasons: {y: "TEXT"}}'.replace("TEXT", text)
    model = PRODUCT.replace("FACT", fact)
    target = load_target(f"{HEAD}  - {row}\ntests:\n  - name: it\n    model: |{model}    expect: {expect}\n")
    assert [result.problems for result in run_cases(target)] == [()]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (
            "no row: npu.yaml:3: wanted a == 1; npu.yaml:4: x is 2, wanted 3",
            "no row: npu.yaml:3: requires a == 1; npu.yaml:4: x is 2, must be 3",
        ),
        (
            "i32 holds 9, and 'b' is pinned, and 'w' is pinned",
            "i32 holds 9, and 'b' has a fixed type, and 'w' has a fixed type",
        ),
        ("'b' is pinned to i8, but", "'b' has the fixed type i8, but"),
        (
            "y.in[2] is pinned to i8, and derived as i16",
            "y.in[2] has the fixed type i8, and is derived as i16",
        ),
        (
            "('w') is pinned to blocks of which the last is shorter",
            "('w') has a fixed type whose last block is shorter",
        ),
        ("(drop the pin: the scale is derived)", "(drop the fixed type: the scale is derived)"),
        ("'x' leaves 12 dB at its readers", "'x' leaves 12 dB at its consumers"),
        ("x.rank is 2, must be 3", "x.rank is 2, must be 3"),
    ],
)
def test_earlier_words_are_todays(then, now):
    assert in_todays_words(then) == now


def test_an_expected_conflict():
    head = HEAD.replace("defaults: {port: a8}", "defaults: {port: a8, on_no_kernel: error}")
    assert problems("{error: no row of tiny serves Erf}", head=head) == []
    (problem,) = problems("{kernels: {}}", head=head)
    assert problem.startswith("there is no plan: no row of tiny serves Erf at 'y'")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("y = MaxPool(x) : f32[1,1,8] {-1, 1}", "MaxPool at 'y' is refused by onnx: Required attribute"),
        ("y = Add(a, b, c) : f32[8] {-1, 1}", "Add at 'y' is refused by onnx: Node(y) with schema(::Add:14)"),
        ("y = Concat(a, b) : f32[16] {-1, 1}", "Concat at 'y' is refused by onnx: Required attribute 'axis'"),
        ("y = Relu(x) [alpha=1.0] : f32[8] {0, 1}", "Relu at 'y' is refused by onnx: Unrecognized attribute"),
        (
            "a : f32[4] {-1, 1}\nb : f32[3] {-1, 1}\ny = Add(a, b) : f32[4] {-2, 2}",
            "Add at 'y' is refused by onnx: Incompatible dimensions",
        ),
        (
            "x : f32[8,8] {-1, 1}\na = MatMul(x, x) : f32[8,4] {-1, 1}\ny = Relu(a) : f32[8,4] {0, 1}",
            "value 'a' is declared with the shape [8, 4], and is computed by MatMul at 'a' with [8, 8]",
        ),
        (
            "x : f32[8] {-1, 1}\ny = Shape(x) : f32[1] {0, 8}",
            "output 'y' is declared with the element type f32",
        ),
        ("w = constant : f32[4,3,3] {-1, 1}\ny = Conv(x, w) : f32[1,2,6] {-1, 1}", "Conv at 'y': its input"),
    ],
)
def test_a_model_that_onnx_would_not_take(model, message):
    lines = "".join(f"\n      {line}" for line in model.splitlines())
    (problem,) = problems("{}", f"{lines}\n")
    assert problem.startswith(f"model: {message}")


@pytest.mark.parametrize(
    "model",
    [
        "y = Reshape(x, [2, -1]) : f32[2,?] {-1, 1}",
        "y = Reshape(x, [2, -1]) : f32 {-1, 1}",
        "x : f32[N,8] {-1, 1}\ny = Relu(x) : f32[M,8] {0, 1}",
        "y = Warp(x) [depth=2] : f32[3] {-1, 1}\nz = Relu(y) : f32[3] {0, 1}",
        "y, z = Split(x, [3, 5]) : f32[3], f32[5]\nx : f32[8] {-1, 1}",
    ],
)
def test_what_is_unknown_or_the_targets_own_is_taken(model):
    lines = "".join(f"\n      {line}" for line in model.splitlines())
    assert problems("{}", f"{lines}\n") == []


def test_names_choose_tests():
    target = load_target("teaching-npu")
    assert [result.name for result in run_cases(target, ["concat*"])] == ["concat unifies its inputs"]
    with pytest.raises(UnknownName, match="unknown test 'conct unifies'"):
        run_cases(target, ["conct unifies"])
