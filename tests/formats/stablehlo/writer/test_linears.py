"""Dots and convolutions: i32 results and one requantize, weights per axis, hybrid, per block, of words."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform, storage, sub_channel, uniform
from tests.formats.plans import bias, i8, model, op, plan_of, u8, weight
from tests.formats.stablehlo.writer.running import job, steps_off
from tests.oracles import hlo

RNG = np.random.default_rng(11)
START = RNG.bit_generator.state
X, Y = i8(0.02, -7), i8(0.05, 11)


@pytest.fixture(autouse=True)
def same_numbers():
    """A test has the same numbers whatever ran before it.

    Of 100,000 sums one may lie within a float32's digits of a tie (-34070 steps are -113.5000007 of the
    result's), where jaxlib's sum of floats rounds to the other side.
    """
    RNG.bit_generator.state = START


def _reals(*shape, scale=0.5):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def _one(ops, x_shape, arrays, types, *, reads="x w b", row="float32_spec"):
    """A graph and plan of one linear kernel whose result is `y`."""
    graph = model(ops, inputs={"x": x_shape}, outputs={"y": None}, constants=arrays)
    return graph, plan_of(graph, [([o.outputs[0] for o in ops], reads, "y")], types, row)


def _off(form, arithmetic, graph, plan, count=1):
    """Elements that differ, in all, and the largest difference."""
    shape = graph.values["x"].shape
    samples = [{"x": _reals(*shape, scale=2.0)} for _ in range(count)]
    results = hlo.evaluated([job(graph, plan, form, sample) for sample in samples])
    off = [steps_off(graph, plan, arithmetic, s, r)[0]["y"] for s, r in zip(samples, results, strict=True)]
    return (
        sum(map(np.count_nonzero, off)),
        sum(item.size for item in off),
        max(int(item.max()) for item in off),
    )


def _dot(rows, depth, columns, y=Y):
    w, b = _reals(depth, columns), _reals(columns, scale=0.2)
    kind = weight(w, 1)
    types = {"x": X, "w": kind, "b": bias(X, kind), "y": y}
    return _one([op("Gemm", "x w b", "y")], (rows, depth), {"w": w, "b": b}, types)


def _conv(y=Y, **attributes):
    w, b = _reals(16, 8, 3, 3), _reals(16, scale=0.2)
    kind = weight(w)
    types = {"x": X, "w": kind, "b": bias(X, kind), "y": y}
    ops = [op("Conv", "x w b", "y", pads=(1, 1, 1, 1), **attributes)]
    return _one(ops, (1, 8, 14, 14), {"w": w, "b": b}, types)


@pytest.mark.parametrize(
    ("form", "arithmetic"), [("stablehlo", "float32_spec"), ("stablehlo-int", "exact_even")]
)
@pytest.mark.parametrize(
    ("x", "stack"), [((4,), ()), ((5, 4), (2,)), ((2, 5, 4), (2,))], ids=["vector", "one", "stacks"]
)
def test_a_product_has_its_bias_on_the_axis_of_the_columns(form, arithmetic, x, stack):
    """(4,) times (4, 3) has one axis; of stacks of matrices (2, 4, 3) columns are the last axis, not 1."""
    w, b = _reals(*stack, 4, 3), _reals(3, scale=0.2)
    kind = i8(0.01) if stack else weight(w, 1)
    types = {"x": X, "w": kind, "b": bias(X, kind), "y": Y}
    ops, shape = [op("MatMul", "x w", "h"), op("Add", "h b", "y")], (*stack, *x[-2:-1], 3)
    graph = model(ops, inputs={"x": x}, outputs={"y": shape}, constants={"w": w, "b": b}, shapes={"h": shape})
    plan = plan_of(graph, [(["h", "y"], "x w b", "y")], types, "float32_spec")
    text = EXPORTERS[form](graph, plan).decode()
    (line,) = (line for line in text.splitlines() if "stablehlo.dot_general" in line)
    assert "f32" not in line.replace(":f32", "").rpartition("->")[2]
    assert _off(form, arithmetic, graph, plan)[:2] == (0, np.prod(shape))


@pytest.mark.parametrize("columns", [50, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("y", [i8(0.05, 11), i8(0.004, 11)], ids=["inside", "saturated"])
def test_dots_are_exact_sums_rounded_once(columns, y):
    """Integers equal exact accumulation everywhere; quantized types where jaxlib's float32 sum is exact."""
    graph, plan = _dot(100, 16, columns, y)
    assert _off("stablehlo-int", "exact_even", graph, plan)[0] == 0
    differing, total, _ = _off("stablehlo", "float32_spec", graph, plan)
    assert (differing, total) == (0, 100 * columns)


