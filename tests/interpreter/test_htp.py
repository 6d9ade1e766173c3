"""The arithmetic of Qualcomm's HTP: the page's function, and facts that the library showed."""

import re
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.interpreter.calls import Operand
from planner.interpreter.kernels.htp import (
    Steps,
    Sums,
    added,
    is_strided_depthwise,
    misread_padding,
    multiplied,
    normalized,
    onto_grid,
    steps_of,
    strided_onto_grid,
)
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform, storage
from planner.target.modeltext import read_model_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


def page_function(name):
    (section,) = re.findall(r"## HTP\n(.*?)\n## ", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    for text in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(text, names)  # noqa: S102
    return names[name]


def of(store, zero):
    return Uniform(storage(store), (1.0,), (zero,))


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_the_page_says_what_is_computed(bits, strided):
    htp, rng = page_function("htp"), np.random.default_rng(bits)
    constants = page_function("htp_constants")
    kernel = (lambda sums, ratio, _, y: strided_onto_grid(sums, ratio, y)) if strided else onto_grid
    for _ in range(200):
        zx, zy = (int(zero) for zero in rng.integers(0, 1 << bits, 2))
        taps, bias = int(rng.integers(-3000, 3000)), int(rng.integers(-1 << 16, 1 << 16))
        products = int(rng.integers(-1 << (bits + 10), 1 << (bits + 10)))
        ratio = np.float32(rng.uniform(2.0**-14, 2.0**-3))
        sums = Sums(*(np.asarray(n) for n in (products + bias - zx * taps, bias, taps)))
        step = Steps(np.float32(0.0003), np.asarray([ratio]))
        found = kernel(sums, step, of(f"u{bits}", zx), of(f"u{bits}", zy))
        (constant,) = constants(np.asarray([bias]), step.ratio, step.unit, zy)
        constant = bias + np.floor(np.float32(zy) / ratio + np.float32(0.5)) if strided else constant
        wanted = htp(products, int(constant), taps, float(ratio), zx, bits, strided)
        assert int(found[0]) == min(max(wanted, 0), (1 << bits) - 1)


def test_a_weight_of_one_leaves_multiples_of_256():
    x = np.arange(0, 65536, 77)
    sums = Sums(x, np.zeros((), np.int64), np.ones((), np.int64))
    found = onto_grid(sums, Steps(np.float32(1), np.ones(1, np.float32)), of("u16", 0), of("u16", 0))
    np.testing.assert_array_equal(found, x // 256 * 256)


@pytest.mark.parametrize(("total", "stored"), [(7 * 8 - 1, 0), (7 * 8, 1), (19 * 8 - 1, 1), (1206 * 8, 97)])
def test_thresholds_that_the_library_showed(total, stored):
    """At a ratio of 0.01: sums lose three bits, and the multiplier is 1311 / 1024."""
    sums = Sums(np.asarray([total]), np.zeros((), np.int64), np.zeros((), np.int64))
    found = onto_grid(sums, Steps(np.float32(1), np.asarray([0.01], np.float32)), of("u8", 0), of("u8", 0))
    assert int(found[0]) == stored


@pytest.mark.parametrize(
    ("group", "strides", "weight", "is_one"),
    [
        (8, (2, 2), (8, 1, 3, 3), True),
        (8, (2, 2), (8, 1, 7, 5), True),
        (8, (2, 2), (8, 1, 9, 3), False),
        (8, (2, 1), (8, 1, 3, 3), False),
        (8, (2, 2), (16, 1, 3, 3), False),  # two results of each channel
        (1, (2, 2), (8, 1, 3, 3), False),
        (1, (2, 2), (1, 1, 3, 3), False),
        (8, (2,), (8, 1, 3), False),
    ],
)
def test_depthwise_convolutions_of_stride_2(group, strides, weight, is_one):
    op = Op("c", "Conv", ("x", "w"), ("y",), {"group": group, "strides": strides})
    assert is_strided_depthwise(op, weight, 2.0**-16) is is_one
    assert not is_strided_depthwise(op, weight, 2.0**-16.1), "one channel beyond its shift of 30"


@pytest.mark.parametrize(
    ("bits", "sides", "pad", "is_misread"),
    [
        (16, (5, 5), 1, True),
        (16, (5, 5), 2, True),
        (16, (5, 5), 0, False),
        (16, (5, 5), 3, False),
        (16, (3, 3), 1, False),
        (16, (7, 7), 2, False),
        (16, (5, 3), 1, False),
        (8, (5, 5), 2, False),
    ],
)
def test_left_padding_of_words_is_read_with_its_upper_byte_twice(bits, sides, pad, is_misread):
    """Under the fourth row of weights, for every second row of results: window by window."""
    rng, zero = np.random.default_rng(pad), 0x12A7 % (1 << bits)
    x = rng.integers(0, 1 << bits, (1, 3, 9, 10)).astype(np.uint16)
    weight = rng.integers(-128, 128, (3, 1, *sides)).astype(np.int8)
    op = Op("c", "Conv", ("x", "w"), ("y",), {"strides": (2, 2), "pads": (pad,) * 4, "group": 3})
    read = np.pad(x[0].astype(np.int64), ((0, 0), (pad, pad), (pad, pad)), constant_values=zero)
    places = tuple((size - side) // 2 + 1 for size, side in zip(read.shape[1:], sides, strict=True))
    wanted = np.zeros((3, *places), np.int64)
    for channel, row, column in np.ndindex(*wanted.shape):
        window = read[channel, 2 * row : 2 * row + sides[0], 2 * column : 2 * column + sides[1]].copy()
        before = ((window - zero) * weight[channel, 0]).sum()
        if is_misread and row % 2 and not column:
            window[3, :pad] = (zero >> 8) * 257
        wanted[channel, row, column] = ((window - zero) * weight[channel, 0]).sum() - before
    found = misread_padding(op, Operand(x, of(f"u{bits}", zero)), Operand(weight, of("i8", 0)), places)
    np.testing.assert_array_equal(found, wanted)


def test_steps_go_by_the_largest_scale():
    scales = np.asarray([0.3, 0.1, 0.07], np.float32)
    step = steps_of(0.02, scales, 0.05)
    assert step.unit == np.float32(0.02) * scales[0]
    np.testing.assert_array_equal(step.ratio, step.unit / np.float32(0.05) * (scales / scales[0]))


def test_a_bias_beyond_28_bits_coarsens_the_others():
    """The library showed multiples of 4 beside one of 2^30."""
    biases = np.asarray([1 << 30, 16218, 10829, -252])
    sums = Sums(biases, biases, np.zeros((), np.int64))
    step = Steps(np.float32(1e-4), np.asarray([2.0**-24, 1, 1, 1], np.float32))
    found = onto_grid(sums, step, of("u8", 0), of("u16", 0))
    assert found.tolist() == [64, 16216, 10828, 0]


def test_x_times_its_sigmoid_is_one_function():
    """The stored sigmoid is coarse, and what reads it sees it; the product is rounded once."""
    text = """
x : f32[1,64] {-6, 6}
s = Sigmoid(x) : f32[1,64] {0, 1}
p = Mul(s, x) : f32[1,64] {-0.3, 6}
"""
    plan = planner.plan(read_model_text(text, "gate"), "qnn-htp")
    found = planner.evaluate(plan.graph, plan, {"x": np.linspace(-6, 6, 64, dtype=np.float32)[None]})
    (x,) = (port.type for port in plan.kernels["p"].inputs if port.value == "x")
    (y,) = (port.type for port in plan.kernels["p"].outputs)
    stored = np.clip(np.rint(found.reals["x"] / np.float32(x.scale)) + x.zero_point, 0, 255)
    reals = (stored.astype(np.float64) - x.zero_point) * x.scale
    steps = np.rint(reals / (1 + np.exp(-reals)) / y.scale) + y.zero_point
    np.testing.assert_array_equal(found.stored["p"], np.clip(steps, 0, 255))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [8, 16])
def test_the_page_says_what_is_added(bits, sign):
    htp_add, rng = page_function("htp_add"), np.random.default_rng(bits + sign)
    most, store = (1 << bits) - 1, storage(f"u{bits}")
    for _ in range(50):
        za, zb, zy = (int(zero) for zero in rng.integers(0, most + 1, 3))
        scales = [float(np.float32(scale)) for scale in 2.0 ** rng.uniform(-9, -3, 3)]
        a, b = rng.integers(0, most + 1, (2, 20)).astype(f"uint{bits}")
        kinds = [Uniform(store, (scale,), (zero,)) for scale, zero in zip(scales, (za, zb, zy), strict=True)]
        found = added(Operand(a, kinds[0]), Operand(b, kinds[1]), kinds[2], sign=sign)
        ratios = scales[0] / scales[2], scales[1] / scales[2]
        wanted = [
            htp_add(p, q, *ratios, za, zb, zy, bits, sign)
            for p, q in zip(a.tolist(), b.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(found, np.clip(wanted, 0, most))


@pytest.mark.parametrize(
    ("scales", "zeros", "pair", "stored"),
    [
        ((0.0173, 0.0092, 0.0247), (100, 30, 60), (55, 22), 25),  # 25.502
        ((0.0173, 0.0092, 0.0247), (100, 30, 60), (117, 190), 131),  # 131.502
        ((0.025, 0.075, 0.15), (128, 128, 128), (44, 43), 71),  # 71.5000003
        ((0.02, 0.03, 0.04), (128, 128, 128), (88, 214), 173),  # 172.5
        ((0.02, 0.03, 0.04), (128, 128, 128), (164, 174), 181),  # 180.5
    ],
)
def test_sums_that_the_library_showed(scales, zeros, pair, stored):
    """Ties go up, and multipliers of 14 bits leave some sums a step from the nearest."""
    kinds = [
        Uniform(storage("u8"), (float(np.float32(scale)),), (zero,))
        for scale, zero in zip(scales, zeros, strict=True)
    ]
    a, b = (Operand(np.asarray([x], np.uint8), kind) for x, kind in zip(pair, kinds, strict=False))
    assert int(added(a, b, kinds[2], sign=1)[0]) == stored


def drawn(rng, bits, low, high):
    """Types of two factors and a product whose step is a power of two of theirs between `low` and `high`."""
    scales = [float(np.float32(scale)) for scale in 2.0 ** rng.uniform(-9, -3, 2)]
    scales.append(float(np.float32(scales[0] * scales[1] / 2.0 ** rng.uniform(low, high))))
    zeros = rng.integers(0, 1 << bits, 3)
    return [Uniform(storage(f"u{bits}"), (scale,), (int(z),)) for scale, z in zip(scales, zeros, strict=True)]


def ratio_of(kinds):
    """The ratio of a product, each step in float32."""
    a, b, y = (np.float32(kind.scale) for kind in kinds)
    return float(np.float32(a * b) / y)


@pytest.mark.parametrize(("bits", "low", "high"), [(8, -14, -1.1), (16, -26, -5.1)])
def test_the_page_says_what_is_multiplied(bits, low, high):
    htp_mul, rng = page_function("htp_mul"), np.random.default_rng(bits)
    most = (1 << bits) - 1
    for _ in range(100):
        kinds = drawn(rng, bits, low, high)
        a, b = rng.integers(0, most + 1, (2, 20)).astype(f"uint{bits}")
        found = multiplied(Operand(a, kinds[0]), Operand(b, kinds[1]), kinds[2])
        zeros = [kind.zero_point for kind in kinds]
        wanted = [
            htp_mul(p, q, ratio_of(kinds), *zeros, bits) for p, q in zip(a.tolist(), b.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(found, np.clip(wanted, 0, most))


@pytest.mark.parametrize(
    ("scales", "zeros", "pair", "stored"),
    [
        ((0.025, 0.075, 0.15), (128, 128, 128), (53, 264 - 128), 121),  # 120.5 and a little less
        ((0.0131, 0.0077, 0.0131 * 0.0077 / 0.0061913), (0, 0, 17), (3, 27), 18),  # 17.5015
        ((0.0131, 0.0077, 0.0131 * 0.0077 / 1.3), (0, 0, 50), (1, 1), 52),  # 51.3: even steps beyond 1
    ],
)
def test_products_that_the_library_showed(scales, zeros, pair, stored):
    kinds = [
        Uniform(storage("u8"), (float(np.float32(scale)),), (zero,))
        for scale, zero in zip(scales, zeros, strict=True)
    ]
    a, b = (Operand(np.full(2, x, np.uint8), kind) for x, kind in zip(pair, kinds, strict=False))
    assert multiplied(a, b, kinds[2]).tolist() == [stored] * 2


def test_a_single_byte_and_other_storages_are_not_multiplied_so():
    one, many = np.asarray([3], np.uint8), np.asarray([3, 4], np.uint8)
    byte, word = (Uniform(storage(name), (2.0**-6,), (0,)) for name in ("u8", "u16"))
    signed = Uniform(storage("i8"), (2.0**-6,), (0,))
    assert multiplied(Operand(one, byte), Operand(many, byte), byte) is None
    assert multiplied(Operand(many.astype(np.int8), signed), Operand(many, byte), byte) is None
    assert (
        multiplied(Operand(one.astype(np.uint16), word), Operand(many.astype(np.uint16), word), word)
        is not None
    )


def normal(scale, zero, store="u8"):
    return Uniform(storage(store), (float(np.float32(scale)),), (zero,))


def test_the_page_says_what_is_normalized():
    htp_norm, rng = page_function("htp_norm"), np.random.default_rng(8)
    for size in (3, 16, 100, 256):
        x, w = rng.integers(0, 256, (5, size)).astype(np.uint8), rng.integers(0, 256, size).astype(np.uint8)
        b = rng.integers(-3000, 3000, size).astype(np.int32)
        zeros, scales = rng.integers(0, 256, 3).tolist(), 2.0 ** rng.uniform(-9, -4, 3)
        scales = [*scales[:2], scales[0] * scales[1], scales[2]]
        kinds = [normal(scale, zero) for scale, zero in zip(scales[::3], zeros[::2], strict=True)]
        weight, bias = Operand(w, normal(scales[1], zeros[1])), Operand(b, normal(scales[2], 0, "i32"))
        found = normalized(Operand(x, kinds[0]), weight, bias, kinds[1], 1e-5)
        small = [np.float32(scale) for scale in scales]
        for row, given in zip(x.tolist(), found, strict=True):
            wanted = htp_norm(row, w.tolist(), b.tolist(), *small, *zeros[1:], 1e-5)
            np.testing.assert_array_equal(given, np.clip(wanted, 0, 255))


@pytest.mark.parametrize(("size", "stored"), [(96, 128), (100, 127), (196, 127), (300, 128)])
def test_a_mean_of_one_number_that_the_library_showed(size, stored):
    """The float32 of 1 / 100 is a little short, and so is the mean of a hundred sevens."""
    x = Operand(np.full((1, size), 7, np.uint8), normal(0.05, 128))
    weight = Operand(np.full(size, 8, np.uint8), normal(0.125 * 0.03125, 128))
    assert set(normalized(x, weight, None, normal(0.03125, 128), 1e-4).ravel().tolist()) == {stored}


def test_a_bias_of_a_normalization_is_whole_steps_with_ties_away_from_zero():
    x = Operand(np.asarray([[1, 3]], np.uint8), normal(0.01, 0))
    weight = Operand(np.full(2, 128, np.uint8), normal(0.01, 128))
    bias = Operand(np.asarray([-3, 5], np.int32), normal(2.0**-6, 0, "i32"))
    assert normalized(x, weight, bias, normal(2.0**-5, 100), 1e-5).tolist() == [[98, 103]]


def test_words_are_not_normalized_so():
    x, weight = (
        Operand(np.zeros((1, 2), np.uint16), normal(0.01, 0, "u16")),
        Operand(np.zeros(2, np.uint8), normal(0.01, 128)),
    )
    assert normalized(x, weight, None, normal(0.01, 0, "u16"), 1e-5) is None


def test_what_it_does_not_define_computes_as_onnxruntime_does():
    text = """
x : f32[1,4] {-1, 1}
y : f32[1,4] {-3, 3}
p = Mul(x, y) : f32[1,4] {-3, 3}
z = Concat(p, y) [axis=1] : f32[1,8] {-3, 3}
"""
    graph = read_model_text(text, "small")
    plan = planner.plan(graph, "onnxruntime-cpu")
    sample = {
        "x": np.asarray([[0.1, -0.9, 0.5, 1]], np.float32),
        "y": np.asarray([[3, 2, -1, 0.2]], np.float32),
    }
    one, other = (planner.evaluate(graph, plan, sample, arithmetic=name) for name in ("htp", "float32_even"))
    np.testing.assert_array_equal(one.outputs["z"], other.outputs["z"])
