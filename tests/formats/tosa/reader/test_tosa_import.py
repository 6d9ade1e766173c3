"""TOSA programs as models: each operator of TOSA 1.0 beside the reference model; what our exporter writes."""

import numpy as np
import onnx.parser
import pytest

import planner
from planner.formats.tosa.reader.custom_form import generic
from planner.formats.tosa.reader.program import READERS
from planner.interpreter.models import ModelRunner
from planner.target_tests.engines.environment import TOSA_EXTENSIONS
from tests.conftest import ROOT
from tests.formats.tosa.writer.running import fed
from tests.oracles import tosa
from tests.oracles.opt import parsed

DTYPES = {"f32": np.float32, "i1": np.bool_, "i16": np.int16, "i32": np.int32, "i8": np.int8}
CONV = "dilation = array<i64: 1, 2>, pad = array<i64: 1, 1, 2, 2>, stride = array<i64: 1, 1>, acc_type = "
POOL = "kernel = array<i64: 2, 3>, pad = array<i64: 1, 0, 1, 1>, stride = array<i64: 1, 2>"
NAN = "nan_mode = #tosa.nan_mode<PROPAGATE>"
F, B, W, I = "1x5x5x3xf32", "1x5x5x3xi8", "1x5x5x3xi16", "1x5x5x3xi32"  # noqa: E741 - by element type


def const(kind, value):
    return f"={value}:{kind}"


def shape(*sizes):
    return f"#{','.join(map(str, sizes))}"


