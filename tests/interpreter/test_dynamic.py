"""Products quantized at run time, beside the same formula in numpy: x in integers, exact sums, two scales."""

import numpy as np
import pytest

from planner.interpreter.calls import Operand
from planner.interpreter.dynamic import product, quantized
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import parse_storage
from planner.target.records import DynamicRange

RNG = np.random.default_rng(3)
PER_TENSOR = DynamicRange(parse_storage("u8"))
PER_TOKEN = DynamicRange(parse_storage("i8"), per_token=True, symmetric=True)


def weights(shape, axis):
    """Stored weights: per tensor without an axis, else with a scale for each slice along it."""
    stored = RNG.integers(-100, 100, shape, dtype=np.int8)
    count = 1 if axis is None else shape[axis]
    scales = tuple(float(np.float32(0.01 * (i + 1))) for i in range(count))
    kind = Uniform(parse_storage("i8"), scales, (3,) * count if axis is None else (0,) * count, axis=axis)
    return Operand(stored, kind)


def reals(operand, axis):
    """What stored weights stand for."""
    kind, shape = operand.kind, [1] * operand.stored.ndim
    if axis is not None:
        shape[axis] = -1
    zero, scale = (np.reshape(part, shape) for part in (kind.zero_points, kind.scales))
    return (operand.stored.astype(np.float64) - zero) * scale


@pytest.mark.parametrize("by", [PER_TENSOR, PER_TOKEN], ids=["tensor", "token"])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("bias", [None, np.asarray([1.0, -2.0, 0.5, 4.0], np.float32)], ids=["", "bias"])
def test_a_matrix_product_is_its_integers_times_both_scales(by, axis, bias):
    x = RNG.normal(size=(3, 5, 6)).astype(np.float32)
    w = weights((6, 4), axis)
    got = product(Op("m", "MatMul", ("x", "w"), ("y",)), x, w, bias, by)
    found = quantized(x, by)
    as_read = (found.stored.astype(np.float64) - found.zero_point) * found.scale
    wanted = as_read @ reals(w, axis) + (0.0 if bias is None else bias)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(as_read, x, atol=float(np.max(found.scale)) * 0.51)


def test_gemm_turns_its_weights_and_takes_its_factors():
    x = RNG.normal(size=(5, 6)).astype(np.float32)
    w, bias = weights((4, 6), 0), RNG.normal(size=4).astype(np.float32)
    op = Op("g", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1, "alpha": 0.5, "beta": 2.0})
    found = quantized(x, PER_TENSOR)
    as_read = (found.stored.astype(np.float64) - found.zero_point) * found.scale
    wanted = 0.5 * as_read @ reals(w, 0).T + 2.0 * bias
    np.testing.assert_allclose(product(op, x, w, bias, PER_TENSOR), wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("axis", [None, 0])
def test_a_convolution_has_a_scale_and_a_bias_for_each_channel(axis):
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    w, bias = weights((4, 3, 1, 1), axis), RNG.normal(size=4).astype(np.float32)
    found = quantized(x, PER_TENSOR)
    as_read = (found.stored.astype(np.float64) - found.zero_point) * found.scale
    wanted = np.einsum("nchw,oc->nohw", as_read, reals(w, axis)[:, :, 0, 0]) + bias.reshape(-1, 1, 1)
    got = product(Op("c", "Conv", ("x", "w", "b"), ("y",)), x, w, bias, PER_TENSOR)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-5)


def test_a_range_of_zeros_is_exact_and_nan_stays():
    zeros = np.zeros((2, 6), np.float32)
    w = weights((6, 4), None)
    op = Op("m", "MatMul", ("x", "w"), ("y",))
    assert not product(op, zeros, w, None, PER_TENSOR).any()
    assert np.isnan(product(op, np.full((2, 6), np.nan, np.float32), w, None, PER_TENSOR)).all()
