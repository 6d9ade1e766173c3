"""`--pass-pipeline`, `cse` and `inline` beside LLVM's own tool; quantile types as LLVM 23 has them."""

from collections import Counter

import pytest
from xdsl.dialects import func

import planner
from planner.errors import ModelError, UnknownName
from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.passes.inline import inline
from planner.formats.mlir.passes.table import PASSES
from planner.formats.mlir.passes.tool import run_parts, transform
from planner.formats.mlir.pipeline_text import read_pipeline
from tests.oracles.opt import parsed

Q = "!quant.uniform<i8:f32, 2.0:10>"
CALLS = f"""func.func @dcast(%v: {Q}) -> f32 {{
  %d = quant.dcast %v : {Q} to f32
  return %d : f32
}}
func.func private @twice(%v: f32) -> ({Q}, {Q}) {{
  %q = quant.qcast %v : f32 to {Q}
  %s = call @storage(%q) : ({Q}) -> {Q}
  return %q, %s : {Q}, {Q}
}}
func.func private @storage(%v: {Q}) -> {Q} {{
  %i = quant.scast %v : {Q} to i8
  %q = quant.scast %i : i8 to {Q}
  return %q : {Q}
}}
func.func private @unused() {{
  return
}}
func.func private @outside(f32) -> f32
func.func @main(%v: f32, %c: i1) -> (f32, f32) {{
  %a:2 = call @twice(%v) : (f32) -> ({Q}, {Q})
  %b:2 = call @twice(%v) : (f32) -> ({Q}, {Q})
  %d = call @dcast(%a#0) : ({Q}) -> f32
  %e = "scf.if"(%c) ({{
    %f = call @dcast(%b#1) : ({Q}) -> f32
    "scf.yield"(%f) : (f32) -> ()
  }}, {{
    "scf.yield"(%d) : (f32) -> ()
  }}) : (i1) -> f32
  %g = call @outside(%e) : (f32) -> f32
  return %d, %g : f32, f32
}}
"""
CIRCLE = """func.func private @even(%v: f32) -> f32 {
  %d = call @odd(%v) : (f32) -> f32
  return %d : f32
}
func.func private @odd(%v: f32) -> f32 {
  %d = call @even(%v) : (f32) -> f32
  return %d : f32
}
func.func @main(%v: f32) -> f32 {
  %d = call @even(%v) : (f32) -> f32
  return %d : f32
}
"""
TWICE = """func.func @main(%v: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = arith.mulf %v, %v : tensor<4xf32>
  %b = arith.mulf %v, %v : tensor<4xf32>
  %c = arith.addf %a, %b : tensor<4xf32>
  %d = arith.addf %a, %a : tensor<4xf32>
  %u = arith.addf %c, %d : tensor<4xf32>
  %x = "my.say"(%v) : (tensor<4xf32>) -> tensor<4xf32>
  %y = "my.say"(%v) : (tensor<4xf32>) -> tensor<4xf32>
  return %d, %x, %y : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
"""
BEHIND = f"""func.func @main(%v: tensor<4xf32>) -> (tensor<4x{Q}>, tensor<4x{Q}>) {{
  %a = quant.qcast %v : tensor<4xf32> to tensor<4x{Q}>
  %b = quant.qcast %v : tensor<4xf32> to tensor<4x{Q}>
  return %a, %b : tensor<4x{Q}>, tensor<4x{Q}>
}}
"""


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        (CALLS, "builtin.module(inline)", "builtin.module(inline{default-pipeline=})"),
        (
            CALLS,
            "builtin.module(inline,func.func(cse))",
            "builtin.module(inline{default-pipeline=},func.func(cse))",
        ),
        (CALLS, "builtin.module(func.func(cse))", None),
        (TWICE, "builtin.module(func.func(cse))", None),
        (TWICE, "builtin.module(cse)", None),
        (BEHIND, "builtin.module(cse)", None),
    ],
)
def test_pipelines_give_what_llvms_tool_gives(text, ours, theirs):
    found, _ = transform(text, read_pipeline(ours, PASSES))
    upstream = parsed("torch-mlir-opt", text, f"--pass-pipeline={theirs or ours}", "--mlir-print-op-generic")
    assert not upstream.startswith("ERROR"), upstream
    wanted, _ = parse_text(transform(upstream)[0])
    made, _ = parse_text(found)
    assert made.is_structurally_equivalent(wanted), f"{found}\n{upstream}"


