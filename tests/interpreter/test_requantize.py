"""QuantizeLinear, DequantizeLinear and accumulators onto storages equal onnxruntime, every element."""

import numpy as np
import pytest

from planner.interpreter.requantize import (
    dequantize_linear,
    output_multiplier,
    quantize_linear,
    requantize_float32,
    storage_dtype,
    wrap_int32,
)
from tests.interpreter.one_op import STORAGES, assert_same, run_op, scale, seeded, stored, zero


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("length", [1, 3, 5, 17, 64, 67, 1031])
def test_quantize_per_tensor(storage, length):
    """Random reals, ties, infinities and NaN, at lengths that leave a vector tail."""
    rng = np.random.default_rng(length)
    dtype, qmin, qmax = STORAGES[storage]
    for _ in range(8):
        s, z = scale(rng, 1e-6, 1e3), zero(rng, storage)
        x = (rng.standard_normal(length) * s * rng.choice([1, 60, 1e4])).astype(np.float32)
        x[rng.random(length) < 0.3] = np.float32(s) * (rng.integers(-300, 300) + np.float32(0.5))
        x[rng.random(length) < 0.1] = rng.choice([np.inf, -np.inf, 3e38, -3e38])
        expected = run_op("QuantizeLinear", {"x": x, "s": s, "z": z}, constants=("s", "z"), result=dtype)
        assert_same(expected, quantize_linear(x, s, int(z), qmin, qmax))


@pytest.mark.parametrize("storage", STORAGES)
def test_quantize_nan_is_the_minimum(storage):
    dtype, qmin, qmax = STORAGES[storage]
    x = np.full(37, np.nan, np.float32)
    feeds = {"x": x, "s": np.float32(0.1), "z": dtype(3)}
    expected = run_op("QuantizeLinear", feeds, constants=("s", "z"), result=dtype)
    assert_same(expected, quantize_linear(x, 0.1, 3, qmin, qmax))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_quantize_and_dequantize_per_axis(storage, axis):
    rng = seeded(storage, axis)
    dtype, qmin, qmax = STORAGES[storage]
    x = (rng.standard_normal((3, 5, 7)) * 20).astype(np.float32)
    n = x.shape[axis]
    s, z = scale(rng, 1e-2, 1, n), stored(rng, storage, n)
    parameters = {"s": s, "z": z}
    expected = run_op(
        "QuantizeLinear",
        {"x": x, **parameters},
        constants=("s", "z"),
        result=dtype,
        attributes={"axis": axis},
    )
    q = quantize_linear(x, s, z, qmin, qmax, axis=axis)
    assert_same(expected, q)
    real = run_op(
        "DequantizeLinear",
        {"q": expected, **parameters},
        constants=("s", "z"),
        result=np.float32,
        attributes={"axis": axis},
    )
    assert_same(real, dequantize_linear(q, s, z, axis=axis))


def test_dequantize_int32_rounds_to_float32():
    """A bias above 2^24 loses bits there too."""
    q = np.array([2**31 - 1, -(2**31), 2**24 + 1, 7], np.int32)
    real = run_op("DequantizeLinear", {"q": q, "s": np.float32(0.3)}, constants=("s",), result=np.float32)
    assert_same(real, dequantize_linear(q, 0.3))


@pytest.mark.parametrize(
    ("qmin", "qmax", "dtype"),
    [
        (0, 255, np.uint8),
        (0, 15, np.uint8),
        (-127, 127, np.int8),
        (-32768, 32767, np.int16),
        (0, 256, np.uint16),
    ],
)
def test_storage_dtype(qmin, qmax, dtype):
    assert storage_dtype(qmin, qmax) == dtype


def test_narrow_storage_saturates_to_its_own_bounds():
    acc = np.array([-1000, -128, 0, 128, 1000])
    np.testing.assert_array_equal(requantize_float32(acc, 1.0, 0, -127, 127), [-127, -127, 0, 127, 127])


def test_ties_go_to_even_before_the_zero_point():
    acc = np.array([1, 3, 5, -1, -3])
    np.testing.assert_array_equal(requantize_float32(acc, 0.5, 1, 0, 255), [1, 3, 3, 1, 0])


def test_multiplier_is_rounded_after_each_factor():
    x, w, y = np.float32(0.1), np.array([0.3, 0.7], np.float32), np.float32(0.013)
    assert output_multiplier(x, w, y).tolist() == [float(x * w[0] / y), float(x * w[1] / y)]


def test_wrap_int32():
    assert wrap_int32(np.array([2**31, -(2**31) - 1])).tolist() == [-(2**31), 2**31 - 1]
