"""Bytecode, portable artifacts and files of jax.export, in and out; modules run as they are written."""

import json
import subprocess
import sys

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.formats.stablehlo.identifier import MAGIC, is_serialized, payload
from planner.formats.stablehlo.reader.custom_form import is_available
from planner.formats.stablehlo.reader.serialized import serialize, serialized_text
from tests.oracles.hlo import JAX, ROOT, TO_QDQ, evaluated

PROGRAM = """
!x = !quant.uniform<i8:f32, 0.5:-3>
!w = !quant.uniform<i8<-127:127>:f32:1, {0.25, 0.125, 1.0}>
!y = !quant.uniform<i8:f32, 1.5:7>
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.uniform_quantize"(%x) : (tensor<2x4xf32>) -> tensor<2x4x!x>
  %w = "stablehlo.constant"() <{
    value = dense<[[1, 2, -3], [4, 5, 6], [7, 8, 9], [-127, 127, 0]]> : tensor<4x3xi8>
  }> : () -> tensor<4x3x!w>
  %1 = "stablehlo.dot_general"(%0, %w) <{
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>
  }> : (tensor<2x4x!x>, tensor<4x3x!w>) -> tensor<2x3x!y>
  %2 = "stablehlo.add"(%1, %1) : (tensor<2x3x!y>, tensor<2x3x!y>) -> tensor<2x3x!y>
  %3 = "stablehlo.uniform_dequantize"(%2) : (tensor<2x3x!y>) -> tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}
"""
# Runs where jaxlib is: the planner of here, beside the packages of the oracle.
SCRIPT = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[1])
import planner
from planner.cli.app import run
from planner.formats.stablehlo.reader.serialized import serialize
folder, program = Path(sys.argv[2]), sys.stdin.read()
text = folder / "m.mlir"
text.write_text(program)
wanted = planner.load_model(text)
found = {}
def same(model):
    ops = [op.type for op in model.ops] == [op.type for op in wanted.ops]
    facts = [[str(f) for f in v.facts] for v in model.values.values() if v.facts]
    return ops and facts == [[str(f) for f in v.facts] for v in wanted.values.values() if v.facts]
for form in ("mlirbc", "vhlo"):
    path = folder / f"{form}.mlirbc"
    found[f"{form} code"] = run(["mlir", str(text), "--to", form, "-o", str(path)])
    found[form] = same(planner.load_model(path)) and same(planner.load_model(path.read_bytes()))
    found[f"{form} read"] = run(["mlir", str(path), "-o", str(folder / "again.mlir")])
    found[f"{form} again"] = same(planner.load_model(folder / "again.mlir"))
found["versions"] = [serialize(program, "vhlo", version=v)[:24].hex() for v in ("", "1.0.0")]
try:
    serialize("func.func @f() { nothing }", "vhlo")
except planner.PlannerError as error:
    found["error"] = error.message
import jax, jax.numpy as jnp, jax.export
shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 3), (3, 4))]
exported = jax.export.export(jax.jit(lambda x, w: jnp.tanh(x @ w)))(*shapes)
file = folder / "f.jaxexport"
file.write_bytes(exported.serialize())
kinds = [[op.type for op in planner.load_model(source).ops] for source in (file, file.read_bytes(), exported)]
found["jax.export"] = kinds
print(json.dumps(found))
"""


def test_files_in_and_out_through_jaxlib(tmp_path):
    if not JAX.exists():
        pytest.skip("no .oracles/jax: run make oracles")
    packages = next((JAX.parents[1] / "lib").glob("python3*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, packages, tmp_path],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for form in ("mlirbc", "vhlo"):
        assert [found[f"{form} code"], found[f"{form} read"]] == [0, 0]
        assert found[form]
        assert found[f"{form} again"]
    assert all(bytes.fromhex(text).startswith(MAGIC) for text in found["versions"])
    assert b"StableHLO_v1.0.0" in bytes.fromhex(found["versions"][1])
    assert found["error"].startswith("the module cannot be written as vhlo: ")
    assert found["jax.export"] == [["MatMul", "Tanh"]] * 3


def flatbuffer(vector, before=b""):
    """A root table whose one field is a vector of bytes, with others in front of it."""
    before += b"\0" * (-len(before) % 4)
    head = (16).to_bytes(4, "little") + b"\x06\0\x08\0\x04\0" + b"\0" * 6
    table = (12).to_bytes(4, "little") + (4 + len(before)).to_bytes(4, "little")
    return head + table + before + len(vector).to_bytes(4, "little") + vector


def test_bytes_are_told_without_jaxlib(tmp_path):
    code = MAGIC + b"\x0dStableHLO_v1.0.0\0rest"
    inside = flatbuffer(code) + b"behind"
    assert payload(code) == code
    assert payload(inside) == code
    assert payload(inside[: -len(b"behind") - 3]) is None  # cut off
    other = MAGIC + b"\x0dStableHLO_v1.0.0\0of its gradient"
    nested = flatbuffer(code, before=flatbuffer(other))  # jax.export puts gradients in front
    assert nested.index(other) < nested.index(code)
    assert payload(nested) == code
    assert payload(b"func.func @main() { return }") is None
    assert payload(b"") is None
    path = tmp_path / "m.onnx"
    path.write_bytes(code)
    assert not is_serialized(path)  # its suffix says what it is to be
    assert is_serialized(path.rename(tmp_path / "m.mlirbc"))
    assert not is_serialized(tmp_path / "nothing")


@pytest.mark.skipif(is_available(), reason="jaxlib is here")
def test_without_jaxlib_both_ways_say_what_to_install():
    with pytest.raises(ModelError, match="serialized MLIR is read through jaxlib"):
        planner.load_model(MAGIC + b"\x0dMLIR\0")
    with pytest.raises(ModelError, match="serialized MLIR is written through jaxlib"):
        serialize("module {}", "mlirbc")
    with pytest.raises(ModelError, match="no serialized MLIR"):
        serialized_text(b"nothing")


def test_run_gives_what_stablehlos_interpreter_gives(tmp_path):
    from planner.cli.app import run

    samples = np.random.default_rng(0).normal(0, 20, (5, 2, 4)).astype(np.float32)
    (tmp_path / "m.mlir").write_text(PROGRAM, encoding="utf-8")
    np.savez(tmp_path / "in.npz", x=samples)
    line = [
        "run",
        str(tmp_path / "m.mlir"),
        "--data",
        str(tmp_path / "in.npz"),
        "-o",
        str(tmp_path / "o.npz"),
    ]
    assert run(line) == 0
    with np.load(tmp_path / "o.npz") as file:
        (found,) = file.values()
    wanted = evaluated([(PROGRAM, [sample], TO_QDQ) for sample in samples])
    np.testing.assert_array_equal(found, np.stack([result for (result,) in wanted]))


def test_run_refuses_what_it_cannot_round(tmp_path, capsys):
    from planner.cli.app import run

    kind = "tensor<4x!quant.uniform<i8:f32:{0:2}, {0.5,0.25}>>"
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %q = quant.qcast %x : tensor<4xf32> to {kind}
  %d = quant.dcast %q : {kind} to tensor<4xf32>
  %y = "onnx.Relu"(%d) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}}
"""
    (tmp_path / "m.mlir").write_text(text, encoding="utf-8")
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 4), np.float32))
    assert run(["run", str(tmp_path / "m.mlir"), "--data", str(tmp_path / "in.npz")]) == 2
    assert "accepted: a type per tensor or per axis" in capsys.readouterr().err
