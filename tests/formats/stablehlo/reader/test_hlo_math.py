"""Lowered quantized ops compute what the specification says, interpreted by jaxlib."""

from pathlib import Path

import numpy as np
import pytest

from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.passes.tool import split
from tests.formats.mlir.test_lowering import FLOATS, carriers, reals
from tests.formats.stablehlo.reader.hlo import (
    BINARY,
    COMPARED,
    SETS,
    binary,
    dequantized,
    kind,
    lowered,
    module,
    pairs,
    quantized,
)
from tests.oracles.hlo import TO_QDQ, evaluated, printed

MATH, QDQ = "stablehlo-legalize-quant-to-math", "stablehlo-legalize-quantized-op-to-qdq"
RESCALE, RESCALED = "stablehlo-quant-legalize-to-tosa-rescale", "tosa-rescale-legalize-to-stablehlo"
PROGRAMS = [text for _, text in split((Path(__file__).parent / "hlo.mlir").read_text(encoding="utf-8"))]
SOME = 1500
ALL = pytest.param(None, marks=pytest.mark.soak, id="all 65,536")


def expected(name, kinds, x, y):
    with np.errstate(all="ignore"):
        return quantized(BINARY[name](dequantized(x, kinds[0]), dequantized(y, kinds[1])), kinds[2])


@pytest.mark.parametrize("count", [pytest.param(SOME, id="some"), ALL])
def test_pairs_are_float32_spec(count):
    """Every op and scale set, stored integer for stored integer."""
    x, y = pairs(count)
    cases = [(name, kinds) for kinds in SETS.values() for name in BINARY]
    jobs = [(lowered(binary(name, kinds, f"{x.size}x")), [x, y]) for name, kinds in cases]
    for (name, kinds), (found,) in zip(cases, evaluated(jobs), strict=True):
        np.testing.assert_array_equal(found, expected(name, kinds, x, y), err_msg=f"{name} {kinds}")


def test_upstreams_own_lowering_rounds_the_pages_add_twice():
    x, y = pairs(SOME)
    kinds = SETS["page"]
    text = binary("add", kinds, f"{x.size}x")
    passes = "builtin.module(func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo))"
    ((found,),) = evaluated([(text, [x, y], passes)])
    share = np.mean(found != expected("add", kinds, x, y))
    assert 0.15 < share < 0.3


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_compare_reals(name):
    x, y = pairs(SOME)
    attributes = f" <{{comparison_direction = #stablehlo<comparison_direction {name}>}}>"
    jobs, wanted = [], []
    for kinds in SETS.values():
        text = binary("compare", (*kinds[:2], "i1"), f"{x.size}x", attributes)
        jobs.append((lowered(text), [x, y]))
        wanted.append(COMPARED[name](dequantized(x, kinds[0]), dequantized(y, kinds[1])))
    for (found,), right in zip(evaluated(jobs), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_taken_apart_by_jaxlib_they_give_the_same():
    """Our lowering beside jaxlib's interpreter on what its own pass makes of the quantized op."""
    x, y = pairs(SOME)
    jobs = []
    for kinds in SETS.values():
        for name in BINARY:
            types = [kind(text, f"{x.size}x") for text in kinds]
            plain = f"tensor<{x.size}xi8>"
            body = (
                f'  %p = "stablehlo.bitcast_convert"(%x) : ({plain}) -> {types[0]}\n'
                f'  %q = "stablehlo.bitcast_convert"(%y) : ({plain}) -> {types[1]}\n'
                f'  %0 = "stablehlo.{name}"(%p, %q) : ({types[0]}, {types[1]}) -> {types[2]}\n'
                f'  %1 = "stablehlo.bitcast_convert"(%0) : ({types[2]}) -> {plain}\n  return %1 : {plain}'
            )
            text = module({"x": plain, "y": plain}, [plain], body)
            jobs += [(lowered(text), [x, y]), (text, [x, y], TO_QDQ), (lowered(text, QDQ), [x, y])]
    found = [result for (result,) in evaluated(jobs)]
    for ours, theirs, apart in zip(found[::3], found[1::3], found[2::3], strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours, apart)


def product(shapes, kinds, attributes, op="dot_general"):
    shapes = ["x".join(map(str, shape)) + "x" for shape in shapes]
    types = [kind(text, shape) for text, shape in zip(kinds, shapes, strict=True)]
    body = f'  %0 = "stablehlo.{op}"(%x, %y) <{{{attributes}}}> : ({types[0]}, {types[1]}) -> {types[2]}'
    return module({"x": types[0], "y": types[1]}, [types[2]], f"{body}\n  return %0 : {types[2]}")


def requantized(total, kinds):
    """Exact sums as reals of the product scale, quantized: float32 throughout."""
    scales = [np.float32(text.split(", ")[1].split(":")[0]) for text in kinds[:2]]
    return quantized(total.astype(np.float32) * (scales[0] * scales[1]), kinds[2])


NUMBERS = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]"
DOT = f"dot_dimension_numbers = #stablehlo.dot<{NUMBERS}>"


