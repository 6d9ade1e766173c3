"""What a plain function states becomes constraints: casts, statistics, element types, constants."""

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.ir.types.storages import FLOAT_STORAGE
from tests.equality import assert_same

Q = "!quant.uniform<i8:f32, 0.5:3>"
R = "!quant.uniform<i8:f32, 0.25>"
REALS, INTEGERS = "tensor<4xf32>", "tensor<4xi8>"


def facts(graph):
    return {name: [str(fact) for fact in value.facts] for name, value in graph.values.items()}


def function(body, arguments="%x: tensor<4xf32>", results="", returned=""):
    arrow = f" -> ({results})" if results else ""
    tail = f"return {returned} : {results}" if returned else "return"
    return f"func.func @main({arguments}){arrow} {{\n{body}\n{tail}\n}}\n"


def test_a_pair_of_casts_pins_its_value():
    source = function(
        f"""%0 = quant.qcast %x : tensor<4xf32> to tensor<4x{Q}>
        %1 = quant.dcast %0 : tensor<4x{Q}> to tensor<4xf32>
        %y = "onnx.Relu"(%1) : (tensor<4xf32>) -> tensor<4xf32>
        %2 = quant.qcast %y : tensor<4xf32> to tensor<4x{R}>
        %3 = quant.dcast %2 : tensor<4x{R}> to tensor<4xf32>""",
        results="tensor<4xf32>",
        returned="%3",
    )
    graph = read_mlir(source)
    assert facts(graph) == {"x": [Q], "y": [R]}
    assert [(op.type, op.inputs, op.outputs) for op in graph.ops] == [("Relu", ("x",), ("y",))]
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))


def test_two_types_of_one_value_are_two_values():
    source = function(
        f"""%0 = quant.qcast %x : tensor<4xf32> to tensor<4x{Q}>
        %1 = quant.qcast %x : tensor<4xf32> to tensor<4x{R}>
        %2 = quant.qcast %x : tensor<4xf32> to tensor<4x{Q}>
        %y = "some.op"(%0, %1, %2) : (tensor<4x{Q}>, tensor<4x{R}>, tensor<4x{Q}>) -> tensor<4xf32>"""
    )
    graph = read_mlir(source)
    assert facts(graph) == {"x": [Q], "x#1": [R], "y": []}
    assert [(op.type, op.inputs) for op in graph.ops] == [
        ("Identity", ("x",)),
        ("some::op", ("x", "x#1", "x")),
    ]


@pytest.mark.parametrize(
    ("stats", "fact"),
    [
        ([((-1.0, 2.0), None)], "!quant.calibrated<f32<-1.0:2.0>>"),
        ([((-1.0, 2.0), None), ((-3.0, 1.0), None)], "!quant.calibrated<f32<-3.0:2.0>>"),
        ([((0.0, 0.0), None)], "!quant.calibrated<f32<0.0:0.0>>"),
        ([((-1.0, 2.0), [(-1.0, 0.0), (0.0, 2.0)])], "!quant.calibrated<f32:0, {-1.0:0.0, 0.0:2.0}>"),
        (
            [((-1.0, 2.0), [(-1.0, 0.0), (0.0, 2.0)]), ((-9.0, 9.0), None)],
            "!quant.calibrated<f32:0, {-1.0:0.0, 0.0:2.0}>",
        ),
    ],
)
def test_statistics_are_calibrated_ranges(stats, fact):
    kind, lines = "tensor<2x3xf32>", []
    for i, (layer, axis) in enumerate(stats):
        told = f"layerStats = dense<{list(layer)}> : tensor<2xf32>"
        if axis is not None:
            told += f", axisStats = dense<{[list(pair) for pair in axis]}> : tensor<2x2xf32>, axis = 0 : i64"
        source = f"%{i - 1}" if i else "%x"
        lines.append(f'%{i} = "quant.stats"({source}) {{{told}}} : ({kind}) -> {kind}')
    lines.append(f'%y = "some.op"(%{len(stats) - 1}) : ({kind}) -> {kind}')
    graph = read_mlir(function("\n".join(lines), f"%x: {kind}"))
    assert facts(graph) == {"x": [fact], "y": []}
    assert graph.ops[0].inputs == ("x",)


def test_element_types_are_constraints():
    source = function(
        f'%y = "some.op"(%x, %a, %c) : (tensor<4x{Q}>, tensor<?x!quant.any<i4>>, '
        "tensor<*x!quant.calibrated<f16<-1.0:1.0>>>) -> tensor<4x!quant.any<i8:bf16>>",
        f"%x: tensor<4x{Q}>, %a: tensor<?x!quant.any<i4>>, %c: tensor<*x!quant.calibrated<f16<-1.0:1.0>>>",
    )
    graph = read_mlir(source)
    assert facts(graph) == {
        "x": [Q],
        "a": ["!quant.any<i4>"],
        "c": ["!quant.calibrated<f16<-1.0:1.0>>"],
        "y": ["!quant.any<i8:bf16>"],
    }
    assert [graph.values[name].dtype for name in "xacy"] == ["f32", "f32", "f16", "bf16"]


