"""StableHLO's passes on text: the page's numbers, dynamic shapes, what stays and what is refused."""

import re

import pytest

from benchmarks.arithmetics import PAGE, page
from planner.formats.mlir.passes.table import HLO_PASSES
from planner.formats.mlir.passes.tool import run_parts
from tests.formats.stablehlo.reader.hlo import SETS, binary, kind, lowered, module
from tests.oracles.hlo import printed

MATH, QDQ, OPS, RESCALE, RESCALED = (
    "stablehlo-legalize-quant-to-math",
    "stablehlo-legalize-quantized-op-to-qdq",
    "stablehlo-legalize-qdq-to-quantized-op",
    "stablehlo-quant-legalize-to-tosa-rescale",
    "tosa-rescale-legalize-to-stablehlo",
)
I8 = "i8:f32, 0.5:3"
T = kind(I8, "2x3x")
BLOCKS = kind("i4:f32:{1:2}, {{0.5, 0.25:3}}", "?x4x")


def one(op, operands, result, more=""):
    """A module of one op in generic form; operands and result are types."""
    arguments = {f"x{i}": text for i, text in enumerate(operands)}
    names = ", ".join(f"%{name}" for name in arguments)
    body = f'  %0 = "{op}"({names}){more} : ({", ".join(operands)}) -> {result}\n  return %0 : {result}'
    return module(arguments, [result], body)


def test_the_pages_add_has_its_multipliers_and_shifts():
    text = lowered(binary("add", SETS["page"], "2x2x"), RESCALE)
    consts = dict(re.findall(r'(%\d+) = "tosa.const"\(\) <\{values = dense<(-?\d+)>', text))
    operands = [found.split(", ") for found in re.findall(r'"tosa.rescale"\(([^)]*)\)', text)]
    pairs = [(int(consts[multiplier]), int(consts[shift])) for _, multiplier, shift, *_ in operands]
    assert pairs == [(1431655765, 13), (1073741824, 11), (1073741824, 50)]


def test_both_ways_between_quantized_ops_and_qdq():
    text = binary("add", SETS["page"], "2x2x")
    apart = lowered(text, QDQ)
    assert [apart.count(f'"stablehlo.uniform_{name}"') for name in ("dequantize", "quantize")] == [2, 1]
    assert lowered(apart, OPS) == lowered(text, OPS)


@pytest.mark.parametrize(
    "text",
    [
        one("stablehlo.add", [T, T], T),
        one("stablehlo.add", ["tensor<2x3xf32>", "tensor<2x3xf32>"], "tensor<2x3xf32>"),
        one("some.op", ["tensor<2xf32>"], "tensor<2xi4>", " {a = #x.y<z>}"),
        one(
            "stablehlo.negate",
            [kind("i8:f32:1, {0.5,0.25,1.0}", "2x3x")],
            kind("i8:f32:1, {0.5,0.25,1.0}", "2x3x"),
        ),
        one("stablehlo.add", [kind("u8:f32, 0.5", "2x")] * 2, kind("u8:f32, 0.5", "2x")),
    ],
)
def test_what_a_pass_does_not_know_it_carries_through(text):
    plain = run_parts(text)[0].text
    for name in (OPS, RESCALED):
        assert run_parts(text, [name])[0].text == plain
    if "i8:f32, 0.5:3" not in text:
        assert run_parts(text, [RESCALE])[0].text == plain


def test_an_encoding_of_several_lines_is_one_type_everywhere():
    sparse = "tensor<2xf32, #sparse.encoding<{\n  map = (d0) -> (d0 : dense)\n}>>"
    text = run_parts(one("some.op", [sparse], sparse))[0].text
    assert text.count("tensor<2xf32, #sparse.encoding<{ map = (d0) -> (d0 : dense) }>>") == 5


def test_dead_ops_go_and_effects_stay():
    body = (
        '  %0 = "stablehlo.tanh"(%x) : (tensor<2xf32>) -> tensor<2xf32>\n'
        '  %1 = "stablehlo.abs"(%0) : (tensor<2xf32>) -> tensor<2xf32>\n'
        '  %2 = "stablehlo.custom_call"(%0) {call_target_name = "f"} : (tensor<2xf32>) -> tensor<2xf32>\n'
        '  "some.op"() : () -> ()\n  return %x : tensor<2xf32>'
    )
    text = module({"x": "tensor<2xf32>"}, ["tensor<2xf32>"], body)
    for name in HLO_PASSES:
        printed_text = lowered(text, name)
        kept = [op for op in ("tanh", "abs", "custom_call", "some.op") if op in printed_text]
        assert kept == ["tanh", "custom_call", "some.op"], name