def test_calls_in_a_circle_stay():
    found, _ = transform(CIRCLE, ("inline",))
    assert "func.call @" in found
    assert not parsed("torch-mlir-opt", found).startswith("ERROR")


def test_cse_merges_stablehlo_and_ops_with_equal_bodies():
    text = """func.func @main(%v: tensor<4xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %a = "stablehlo.reduce"(%v, %z) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %b = "stablehlo.reduce"(%v, %z) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %c = "stablehlo.reduce"(%v, %z) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = "stablehlo.maximum"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %a, %b, %c : tensor<f32>, tensor<f32>, tensor<f32>
}
"""
    found, _ = transform(text, ("cse",))
    assert found.count("stablehlo.reduce") == 2
    assert "return %a, %a, %c" in found


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("", "column 1: a pipeline is wrapped with its anchor: builtin.module(...)"),
        ("cse", "column 1: a pipeline is wrapped with its anchor: builtin.module(...)"),
        ("cse,inline", "column 1: a pipeline is wrapped with its anchor: builtin.module(...)"),
        ("builtin.module{x=1}(cse)", "column 1: a pipeline is wrapped with its anchor: builtin.module(...)"),
        ("builtin.module(cse", "column 19: '(' of builtin.module is not closed"),
        ("builtin.module(func.func(cse)", "column 30: '(' of builtin.module is not closed"),
        ("builtin.module(cse))", "column 20: the pipeline has ended here"),
        ("builtin.module(cse),cse", "column 20: the pipeline has ended here"),
        ("builtin.module(cse,)", "column 20: expected the name of a pass"),
        ("builtin.module(,cse)", "column 16: expected the name of a pass"),
        ("builtin.module(cse,,cse)", "column 20: expected the name of a pass"),
        ("builtin.module(func.func())", "column 26: expected the name of a pass"),
        ("builtin.module( )", "column 17: expected the name of a pass"),
        ("builtin.module(cse cse)", "column 19: expected ',' between two passes"),
        ("builtin.module(func.func(cse)cse)", "column 30: expected ',' or ')'"),
        ("my.func(cse)", "column 1: 'my.func' is no anchor; accepted: any, builtin.module, func.func"),
        ("func.func(cse)", "column 1: the outer anchor is the module: builtin.module(func.func(...))"),
        (
            "builtin.module(func.func(inline))",
            "column 26: inline changes more than one function: it runs on builtin.module",
        ),
        ("builtin.module(cse{fast=1})", "column 20: cse has no option 'fast'; accepted: none"),
        ("builtin.module(cse{fast=1)", "column 19: '{' is not closed"),
        (
            "builtin.module(canonicalize{max-iterations=abc})",
            "column 29: canonicalize: max-iterations is an integer, not 'abc'",
        ),
        (
            "builtin.module(canonicalize{top-down=true,region-simplify=normal})",
            "column 29: canonicalize: top-down is true or false, not 'true,region-simplify=normal'",
        ),
        (
            "builtin.module(canonicalize{top-down=true}{top-down=false})",
            "column 43: expected ',' or ')'",
        ),
    ],
)
def test_wrong_pipelines_say_where(pipeline, message):
    """And LLVM's own tool refuses them too."""
    with pytest.raises(ModelError) as caught:
        read_pipeline(pipeline, PASSES)
    assert caught.value.message.endswith(message)
    assert parsed("torch-mlir-opt", CALLS, f"--pass-pipeline={pipeline}").startswith("ERROR")


@pytest.mark.parametrize(
    ("pipeline", "column"),
    [
        ("builtin.module(func.func(func.func(cse)))", 26),
        ("builtin.module(builtin.module(cse))", 16),
        ("any(any(any(cse)))", 9),
    ],
)
def test_anchors_that_reach_no_op_are_refused(pipeline, column):
    """LLVM's tool takes them and runs nothing."""
    with pytest.raises(ModelError, match=rf"column {column}: .* runs on no op here"):
        read_pipeline(pipeline, PASSES)


