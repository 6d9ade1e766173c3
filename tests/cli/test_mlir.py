"""The verb `mlir`: what it prints where, and how it ends."""

import pytest

Q = "!quant.uniform<i8:f32, 0.5>"
GOOD = f"func.func @f(%x: f32) -> {Q} {{\n  %0 = quant.qcast %x : f32 to {Q}\n  return %0 : {Q}\n}}\n"
BAD = "\n!q = !quant.uniform<i8:f32, 0.5 1>\n"
ERROR = "7:33: expected '>', found '1>' in '!quant.uniform<i8:f32, 0.5 1>'"
ODD = GOOD.replace("0.5>", "0.5:200>")


def test_a_module_is_printed(qplan, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(GOOD)
    answer = qplan("mlir", path)
    assert (answer.code, answer.err) == (0, "")
    assert (
        answer.out
        == "builtin.module {\n"
        + "".join(f"  {line}\n" for line in GOOD.replace("  return", "  func.return").splitlines())
        + "}\n"
    )
    assert qplan("mlir", "-", stdin=answer.out.encode()).out == answer.out


def test_each_part_is_its_module_or_its_error(qplan):
    source = f"{GOOD}// -----\n{BAD}// -----\n{ODD}"
    answer = qplan("mlir", "-", "--split-input-file", stdin=source.encode())
    assert answer.code == 1
    first, second, third = answer.out.split("// -----\n")
    assert first.startswith("builtin.module")
    assert second == f"// error: {ERROR}\n"
    assert "0.5:200" in third
    assert answer.err.splitlines() == [
        f"qplan: error: {ERROR}",
        (
            f"qplan: warning: 10:3: zero point 200 of {Q.replace('0.5', '0.5:200')} "
            "lies outside its storage range -128:127"
        ),
    ]
    parts = qplan("mlir", "-", "--split-input-file", "--json", stdin=source.encode()).json["parts"]
    assert [part["line"] for part in parts] == [1, 6, 9]
    assert [part["error"] for part in parts] == ["", ERROR, ""]
    assert [part["text"] for part in parts] == [first, "", third]
    assert [len(part["warnings"]) for part in parts] == [0, 0, 1]


def test_passes_run(qplan):
    lowered = qplan("mlir", "-", "--pass", "lower-quant-ops", stdin=GOOD.encode()).out
    assert "arith.minnumf" in lowered
    truncating = qplan("mlir", "-", "--pass", "lower-quant-ops", "--truncating", stdin=GOOD.encode()).out
    assert "arith.minnumf" not in truncating
    both = ("--pass", "lower-quant-ops", "--pass", "strip-func-quant-types")
    assert "-> i8" in qplan("mlir", "-", *both, stdin=GOOD.encode()).out


@pytest.mark.parametrize(
    ("arguments", "stdin", "error"),
    [
        (("-", "--pass", "lower"), GOOD.encode(), "unknown pass 'lower'"),
        (("-",), b"\xff", "the module '-' is no text: byte 0 is no UTF-8"),
        (("no.mlir",), b"", "cannot read the module 'no.mlir'"),
        (("-",), b'{"format": "qplan.annotated/9"}', "format 'qplan.annotated/9' is unknown here"),
        (("-", "--to", "onnx"), GOOD.encode(), "Invalid value for '--to'"),
    ],
)
def test_bad_input_is_two(qplan, arguments, stdin, error):
    answer = qplan("mlir", *arguments, stdin=stdin)
    assert (answer.code, answer.out) == (2, "")
    assert error in answer.err


def test_what_is_no_model_has_no_json(qplan):
    answer = qplan("mlir", "-", "--to", "json", stdin=GOOD.encode())
    assert answer.code == 1
    assert "1:1: value 'x' has type f32; only tensors are known here" in answer.err


def test_a_plan_comes_back_the_same(qplan, planned, tmp_path):
    printed = qplan("mlir", planned / "plan.mlir")
    assert (printed.code, printed.err) == (0, "")
    again = tmp_path / "again.mlir"
    again.write_text(printed.out)
    assert qplan("mlir", again).out == printed.out
    both = [qplan("mlir", path, "--to", "json").out for path in (planned / "plan.mlir", again)]
    assert both[0] == both[1]


def test_the_casts_of_a_plan_go_into_its_module(qplan, tmp_path):
    module = tmp_path / "m.mlir"
    q = "!quant.calibrated<f32<-1.0:1.0>>"
    module.write_text(
        f"func.func @main(%x: tensor<4x{q}>) -> tensor<4xf32> {{ // mine\n"
        f'  %y = "onnx.Relu"(%x) {{a = 1 : i32}} : (tensor<4x{q}>) -> tensor<4xf32>\n'
        "  return %y : tensor<4xf32>\n}\n"
    )
    folder, out = tmp_path / "out", tmp_path / "cast.mlir"
    assert qplan("plan", module, "--target", "litert-int8", "-o", folder).code == 0
    answer = qplan("mlir", module, "--casts", folder, "-o", out)
    assert (answer.code, answer.err) == (0, "")
    text = out.read_text()
    assert qplan("mlir", module, "--casts", folder).out == text
    assert '"onnx.Relu"' in text
    assert "// mine\n" in text
    both = ("--split-input-file", "--casts", folder)
    assert "--casts is for one module" in qplan("mlir", module, *both).err
    before = out.read_text()
    assert qplan("mlir", "-", "-o", out, stdin=BAD.encode()).code == 1
    assert out.read_text() == before


def test_pipelines_as_mlir_opt_takes_them(qplan, tmp_path):
    kind = "!quant.uniform<i8:f32, 2.0:10>"
    path, out = tmp_path / "m.mlir", tmp_path / "o.mlir"
    path.write_text(
        f"""func.func @main(%v: f32) -> ({kind}, {kind}) {{
  %a = quant.qcast %v : f32 to {kind}
  %b = quant.qcast %v : f32 to {kind}
  return %a, %b : {kind}, {kind}
}}
""",
        encoding="utf-8",
    )
    pipeline = "builtin.module(canonicalize{test-convergence}, func.func(cse))"
    assert qplan("mlir", path, "--pass-pipeline", pipeline, "-o", out).code == 0
    assert out.read_text(encoding="utf-8").count("quant.qcast") == 1
    both = qplan("mlir", path, "--pass-pipeline", "builtin.module(cse)", "--pass", "cse")
    assert both.code == 2
    assert "--pass beside --pass-pipeline" in both.err
    assert qplan("mlir", path, "--pass-pipeline", "cse").code == 2
