"""A plan as casts in the module it was made of: the caller's text stays, the types are those of the plan."""

import re

import pytest

import planner
from planner.errors import ModelError, PlanFormatError
from planner.formats.mlir.module import write_mlir
from planner.plans.read_mlir import cast_module
from tests.conftest import ROOT
from tests.oracles.opt import parsed

TARGETS = ("litert-int8", "onnxruntime-cpu", "tosa-int8", "stablehlo", "qnn-htp")
CAST = re.compile(r"%[\w.$-]+ = quant\.[qd]cast %.* to .*")

MODULE = """// my module
#here = loc("model.py":3:4)
module @mine attributes {some.text = "x %x"} {
  func.func private @other(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32> // stays
  }
  func.func @main(%x: tensor<4x8xf32> {my.arg = 1 : i32}, %u: tensor<4x8xf32>) -> (tensor<4x8xf32> {my.res}, tensor<4x4xf32>) {
    %w = arith.constant dense<0.05> : tensor<8x4xf32>   // weights %x
    %0 = "onnx.Relu"(%x) {note = "%x", one = 1 : i32, many = array<i32: 1, 2>} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc(#here)
    %s = "onnx.Add"(%0, %u) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %1:2 = "my.pair"(%s, %0) <{kept = 3 : i7}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
    %c = "onnx.Concat"(%0, %1#1) {axis = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
    %c_q = "my.cut"(%c) : (tensor<4x16xf32>) -> tensor<4x8xf32>
    %y = "onnx.MatMul"(%s, %w) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    return %c_q, %y : tensor<4x8xf32>, tensor<4x4xf32>
  }
}
"""  # noqa: E501 - lines of the module
RANGES = {"x": (-1.0, 2.0), "u": (-1.0, 1.0), "s": (-2.0, 3.0), "y": (-0.5, 4.0), "c": (-3.0, 2.0)}


def ranged(text, names=None):
    """A model of a module, with ranges."""
    model = planner.load_model(text.encode(), format="mlir")
    told = {name: f"!quant.calibrated<f32<{lo}:{hi}>>" for name, (lo, hi) in (names or RANGES).items()}
    return planner.annotate(model, annotations={"format": "qplan.annotations/1", "values": told})


def back(text):
    """The text before the casts: their lines out, each name of a cast its source's again."""
    sources = dict(re.findall(r"(%[\w.$-]+) = quant\.[qd]cast (%[\w.$#-]+) ", text))
    kept = [line for line in text.splitlines(keepends=True) if not CAST.fullmatch(line.strip())]

    def source(match):
        name = match[0]
        while name in sources:
            name = sources[name]
        return name

    return re.sub(r"%[\w$.-]+", source, "".join(kept))


def port_types(plan):
    return {
        port.address: str(port.type)
        for kernel in plan.kernels_in_order
        for port in (*kernel.inputs, *kernel.outputs)
        if port.type is not None
    }


def pinned(text):
    """What the casts of a module say, by what they read."""
    return set(re.findall(r"to tensor<(?:\d+x)+(!quant\..*)>", text))


@pytest.mark.parametrize("target", TARGETS)
def test_all_but_the_casts_is_the_callers_to_the_byte(target):
    model = ranged(MODULE)
    plan = planner.plan(model, target)
    found = cast_module(MODULE, plan)
    assert found.left == ()
    assert found.text.count("quant.qcast") >= 4
    assert back(found.text) == MODULE
    assert pinned(found.text) == {
        kind for address, kind in port_types(plan).items() if "in[" in address or "quant" in kind
    } | {str(value.type) for value in plan.values.values() if value.type is not None} - {"None"}
    assert not (upstream := parsed("torch-mlir-opt", found.text)).startswith("ERROR"), upstream


@pytest.mark.parametrize("target", TARGETS)
def test_the_module_states_the_plan(target):
    """Read as a model, its values are pinned to the plan's types, and planned again its ports have them."""
    plan = planner.plan(ranged(MODULE), target)
    text = cast_module(MODULE, plan).text
    model = planner.load_model(text.encode(), format="mlir")
    for name, value in plan.values.items():
        if value.type is not None and name in model.values:
            assert [str(fact) for fact in model.values[name].facts] == [str(value.type)]
    again = port_types(planner.plan(model, target))
    for address, kind in port_types(plan).items():
        assert again[address] == kind