ZF, ZB, ZW, Z4 = const("1xf32", "0.0"), const("1xi8", 5), const("1xi16", 0), const("1xi8", -3)
CASES = {
    "abs": ([F], "", F),
    "abs i32": ([I], "", I),
    "add": ([F, "1x1x5x1xf32"], "", F),
    "add i32": ([I, I], "", I),
    "argmax": ([F], f"axis = 3 : i32, {NAN}", "1x5x5xi32"),
    "argmax i8": ([B], f"axis = 2 : i32, {NAN}", "1x5x3xi32"),
    "arithmetic_right_shift": ([I, const(I, 3)], "round = true", I),
    "arithmetic_right_shift i8": ([B, const(B, 2)], "round = false", B),
    "avg_pool2d": ([F, ZF, ZF], f"{POOL}, acc_type = f32", "1x5x3x3xf32"),
    "avg_pool2d i8": ([B, ZB, Z4], f"{POOL}, acc_type = i32", "1x5x3x3xi8"),
    "avg_pool2d i16": ([W, ZW, ZW], f"{POOL}, acc_type = i32", "1x5x3x3xi16"),
    "bitwise_and": ([I, I], "", I),
    "bitwise_not": ([B], "", B),
    "bitwise_or": ([W, W], "", W),
    "bitwise_xor": ([B, B], "", B),
    "cast f32 to i8": ([F], "", B),
    "cast i16 to f32": ([W], "", W.replace("i16", "f32")),
    "cast i1 to i32": (["4xi1"], "", "4xi32"),
    "cast i32 to i8": ([I], "", B),
    "ceil": ([F], "", F),
    "clamp": ([F], f"min_val = -0.5 : f32, max_val = 6.0 : f32, {NAN}", F),
    "clamp i8": ([B], f"min_val = -7 : i8, max_val = 90 : i8, {NAN}", B),
    "clamp i16": ([W], f"min_val = 0 : i16, max_val = 9000 : i16, {NAN}", W),
    "clz": ([I], "", I),
    "concat": ([F, F], "axis = 2 : i32", "1x5x10x3xf32"),
    "concat i16": ([W, W], "axis = 3 : i32", "1x5x5x6xi16"),
    "conv2d": ([F, "4x3x2x3xf32", "4xf32", ZF, ZF], f"{CONV}f32", "1x5x7x4xf32"),
    "conv2d i8": ([B, "4x3x2x3xi8", "4xi32", ZB, const("1xi8", 0)], f"{CONV}i32", "1x5x7x4xi32"),
    "conv2d bias of one": ([B, "4x3x2x3xi8", "1xi32", ZB, const("1xi8", 0)], f"{CONV}i32", "1x5x7x4xi32"),
    "conv3d": (
        ["1x3x4x5x2xf32", "3x2x2x2x2xf32", "3xf32", ZF, ZF],
        ("pad = array<i64: 1, 0, 0, 0, 0, 1>, stride = array<i64: 1, 2, 1>, "
        "dilation = array<i64: 1, 1, 1>, acc_type = f32"),
        "1x3x2x5x3xf32",
    ),
    "cos": ([F], "", F),
    "depthwise_conv2d": ([F, "3x2x3x2xf32", "6xf32", ZF, ZF], f"{CONV}f32", "1x5x7x6xf32"),
    "depthwise_conv2d i8": ([B, "3x2x3x2xi8", "6xi32", ZB, const("1xi8", 0)], f"{CONV}i32", "1x5x7x6xi32"),
    "equal": ([I, I], "", "1x5x5x3xi1"),
    "erf": ([F], "", F),
    "exp": ([F], "", F),
    "fft2d": (["1x4x8xf32", "1x4x8xf32"], "inverse = false", "1x4x8xf32|1x4x8xf32"),
    "fft2d inverse": (["2x4x8xf32", "2x4x8xf32"], "inverse = true", "2x4x8xf32|2x4x8xf32"),
    "floor": ([F], "", F),
    "gather": (["2x5x3xf32", const("2x4xi32", "[[0, 4, 1, 1], [2, 2, 3, 0]]")], "", "2x4x3xf32"),
    "gather i8": (["1x5x3xi8", const("1x4xi32", "[[0, 4, 1, 1]]")], "", "1x4x3xi8"),
    "greater": ([F, F], "", "1x5x5x3xi1"),
    "greater_equal": ([I, I], "", "1x5x5x3xi1"),
    "identity": ([W], "", W),
    "intdiv": ([I, const(I, -7)], "", I),
    "log": ([F], "", F),
    "logical_and": (["4xi1", "4xi1"], "", "4xi1"),
    "logical_left_shift": ([I, const(I, 3)], "", I),
    "logical_left_shift i8": ([B, const(B, 3)], "", B),
    "logical_not": (["4xi1"], "", "4xi1"),
    "logical_or": (["4xi1", "4xi1"], "", "4xi1"),
    "logical_right_shift": ([I, const(I, 5)], "", I),
    "logical_right_shift i16": ([W, const(W, 5)], "", W),
    "logical_xor": (["4xi1", "4xi1"], "", "4xi1"),
    "matmul": (["2x4x5xf32", "2x5x3xf32", ZF, ZF], "", "2x4x3xf32"),
    "matmul i8": (["2x4x5xi8", "2x5x3xi8", ZB, Z4], "", "2x4x3xi32"),
    "max_pool2d": ([F], f"{POOL}, {NAN}", "1x5x3x3xf32"),
    "max_pool2d i8": ([B], f"{POOL}, {NAN}", "1x5x3x3xi8"),
    "max_pool2d i16": ([W], f"{POOL}, {NAN}", "1x5x3x3xi16"),
    "maximum": ([F, F], NAN, F),
    "minimum i32": ([I, I], NAN, I),
    "mul": ([F, F, const("1xi8", 0)], "", F),
    "mul i32": ([I, const(I, 77777), const("1xi8", 20)], "", I),
    "mul i8": ([B, B, const("1xi8", 0)], "", I),
    "negate": ([F, ZF, ZF], "", F),
    "negate i8": ([B, ZB, Z4], "", B),
    "pad": ([F, shape(0, 0, 1, 2, 0, 3, 0, 0), const("1xf32", "1.5")], "", "1x8x8x3xf32"),
    "pad i16": ([W, shape(0, 0, 1, 2, 0, 3, 0, 0), const("1xi16", 9)], "", "1x8x8x3xi16"),
    "pow": ([F, const(F, "2.0")], "", F),
    "reciprocal": ([F], "", F),
    "reduce_all": (["4x3xi1"], "axis = 1 : i32", "4x1xi1"),
    "reduce_any": (["4x3xi1"], "axis = 0 : i32", "1x3xi1"),
    "reduce_max": ([F], f"axis = 1 : i32, {NAN}", "1x1x5x3xf32"),
    "reduce_max i16": ([W], f"axis = 1 : i32, {NAN}", "1x1x5x3xi16"),
    "reduce_min i8": ([B], f"axis = 2 : i32, {NAN}", "1x5x1x3xi8"),
    "reduce_product": ([F], "axis = 3 : i32", "1x5x5x1xf32"),
    "reduce_sum": ([F], "axis = 3 : i32", "1x5x5x1xf32"),
    "reduce_sum i32": ([I], "axis = 2 : i32", "1x5x1x3xi32"),
    "rescale": (
        [I, const("3xi32", "[1073741824, 1342177280, 1987654321]"), const("3xi8", "[41, 40, 38]"),
         const("1xi32", 0), Z4],
        ("scale32 = true, rounding_mode = #tosa.rounding_mode<DOUBLE_ROUND>, per_channel = true, "
        "input_unsigned = false, output_unsigned = false"),
        B,
    ),
    "rescale unsigned": (
        [B, const("1xi32", 1073741824), const("1xi8", 30), const("1xi8", -128), const("1xi8", 0)],
        ("scale32 = true, rounding_mode = #tosa.rounding_mode<SINGLE_ROUND>, per_channel = false, "
        "input_unsigned = true, output_unsigned = false"),
        B,
    ),
    "rescale 16 bits": (
        [W, const("1xi16", 20000), const("1xi8", 17), ZW, Z4],
        ("scale32 = false, rounding_mode = #tosa.rounding_mode<SINGLE_ROUND>, per_channel = false, "
        "input_unsigned = false, output_unsigned = false"),
        B,
    ),
    "reshape": ([F, shape(3, 25)], "", "3x25xf32"),
    "resize": (
        [F, shape(16, 1, 16, 1), shape(0, 0), shape(15, 15)],
        "mode = #tosa.resize_mode<NEAREST_NEIGHBOR>",
        "1x80x80x3xf32",
    ),
    "resize bilinear": (
        [F, shape(4, 2, 4, 2), shape(-1, -1), shape(1, 1)],
        "mode = #tosa.resize_mode<BILINEAR>",
        "1x10x10x3xf32",
    ),
    "resize of other places": (
        [F, shape(5, 3, 4, 3), shape(1, -1), shape(2, 1)],
        "mode = #tosa.resize_mode<BILINEAR>",
        "1x8x7x3xf32",
    ),
    "resize i8": (
        [B, shape(4, 2, 4, 2), shape(-1, -1), shape(1, 1)],
        "mode = #tosa.resize_mode<BILINEAR>",
        "1x10x10x3xi32",
    ),
    "reverse": ([W], "axis = 2 : i32", W),
    "rfft2d": (["2x4x8xf32"], "", "2x4x5xf32|2x4x5xf32"),
    "rsqrt": ([F], "", F),
    "scatter": (
        ["2x5x3xf32", const("2x2xi32", "[[4, 1], [0, 3]]"), "2x2x3xf32"], "", "2x5x3xf32"
    ),
    "select": (["1x5x5x3xi1", F, F], "", F),
    "select i8": (["1x5x5x3xi1", B, B], "", B),
    "sigmoid": ([F], "", F),
    "sin": ([F], "", F),
    "slice": ([F, shape(0, 1, 2, 0), shape(1, 3, 2, 3)], "", "1x3x2x3xf32"),
    "sub": ([F, F], "", F),
    "table": ([B, const("256xi8", [(i * i) % 200 - 100 for i in range(256)])], "", B),
    "table i16": ([W, const("513xi16", [(i * 97) % 60000 - 30000 for i in range(513)])], "", I),
    "tanh": ([F], "", F),
    "tile": ([B, shape(1, 2, 1, 3)], "", "1x10x5x9xi8"),
    "transpose": ([F], "perms = array<i32: 0, 3, 1, 2>", "1x3x5x5xf32"),
    "transpose_conv2d": (
        ["1x4x3x2xf32", "3x2x3x2xf32", "3xf32", ZF, ZF],
        "out_pad = array<i64: 0, -1, 1, 0>, stride = array<i64: 2, 1>, acc_type = f32",
        "1x7x6x3xf32",
    ),
    "transpose_conv2d i8": (
        ["1x4x3x2xi8", const("3x2x3x2xi8", [[[[1, -2]] * 3] * 2] * 3), "3xi32", ZB, const("1xi8", 0)],
        "out_pad = array<i64: 0, -1, 1, 0>, stride = array<i64: 2, 1>, acc_type = i32",
        "1x7x6x3xi32",
    ),
}  # fmt: skip
NOT_READ = {"custom", "variable", "variable_read", "variable_write"}
"""Ops of TOSA 1.0 that stay opaque: what they compute is nowhere in the program, or outlives its run."""
OPERATORS = {
    *(name.partition(" ")[0] for name in CASES),
    *("cond_if", "while_loop", "const", "const_shape", "yield"),
    *NOT_READ,
}
SPECIFICATION = """
argmax avg_pool2d conv2d conv3d depthwise_conv2d fft2d matmul max_pool2d rfft2d transpose_conv2d clamp erf
sigmoid tanh add arithmetic_right_shift bitwise_and bitwise_or bitwise_xor intdiv logical_and
logical_left_shift logical_right_shift logical_or logical_xor maximum minimum mul pow sub table abs
bitwise_not ceil clz cos exp floor log logical_not negate reciprocal rsqrt sin select equal greater
greater_equal reduce_all reduce_any reduce_max reduce_min reduce_product reduce_sum concat pad reshape
reverse slice tile transpose gather scatter resize cast rescale const identity custom cond_if while_loop
yield variable variable_write variable_read const_shape
"""
"""Source: TOSA specification 1.0.1, "Operators"."""