@pytest.mark.parametrize("rows", [12, pytest.param(200, marks=pytest.mark.soak, id="40,000 results")])
@pytest.mark.parametrize(("left_zero", "right_zero"), [(-1, 0), (-1, -7), (0, 0)])
@pytest.mark.parametrize("op", ["dot", "dot_general"])
def test_dots_are_exact_sums(rows, left_zero, right_zero, op):
    """Random bytes, sums up to 64 x 255 x 255, with results that saturate; and the sums themselves."""
    random = np.random.default_rng(11)
    x, y = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, 64), (64, rows)))
    kinds = (f"i8:f32, 0.0251:{left_zero}", f"i8:f32, 0.0173:{right_zero}", "i8:f32, 0.1:5")
    sums = (*kinds[:2], f"i32:f32, {0.0251 * 0.0173!r}")
    attributes = DOT if op == "dot_general" else ""
    shapes = x.shape, y.shape, (rows, rows)
    jobs = [(lowered(product(shapes, wanted, attributes, op)), [x, y]) for wanted in (kinds, sums)]
    (small,), (exact,) = evaluated(jobs)
    total = (x.astype(np.int64) - left_zero) @ (y.astype(np.int64) - right_zero)
    np.testing.assert_array_equal(exact, total)
    np.testing.assert_array_equal(small, requantized(total, kinds))
    assert {-128, 127} <= set(small.reshape(-1).tolist())


@pytest.mark.parametrize("left_zero", [-1, 0])
def test_convolutions_are_exact_sums(left_zero):
    """Padding, strides, dilation and groups; with a zero point padding is a real zero.

    Without one too the operands are i32, as jaxlib sums a convolution in the type of its operands.
    """
    random = np.random.default_rng(12)
    x, y = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 9, 4), (3, 2, 6)))
    kinds = (f"i8:f32, 0.0251:{left_zero}", "i8:f32, 0.0173", f"i32:f32, {0.0251 * 0.0173!r}")
    attributes = (
        "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, padding = dense<[[2, 1]]> : "
        "tensor<1x2xi64>, rhs_dilation = array<i64: 2>, window_strides = array<i64: 2>, "
        "batch_group_count = 1 : i64, feature_group_count = 2 : i64"
    )
    ((found,),) = evaluated(
        [(lowered(product((x.shape, y.shape, (2, 4, 6)), kinds, attributes, "convolution")), [x, y])]
    )
    padded = np.pad(x.astype(np.int64) - left_zero, ((0, 0), (2, 1), (0, 0)))
    taps = [padded[:, 2 * tap : 2 * tap + 7 : 2] for tap in range(3)]
    wide = y.astype(np.int64)
    halves = []
    for group in range(2):
        ins, outs = slice(2 * group, 2 * group + 2), slice(3 * group, 3 * group + 3)
        halves.append(sum(taps[tap][..., ins] @ wide[tap, :, outs] for tap in range(3)))
    np.testing.assert_array_equal(found, np.concatenate(halves, axis=-1))


def test_sums_that_leave_32_bits_are_made_in_64():
    kinds = ("i16:f32, 0.5", "i16:f32, 0.25", "i32:f32, 4096.0")
    text = lowered(product(((1, 64), (64, 1), (1, 1)), kinds, DOT))
    x = np.full((1, 64), 32767, np.int16)
    ((found,),) = evaluated([(text, [x, x.reshape(64, 1)])])
    assert found.tolist() == [[2097024]]


def test_programs_compute_what_their_parts_do():
    """Whole programs, lowered at once and taken apart first: every result is equal."""
    jobs = []
    for text in printed(PROGRAMS):
        parsed, _ = parse_text(text)
        main = next(iter(parsed.body.ops))
        random = np.random.default_rng(5)
        reals = [random.normal(0, 3, t.get_shape()).astype(np.float32) for t in main.function_type.inputs]
        source = text.replace(f'"{main.sym_name.data}"', '"main"')
        jobs += [(lowered(source, MATH), reals), (lowered(source, QDQ, MATH), reals)]
    found = evaluated(jobs)
    for text, ours, apart in zip(PROGRAMS, found[::2], found[1::2], strict=True):
        for one, other in zip(ours, apart, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=text)
            assert len(np.unique(one)) > 1, text


