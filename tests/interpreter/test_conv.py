"""QLinearConv, ConvInteger and ConvTranspose equal onnxruntime, every element."""

import numpy as np
import pytest

from planner.interpreter.kernels.conv import conv_accumulate, conv_transpose_accumulate
from planner.interpreter.requantize import output_multiplier, requantize_float32, wrap_int32
from planner.ops.geometry.windows import ConvGeometry
from tests.interpreter.one_op import STORAGES, assert_same, run_op, scale, seeded, stored, zero

CASES = [  # x shape, w shape, strides, dilations, pads, group
    ((1, 3, 9, 11), (5, 3, 3, 3), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((2, 4, 8, 7), (6, 4, 3, 2), (2, 1), (1, 1), (1, 0, 2, 1), 1),
    ((1, 6, 10, 9), (9, 2, 3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 3),
    ((1, 5, 12, 12), (7, 5, 3, 3), (1, 2), (2, 3), (2, 3, 2, 3), 1),
    ((2, 8, 9, 9), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 8),
    ((1, 19, 7, 7), (19, 1, 5, 5), (2, 2), (1, 1), (2, 2, 2, 2), 19),
    ((1, 4, 9, 9), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4),
    ((1, 33, 5, 5), (17, 33, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((2, 16, 6, 6), (8, 16, 1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    ((1, 3, 17), (4, 3, 5), (2,), (2,), (3, 1), 1),
    ((1, 4, 31), (4, 1, 3), (1,), (1,), (1, 1), 4),
    ((1, 3, 5, 6, 7), (4, 3, 2, 3, 2), (1, 2, 1), (1, 1, 2), (1, 0, 1, 0, 1, 0), 1),
]
PAIRS = [("u8", "i8"), ("u8", "u8"), ("i8", "i8")]


def geometry_of(case):
    _, _, strides, dilations, pads, group = case
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
    return ConvGeometry(strides, dilations, pads, group), attributes


@pytest.mark.parametrize(("x_storage", "w_storage"), PAIRS)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_qlinear_conv(case, x_storage, w_storage, per_channel):
    """Every case with and without a bias, outputs from mid-range to saturated."""
    rng = seeded(case, x_storage, w_storage, per_channel)
    geometry, attributes = geometry_of(case)
    dtype, qmin, qmax = STORAGES[x_storage]
    x, w = stored(rng, x_storage, case[0]), stored(rng, w_storage, case[1])
    channels = len(w)
    for spread in (1.0, 30.0):
        w_scale = scale(rng, 1e-3, 1e-1, channels if per_channel else None)
        wz = stored(rng, w_storage, channels) if per_channel else zero(rng, w_storage)
        xz, yz, xs = zero(rng, x_storage), zero(rng, x_storage), scale(rng, 1e-3, 1e-1)
        ys = np.float32(xs * np.max(w_scale) * np.sqrt(w[0].size) * 75 * 75 / 64 / spread)
        bias = rng.integers(-20000, 20000, channels).astype(np.int32) if spread > 1 else None
        feeds = {"x": x, "xs": xs, "xz": xz, "w": w, "ws": w_scale, "wz": wz, "ys": ys, "yz": yz}
        feeds |= {} if bias is None else {"b": bias}
        constants = [name for name in feeds if name != "x"]
        expected = run_op("QLinearConv", feeds, constants=constants, result=dtype, attributes=attributes)
        acc = conv_accumulate(x, int(xz), w, wz.astype(np.int64), bias, geometry=geometry)
        multiplier = output_multiplier(xs, w_scale, ys)
        if per_channel:
            multiplier = multiplier.reshape(-1, *(1,) * (x.ndim - 2))
        assert_same(expected, requantize_float32(acc, multiplier, int(yz), qmin, qmax))


@pytest.mark.parametrize(("x_storage", "w_storage"), [*PAIRS, ("i8", "u8")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_integer(case, x_storage, w_storage):
    rng = seeded(case, x_storage, w_storage)
    geometry, attributes = geometry_of(case)
    x, w = stored(rng, x_storage, case[0]), stored(rng, w_storage, case[1])
    xz, wz = zero(rng, x_storage), zero(rng, w_storage)
    feeds = {"x": x, "w": w, "xz": xz, "wz": wz}
    expected = run_op(
        "ConvInteger", feeds, constants=("w", "xz", "wz"), result=np.int32, attributes=attributes
    )
    assert_same(expected, conv_accumulate(x, int(xz), w, int(wz), geometry=geometry))


def test_a_bias_beyond_32_bits_wraps_as_the_cpu_does():
    x, w = np.full((1, 1, 2, 2), 255, np.uint8), np.full((2, 1, 1, 1), 127, np.int8)
    bias = np.array([2**31 - 1, -(2**31)], np.int32)
    one, nil = np.float32(1e-7), np.uint8(0)
    feeds = {"x": x, "xs": one, "xz": nil, "w": w, "ws": np.float32(1), "wz": np.int8(0)}
    feeds |= {"ys": np.float32(1), "yz": np.uint8(128), "b": bias}
    expected = run_op(
        "QLinearConv", feeds, constants=[n for n in feeds if n != "x"], result=np.uint8, attributes={}
    )
    acc = conv_accumulate(x, 0, w, 0, bias)
    assert acc.dtype == np.int64
    assert_same(expected, requantize_float32(wrap_int32(acc), output_multiplier(one, 1.0, 1.0), 128, 0, 255))


def test_large_convolution_is_cut_into_row_blocks():
    """128 x 128 pixels of 64 channels and 3 x 3 taps are more than one block of columns."""
    rng = np.random.default_rng(7)
    x, w = stored(rng, "u8", (1, 64, 130, 130)), stored(rng, "i8", (8, 64, 3, 3))
    feeds = {"x": x, "w": w, "xz": np.uint8(9)}
    expected = run_op(
        "ConvInteger", feeds, constants=("w", "xz"), result=np.int32, attributes={"pads": [1] * 4}
    )
    assert_same(expected, conv_accumulate(x, 9, w, geometry=ConvGeometry(pads=(1, 1, 1, 1))))


def test_16_bit_operands_are_exact_in_64_bits():
    rng = np.random.default_rng(3)
    x, w = stored(rng, "i16", (1, 40, 6, 6)), stored(rng, "i16", (3, 40, 3, 3))
    acc = conv_accumulate(x, 5, w)
    assert acc.dtype == np.int64
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 5, (3, 3), axis=(2, 3))
    np.testing.assert_array_equal(acc, np.einsum("ncyxij,ocij->noyx", view, w.astype(np.int64)))


TRANSPOSED = [  # x shape, w shape, strides, dilations, pads, group, output padding
    ((1, 3, 5, 4), (3, 4, 3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1, (1, 1)),
    ((2, 4, 5, 5), (4, 3, 2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 2, (0, 0)),
    ((1, 6, 7, 3), (6, 1, 3, 2), (1, 3), (2, 1), (1, 0, 2, 1), 6, (0, 2)),
    ((1, 3, 9), (3, 5, 4), (3,), (2,), (2, 1), 1, (0,)),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose_equals_the_float_operator_on_integers(case):
    """There is no integer ConvTranspose there; the float one is exact while sums stay below 2^24."""
    rng = np.random.default_rng(len(case[0]))
    x, w = stored(rng, "u8", case[0]), stored(rng, "i8", case[1])
    _, _, strides, dilations, pads, group, extra = case
    bias = rng.integers(-999, 999, w.shape[1] * group).astype(np.int32)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
    feeds = {"x": x.astype(np.float32) - 7, "w": w.astype(np.float32) + 2, "b": bias.astype(np.float32)}
    expected = run_op(
        "ConvTranspose", feeds, result=np.float32, attributes={**attributes, "output_padding": extra}
    )
    geometry = ConvGeometry(strides, dilations, pads, group, extra)
    acc = conv_transpose_accumulate(x, 7, w, -2, bias, geometry=geometry)
    np.testing.assert_array_equal(acc, expected.astype(np.int64))