@pytest.mark.parametrize("count", [1, pytest.param(32, marks=pytest.mark.soak)])
@pytest.mark.parametrize("y", [i8(0.05, 11), i8(0.004, 11)], ids=["inside", "saturated"])
def test_convolutions_are_exact_sums_rounded_once(count, y):
    graph, plan = _conv(y)
    assert _off("stablehlo-int", "exact_even", graph, plan, count)[0] == 0
    differing, total, _ = _off("stablehlo", "float32_spec", graph, plan, count)
    assert (differing, total) == (0, 3136 * count)


def test_weights_that_are_all_stored_as_nothing_have_no_factor():
    """A pin of steps as coarse as 1e9: the sums are 0, and their factor fits no 64 bits."""
    kind = uniform(storage("i8", -127, 127), 1e9)
    arrays = {"w": _reals(16, 4), "b": _reals(4, scale=0.2)}
    types = {"x": X, "w": kind, "b": None, "y": i8(1e-4)}
    graph, plan = _one([op("Gemm", "x w b", "y")], (3, 16), arrays, types)
    assert _off("stablehlo-int", "exact_even", graph, plan)[0] == 0


def test_the_text_has_i32_sums_and_one_requantize():
    """What a reader sees: types per axis on the last axis, the bias added in i32, then uniform_quantize."""
    graph, plan = _dot(1, 2, 2)
    text = EXPORTERS["stablehlo"](graph, plan).decode()
    names = [line.split('"')[1] for line in text.splitlines() if '"stablehlo.' in line]
    assert names == [
        "stablehlo.uniform_quantize",
        "stablehlo.constant",
        "stablehlo.dot_general",
        "stablehlo.constant",
        "stablehlo.broadcast_in_dim",
        "stablehlo.add",
        "stablehlo.uniform_quantize",
        "stablehlo.uniform_dequantize",
    ]
    assert text.count("!quant.uniform<i32:f32:1, {") == 6
    assert "!quant.uniform<i8<-127:127>:f32:1, {" in text


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
@pytest.mark.parametrize(
    ("x", "y"),
    [(u8(0.02, 120), u8(0.05, 99)), (u8(0.02, 120), i8(0.05)), (X, u8(0.05, 3))],
    ids=["uu", "ui", "iu"],
)
def test_unsigned_activations_are_moved_to_the_sign_of_the_weights(form, x, y):
    """(convolution, C31): both sides have one storage; the move is by a zero point, so nothing is lost."""
    w = _reals(4, 3, 2, 2)
    graph, plan = _one(
        [op("Conv", "x w", "y")], (1, 3, 5, 5), {"w": w}, {"x": x, "w": weight(w), "y": y}, reads="x w"
    )
    assert _off(form, "exact_even", graph, plan)[2] == 0


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_transposed_convolutions(form):
    w = _reals(3, 4, 3, 2)
    kind = weight(w, 1)
    types = {"x": X, "w": kind, "b": bias(X, kind), "y": Y}
    ops = [op("ConvTranspose", "x w b", "y", strides=(2, 3), pads=(1, 0, 0, 1))]
    graph, plan = _one(ops, (1, 3, 5, 4), {"w": w, "b": _reals(4)}, types)
    assert _off(form, "exact_even", graph, plan)[2] == 0


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_words_beyond_i32_sums(form):
    """16 by 16 bits: sums of 64 bits as integers; in quantized types a float32 dot between casts."""
    x, y = uniform(storage("i16"), 0.0002), uniform(storage("i16"), 0.0004)
    w = _reals(64, 8)
    kind = weight(w, 1, storage("i16", -32767, 32767))
    graph, plan = _one(
        [op("MatMul", "x w", "y")], (5, 64), {"w": w}, {"x": x, "w": kind, "y": y}, reads="x w"
    )
    differing, total, largest = _off(form, "exact_even", graph, plan)
    assert largest <= (form == "stablehlo")
    assert differing <= total * 0.05