@pytest.mark.parametrize(
    ("pipeline", "passes"),
    [
        (" any ( cse ) ", ("cse",)),
        ("builtin.module()", ()),
        ("builtin.module(func.func(cse) , cse)", ("cse", "cse")),
        ("builtin.module(any(cse),inline{default-pipeline=})", ("cse", "inline")),
        ("builtin.module(cse{},inline{default-pipeline= max-iterations=2})", ("cse", "inline")),
        (
            'builtin.module(canonicalize {top-down="true" max-iterations=0x10}, func.func(cse))',
            ("canonicalize", "cse"),
        ),
    ],
)
def test_the_grammar_is_that_of_llvms_tool(pipeline, passes):
    assert read_pipeline(pipeline, PASSES) == passes
    assert not parsed("torch-mlir-opt", CALLS, f"--pass-pipeline={pipeline}").startswith("ERROR")


def test_a_pass_that_is_none_is_named():
    with pytest.raises(UnknownName, match="csee"):
        read_pipeline("builtin.module(csee)", PASSES)


def test_functions_that_an_attribute_names_stay():
    """In dictionaries, arrays and attributes that nobody here knows."""
    names = "".join(f"func.func private @f{i}() {{\n  return\n}}\n" for i in range(6))
    text = f"""{names}func.func @main() attributes {{a.b = {{c = [{{d = @f0}}]}}}} {{
  "my.op"() {{a = {{b = @f1}}, c = [[@f2]], d = #my.attr<"x", @f3>, e = @f4::@g, s = "@f5"}} : () -> ()
  return
}}
"""
    found, _ = transform(text, ("inline",))
    assert [f"private @f{i}(" in found for i in range(6)] == [True] * 5 + [False]


@pytest.mark.slow
def test_a_long_chain_of_calls_is_inlined():
    count = 1200
    links = "".join(
        f"func.func private @f{i}(%x: f32) -> f32 {{\n"
        f"  %y = call @f{i + 1}(%x) : (f32) -> f32\n  return %y : f32\n}}\n"
        for i in range(count)
    )
    ends = "func.func private @f1200(%x: f32) -> f32 {\n  return %x : f32\n}\n"
    main = "func.func @main(%x: f32) -> f32 {\n  %y = call @f0(%x) : (f32) -> f32\n  return %y : f32\n}\n"
    found, _ = transform(links + ends + main, ("inline",))
    assert found.count("func.func") == 1
    assert "return %x" in found


def test_a_function_is_walked_once_however_many_calls_it_has(monkeypatch):
    walked = Counter()
    walk = func.FuncOp.walk

    def counting(self, **way):
        walked[self.sym_name.data] += 1
        return walk(self, **way)

    monkeypatch.setattr(func.FuncOp, "walk", counting)
    callee = "func.func private @f(%x: f32) -> f32 {\n  return %x : f32\n}\n"
    walks = []
    for count in (5, 50):
        calls = "".join(f"  %{i + 1} = call @f(%{i}) : (f32) -> f32\n" for i in range(count))
        main = f"func.func @main(%0: f32) -> f32 {{\n{calls}  return %{count} : f32\n}}\n"
        module, _ = parse_text(callee + main)
        walked.clear()
        inline(module)
        assert "func.call" not in str(module)
        walks.append(dict(walked))
    assert walks[0] == walks[1]


NF = "!quant.quantile<ui2:f16, {-1.0,-0.25,0.25,1.0}>"


