"""Constants to integers: equal to the plain formula and to onnxruntime's QuantizeLinear."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from planner.constants.quantize import (
    ARITHMETICS,
    Arithmetic,
    dequantize_array,
    quantize_array,
    stored_dtype,
)
from planner.constants.rounding import ROUNDINGS
from planner.errors import QTypeError
from planner.ir.types.qtypes import Uniform, storage, sub_channel, uniform
from planner.ir.types.typetext import parse_type
from tests.constants.test_rounding import by_hand

RNG = np.random.default_rng(11)


def naive(array: np.ndarray, kind: Uniform, work: type = np.float32) -> np.ndarray:
    """The formula in one line, parameters spread over the whole array."""
    scale, zero = (spread(np.asarray(v, work), array.shape, kind) for v in (kind.scales, kind.zero_points))
    q = np.rint(array.astype(work) / scale) + zero
    return np.clip(q, kind.storage.qmin, kind.storage.qmax).astype(stored_dtype(kind.storage))


def spread(values: np.ndarray, shape: tuple[int, ...], kind: Uniform) -> np.ndarray:
    if kind.blocks:
        sizes = dict(kind.blocks)
        values = values.reshape(kind.grid)
        for axis, dim in enumerate(shape):
            values = np.repeat(values, sizes.get(axis, dim), axis)
        return values
    if kind.axis is None:
        return np.broadcast_to(values.reshape(()), shape)
    return values.reshape([-1 if i == kind.axis else 1 for i in range(len(shape))])


def scales(n: int) -> list[float]:
    return RNG.uniform(0.01, 0.05, n).tolist()


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((), None),
        ((0, 3), None),
        ((0, 3), 1),
        ((7,), 0),
        ((300, 200), None),
        ((8, 3, 3, 3), 0),
        ((3000, 9), 0),  # short runs, a long period
        ((5, 20000), 0),  # runs longer than a buffer
        ((40, 700), 0),  # several runs in a buffer
        ((900, 11), 1),  # a short period
        ((3, 20000), 1),  # a period longer than a buffer
        ((3, 64, 700), 1),
        ((5, 7, 9), 2),
    ],
)
@pytest.mark.parametrize("store", ["i8", "u8", "i16", "u16", "i4", "i32"])
def test_every_cut_of_the_work_gives_the_formula(shape, axis, store):
    array = RNG.normal(size=shape).astype(np.float32)
    n = 1 if axis is None else shape[axis]
    zeros = RNG.integers(0, 5, n).tolist() if store != "i32" else [0] * n
    kind = uniform(storage(store), scales(n), zeros, axis=axis)
    got = quantize_array(array, kind)
    np.testing.assert_array_equal(got, naive(array, kind, np.float64 if store == "i32" else np.float32))
    assert got.dtype == stored_dtype(kind.storage)
    want = (got.astype(np.float32) - spread(np.float32(kind.zero_points), shape, kind)) * spread(
        np.float32(kind.scales), shape, kind
    )
    np.testing.assert_array_equal(dequantize_array(got, kind), want)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((64, 96), ((0, 1), (1, 32))),
        ((64, 96), ((0, 32), (1, 1))),
        ((64, 96), ((1, 32),)),  # axis 0 is one block
        ((64, 96), ((0, 16), (1, 48))),
        ((6, 4, 10), ((0, 2), (2, 5))),
        ((6, 4, 10), ((0, 6), (1, 4), (2, 10))),  # one block in all
    ],
)
def test_blocks_have_scales_of_their_own(shape, blocks):
    sizes = dict(blocks)
    grid = tuple(dim // sizes.get(axis, dim) for axis, dim in enumerate(shape))
    n = int(np.prod(grid))
    kind = sub_channel(
        storage("i4"), scales(n), RNG.integers(-3, 3, n).tolist(), blocks=dict(blocks), grid=grid
    )
    array = RNG.normal(size=shape).astype(np.float32) * 0.1
    np.testing.assert_array_equal(quantize_array(array, kind), naive(array, kind))


@pytest.mark.parametrize("store", ["i8", "u8", "i16", "u16"])
def test_equals_onnxruntime_on_ties_and_extremes(store):
    kind = uniform(storage(store), 0.1, 3)
    ties = (np.arange(-400, 400, dtype=np.float32) + np.float32(0.5)) * np.float32(0.1)
    array = np.float32([*ties, *RNG.normal(size=500), 0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(quantize_array(array, kind), in_onnxruntime(array, kind))


def in_onnxruntime(array: np.ndarray, kind: Uniform) -> np.ndarray:
    zero = np.asarray(kind.zero_point, stored_dtype(kind.storage))
    constants = [numpy_helper.from_array(np.float32(kind.scale), "s"), numpy_helper.from_array(zero, "z")]
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, array.shape)],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": array})[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_read_as_float32(dtype):
    array = RNG.normal(size=(40, 9)).astype(dtype)
    kind = uniform(storage("i8"), scales(40), axis=0)
    np.testing.assert_array_equal(quantize_array(array, kind), naive(array, kind))


def test_a_strided_view_is_read_in_its_own_order():
    array = RNG.normal(size=(30, 40)).astype(np.float32)
    kind = uniform(storage("i8"), scales(40), axis=0)
    np.testing.assert_array_equal(quantize_array(array.T, kind), naive(array.T, kind))


def test_wide_storages_saturate_at_their_bounds():
    array = np.float32([1e30, -1e30, 3.0])
    for name in ("i32", "i64"):
        kind = uniform(storage(name), 1.0)
        got = quantize_array(array, kind)
        assert got[1] == kind.storage.qmin
        assert kind.storage.qmax - 1023 <= got[0] <= kind.storage.qmax
        assert got[2] == 3


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=6), elements=st.floats(-100, 100, width=32)),
    st.floats(1e-3, 10),
    st.integers(-128, 127),
)
@settings(max_examples=60, deadline=None)
def test_stored_integers_survive_the_way_to_float_and_back(array, scale, zero_point):
    kind = uniform(storage("i8"), scale, zero_point)
    stored = quantize_array(array, kind)
    np.testing.assert_array_equal(quantize_array(dequantize_array(stored, kind), kind), stored)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            uniform(storage("i8"), [0.1, 0.2], axis=0),
            r"i8 with 2 scales along axis 0 does not fit the shape \(4, 6\)",
        ),
        (uniform(storage("i8"), [0.1] * 4, axis=2), r"along axis 2 does not fit"),
        (
            sub_channel(storage("i4"), [0.1], blocks={1: 4}, grid=(1, 1)),
            r"i4 with blocks \{1: 4\} and a grid of \(1, 1\) scales does not fit the shape \(4, 6\)",
        ),
    ],
)
def test_types_that_do_not_fit_are_refused(kind, message):
    with pytest.raises(QTypeError, match=message):
        quantize_array(np.zeros((4, 6), np.float32), kind)


@pytest.mark.parametrize(
    ("name", "dtype", "limit"),
    [("f8E4M3FN", ml_dtypes.float8_e4m3fn, 448.0), ("f8E5M2", ml_dtypes.float8_e5m2, 57344.0)],
)
def test_float_storages_hold_the_nearest_float(name, dtype, limit):
    kind = uniform(storage(name), [0.5, 2.0], axis=0)
    array = np.float32([[0.03, -1.7, 3e7, -np.inf], [1e-9, 100.0, -3e7, 5.0]])
    got = quantize_array(array, kind)
    assert got.dtype == dtype
    quotients = np.clip(array / np.float32([[0.5], [2.0]]), -limit, limit)
    np.testing.assert_array_equal(got, quotients.astype(dtype))
    np.testing.assert_array_equal(
        dequantize_array(got, kind), got.astype(np.float32) * np.float32([[0.5], [2.0]])
    )
    with pytest.raises(QTypeError, match="rounds to the nearest float"):
        quantize_array(array, kind, ARITHMETICS["exact_even"])


def test_slices_with_ranges_of_their_own_are_cut_to_them():
    kind = parse_type("!quant.uniform<i8<{-8:7,-128:127,-2:1}>:f32:1, {0.5,0.5:3,0.25}>")
    array = np.float32([[100.0, 100.0, 100.0], [-100.0, -100.0, -100.0], [0.5, np.nan, 0.25]])
    np.testing.assert_array_equal(quantize_array(array, kind), [[7, 127, 1], [-8, -128, -2], [1, -128, 1]])
    many = np.tile(array, (9000, 1))  # more than a piece
    np.testing.assert_array_equal(quantize_array(many, kind), np.tile(quantize_array(array, kind), (9000, 1)))


@pytest.mark.parametrize("shape", [(300, 700), (3, 200_000), (70_000, 3), (40, 50, 96)])
def test_nan_and_what_does_not_fit_saturate_in_every_cut(shape):
    array = RNG.normal(size=shape).astype(np.float32)
    flat = array.reshape(-1)
    for value in (np.nan, np.inf, -np.inf, 1e30, -1e30):
        flat[RNG.integers(0, flat.size, 5)] = value
    with np.errstate(invalid="ignore", over="ignore"):
        for axis in (None, *range(len(shape))):
            n = 1 if axis is None else shape[axis]
            kind = uniform(storage("i8", -127, 127), scales(n), RNG.integers(-9, 9, n).tolist(), axis=axis)
            wanted = naive(np.nan_to_num(array, nan=-np.inf, posinf=np.inf, neginf=-np.inf), kind)
            np.testing.assert_array_equal(quantize_array(array, kind), wanted)
        blocks = {len(shape) - 1: 10 if shape[-1] % 10 == 0 else 3}
        grid = (*shape[:-1], shape[-1] // blocks[len(shape) - 1])
        blocks |= dict.fromkeys(range(len(shape) - 1), 1)
        kind = sub_channel(storage("i4"), scales(int(np.prod(grid))), blocks=blocks, grid=grid)
        wanted = naive(np.nan_to_num(array, nan=-np.inf, posinf=np.inf, neginf=-np.inf), kind)
        np.testing.assert_array_equal(quantize_array(array, kind), wanted)


REALS = st.floats(-1e3, 1e3, width=32) | st.integers(-300, 300).map(lambda n: n / 2)
EVERY_ROUNDING = st.sampled_from(sorted(ROUNDINGS))


@given(
    hnp.arrays(np.float32, st.integers(1, 12), elements=REALS),
    st.sampled_from([1.0, 0.5, 0.25, 3.0, 0.1, 1e-3, 7e4]),
    st.integers(-40, 40),
    st.booleans(),
    EVERY_ROUNDING,
)
def test_exact_arithmetic_rounds_the_true_quotient_once(array, scale, zero_point, offset_first, rounding):
    kind = uniform(storage("i8"), scale, zero_point)
    got = quantize_array(array, kind, Arithmetic(True, offset_first, rounding))
    for real, found in zip(array.tolist(), got.tolist(), strict=True):
        exact = Fraction(real) / Fraction(kind.scale)
        wanted = (
            by_hand(exact + zero_point, rounding) if offset_first else by_hand(exact, rounding) + zero_point
        )
        assert found == min(max(wanted, -128), 127)


@given(
    hnp.arrays(np.float32, st.integers(1, 12), elements=REALS),
    st.sampled_from([1.0, 0.5, 0.25]),
    st.integers(-40, 40),
    st.booleans(),
    EVERY_ROUNDING,
)
def test_in_floats_every_rounding_is_that_of_the_quotient(array, scale, zero_point, offset_first, rounding):
    """With scales that are powers of two a float32 quotient is exact, unless the zero point swallows it."""
    kind = uniform(storage("i8"), scale, zero_point)
    got = quantize_array(array, kind, Arithmetic(False, offset_first, rounding))
    quotient = array / np.float32(scale) + np.float32(zero_point if offset_first else 0)
    shift = 0 if offset_first else zero_point
    wanted = [by_hand(Fraction(real), rounding) + shift for real in quotient.tolist()]
    assert got.tolist() == np.clip(wanted, -128, 127).tolist()


@pytest.mark.parametrize("name", sorted(ARITHMETICS))
def test_a_tie_with_an_odd_zero_point_tells_the_arithmetics_apart(name):
    kind = uniform(storage("i8"), 1.0, 1)
    got = quantize_array(np.float32([0.5, 1.5, 2.5, -0.5]), kind, ARITHMETICS[name])
    assert got.tolist() == ([1, 3, 3, 1] if name == "float32_even" else [2, 2, 4, 0])


def test_reals_as_doubles_are_exact():
    kind = uniform(storage("i16"), 0.1, -7)
    stored = np.arange(-32768, 32768, dtype=np.int16)
    reals = dequantize_array(stored, kind, np.float64)
    assert reals.dtype == np.float64
    assert [Fraction(real) for real in reals[:100].tolist()] == [
        (int(q) + 7) * Fraction(kind.scale) for q in stored[:100]
    ]
    assert dequantize_array(stored, kind, np.float16).dtype == np.float16


@pytest.mark.parametrize("rounding", sorted(ROUNDINGS))
def test_beside_a_tie_nothing_is_decided_by_a_rounded_quotient(rounding):
    """Reals a float32 step around multiples of half a scale: as near to a tie as a quotient gets."""
    for scale in (0.1, 1 / 3, 7e-4, 1.7):
        kind = uniform(storage("i16"), scale, 5)
        middles = (np.arange(-150, 150) * (kind.scale / 2)).astype(np.float32)
        array = np.concatenate([np.nextafter(middles, np.float32(s)) for s in (-np.inf, np.inf)] + [middles])
        wanted = [by_hand(Fraction(x) / Fraction(kind.scale) + 5, rounding) for x in array.tolist()]
        exact = Arithmetic(is_exact=True, offset_first=True, rounding=rounding)
        assert quantize_array(array, kind, exact).tolist() == wanted
        assert quantize_array(array.astype(np.float64), kind, exact).tolist() == wanted


def test_a_step_off_a_tie_is_seen_in_doubles_of_any_length():
    kind = uniform(storage("i32"), 1.0)
    exact = Arithmetic(is_exact=True, offset_first=True, rounding="half_up")
    for middle in (0.5, 1000.5, 2.0**30 + 0.5):
        reals = np.array([np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)])
        assert quantize_array(reals, kind, exact).tolist() == [int(middle), int(middle) + 1, int(middle) + 1]


def test_bfloat16_is_read_as_what_it_is():
    array = RNG.normal(size=(40, 9)).astype(ml_dtypes.bfloat16)
    kind = uniform(storage("i8"), scales(40), axis=0)
    for arithmetic in ARITHMETICS.values():
        np.testing.assert_array_equal(
            quantize_array(array, kind, arithmetic),
            quantize_array(array.astype(np.float32), kind, arithmetic),
        )


def test_long_zero_points_are_not_rounded():
    kind = uniform(storage("u32"), 0.5, 2**31 + 1)
    stored = np.array([2**31 + 1, 2**31 + 4, 2**31], np.uint32)
    assert dequantize_array(stored, kind).tolist() == [0.0, 1.5, -0.5]
    assert quantize_array(np.float32([0.0, 1.5, -0.5]), kind).tolist() == stored.tolist()