def tensor(kind):
    return f"tensor<{kind}>"


def module(name, operands, attributes, result):
    """A program of one operator, its arguments those operands that are neither constants nor shapes."""
    lines, names, kinds, arguments = [], [], [], []
    for i, kind in enumerate(operands):
        if kind[0] == "=":
            value, _, own = kind[1:].rpartition(":")
            kind = tensor(own)  # noqa: PLW2901 - of the operand
            lines.append(f'%c{i} = "tosa.const"() {{values = dense<{value}> : {kind}}} : () -> {kind}')
            names.append(f"%c{i}")
        elif kind[0] == "#":
            sizes = kind[1:].split(",")
            own, kind = f"tensor<{len(sizes)}xindex>", f"!tosa.shape<{len(sizes)}>"  # noqa: PLW2901
            dense = f"dense<[{', '.join(sizes)}]> : {own}"
            lines.append(f'%s{i} = "tosa.const_shape"() {{values = {dense}}} : () -> {kind}')
            names.append(f"%s{i}")
        else:
            kind = tensor(kind)  # noqa: PLW2901
            names.append(f"%x{i}")
            arguments.append((f"%x{i}", kind))
        kinds.append(kind)
    results = [tensor(kind) for kind in result.split("|")]
    made = ", ".join(f"%y{i}" for i in range(len(results)))
    op = f'"tosa.{name}"({", ".join(names)})'
    lines.append(f"{made} = {op} {{{attributes}}} : ({', '.join(kinds)}) -> ({', '.join(results)})")
    lines.append(f'"func.return"({made}) : ({", ".join(results)}) -> ()')
    given = ", ".join(f"{value}: {kind}" for value, kind in arguments)
    header = f"({', '.join(kind for _, kind in arguments)}) -> ({', '.join(results)})"
    body = "\n    ".join(lines)
    return f""""builtin.module"() ({{
  "func.func"() ({{
  ^bb0({given}):
    {body}
  }}) {{function_type = {header}, sym_name = "main"}} : () -> ()
}}) : () -> ()
"""