@pytest.mark.parametrize("name", [*BINARY, "abs"])
@pytest.mark.parametrize("chosen", ["page", "narrow"])
def test_rescales_are_within_one_step_of_exact(name, chosen):
    """Quantized op -> tosa.rescale -> StableHLO, interpreted, beside the formula in float64."""
    x, y = pairs(SOME)
    kinds = SETS[chosen]
    low = -128 if chosen == "page" else -127
    x, y = np.maximum(x, low), np.maximum(y, low)
    if name == "abs":
        types = [kind(text, f"{x.size}x") for text in (kinds[0], kinds[2])]
        body = f'  %0 = "stablehlo.abs"(%x) : ({types[0]}) -> {types[1]}\n  return %0 : {types[1]}'
        text, given = module({"x": types[0]}, [types[1]], body), [x]
        exact = np.abs(dequantized(x, kinds[0]))
    else:
        y = np.where(y == int(kinds[1].partition(":f32, ")[2].partition(":")[2] or 0), 1, y).astype(np.int8)
        text, given = binary(name, kinds, f"{x.size}x"), [x, y]
        exact = BINARY[name](dequantized(x, kinds[0]), dequantized(y, kinds[1]))
    ((found,),) = evaluated([(lowered(text, RESCALE, RESCALED, MATH), given)])
    off = np.abs(found.astype(int) - quantized(exact, kinds[2]))
    halves = np.mod(exact.astype(np.float64) / float(kinds[2].split(", ")[1].partition(":")[0]), 1)
    assert off.max() <= 1
    assert not np.any(off[np.abs(halves - 0.5) > 1e-3])  # ties go up here, to even there


CASTS = [
    ("i8:f32, 0.1:-7", "f32", "i8"),
    ("i8<-127:127>:f32, 0.37:5", "f32", "i8"),
    ("ui8:f32, 0.1:131", "f32", "ui8"),
    ("u4:f32, 3.0:9", "f32", "ui4"),
    ("i4:f32, 3.0", "f32", "i4"),
    ("i16:f32, 0.001:3", "f32", "i16"),
    ("u16:f32, 0.001:40000", "f32", "ui16"),
    ("i32:f32, 1.0e-7:77", "f32", "i32"),
    ("ui32:f32, 1.0e-7:2147483648", "f32", "ui32"),
    ("i8:f64, 0.1:3", "f64", "i8"),
    ("i8:f16, 0.1:3", "f16", "i8"),
    ("i16:f16, 0.01:9", "f16", "i16"),
]


@pytest.mark.parametrize(("text", "real", "integer"), CASTS, ids=[text for text, *_ in CASTS])
def test_casts_of_every_width_round_half_to_even_and_saturate(text, real, integer):
    """Reals to stored integers and back, beyond the ends of the range and at ties."""
    _, _, uniform = carriers(f"!quant.uniform<{text}>", None)
    values = reals(uniform, (3000,))
    values = values[np.isfinite(values)]
    shape = f"{values.size}x"
    types = f"tensor<{shape}{real}>", kind(text, shape), f"tensor<{shape}{integer}>", f"tensor<{shape}i64>"
    body = (
        f'  %0 = "stablehlo.uniform_quantize"(%x) : ({types[0]}) -> {types[1]}\n'
        f'  %1 = "stablehlo.bitcast_convert"(%0) : ({types[1]}) -> {types[2]}\n'
        f'  %2 = "stablehlo.convert"(%1) : ({types[2]}) -> {types[3]}\n'
        f'  %3 = "stablehlo.uniform_dequantize"(%0) : ({types[1]}) -> {types[0]}\n'
        f"  return %2, %3 : {types[3]}, {types[0]}"
    )
    ((stored, back),) = evaluated([(lowered(module({"x": types[0]}, [types[3], types[0]], body)), [values])])
    scale, zero = FLOATS[real](uniform.scales[0]), uniform.zero_points[0]
    wanted = stored_values(values, uniform)
    np.testing.assert_array_equal(stored, wanted)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(back, (wanted - zero).astype(FLOATS[real]) * scale)


def stored_values(values, uniform):
    """`rint(clip(x / scale + zero_point))`, the quotient and sum in the expressed type."""
    kind_of = values.dtype.type
    with np.errstate(over="ignore"):
        steps = values / kind_of(uniform.scales[0])
        if uniform.zero_points[0]:
            steps = steps + kind_of(uniform.zero_points[0])
    clipped = np.clip(steps.astype(np.float64), uniform.storage.qmin, uniform.storage.qmax)
    return np.rint(clipped).astype(np.int64)
