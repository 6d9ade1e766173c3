"""StableHLO programs as models: the same numbers, ops that fusions know, types as constraints, reasons."""

import json
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import planner
from planner.errors import ModelError
from planner.formats.mlir.module import read_mlir
from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.passes.tool import split
from planner.formats.onnx.write import write_graph
from planner.formats.stablehlo.reader.custom_form import is_available
from planner.formats.stablehlo.reader.regular_form import regular
from planner.interpreter.models import ModelRunner
from tests.oracles.hlo import PYTHON, ROOT, evaluated, printed

SOURCE = (Path(__file__).parent / "hlo_models.mlir").read_text(encoding="utf-8")
KINDS = {
    "dense": ["MatMul", "Add", "Clip"],
    "convolutions": ["Transpose", "Transpose", "Conv", "Transpose", "Conv", "Transpose"],
    "transposed_convolution": ["ConvTranspose"],
    "pools": [
        "Transpose", "MaxPool", "Transpose", "Transpose", "AveragePool", "Transpose",
        "ReduceMean", "ReduceMax", "Transpose",
    ],
    "softmax": ["Softmax"],
    "moved": ["Pad", "Slice", "Concat", "Slice", "Reshape", "Mul", "Expand"],
    "elements": [
        "Reshape", "Less", "Equal", "Not", "And", "Tanh", "Expand", "Sigmoid", "Where", "Clip", "Mul", "Abs",
        "Add", "Sqrt", "Reciprocal", "Cast",
    ],
    "batched": [
        "Transpose", "Transpose", "Reshape", "Reshape", "MatMul", "Slice", "Transpose", "Transpose", "MatMul",
        "Reshape", "Expand",
    ],
    "minus_one": ["Exp", "Sub", "Mul", "Add", "Log", "Neg", "Exp", "Sub"],
    "embedding": ["Reshape", "Clip", "Gather"],
    "windows": [
        "Reshape", "Cast", "Max", "Min", "Mul", "ReduceSum", "Reshape", "Add", "Gather",
        "Reshape", "Cast", "Reshape", "Max", "Min", "Mul", "ReduceSum", "Reshape", "Add", "Gather",
        "Transpose", "Reshape", "Gather",
    ],
    "odd_convolutions": [
        "Reshape", "Transpose", "Reshape", "Conv", "Reshape", "Pad", "Reshape", "Slice", "Conv", "Slice",
        "Slice", "Conv",
    ],
    "roots": [
        "Abs", "Pow", "Sign", "Mul", "Abs", "Floor", "Sub", "GreaterOrEqual", "Cast", "Add", "Sign", "Mul",
        "Cast", "Slice", "Sub", "Add", "Abs", "Floor", "Sub", "GreaterOrEqual", "Cast", "Add", "Sign", "Mul",
    ],
}  # fmt: skip
QUANTIZED = """
!x = !quant.uniform<i8:f32, 0.5:-3>
!w = !quant.uniform<i8<-127:127>:f32:1, {0.25, 0.125, 1.0}>
!y = !quant.uniform<i8:f32, 1.5:7>
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x3x!y> {
  %0 = "stablehlo.uniform_quantize"(%x) : (tensor<2x4xf32>) -> tensor<2x4x!x>
  %w = "stablehlo.constant"() <{
    value = dense<[[1, 2, -3], [4, 5, 6], [7, 8, 9], [-127, 127, 0]]> : tensor<4x3xi8>
  }> : () -> tensor<4x3x!w>
  %1 = "stablehlo.dot_general"(%0, %w) <{
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>
  }> : (tensor<2x4x!x>, tensor<4x3x!w>) -> tensor<2x3x!y>
  %2 = "stablehlo.add"(%1, %1) : (tensor<2x3x!y>, tensor<2x3x!y>) -> tensor<2x3x!y>
  return %2 : tensor<2x3x!y>
}
"""
OPAQUE = """
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.tanh"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = "stablehlo.negate"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = "stablehlo.map"(%0) ({
    ^bb0(%a: tensor<f32>):
      "some.reading"(%c) : (tensor<2x4xf32>) -> ()
      "stablehlo.return"(%a) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %2 = "stablehlo.add"(%1, %x) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}
"""