def test_stored_integers_may_stand_at_the_border():
    source = function(
        f"""%0 = quant.scast %x : tensor<4xi8> to tensor<4x{Q}>
        %1 = quant.dcast %0 : tensor<4x{Q}> to tensor<4xf32>
        %w = arith.constant dense<[1, 3, -128, 127]> : tensor<4xi8>
        %2 = quant.scast %w : tensor<4xi8> to tensor<4x{Q}>
        %y = "onnx.Add"(%1, %2) : (tensor<4xf32>, tensor<4x{Q}>) -> tensor<4x{R}>
        %3 = quant.scast %y : tensor<4x{R}> to tensor<4xi8>""",
        "%x: tensor<4xi8>",
        "tensor<4xi8>",
        "%3",
    )
    graph = read_mlir(source)
    assert facts(graph) == {"x": [Q], "w": [], "w#1": [Q], "y": [R]}
    assert graph.values["x"].dtype == "f32"
    assert graph.ops[0].inputs == ("x", "w#1")
    np.testing.assert_array_equal(graph.constants["w#1"].array, np.float32([-1.0, 0.0, -65.5, 62.0]))
    assert graph.outputs == ("y",)


@pytest.mark.parametrize(
    ("kind", "stored", "reals"),
    [
        ("!quant.uniform<u8:f32, 0.5:128>", [[0, 127], [-128, -1]], [[-64.0, -0.5], [0.0, 63.5]]),
        ("!quant.uniform<i8:f32:1, {0.5,2.0:1}>", [[1, 1], [2, 2]], [[0.5, 0.0], [1.0, 2.0]]),
        ("!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5}, {2.0:1}}>", [[1, 1], [2, 2]], [[0.5, 0.5], [2.0, 2.0]]),
        ("!quant.uniform<i8:f32:{}, {{0.5}}>", [[1, 1], [2, 2]], [[0.5, 0.5], [1.0, 1.0]]),
    ],
)
def test_stored_constants_are_dequantized(kind, stored, reals):
    numbers = f"%w = arith.constant dense<{stored}> : tensor<2x2xi8>"
    cast = f"%q = quant.scast %w : tensor<2x2xi8> to tensor<2x2x{kind}>"
    use = f'%y = "some.op"(%q) : (tensor<2x2x{kind}>) -> tensor<2x2xf32>'
    graph = read_mlir(function(f"{numbers}\n{cast}\n{use}"))
    np.testing.assert_array_equal(graph.constants["w#1"].array, np.float32(reals))
    dense = (
        f'%w = "tfl.pseudo_qconst"() {{value = dense<{stored}> : tensor<2x2xi8>}} : () -> tensor<2x2x{kind}>'
    )
    graph = read_mlir(function(f"{dense}\n" + use.replace("%q", "%w")))
    np.testing.assert_array_equal(graph.constants["w"].array, np.float32(reals))
    assert facts(graph)["w"] == [kind]


def test_specs_of_regions_and_casts_go_together():
    source = function(
        f"""%0 = quant.qcast %x : tensor<4xf32> to tensor<4x{Q}>
        %1 = quant.dcast %0 : tensor<4x{Q}> to tensor<4xf32>
        %y = "quant.region"(%1) ({{}}) {{kernel = "k", input_specs = [{R}], output_specs = [!quant.any<i8>]}}
          : (tensor<4xf32>) -> tensor<4xf32>
        %z = "quant.region"(%y) ({{}}) {{kernel = "k", input_specs = [f32], output_specs = [f32]}}
          : (tensor<4xf32>) -> tensor<4xf32>"""
    )
    graph = read_mlir(source)
    assert facts(graph) == {"x": [Q], "y": ["!quant.any<i8>"], "z": []}
    assert [[str(fact) for fact in port] for port in graph.regions[0].input_facts] == [[R]]


@pytest.mark.parametrize(
    ("body", "arguments", "message"),
    [
        (
            (
                f"%0 = quant.scast %x : tensor<4x{Q}> to tensor<4xi8>\n"
                f'%1 = "a.b"(%0) : ({INTEGERS}) -> {INTEGERS}'
            ),
            f"%x: tensor<4x{Q}>",
            "3:1: a.b computes with stored integers; the ops of a model compute with reals",
        ),
        (
            f'%0 = "a.b"(%x) : ({INTEGERS}) -> {INTEGERS}\n%1 = quant.scast %0 : {INTEGERS} to tensor<4x{Q}>',
            "%x: tensor<4xi8>",
            "3:1: the integers 'v1_0' are no constant and no argument that only this cast reads",
        ),
        (
            "%0 = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8<-8:7>:f32, 0.5:9>>",
            "%x: tensor<4xf32>",
            "2:1: zero point 9 lies outside the storage range -8:7 of i8",
        ),
        (
            "",
            "%x: tensor<4x!quant.uniform<f6E2M3FN:f32, 0.5>>",
            f"1:45: unknown storage 'f6E2M3FN'; a storage is i1..i64, u1..u64 or {', '.join(FLOAT_STORAGE)}",
        ),
        ("", "%x: f32", "1:1: value 'x' has type f32; only tensors are known here"),
        (
            '%0 = "scf.while"(%x) : (tensor<4xf32>) -> tensor<4xf32>',
            "%x: tensor<4xf32>",
            "2:1: scf.while: of scf, for and if are read, around one func.call each",
        ),
    ],
)
def test_what_states_no_constraint_is_refused(body, arguments, message):
    with pytest.raises(ModelError) as caught:
        read_mlir(function(body, arguments))
    assert str(caught.value) == message