NUMBERS = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]"
DOT = f" <{{dot_dimension_numbers = #stablehlo.dot<{NUMBERS}>}}>"
AXIS = "i8<-127:127>:f32:1, {0.5,0.25}"
CONV = (
    " <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, "
    "padding = dense<[[1, 1], [0, 2]]> : tensor<2x2xi64>, "
    "batch_group_count = 1 : i64, feature_group_count = 1 : i64}>"
)
DYNAMIC = {
    "quantize": one(
        "stablehlo.uniform_quantize", ["tensor<?x3xf32>"], kind("i8:f32:1, {0.5,0.25:1,1.0}", "?x3x")
    ),
    "dequantize": one("stablehlo.uniform_dequantize", [kind("i4:f32, 0.5:1", "?x?x")], "tensor<?x?xf32>"),
    "requantize": one(
        "stablehlo.uniform_quantize", [kind("i8:f32, 0.5:1", "?x?x")], kind("i8:f32, 0.25", "?x?x")
    ),
    "bounded": one(
        "stablehlo.uniform_quantize",
        ["tensor<?x3xf32, #stablehlo.bounds<4, ?>>"],
        "tensor<?x3x!quant.uniform<i8:f32, 0.5:3>, #stablehlo.bounds<4, ?>>",
    ),
    "add": one("stablehlo.add", [kind(I8, "?x?x"), kind("i8:f32, 0.1", "?x?x")], kind(I8, "?x?x")),
    "add along an axis": one(
        "stablehlo.add", [kind("i32:f32:1, {0.1:3,0.2}", "?x2x")] * 2, kind("i32:f32:1, {0.1:3,0.2}", "?x2x")
    ),
    "dot": one(
        "stablehlo.dot_general",
        [kind(I8, "?x?x"), kind("i8:f32, 0.1:0", "?x?x")],
        kind("i32:f32, 1.0:3", "?x?x"),
        DOT,
    ),
    "dot along an axis": one(
        "stablehlo.dot_general",
        [kind(I8, "?x2x"), kind(AXIS, "2x2x")],
        kind("i32:f32:1, {0.25,0.125}", "?x2x"),
        DOT,
    ),
    "hybrid": one("stablehlo.dot_general", ["tensor<?x2xf32>", kind(AXIS, "2x2x")], "tensor<?x2xf32>", DOT),
    "convolution": one(
        "stablehlo.convolution",
        [kind(I8, "?x?x?x3x"), kind("i8:f32, 0.1", "3x3x3x2x")],
        kind(I8, "?x?x?x2x"),
        CONV,
    ),
    "slice": one(
        "stablehlo.dynamic_slice",
        [kind(I8, "?x4x"), "tensor<i32>", "tensor<i32>"],
        kind(I8, "1x1x"),
        " <{slice_sizes = array<i64: 1, 1>}>",
    ),
    "size": one(
        "stablehlo.get_dimension_size", [kind(I8, "?x4x")], "tensor<i32>", " <{dimension = 0 : i64}>"
    ),
    "bits": one("stablehlo.bitcast_convert", [kind(I8, "?x4x")], "tensor<?x4xi8>"),
}


def test_dynamic_shapes_are_lowered_to_what_stablehlo_verifies():
    sources = dict(DYNAMIC)
    checked = printed(list(sources.values()))
    assert [name for name, text in zip(sources, checked, strict=True) if text.startswith("ERROR")] == []
    for name in (MATH, QDQ):
        texts = [lowered(text, name) for text in sources.values()]
        assert [text for text in printed(texts) if text.startswith("ERROR")] == []
        if name == MATH:
            assert not any("!quant" in text or "chlo" in text for text in texts)


def test_blocks_are_spread_over_their_elements():
    blocks = "i4:f32:{0:1, 1:2}, {{0.5, 0.25:3}, {1.0, 2.0:-3}}"
    text = lowered(one("stablehlo.uniform_dequantize", [kind(blocks, "2x4x")], "tensor<2x4xf32>"))
    assert "tensor<2x1x2x2xf32>" in text
    assert not printed([text])[0].startswith("ERROR")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            one("stablehlo.custom_call", [T], T, ' {call_target_name = "f"}'),
            "stablehlo.custom_call reads or gives quantized values, and has no meaning on stored integers",
        ),
        (
            one("stablehlo.tuple", [T], f"tuple<{T}>"),
            "stablehlo.tuple reads or gives quantized values, and has no meaning on stored integers",
        ),
        (
            one("stablehlo.reduce_window", [T, kind("i8:f32, 0.25", "")], T),
            "stablehlo.reduce_window changes the quantized type of what it moves",
        ),
        (
            one("stablehlo.abs", [f"tensor<*x!quant.uniform<{I8}>>"], f"tensor<*x!quant.uniform<{I8}>>"),
            f"stablehlo.abs: tensor<*x!quant.uniform<{I8}>> has no rank, which StableHLO ops need",
        ),
        (
            one("stablehlo.abs", [kind("f8E5M2:f32, 0.5", "2x")], kind("f8E5M2:f32, 0.5", "2x")),
            "stablehlo.abs: !quant.uniform<f8E5M2:f32, 0.5> stores floats; only integer storages are lowered",
        ),
        (
            one("stablehlo.abs", [kind("i8:f80, 0.5", "2x")], kind("i8:f80, 0.5", "2x")),
            "stablehlo.abs: !quant.uniform<i8:f80, 0.5> expresses f80; f16, bf16, f32, f64 are lowered",
        ),
        (
            one("stablehlo.abs", [BLOCKS], kind("i8:f32, 0.5", "?x4x")),
            f"stablehlo.abs: {BLOCKS} has blocks and a dynamic shape; blocks need known sizes",
        ),
    ],
)
def test_what_cannot_be_lowered_says_why(text, message):
    (part,) = run_parts(text, [MATH])
    assert part.error.partition(f"{MATH}: ")[2] == message


def test_scales_too_far_apart_for_a_multiplier_are_refused():
    text = binary("multiply", ("i8:f32, 1.0e20", "i8:f32, 1.0e20", "i8:f32, 1.0e-5"), "2x")
    (part,) = run_parts(text, [RESCALE])
    assert "stablehlo.multiply: a requantize by" in part.error


def test_the_page_counts_what_arithmetics_differ_by():
    assert PAGE.read_text(encoding="utf-8") == page()