def test_a_float_bias_is_part_of_the_exact_sum():
    w, b = _reals(16, 8), _reals(8)
    graph, plan = _one(
        [op("Gemm", "x w b", "y")],
        (9, 16),
        {"w": w, "b": b},
        {"x": X, "w": weight(w, 1), "y": Y},
        reads="x w b",
    )
    assert _off("stablehlo-int", "exact_even", graph, plan)[0] == 0


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_alone_are_hybrid(form, bits):
    """(dot_general, C20), (convolution, C34): float sides in the weights' expressed type."""
    top = (1 << bits - 1) - 1
    store = storage(f"i{bits}", -top, top)
    cases = [
        ([op("MatMul", "x w", "y")], (3, 6), _reals(6, 5), 1),
        ([op("Gemm", "x w", "y", transB=1)], (3, 6), _reals(5, 6), 0),
        ([op("Conv", "x w", "y", group=2, pads=(1, 1, 1, 1))], (1, 4, 5, 5), _reals(6, 2, 3, 3), 0),
    ]
    for ops, shape, w, axis in cases:
        graph, plan = _one(ops, shape, {"w": w}, {"w": weight(w, axis, store)}, reads="x w")
        sample = {"x": _reals(*shape)}
        (results,) = hlo.evaluated([job(graph, plan, form, sample)])
        _, floats = steps_off(graph, plan, None, sample, results)
        np.testing.assert_allclose(*floats["y"], rtol=1e-5, atol=1e-5)
    text = EXPORTERS[form](graph, plan).decode()
    assert ("uniform_dequantize" in text) is False


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_scales_per_block_go_through_a_reshape(form):
    """Blocks become slices of one axis, are dequantized along it, and go back; a comment says so."""
    w = _reals(64, 6)
    scales = np.abs(w.reshape(2, 32, 6)).max(1).reshape(-1) / 7
    kind = sub_channel(storage("i4", -7, 7), scales.tolist(), blocks={0: 32, 1: 1}, grid=(2, 6))
    graph, plan = _one([op("MatMul", "x w", "y")], (3, 64), {"w": w}, {"w": kind}, reads="x w")
    text = EXPORTERS[form](graph, plan).decode()
    assert "// sub-channel [32, 1] of [64, 6]: a scale per block, held per axis" in text
    sample = {"x": _reals(3, 64)}
    (results,) = hlo.evaluated([job(graph, plan, form, sample)])
    _, floats = steps_off(graph, plan, None, sample, results)
    np.testing.assert_allclose(*floats["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_a_width_per_channel_is_a_range_of_the_widest(form):
    """Channels of 2, 4 and 8 bits in i8, as QONNX has them."""
    w = _reals(3, 4, 1, 1)
    ranges = ((-2, 1), (-8, 7), (-128, 127))
    kind = Uniform(storage("i8"), (0.5, 0.125, 0.0078125), (0, 0, 0), axis=0, ranges=ranges)
    graph, plan = _one(
        [op("Conv", "x w", "y")], (1, 4, 3, 3), {"w": w}, {"x": X, "w": kind, "y": Y}, reads="x w"
    )
    assert _off(form, "exact_even", graph, plan)[2] == 0


def test_scales_per_block_of_activations_are_refused():
    x = sub_channel(storage("i8"), [0.1, 0.2], blocks={1: 4}, grid=(1, 2))
    graph = model([op("Relu", "x", "y")], inputs={"x": (2, 8)}, outputs={"y": None}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": x, "y": X})
    with pytest.raises(UnsupportedExport) as caught:
        EXPORTERS["stablehlo"](graph, plan)
    assert str(caught.value) == (
        "y.in[0] ('x', row row@1) is !quant.uniform<i8:f32:{1:4}, "
        "{{0.10000000149011612, 0.20000000298023224}}>: scales per block; "
        "stablehlo accepts integers of 2 to 32 bits (a narrower range too), per tensor or per axis "
        "(annotate the value with one of these, or use a target whose rows do)"
    )


def test_pinned_ends_are_stored_and_the_verifier_takes_them():
    """Arguments and results of pinned values have quantized types, unsigned ones `ui8`."""
    w = _reals(3, 2, 1, 1)
    graph = model(
        [op("Conv", "x w", "y")],
        inputs={"x": (1, 2, 2, 2)},
        outputs={"y": None},
        constants={"w": w},
        facts={"x": (u8(0.02, 3),), "y": (u8(0.04, 5),)},
    )
    plan = plan_of(graph, [(["y"], "x w", "y")], {"x": u8(0.02, 3), "w": weight(w), "y": u8(0.04, 5)})
    text = EXPORTERS["stablehlo"](graph, plan).decode()
    assert (
        "function_type = (tensor<1x2x2x2x!quant.uniform<ui8:f32, 0.019999999552965164:3>>) -> "
        "(tensor<1x3x2x2x!quant.uniform<ui8:f32, 0.03999999910593033:5>>)"
    ) in text
    assert not hlo.printed([text])[0].startswith("ERROR")
    whole = EXPORTERS["stablehlo-int"](graph, plan).decode()
    assert "function_type = (tensor<1x2x2x2xui8>) -> (tensor<1x3x2x2xui8>)" in whole


def test_open_dimensions_are_one():
    model_ = planner.load_model("examples/digits/digits.onnx")
    stats = planner.calibrate(model_, "examples/digits/calibration.npz")
    heads = []
    for known in (replace(stats, sizes={}), stats):
        ready = planner.annotate(model_, stats=known)
        heads.append(planner.export(ready, planner.plan(ready, "stablehlo"), "stablehlo").decode())
    assert "// argument image.0: 'image' (dimensions left open are 1)" in heads[0]
    assert "// argument image.0: 'image'\n" in heads[1]  # the samples say that it is 1


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("clamped", [False, True])
def test_a_float_result_is_the_integer_sum_scaled_once(kind, clamped):
    """In integers bit for bit; in quantized types the float op, up to float32's rounding."""
    w = _reals(16, 8, 3, 3) if kind == "Conv" else _reals(8, 16)
    x, b = ((1, 8, 9, 9) if kind == "Conv" else (20, 8)), _reals(16, scale=0.2)
    stored = weight(w, 0 if kind == "Conv" else 1)
    types, arrays = {"x": X, "w": stored}, {"w": w}
    if kind != "MatMul":
        types, arrays = {**types, "b": bias(X, stored)}, {**arrays, "b": b}
    ops = [op(kind, " ".join(["x", *arrays]), "c" if clamped else "y"), op("Relu", "c", "y")][: 1 + clamped]
    graph, plan = _one(ops, x, arrays, types, reads=" ".join(types), row="exact_even")
    sample = {"x": _reals(*x, scale=2.0)}
    wanted = Interpreter(graph, plan, arithmetic="exact_even").run(sample).outputs["y"]
    integers, floats = hlo.evaluated([job(graph, plan, f, sample) for f in ("stablehlo-int", "stablehlo")])
    np.testing.assert_array_equal(integers[0], wanted)
    np.testing.assert_allclose(floats[0], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))
    text = EXPORTERS["stablehlo-int"](graph, plan).decode()
    assert text.count("xi32>)") >= 2