@pytest.fixture(scope="module")
def programs():
    """Generic text of each program by its function's name, and arguments."""
    found = {}
    for text in printed([text for _, text in split(SOURCE)]):
        parsed, _ = parse_text(text)
        main = next(iter(parsed.body.ops))
        random = np.random.default_rng(3)
        arrays = []
        for kind in main.function_type.inputs:
            if str(kind.element_type) == "i32":
                arrays.append(random.integers(-2, 7, kind.get_shape()).astype(np.int32))
            else:
                arrays.append(random.normal(0, 1.5, kind.get_shape()).astype(np.float32))
        name = main.sym_name.data
        found[name] = text.replace(f'"{name}"', '"main"'), arrays
    return found


def test_models_compute_what_the_programs_do(programs):
    for (text, arrays), results in zip(programs.values(), evaluated(list(programs.values())), strict=True):
        graph = read_mlir(text)
        session = onnxruntime.InferenceSession(write_graph(graph))
        found = session.run(None, dict(zip(graph.inputs, arrays, strict=True)))
        for ours, theirs in zip(found, results, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=text)


def test_ops_are_those_that_fusions_know(programs):
    graphs = {name: read_mlir(text) for name, (text, _) in programs.items()}
    assert {name: [op.type for op in graph.ops] for name, graph in graphs.items()} == KINDS
    assert [graph.notes for graph in graphs.values() if graph.notes] == []


def test_channels_last_become_fused_convolutions(programs, tmp_path):
    text, arrays = programs["convolutions"]
    path = tmp_path / "model.mlir"
    path.write_text(text)
    model = planner.load_model(path)
    sample = dict(zip(model.inputs, arrays, strict=True))
    stats = planner.calibrate(model, [sample])
    plan = planner.plan(planner.annotate(model, stats=stats), "onnxruntime-cpu")
    assert [kernel.kernel for kernel in plan.kernels_in_order].count("Transpose") == 4


def test_quantized_types_are_constraints():
    graph = read_mlir(QUANTIZED)
    facts = {name: [str(fact) for fact in value.facts] for name, value in graph.values.items() if value.facts}
    x, y = "!quant.uniform<i8:f32, 0.5:-3>", "!quant.uniform<i8:f32, 1.5:7>"
    w = "!quant.uniform<i8<-127:127>:f32:1, {0.25,0.125,1.0}>"
    assert list(facts.values()) == [[x], [w], [y], [y]]
    assert [op.type for op in graph.ops] == ["MatMul", "Add"]
    weights = graph.constants[graph.ops[0].inputs[1]].array
    np.testing.assert_array_equal(weights[3], [-31.75, 15.875, 0.0])
    plan = planner.plan(graph, "onnxruntime-cpu")
    (matmul, _) = plan.kernels_in_order
    assert [str(port.type) for port in (*matmul.inputs, *matmul.outputs)] == [x, w, y]


def test_an_exported_plan_is_read_back():
    """The file of a plan is a model with the plan's types: the same kernels have the same ones again."""
    digits = ROOT / "examples" / "digits"
    model = planner.load_model(digits / "digits.onnx")
    ready = planner.annotate(model, stats=planner.calibrate(model, digits / "calibration.npz"))
    plan = planner.plan(ready, "litert-int8")
    again = planner.load_model(planner.export(ready, plan, "stablehlo"), format="mlir")
    assert [op.type for op in again.ops] == [
        "Conv", "Conv", "Conv", "Add", "MaxPool", "Conv", "Conv", "Conv", "Clip", "MaxPool", "Identity",
        "Concat", "Conv", "GlobalAveragePool", "Reshape", "Reshape", "Gemm", "Softmax",
    ]  # fmt: skip
    assert again.notes == ()
    found = planner.plan(again, "litert-int8")
    wanted = [types(kernel) for kernel in plan.kernels_in_order if "conv2d" in kernel.kernel]
    assert [types(kernel) for kernel in found.kernels_in_order if "conv2d" in kernel.kernel] == wanted


def types(kernel):
    return [str(port.type) for port in (*kernel.inputs, *kernel.outputs)]