def numbers(name, operands):
    """Arguments of a program: what its operator takes."""
    rng = np.random.default_rng(len(name))
    found = []
    for kind in operands:
        if kind[0] in "=#":
            continue
        *sizes, element = kind.split("x")
        sizes = tuple(map(int, sizes))
        if element == "f32":
            array = rng.normal(size=sizes).astype(np.float32) * 3
            found.append(np.abs(array) + np.float32(0.5) if name in ("log", "pow", "rsqrt") else array)
        elif element == "i1":
            found.append(rng.random(sizes) < 0.5)
        else:
            bits = 20 if element == "i32" else int(element[1:])
            found.append(rng.integers(-(1 << bits - 1), 1 << bits - 1, sizes).astype(DTYPES[element]))
    return found


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the reference model computes of every case."""
    jobs = []
    for name, (operands, attributes, result) in CASES.items():
        text = module(name.partition(" ")[0], operands, attributes, result)
        jobs.append((text.encode(), [numbers(name, operands)]))
    found = tosa.run(tmp_path_factory.mktemp("tosa"), jobs, extensions=f"{TOSA_EXTENSIONS},fft")
    return {name: (*job, made) for name, job, made in zip(CASES, jobs, found, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_the_reference_model_does(computed, name):
    """Integers to the bit; reals to what two libraries of functions differ by."""
    text, (arguments,), wanted = computed[name]
    assert not isinstance(wanted, str), wanted
    graph = planner.load_model(text, format="mlir")
    assert graph.notes == ()
    found = ModelRunner(graph).run(dict(zip(graph.inputs, arguments, strict=True)))
    for output, array in zip(graph.outputs, wanted[0], strict=True):
        assert found[output].shape == array.shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[output], array, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_equal(found[output], array)


WRITTEN = (
    *("argmax i8", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cast i16 to f32"),
    *("cast i32 to i8", "clamp i8", "clamp i16", "concat i16", "gather i8", "identity", "intdiv"),
    *("logical_left_shift i8", "max_pool2d i8", "max_pool2d i16", "mul i8", "negate i8", "pad i16"),
    *("reduce_max i16", "reduce_min i8", "reduce_product", "reverse", "select i8", "table", "tile"),
)
"""Programs of integers that stand for no reals, which are written again."""
NODES = {
    "toward zero": ("y = Cast <to=3> (x)", np.array([-3.7, -0.5, 0.0, 0.5, 2.5, 100.9], np.float32), "int8"),
    "negated": ("y = Neg (x)", np.array([-7, 0, 9], np.int32), "int32"),
    "wrapped": ("y = Add (x, x)", np.array([100, -100, 3], np.int8), "int8"),
    "divided": ("y = Div (x, x)", np.array([-128, 5, 3], np.int16), "int16"),
}
"""ONNX nodes, x, the type of y."""


def integer_models():
    """Graphs and a sample of each, by name."""
    for name in WRITTEN:
        operands, attributes, result = CASES[name]
        text = module(name.partition(" ")[0], operands, attributes, result)
        graph = planner.load_model(text.encode(), format="mlir")
        yield name, graph, dict(zip(graph.inputs, numbers(name, operands), strict=True))
    for name, (nodes, x, kind) in NODES.items():
        own = {"float32": "float"}.get(str(x.dtype), str(x.dtype))
        header = '<ir_version: 10, opset_import: ["" : 21]>'
        text = f"{header} g ({own}[{x.size}] x) => ({kind}[{x.size}] y) {{ {nodes} }}"
        yield name, planner.load_model(onnx.parser.parse_model(text).SerializeToString()), {"x": x}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What the reference model computes of our program of each."""
    jobs, models = [], []
    for name, graph, sample in integer_models():
        plan = planner.plan(graph, "tosa-int8")
        jobs.append((planner.export(graph, plan, "tosa"), [fed(graph, plan, sample)]))
        models.append((name, graph, sample))
    found = tosa.run(tmp_path_factory.mktemp("written"), jobs, extensions=TOSA_EXTENSIONS)
    return {name: (*rest, made) for (name, *rest), made in zip(models, found, strict=True)}