@pytest.mark.parametrize("target", TARGETS)
def test_a_real_network(target):
    """The digits network as plain ops: every port is shown, and upstream's verifier takes every cast."""
    folder = ROOT / "examples" / "digits"
    text = write_mlir(planner.load_model(folder / "digits.onnx"))
    model = planner.load_model(text.encode(), format="mlir")
    model = planner.annotate(model, stats=planner.calibrate(model, folder / "calibration.npz"))
    plan = planner.plan(model, target)
    found = cast_module(text, plan)
    assert found.left == ()
    assert back(found.text) == text
    assert not (upstream := parsed("torch-mlir-opt", found.text)).startswith("ERROR"), upstream


def test_calls_are_left_alone_and_named():
    text = """func.func private @f(%p: tensor<4xf32>) -> tensor<4xf32> {
  %r = "onnx.Relu"(%p) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %c = "onnx.Add"(%b, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}
"""
    model = ranged(text, {"x": (-1.0, 1.0), "a": (0.0, 1.0), "r": (0.0, 1.0), "c": (0.0, 2.0)})
    assert [op.type for op in model.ops] == ["Relu", "Relu", "Add"]
    plan = planner.plan(model, "litert-int8")
    assert plan.fully_quantized
    found = cast_module(text, plan)
    assert found.left == ("r.in[0]",)
    assert back(found.text) == text
    assert not (upstream := parsed("torch-mlir-opt", found.text)).startswith("ERROR"), upstream


def test_a_function_called_twice_is_planned_twice():
    text = """func.func private @f(%p: tensor<4xf32>) -> tensor<4xf32> {
  %r = "onnx.Relu"(%p) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = "onnx.Neg"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %c = call @f(%b) : (tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}
"""
    model = planner.load_model(text.encode(), format="mlir")
    assert [(op.type, op.inputs, op.outputs) for op in model.ops] == [
        ("Relu", ("x",), ("r",)),
        ("Neg", ("r",), ("b",)),
        ("Relu", ("b",), ("r#1",)),
    ]
    looped = text.replace('"onnx.Relu"(%p)', "call @f(%p)")
    with pytest.raises(ModelError, match="2:3: a call of @f, which calls itself"):
        planner.load_model(looped.encode(), format="mlir")


def test_casts_that_the_caller_wrote_stay():
    kind = "!quant.uniform<i8:f32, 0.05:3>"
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %q = quant.qcast %x : tensor<4xf32> to tensor<4x{kind}>
  %d = quant.dcast %q : tensor<4x{kind}> to tensor<4xf32>
  %y = "onnx.Relu"(%d) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}}