def test_weights_pinned_by_a_pair_keep_their_type_through_transposes():
    w = "!quant.uniform<i8:f32:1, {0.25,0.125,1.0}>"
    text = f"""
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x3xf32> {{
  %c = "stablehlo.constant"() <{{value = dense<0.5> : tensor<4x3xf32>}}> : () -> tensor<4x3xf32>
  %0 = "stablehlo.uniform_quantize"(%c) : (tensor<4x3xf32>) -> tensor<4x3x{w}>
  %1 = "stablehlo.uniform_dequantize"(%0) : (tensor<4x3x{w}>) -> tensor<4x3xf32>
  %2 = "stablehlo.transpose"(%1) <{{permutation = array<i64: 1, 0>}}> : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %3 = "stablehlo.dot_general"(%x, %2) <{{
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>
  }}> : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}}"""
    graph = read_mlir(text)
    (matmul,) = graph.ops
    assert [str(fact) for fact in graph.values[matmul.inputs[1]].facts] == [w]


def test_what_has_no_equivalent_stays_float_with_a_reason(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(OPAQUE)
    model = planner.load_model(path)
    (opaque,) = [op for op in model.ops if "::" in op.type]
    assert opaque.type == "stablehlo::map"
    assert len(opaque.captures) == 1
    name = opaque.outputs[0]
    assert model.notes == (f"5:3: stablehlo.map {name!r} stays opaque and float: no ONNX op means the same",)
    types = {opaque.inputs[0]: "!quant.uniform<i8:f32, 0.1>"}
    pinned = {"format": "qplan.annotations/1", "values": types}
    plan = planner.plan(planner.annotate(model, annotations=pinned), "onnxruntime-cpu")
    (kernel,) = [kernel for kernel in plan.kernels_in_order if kernel.kernel == "stablehlo::map"]
    assert {port.type for port in (*kernel.inputs, *kernel.outputs)} == {None}


@pytest.mark.skipif(is_available(), reason="jaxlib is installed here")
def test_custom_form_without_jaxlib_says_what_to_install():
    with pytest.raises(ModelError, match=r"2:8: StableHLO ops in custom form .* \(pip install 'jaxlib>="):
        read_mlir("func.func @main(%x: tensor<2xf32>) {\n  %0 = stablehlo.cholesky %x : tensor<2xf32>\n}")


def test_custom_form_is_read_where_jaxlib_is():
    """The module that reads it, run in an environment that has jaxlib."""
    if not PYTHON.exists():
        pytest.skip("no .oracles/mlir: run make oracles")
    rescale = "%0 = tosa.rescale %x, %a, %b, %c, %d {rounding_mode = SINGLE_ROUND} : (tensor<2xi8>) -> ()"
    texts = [text for _, text in split(SOURCE)] + ["func.func @f() { stablehlo.nothing }", rescale]
    axis, blocks = "2x!quant.uniform<i8:f32:0, {0.5,0.25}>", "4x!quant.uniform<i8:f32:{0:2}, {0.5,0.25}>"
    atan = '"stablehlo.atan2"(%x, %x) : (tensor<{0}>, tensor<{0}>) -> tensor<{0}>'
    whole = f"func.func @f(%x: tensor<{{0}}>) {{{{\n  %0 = {atan}\n  return\n}}}}"
    texts += [whole.format(kind) for kind in (axis, blocks, "2xf32")]
    script = (
        "import json, sys\nfrom planner.formats.stablehlo.reader.custom_form import readable\nfound = []\n"
        "for text in json.load(sys.stdin):\n    try:\n        found.append(readable(text))\n"
        "    except Exception as error:\n        found.append(str(error))\njson.dump(found, sys.stdout)"
    )
    done = subprocess.run(
        [PYTHON, "-c", script], input=json.dumps(texts), capture_output=True, text=True, check=True, cwd=ROOT
    )
    *modules, wrong, generic, per_axis, per_block, plain = json.loads(done.stdout)
    whole = zip(modules, texts, printed(texts[: len(modules)]), strict=False)
    assert [ours for ours, text, theirs in whole if ours not in (theirs, text, regular(text))] == []
    assert [i for i, (ours, text) in enumerate(zip(modules, texts, strict=False)) if ours == text] == [9, 11]
    assert wrong == "1:18: custom op 'stablehlo.nothing' is unknown"
    assert generic.startswith(
        '%0 = "tosa.rescale"(%x, %a, %b, %c, %d) {rounding_mode = #tosa.rounding_mode<SINGLE'
    )
    assert per_axis.startswith("2:8: 'stablehlo.atan2' op operand #0 must be ranked tensor of")
    assert (per_block, plain) == tuple(texts[-2:])


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("@main", "3:3: @main calls itself; a model is finite"),
        ("@other", "3:3: @other calls itself; a model is finite"),
    ],
)
def test_calls_that_go_in_circles_are_refused(calls, message):
    text = f"""func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %0 = "stablehlo.tanh"(%x) : (tensor<f32>) -> tensor<f32>
  %1 = func.call {calls}(%0) : (tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}}
func.func private @other(%x: tensor<f32>) -> tensor<f32> {{
  %0 = func.call @other(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}}"""
    with pytest.raises(ModelError) as caught:
        read_mlir(text)
    assert caught.value.message.endswith(message.partition(": ")[2])