@pytest.mark.parametrize("name", [*WRITTEN, *NODES])
def test_integers_without_a_scale_are_written(written, name):
    graph, sample, given = written[name]
    assert not isinstance(given, str), given
    for output, array in zip(ModelRunner(graph).run(sample).values(), given[0], strict=True):
        np.testing.assert_allclose(array, output, rtol=2e-5)
        assert array.dtype == output.dtype


def test_every_operator_of_the_specification_is_read_or_named():
    assert set(SPECIFICATION.split()) == OPERATORS
    assert {"const", "const_shape", "yield", *READERS} >= OPERATORS - NOT_READ


@pytest.mark.parametrize("tool", ["iree-opt", "torch-mlir-opt", "tosa-opt"])
def test_custom_form_reads_as_generic_form(tool):
    """A tool prints its own form of each program; it is the same model."""
    texts = [
        module(name.partition(" ")[0], operands, attributes, result)
        for name, (operands, attributes, result) in CASES.items()
    ]
    printed = parsed(tool, f"// {'-' * 5}\n".join(texts), "--split-input-file")
    assert not printed.startswith("ERROR"), printed
    customs = printed.split(f"// {'-' * 5}")
    assert sum(" = tosa." in text or "%1 = tosa" in text for text in customs) > 0.9 * len(texts)
    for text, custom in zip(texts, customs, strict=True):
        plain, other = (planner.load_model(each.encode(), format="mlir") for each in (text, custom))
        assert other.notes == (), custom
        assert [op.type for op in plain.ops] == [op.type for op in other.ops], custom
        assert [op.attributes for op in plain.ops] == [op.attributes for op in other.ops], custom