def test_names_are_those_of_the_text():
    body = """%y_1 = "a.b"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %y_2 = "a.b"(%y_1) : (tensor<4xf32>) -> tensor<4xf32>
    %p:2 = "a.c"(%y_2) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    %3 = "a.d"(%p#1) : (tensor<4xf32>) -> tensor<4xf32>"""
    assert list(read_mlir(function(body)).values) == ["x", "y_1", "y_2", "p#0", "p#1", "v5_0"]


def test_stated_models_survive_both_formats():
    source = function(
        f"""%0 = "quant.stats"(%x) {{layerStats = dense<[-1.0, 2.0]> : tensor<2xf32>}} : ({REALS}) -> {REALS}
        %1 = quant.qcast %0 : tensor<4xf32> to tensor<4x{Q}>
        %w = arith.constant dense<[1.0, 3.0, -12.5, 12.7]> : tensor<4xf32>
        %y = "onnx.Add"(%1, %w) : (tensor<4x{Q}>, tensor<4xf32>) -> tensor<4xf32>""",
        results="tensor<4xf32>",
        returned="%y",
    )
    graph = read_mlir(source)
    assert_same(read_mlir(write_mlir(graph)), graph)
    assert_same(read_annotated(write_annotated(graph)), graph)


def test_a_stated_model_is_planned():
    source = function(
        f"""%w = arith.constant dense<0.5> : tensor<4x2xf32>
        %q = quant.qcast %x : tensor<1x4xf32> to tensor<1x4x{Q}>
        %d = quant.dcast %q : tensor<1x4x{Q}> to tensor<1x4xf32>
        %y = "onnx.MatMul"(%d, %w) : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
        %s = "quant.stats"(%y) {{layerStats = dense<[-4.0, 4.0]> : tensor<2xf32>}}
          : (tensor<1x2xf32>) -> tensor<1x2xf32>""",
        "%x: tensor<1x4xf32>",
        "tensor<1x2xf32>",
        "%s",
    )
    model = planner.load_model(source.encode(), format="mlir")
    plan = planner.plan(model, "litert-int8")
    (kernel,) = plan.kernels.values()
    assert str(kernel.inputs[0].type) == Q
    assert str(kernel.outputs[0].type).startswith("!quant.uniform<")
    planner.check(plan, model)
    assert f"input_specs = [{Q}," in plan.to_mlir()


def test_locations_name_values():
    """`loc("x")` before the SSA name, of arguments too; aliases of locations stand behind their uses."""
    text = """func.func @main(%arg0: tensor<4xf32> loc("image"), %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "onnx.Relu"(%arg0) : (tensor<4xf32>) -> tensor<4xf32> loc("hidden")
  %r = "onnx.Relu"(%0) : (tensor<4xf32>) -> tensor<4xf32> loc(fused["hidden", "b"])
  %1:2 = "onnx.Split"(%r) : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>) loc("halves"(#loc2))
  %s = "onnx.Relu"(%r) : (tensor<4xf32>) -> tensor<4xf32> loc("hidden")
  %y = "onnx.Add"(%s, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc(#loc1)
  %z = "onnx.Neg"(%y) : (tensor<4xf32>) -> tensor<4xf32> loc(#loc2)
  return %z : tensor<4xf32>
}
#loc1 = loc("sum")
#loc2 = loc("model.py":3:4 to :9)
"""
    graph = planner.load_model(text.encode(), format="mlir")
    assert list(graph.values) == [
        *("image", "b", "hidden", "r", "halves#0", "halves#1", "hidden#1", "sum", "z"),
    ]
    plan = planner.plan(graph, "litert-int8")
    assert planner.export(graph, plan, "mlir").decode() == text
    with pytest.raises(planner.errors.ModelError, match="undefined symbol alias '#loc9'"):
        planner.load_model(text.replace("#loc1)", "#loc9)").encode(), format="mlir")


def test_ops_of_onnx_mlir_run():
    """onnx-mlir notes at each op which node it was; to onnxruntime such an attribute makes it another op."""
    body = '%y = "onnx.Relu"(%x) {onnx_node_name = "r"} : (tensor<4xf32>) -> tensor<4xf32>'
    graph = read_mlir(function(body, results="tensor<4xf32>", returned="%y"))
    (sample,) = [{"x": np.array([-1, 0, 1, 2], np.float32)}]
    stats = planner.calibrate(graph, [sample])
    assert (stats.values["y"].lo, stats.values["y"].hi) == (0.0, 2.0)