def test_a_composite_is_its_decomposition():
    body = """func.func private @impl(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.subtract"(%b, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.composite"(%x, %y) {name = "my.op", decomposition = @impl, version = 1 : i32} :
    (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
    graph = read_mlir(body)
    assert [(op.type, op.inputs) for op in graph.ops] == [("Sub", ("y", "x"))]
    with pytest.raises(ModelError, match=r"@other is no function of one block in this module"):
        read_mlir(body.replace("= @impl", "= @other"))


def test_hexadecimal_floats_are_bits():
    constant = '"stablehlo.constant"() <{{value = {} : tensor<3xf32>}}> : () -> tensor<3xf32>'
    text = f"func.func @main() -> tensor<3xf32> {{{{\n %0 = {constant}\n return %0 : tensor<3xf32>\n}}}}"
    graph = read_mlir(text.format("dense<[0xFF800000, 0x3FC00000, 2.0]>"))
    assert graph.constants[graph.outputs[0]].array.tolist() == [float("-inf"), 1.5, 2.0]
    with pytest.raises(ModelError, match="0x1FF800000 has more bits than f32"):
        read_mlir(text.format("dense<0x1FF800000>"))


def test_programs_of_constants_are_rounded_as_they_say():
    """Upstream's own tests are such: a plan gives what the program's ops give, and `check.eq` sees it."""
    q, r = "!quant.uniform<i8:f32, 0.0039215482917486456:-128>", "!quant.uniform<i8:f32, 0.0625:-128>"
    text = f"""func.func @main() -> tensor<i1> {{
  %x = "stablehlo.constant"() <{{
    value = dense<[[0.1, 2.0], [-1.0, 0.499]]> : tensor<2x2xf32>
  }}> : () -> tensor<2x2xf32>
  %e = "stablehlo.constant"() <{{value = dense<{{}}> : tensor<2x2xf32>}}> : () -> tensor<2x2xf32>
  %q = "stablehlo.uniform_quantize"(%x) : (tensor<2x2xf32>) -> tensor<2x2x{q}>
  %d = "stablehlo.dot"(%q, %q) : (tensor<2x2x{q}>, tensor<2x2x{q}>) -> tensor<2x2x{r}>
  %y = "stablehlo.uniform_dequantize"(%d) : (tensor<2x2x{r}>) -> tensor<2x2xf32>
  %c = "stablehlo.custom_call"(%e, %y) <{{call_target_name = "check.eq"}}>
    : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<i1>
  return %c : tensor<i1>
}}
"""
    for expected, equal in (("[[0.0, 0.625], [0.0, 0.25]]", True), ("[[0.0, 0.625], [0.0, 0.5]]", False)):
        model = planner.load_model(text.replace("{}", expected).encode(), format="mlir")
        plan = planner.plan(model, "stablehlo")
        (found,) = planner.evaluate(model, plan, {}).outputs.values()
        assert bool(found) is equal


@pytest.mark.parametrize("strides", [None, 1, 2])
def test_a_slice_has_steps_of_one_where_it_says_none(strides):
    wanted = list(range(1, 4, strides or 1))
    kind = f"tensor<{len(wanted)}xf32>"
    more = "" if strides is None else f", strides = array<i64: {strides}>"
    graph = planner.load_model(
        f"""
func.func @main(%x: tensor<6xf32>) -> {kind} {{
  %0 = "stablehlo.slice"(%x) {{start_indices = array<i64: 1>, limit_indices = array<i64: 4>{more}}}
    : (tensor<6xf32>) -> {kind}
  return %0 : {kind}
}}
""".encode()
    )
    (found,) = ModelRunner(graph).run({graph.inputs[0]: np.arange(6, dtype=np.float32)}).values()
    assert found.tolist() == wanted
