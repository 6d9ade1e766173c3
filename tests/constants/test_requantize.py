"""Requantize: one rounding of the exact real, or two steps in float32, for any two granularities."""

# ruff: noqa: E501 - types and messages stand whole

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.constants.quantize import ARITHMETICS, Arithmetic, dequantize_array, quantize_array
from planner.constants.requantize import along, requantize_array
from planner.constants.rounding import ROUNDINGS
from planner.errors import QTypeError
from planner.ir.types.qtypes import Uniform, storage, sub_channel, uniform
from planner.ir.types.typetext import parse_type
from tests.constants.test_rounding import by_hand

RNG = np.random.default_rng(4)
SHAPE = (4, 6)


def by_fractions(stored, source, target, arithmetic):
    """The definition, element by element."""

    def each(values, kind):
        return np.broadcast_to(along(values, kind, stored.shape), stored.shape).reshape(-1)

    rows = zip(
        stored.reshape(-1).tolist(),
        *(each(kind.scales, kind) for kind in (source, target)),
        *(each(kind.zero_points, kind) for kind in (source, target)),
        *(each([ends[i] for ends in target.slice_ranges], target) for i in (0, 1)),
        strict=True,
    )
    found = []
    for q, s, t, zs, zt, low, high in rows:
        real = Fraction(q - zs) * Fraction(s) / Fraction(t)
        one = (
            by_hand(real + zt, arithmetic.rounding)
            if arithmetic.offset_first
            else by_hand(real, arithmetic.rounding) + zt
        )
        found.append(min(max(one, low), high))
    return np.array(found, object).reshape(stored.shape)


@st.composite
def fitting(draw, names):
    """A type of any granularity that fits SHAPE."""
    store = storage(draw(st.sampled_from(names)))
    blocks = draw(st.sampled_from((None, 0, 1, {0: 2, 1: 3}, {1: 2}, {})))
    scale = st.sampled_from((1.0, 0.5, 0.1, 0.3, 7.0, 1e-3, 3.14159))
    limit = min(9, store.qmax)
    zero = st.integers(max(-limit, store.qmin), limit)
    if not isinstance(blocks, dict):
        n = 1 if blocks is None else SHAPE[blocks]
        return uniform(store, [draw(scale) for _ in range(n)], [draw(zero) for _ in range(n)], axis=blocks)
    grid = tuple(dim // blocks.get(axis, dim) for axis, dim in enumerate(SHAPE))
    n = int(np.prod(grid))
    return sub_channel(
        store, [draw(scale) for _ in range(n)], [draw(zero) for _ in range(n)], blocks=blocks, grid=grid
    )


@given(
    fitting(("i8", "u4", "i16", "i32", "i48")),
    fitting(("i8", "u8", "i4", "i16", "i32", "u64")),
    st.booleans(),
    st.sampled_from(sorted(ROUNDINGS)),
    st.integers(0, 2**32 - 1),
)
def test_exact_for_any_two_granularities(source, target, offset_first, rounding, seed):
    low, high = max(source.storage.qmin, -(2**40)), min(source.storage.qmax, 2**40)
    stored = np.random.default_rng(seed).integers(low, high, SHAPE, endpoint=True)
    stored.reshape(-1)[:3] = low, high, 0
    arithmetic = Arithmetic(True, offset_first, rounding)
    got = requantize_array(stored, source, target, arithmetic)
    np.testing.assert_array_equal(got.astype(object), by_fractions(stored, source, target, arithmetic))


@pytest.mark.parametrize(("offset_first", "wanted"), [(False, [1, 3, 3, 3, 5]), (True, [2, 2, 3, 4, 4])])
@pytest.mark.parametrize("store", ["i16", "i32", "i48"])
def test_ties_beside_an_odd_zero_point(store, offset_first, wanted):
    """-1.5, -0.5, 0, 0.5 and 1.5 to even, before the zero point of 3 is added or after it; narrow and wide."""
    source, target = uniform(storage(store), 0.5), uniform(storage("i8"), 1.0, 3)
    stored = np.array([-3, -1, 0, 1, 3], np.int64)
    got = requantize_array(stored, source, target, Arithmetic(True, offset_first, "half_even"))
    assert got.tolist() == wanted


@pytest.mark.parametrize("arithmetic", [ARITHMETICS["exact_even"], Arithmetic(True, False, "half_away")])
def test_a_table_gives_what_the_formula_gives(arithmetic):
    source, target = uniform(storage("i8"), 0.1, 3), uniform(storage("u8"), 0.7, 11)
    stored = RNG.integers(-128, 127, 2000, endpoint=True).astype(np.int8)
    wanted = by_fractions(stored, source, target, arithmetic)
    np.testing.assert_array_equal(requantize_array(stored, source, target, arithmetic), wanted)


def test_slices_with_ranges_of_their_own_are_cut_to_them():
    source = uniform(storage("i32"), 1.0)
    target = parse_type("!quant.uniform<i8<{-8:7,-128:127}>:f32:0, {0.5,0.5}>")
    stored = np.array([[1000, -1000], [1000, -1000]], np.int32)
    for arithmetic in ARITHMETICS.values():
        assert requantize_array(stored, source, target, arithmetic).tolist() == [[7, -8], [127, -128]]


def test_by_default_it_is_dequantize_linear_then_quantize_linear():
    source, target = uniform(storage("i8"), 0.1, 3), uniform(storage("i8"), [0.3] * 6, 1, axis=1)
    stored = RNG.integers(-128, 127, SHAPE, endpoint=True).astype(np.int8)
    got = requantize_array(stored, source, target)
    np.testing.assert_array_equal(got, quantize_array(dequantize_array(stored, source), target))


def test_exact_and_float32_differ_where_float32_is_off():
    """float32 rounds the product and the quotient before the last rounding: at most a step away."""
    source, target = uniform(storage("i8"), 0.1), uniform(storage("i8"), 0.3)
    stored = np.arange(-128, 128).astype(np.int8)
    exact = requantize_array(stored, source, target, ARITHMETICS["exact_even"])
    floats = requantize_array(stored, source, target)
    assert np.abs(exact - floats).max() <= 1
    np.testing.assert_array_equal(exact, by_fractions(stored, source, target, ARITHMETICS["exact_even"]))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (uniform(storage("i48"), [0.5] * 3, axis=0), uniform(storage("i8"), 0.5), r"3 slices along axis 0 do not fit the shape \(4, 6\)"),
        (uniform(storage("i8"), 0.5), uniform(storage("i8"), [0.5] * 3, axis=0), r"3 scales along axis 0 does not fit the shape \(4, 6\)"),
        (uniform(storage("i48"), 0.5), sub_channel(storage("i8"), [0.5], blocks={0: 3}, grid=(1, 1)), r"blocks \{0: 3\} and a grid of \(1, 1\) scales do not fit"),
        (uniform(storage("f8E5M2"), 0.5), uniform(storage("i8"), 0.5), "f8E5M2 onto i8: exact arithmetic is for integer storages"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(source, target, message):
    with pytest.raises(QTypeError, match=message):
        requantize_array(np.zeros(SHAPE, np.int64), source, target, ARITHMETICS["exact_even"])


def test_float_storages_requantize_in_float32():
    source, target = uniform(storage("f8E4M3FN"), 0.5), uniform(storage("i8"), 0.25, 1)
    stored = quantize_array(np.float32([[1.0, -3.0, 200.0]]), source)
    assert requantize_array(stored, source, target).tolist() == [[5, -11, 127]]
    assert isinstance(source, Uniform)