"""
    plan = planner.plan(ranged(text, {"y": (-1.0, 1.0)}), "litert-int8")
    found = cast_module(text, plan).text
    assert all(line in found for line in text.splitlines()[1:3])
    assert found.count("quant.qcast %x :") == 1
    assert "0.0500000" not in found
    assert not (upstream := parsed("torch-mlir-opt", found)).startswith("ERROR"), upstream


def test_what_has_no_cast_is_refused():
    plan = planner.plan(ranged(MODULE), "litert-int8")
    with pytest.raises(PlanFormatError, match="the plan is of another model: it has a value 'x'"):
        cast_module("func.func @main(%z: tensor<4xf32>) -> tensor<4xf32> { return %z : tensor<4xf32> }", plan)
    with pytest.raises(ModelError, match=r"a module of qplan\.region ops holds types in its specs"):
        cast_module(plan.to_mlir(), plan)
    program = (
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '%y = "stablehlo.abs"(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %y : tensor<4xf32>\n}'
    )
    with pytest.raises(ModelError, match="a StableHLO program is planned as other ops"):
        cast_module(program, plan)
    with pytest.raises(ModelError, match="1:1: a model is one public func"):
        cast_module("", plan)


@pytest.mark.parametrize("target", TARGETS)
def test_types_as_attributes_change_nothing_else(target):
    """Each op of a kernel names its ports' types; without these the text is the caller's to the byte."""
    plan = planner.plan(ranged(MODULE), target)
    found = cast_module(MODULE, plan, "attributes")
    told = re.compile(r"(?:, | \{)?qplan\.in = \[(.*?)\], qplan\.out = \[(.*?)\](\})?(?= :|\})")
    lines = found.text.splitlines()
    for line, before in zip(lines, MODULE.splitlines(), strict=True):
        match = told.search(line)
        bare = line if match is None else line.replace(match[0], "")
        assert bare == before or bare.replace(" {}", "") == before or bare == before.replace(" {}", "")
    shown = {kind for line in lines for kind in re.findall(r"!q(?:uant|plan)\.\w+<.*?>(?=[,\]])", line)}
    assert shown
    assert shown == set(port_types(plan).values())
    assert found.left == ()
    upstream = parsed("torch-mlir-opt", found.text)
    assert not upstream.startswith("ERROR"), upstream
    assert upstream.count("qplan.in") == found.text.count("qplan.in") > 1


def test_attributes_join_those_that_are_there():
    kind = "!quant.uniform<i8:f32, 0.05:3>"
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %q = quant.qcast %x : tensor<4xf32> to tensor<4x{kind}>
  %d = quant.dcast %q : tensor<4x{kind}> to tensor<4xf32>
  %a = "onnx.Relu"(%d) : (tensor<4xf32>) -> tensor<4xf32>
  %b = "onnx.Relu"(%a) {{}} : (tensor<4xf32>) -> tensor<4xf32> loc("a":1:2)
  %c = "onnx.Add"(%b, %d) {{a = [{{b = 1}}]}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}}
"""
    plan = planner.plan(ranged(text, {"c": (-1.0, 1.0)}), "litert-int8")
    found = cast_module(text, plan, "attributes").text
    assert f'"onnx.Relu"(%d) {{qplan.in = [{kind}], qplan.out = [{kind}]}} : (' in found
    assert (
        f"(%a) {{qplan.in = [{kind}], qplan.out = [{kind}]}} : (tensor<4xf32>) -> tensor<4xf32> loc(" in found
    )
    assert f"{{a = [{{b = 1}}], qplan.in = [{kind}, {kind}], qplan.out = [!quant.uniform<" in found


def test_a_module_with_casts_is_exported_twice_as_the_same_text():
    """Readers in front of the caller's cast get one of their own; those behind it read the caller's."""
    kind = "!quant.uniform<i8:f32, 0.25:-128>"
    text = f"""func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
  %a = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %q = quant.qcast %x : tensor<4xf32> to tensor<4x{kind}>
  %d = "quant.dcast"(%q) : (tensor<4x{kind}>) -> tensor<4xf32>
  %y = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %z = "onnx.Relu"(%d) : (tensor<4xf32>) -> tensor<4xf32>
  %s = "onnx.Add"(%a, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %s, %z : tensor<4xf32>, tensor<4xf32>
}}
"""

    def exported(module):
        graph = planner.load_model(module.encode(), format="mlir")
        return cast_module(module, planner.plan(graph, "litert-int8")).text

    first = exported(text)
    assert re.search(r'%a = "onnx.Relu"\(%x_d\d?\)', first)
    assert '%y = "onnx.Relu"(%d)' in first
    assert exported(first) == first


@pytest.mark.parametrize("target", ["tosa-int8", "tensorrt-int8", "hls4ml-fpga", "litert-int8"])
@pytest.mark.parametrize("form", ["casts", "types"])
def test_a_second_cast_of_a_value_is_exported_without_a_pair_of_its_own(target, form):
    """Its kernel computes the type that it casts to; the module does not grow from one export to the next."""
    text = """func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.25:3>>
  %d = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.25:3>> to tensor<4xf32>
  %q2 = quant.qcast %d : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.05>>
  %d2 = quant.dcast %q2 : tensor<4x!quant.uniform<i8:f32, 0.05>> to tensor<4xf32>
  return %d, %d2 : tensor<4xf32>, tensor<4xf32>
}
"""

    def exported(module):
        graph = planner.load_model(module.encode(), format="mlir")
        return cast_module(module, planner.plan(graph, target), form).text

    first = exported(text)
    assert first.count("0.05") == text.count("0.05"), first
    assert exported(first) == first