def test_text_that_is_no_op_stays():
    text = '// tosa.add %a, %b : (x)\n%s = "my.op"() {a = "tosa.add %a : (", tosa.attr = 1 : i32} : () -> ()'
    assert generic(text) == text


@pytest.mark.parametrize("name", sorted(NOT_READ - {"variable"}))
def test_what_is_not_read_is_named(name):
    text = module(name, ["4xf32"], "", "4xf32")
    graph = planner.load_model(text.encode(), format="mlir")
    assert graph.notes == (f"4:5: tosa.{name} 'y0' stays opaque and float: no ONNX op means the same",)
    with pytest.raises(planner.errors.InputError, match=f"tosa::{name}|tosa.{name}"):
        planner.calibrate(graph, [{"x0": np.zeros(4, np.float32)}])


LOOP = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %c = "tosa.const"() {values = dense<0> : tensor<i32>} : () -> tensor<i32>
  %k = "tosa.const"() {values = dense<[0.5, 1.0, 2.0, -3.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  %r:3 = "tosa.while_loop"(%c, %x, %n) ({
  ^bb0(%i: tensor<i32>, %s: tensor<4xf32>, %m: tensor<i32>):
    %go = tosa.greater %m, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    tosa.yield %go : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<4xf32>, %m: tensor<i32>):
    %one = "tosa.const"() {values = dense<1> : tensor<i32>} : () -> tensor<i32>
    %t = tosa.add %s, %k : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %j = tosa.add %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i32>
    tosa.yield %j, %t, %m : tensor<i32>, tensor<4xf32>, tensor<i32>
  }) : (tensor<i32>, tensor<4xf32>, tensor<i32>) -> (tensor<i32>, tensor<4xf32>, tensor<i32>)
  return %r#1 : tensor<4xf32>
}
"""


def test_a_loop_reads_what_stands_around_it():
    graph = planner.load_model(LOOP.encode(), format="mlir")
    sample = {"x": np.ones(4, np.float32), "n": np.int32(3)}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    plan = planner.plan(ready, "litert-int8")
    (found,) = planner.evaluate(ready, plan, sample).outputs.values()
    np.testing.assert_allclose(found, [2.5, 4.0, 7.0, -8.0], atol=0.1)


def test_types_are_constraints():
    """Reals of a quantized element type, as StableHLO's; a sum of 32 bits is still to be rescaled."""
    kind = "tensor<1x4x4x4x!quant.uniform<i8:f32, 0.05:3>>"
    wide = "tensor<1x4x4x8x!quant.uniform<i32:f32, 0.0005>>"
    text = f"""
func.func @main(%x: {kind}) -> tensor<1x4x4x8x!quant.uniform<i8:f32, 0.1>> {{
  %w = "tosa.const"() {{values = dense<0.25> : tensor<8x1x1x4xf32>}} : () -> tensor<8x1x1x4xf32>
  %b = "tosa.const"() {{values = dense<0.0> : tensor<8xf32>}} : () -> tensor<8xf32>
  %z = "tosa.const"() {{values = dense<0> : tensor<1xi8>}} : () -> tensor<1xi8>
  %m = "tosa.const"() {{values = dense<1073741824> : tensor<1xi32>}} : () -> tensor<1xi32>
  %acc = tosa.conv2d %x, %w, %b, %z, %z {{acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}} : ({kind}, tensor<8x1x1x4xf32>, tensor<8xf32>, tensor<1xi8>, tensor<1xi8>) -> {wide}
  %y = tosa.rescale %acc, %m, %z, %m, %z {{rounding_mode = SINGLE_ROUND, scale32 = true, per_channel = false, input_unsigned = false, output_unsigned = false}} : ({wide}, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4x8x!quant.uniform<i8:f32, 0.1>>
  return %y : tensor<1x4x4x8x!quant.uniform<i8:f32, 0.1>>
}}
"""  # noqa: E501 - lines of the module
    graph = planner.load_model(text.encode(), format="mlir")
    facts = {name: value.facts for name, value in graph.values.items() if value.facts}
    assert {name: str(found[0]) for name, found in facts.items()} == {
        "x": "!quant.uniform<i8:f32, 0.05000000074505806:3>",
        "y": "!quant.uniform<i8:f32, 0.10000000149011612>",
    }


@pytest.mark.parametrize("target", ["tosa-int8", "litert-int8"])
def test_what_the_exporter_writes_reads_back(target, tmp_path):
    """A whole program computes the same integers when it is read again, and is planned."""
    digits = ROOT / "examples" / "digits"
    model = planner.load_model(digits / "digits.onnx")
    ready = planner.annotate(model, stats=planner.calibrate(model, digits / "calibration.npz"))
    plan = planner.plan(ready, target)
    path = tmp_path / "digits.mlir"
    path.write_bytes(planner.export(ready, plan, "tosa"))
    program = planner.load_model(path)
    assert program.notes == ()
    images = np.load(digits / "calibration.npz")["image"][:4, None]
    for image in images:
        own = planner.evaluate(ready, plan, {"image": image})
        (stored,) = fed(ready, plan, {"image": image})
        (found,) = ModelRunner(program).run({"image": stored}).values()
        wanted = next(iter((own.stored if found.dtype.kind == "i" else own.outputs)["probabilities"][None]))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 if found.dtype.kind == "f" else 0)
