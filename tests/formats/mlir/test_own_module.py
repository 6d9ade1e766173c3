"""The formats mlir and mlir-casts: the caller's module with the plan's types, the rest to the byte."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.cli.app import run
from planner.errors import UnsupportedExport
from planner.ir.graph import Constant
from tests.conftest import ROOT
from tests.formats.mlir.test_cast_module import MODULE, TARGETS, back, port_types, ranged
from tests.oracles.opt import TOOLS, parsed

FORMATS = ("mlir", "mlir-casts")
TYPE = re.compile(r"!quant\.uniform<(?:[^<>]|<[^<>]*>)*>")

LOOPS = """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %w = arith.constant dense<[[0.1, 0.2, 0.3, 0.4], [1.0, -1.0, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 2.0]]> : tensor<4x4xf32> // weights
  %a = "onnx.MatMul"(%x, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %l = scf.for %i = %c0 to %c1 step %c1 iter_args(%s = %a) -> (tensor<4x4xf32>) {
    %t = "onnx.Add"(%s, %a) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    scf.yield %t : tensor<4x4xf32>
  }
  %m = "onnx.Scan"(%l) ({
  ^bb0(%p: tensor<4x4xf32>):
    %t = "onnx.Add"(%p, %a) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    "my.yield"(%t) : (tensor<4x4xf32>) -> ()
  }) {k = 1 : i32} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = arith.addf %m, %a : tensor<4x4xf32> loc("here")
  %c = "onnx.MatMul"(%a, %w) {k = "(a, b) -> c"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>)
  %d = "onnx.Add"(%c, %e) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %d : tensor<4x4xf32>
}
"""  # noqa: E501 - lines of the module
LOOP_RANGES = {"x": (-1.0, 1.0), "a": (-3.0, 3.0), "c": (-5.0, 4.0), "d": (-9.0, 9.0), "here": (-4.0, 5.0)}


def without_types(text):
    """The text before: casts out, names of sources again, quantized element types float again."""
    return back(TYPE.sub("f32", text))


def shown(text):
    """The types of operands and results of each op in generic form, by the op's name."""
    found = re.findall(r'"([\w.]+)"\(%.*? : \((.*?)\) -> (.*)', text)
    return {name: (TYPE.findall(taken), TYPE.findall(given)) for name, taken, given in found}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_all_but_the_types_is_the_callers_to_the_byte(target, form):
    model = ranged(MODULE)
    plan = planner.plan(model, target)
    text = planner.export(model, plan, form).decode()
    assert text != MODULE
    assert without_types(text) == MODULE
    for tool in TOOLS:
        if tool == "tosa-opt":  # it was built without the quant dialect
            continue
        assert not (upstream := parsed(tool, text)).startswith("ERROR"), f"{tool}: {upstream}"


@pytest.mark.parametrize("target", TARGETS)
def test_ops_have_the_types_of_their_kernels(target):
    """Each port of a kernel in generic form is an element type; read again, the module pins them."""
    model = ranged(MODULE)
    plan = planner.plan(model, target)
    text = planner.export(model, plan, "mlir").decode()
    types = shown(text)
    ops = {region.name: region.ops for region in plan.graph.regions}
    for kernel in plan.kernels_in_order:
        if len(ops[kernel.name]) == 1:
            sides = ([str(p.type) for p in ports if p.type] for ports in (kernel.inputs, kernel.outputs))
            kind = ops[kernel.name][0].type
            assert types[kind.replace("::", ".") if "::" in kind else f"onnx.{kind}"] == tuple(sides)
    assert any(given for _, given in types.values())
    again = port_types(planner.plan(planner.load_model(text.encode(), format="mlir"), target))
    for address, kind in port_types(plan).items():
        assert again[address] == kind


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_ops_with_regions_are_left_alone(target, form):
    """They and what they hold read reals; their text, and an op of a dialect without such types, stays."""
    model = ranged(LOOPS, LOOP_RANGES)
    assert [op.type for op in model.ops if "::" in op.type] == ["scf::for", "onnx::Scan", "arith::addf"]
    assert [note.partition(": ")[0] for note in model.notes] == ["6:3", "10:3"]
    plan = planner.plan(model, target)
    assert not plan.fully_quantized
    text = planner.export(model, plan, form).decode()
    assert without_types(text) == LOOPS
    assert "quant.qcast %x :" in text
    assert text.count('"onnx.Add"(%s, %a_d)') == 1
    assert not (upstream := parsed("torch-mlir-opt", text)).startswith("ERROR"), upstream
    if form == "mlir":
        assert "%e = arith.addf %m, %a_d : tensor<4x4xf32>" in text
        assert len(shown(text)["onnx.MatMul"][0]) == 2


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_that_were_changed_are_written(form):
    """Corrected biases and conditioned weights are in the constants; the rest of them stays."""
    model = ranged(LOOPS, LOOP_RANGES)
    array = model.constants["w"].array + np.float32(0.25)
    changed = replace(model, constants={"w": Constant(array)})
    text = planner.export(changed, planner.plan(changed, "litert-int8"), form).decode()
    (line,) = [line for line in text.splitlines() if "arith.constant dense" in line]
    assert line.endswith(" : tensor<4x4xf32> // weights")
    again = planner.load_model(text.encode(), format="mlir")
    np.testing.assert_array_equal(again.constants["w"].array, array)


def test_a_model_of_another_source_is_refused():
    model = planner.load_model(ROOT / "examples" / "digits" / "digits.onnx")
    plan = planner.plan(model, "litert-int8")
    for form in FORMATS:  # of an ONNX file
        with pytest.raises(UnsupportedExport, match="was read from no module of plain ops"):
            planner.export(model, plan, form)
    program = (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '%y = "stablehlo.abs"(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %y : tensor<4xf32>\n}'
    )
    model = planner.load_model(program.encode(), format="mlir")
    with pytest.raises(UnsupportedExport, match="mlir: a StableHLO program is planned as other ops"):
        planner.export(model, planner.plan(model, "stablehlo"), "mlir")


def test_the_command_writes_both(tmp_path):
    (tmp_path / "m.mlir").write_text(LOOPS)
    (tmp_path / "a.json").write_text(
        json.dumps(
            {
                "format": "qplan.annotations/1",
                "values": {n: f"!quant.calibrated<f32<{lo}:{hi}>>" for n, (lo, hi) in LOOP_RANGES.items()},
            }
        )
    )
    command = [
        "plan",
        str(tmp_path / "m.mlir"),
        "-t",
        "litert-int8",
        "--annotations",
        str(tmp_path / "a.json"),
    ]
    out = tmp_path / "out"
    assert run([*command, "--format", "mlir", "--format", "mlir-casts", "-o", str(out)]) == 0
    assert without_types((out / "mlir.mlir").read_text()) == LOOPS
    assert without_types((out / "mlir-casts.mlir").read_text()) == LOOPS
    later = tmp_path / "later.mlir"
    told = ["export", str(out / "plan.json"), "--model", str(tmp_path / "m.mlir"), "--format", "mlir"]
    assert run([*told, "-o", str(later)]) == 0
    assert later.read_text() == (out / "mlir.mlir").read_text()