def test_quantile_types_and_storages_are_read_verified_and_printed():
    text = f"""!nf = {NF}
func.func @main(%x: tensor<4x!quant.uniform<!nf:f32:0, {{0.5,0.25,1.0,2.0}}>>,
                %y: !quant.any<{NF}<0:2>:f32>) {{
  %d = quant.dcast %x : tensor<4x!quant.uniform<{NF}:f32:0, {{0.5,0.25,1.0,2.0}}>> to tensor<4xf32>
  return
}}
func.func private @narrow(!quant.quantile<si8:f32, {{-1.0,-0.5,0.0,0.5,1.0}}, <-2:2>>)
func.func private @floats(!quant.quantile<f8E4M3FN:f32, {{-1.0,0.0,1.0}}, <-1:1>>)
"""
    (part,) = run_parts(text)
    assert part.error == ""
    assert part.text.count(f"!quant.uniform<{NF}:f32:0, ") == 2
    assert f"!quant.any<{NF}<0:2>:f32>" in part.text
    assert "!quant.quantile<si8:f32, {-1.0,-0.5,0.0,0.5,1.0}, <-2:2>>" in part.text
    (again,) = run_parts(part.text)
    assert again.text == part.text
    nested = f"!quant.uniform<!quant.quantile<{NF}<0:2>:f16, {{-1.0,0.5,2.0}}>:f32, 0.5>"
    (part,) = run_parts(f"func.func private @f({nested})")
    assert part.text.count("{-1.0,-0.25,0.25,1.0}") == part.text.count("{-1.0,0.5,2.0}") == 1
    assert run_parts(part.text)[0].text == part.text
    (lowered,) = run_parts(text, ("lower-quant-ops",))
    assert "only integer storages are lowered" in lowered.error


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("!quant.quantile<ui4:i8, {1.0, 0.0, -1.0}>", "the quantile type is a float type, this is i8"),
        ("!quant.quantile<ui4:f16, {}>", "0 quantiles for the 16 values of storage ui4"),
        ("!quant.quantile<ui4:f16, {-1.0,0.0,1.0}>", "3 quantiles for the 16 values of storage ui4"),
        ("!quant.quantile<f4E2M1FN:f16, {-1.0,0.0,1.0}, <-6:6>>", "3 quantiles for the 13 values of storage"),
        ("!quant.quantile<tensor<1xf32>:f32, {1.0}>", "unknown storage 'tensor'"),
        (
            "!quant.uniform<!quant.quantile<ui1:f16, {1.0}>:f32, 1.0>",
            "1 quantiles for the 2 values of storage ui1",
        ),
    ],
)
def test_quantiles_that_upstream_refuses_are_refused(kind, message):
    (part,) = run_parts(f"func.func private @f() -> {kind}")
    assert message in part.error


def test_a_model_of_quantiles_is_refused_by_name():
    kind = f"tensor<4x!quant.uniform<{NF}:f32, 0.5>>"
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %q = quant.qcast %x : tensor<4xf32> to {kind}
  %d = quant.dcast %q : {kind} to tensor<4xf32>
  return %d : tensor<4xf32>
}}
"""
    with pytest.raises(ModelError) as caught:
        planner.load_model(text.encode(), format="mlir")
    assert f"{NF} is a table of reals; a plan stores integers and floats" in str(caught.value)


def test_calls_that_double_are_refused_at_a_limit(monkeypatch):
    """Each function calls the one before twice: 2^19 ops of 20 functions."""
    monkeypatch.setattr("planner.formats.mlir.passes.inline.MOST", 1000)
    kind = "tensor<4xf32>"
    first = f'  %y = "my.op"(%x) : ({kind}) -> {kind}\n  return %y : {kind}\n}}'
    parts = [f"func.func private @f0(%x: {kind}) -> {kind} {{\n{first}"]
    parts += [
        f"func.func private @f{i}(%x: {kind}) -> {kind} {{\n"
        f"  %a = func.call @f{i - 1}(%x) : ({kind}) -> {kind}\n"
        f"  %b = func.call @f{i - 1}(%a) : ({kind}) -> {kind}\n  return %b : {kind}\n}}"
        for i in range(1, 20)
    ]
    last = f"  %a = func.call @f19(%x) : ({kind}) -> {kind}\n  return %a : {kind}\n}}"
    text = "\n".join([*parts, f"func.func @main(%x: {kind}) -> {kind} {{\n{last}"])
    with pytest.raises(ModelError, match=r"\d+:3: inline: calls unfold into more than 1000 ops"):
        transform(text, ["inline"])
