"""MaxPool, QLinearAveragePool and QLinearGlobalAveragePool equal onnxruntime, every element."""

import numpy as np
import pytest

from planner.interpreter.kernels.pooling import (
    max_pool,
    qlinear_average_pool,
    qlinear_global_average_pool,
    window_sums,
)
from planner.interpreter.requantize import Grid
from planner.ops.geometry.windows import PoolGeometry, window_counts
from tests.interpreter.one_op import CONTRIB, STORAGES, assert_same, run_op, scale, seeded, stored, zero

CASES = [  # x shape, kernel, strides, dilations, pads, ceil_mode
    ((1, 3, 9, 9), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 0),
    ((2, 5, 11, 8), (3, 2), (2, 1), (1, 1), (1, 0, 1, 1), 0),
    ((1, 4, 10, 10), (3, 3), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    ((1, 4, 7, 7), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1),
    ((1, 4, 6, 6), (2, 2), (3, 3), (1, 1), (1, 1, 1, 1), 1),
    ((1, 4, 5, 5), (2, 2), (3, 3), (1, 1), (1, 1, 1, 1), 1),  # a last window would start where padding does
    ((1, 17, 13, 12), (3, 3), (1, 2), (2, 3), (2, 1, 0, 2), 0),
    ((2, 3, 19), (4,), (3,), (1,), (2, 1), 0),
    ((2, 3, 20), (4,), (3,), (1,), (1, 1), 1),
    ((1, 2, 5, 6, 7), (2, 3, 2), (1, 2, 2), (1, 1, 1), (0, 1, 1, 1, 0, 0), 0),
    ((1, 8, 30, 30), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 0),
]


def grid(storage, s, z):
    _, low, high = STORAGES[storage]
    return Grid(float(s), int(z), low, high)


@pytest.mark.parametrize("storage", ["u8", "i8"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_max_pool(case, storage):
    rng = seeded(case, storage)
    shape, kernel, strides, dilations, pads, ceil_mode = case
    x = stored(rng, storage, shape)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
    expected = run_op("MaxPool", {"x": x}, result=x.dtype, attributes={**attributes, "dilations": dilations})
    assert_same(expected, max_pool(x, PoolGeometry(kernel, strides, dilations, pads, bool(ceil_mode))))


@pytest.mark.parametrize("storage", ["u8", "i8"])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("case", [case for case in CASES if set(case[3]) == {1}], ids=str)
def test_average_pool(case, include, storage):
    rng = seeded(case, include, storage)
    shape, kernel, strides, _, pads, ceil_mode = case
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
    for i in range(8):
        x = stored(rng, storage, shape)
        sx, zx, zy = scale(rng, 1e-3, 1), zero(rng, storage), zero(rng, storage)
        sy = [scale(rng, 1e-3, 1), sx, np.float32(sx / 2)][i % 3]
        feeds = {"x": x, "sx": sx, "zx": zx, "sy": sy, "zy": zy}
        expected = run_op(
            "QLinearAveragePool",
            feeds,
            constants=("sx", "zx", "sy", "zy"),
            result=x.dtype,
            domain=CONTRIB,
            attributes={**attributes, "count_include_pad": include},
        )
        geometry = PoolGeometry(kernel, strides, (), pads, bool(ceil_mode))
        grids = grid(storage, sx, zx), grid(storage, sy, zy)
        got = qlinear_average_pool(x, *grids, geometry, count_include_pad=bool(include))
        assert_same(expected, got)


@pytest.mark.parametrize("storage", ["u8", "i8"])
@pytest.mark.parametrize("shape", [(1, 3, 7, 7), (2, 9, 1, 1), (1, 64, 8, 8), (2, 5, 33), (1, 2, 3, 4, 5)])
def test_global_average_pool(shape, storage):
    """And the average pool whose kernel covers everything, which onnxruntime computes the same way."""
    rng = seeded(shape, storage)
    for i in range(9):
        x = stored(rng, storage, shape)
        sx, zx, zy = scale(rng, 1e-3, 1), zero(rng, storage), zero(rng, storage)
        sy = [scale(rng, 5e-2, 1), sx, np.float32(sx / 2)][i % 3]
        feeds = {"x": x, "sx": sx, "zx": zx, "sy": sy, "zy": zy}
        constants = ("sx", "zx", "sy", "zy")
        grids = grid(storage, sx, zx), grid(storage, sy, zy)
        got = qlinear_global_average_pool(x, *grids)
        for last in (0, 1):
            moved = {**feeds, "x": np.moveaxis(x, 1, -1)} if last else feeds
            expected = run_op(
                "QLinearGlobalAveragePool",
                moved,
                constants=constants,
                result=x.dtype,
                domain=CONTRIB,
                attributes={"channels_last": last},
            )
            assert_same(np.moveaxis(expected, -1, 1) if last else expected, got)
        covering = run_op(
            "QLinearAveragePool",
            feeds,
            constants=constants,
            result=x.dtype,
            domain=CONTRIB,
            attributes={"kernel_shape": shape[2:]},
        )
        assert_same(covering, qlinear_average_pool(x, *grids, PoolGeometry(shape[2:])))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pixels_of_windows(case):
    """Those of the input, and with counted padding those of an input that is as much larger."""
    shape, kernel, strides, dilations, pads, ceil_mode = case
    geometry, rank = PoolGeometry(kernel, strides, dilations, pads, bool(ceil_mode)), len(kernel)
    ones = np.ones((1, 1, *shape[2:]), np.int64)
    assert_same(window_sums(ones, geometry)[0, 0], window_counts(shape[2:], geometry))
    if not ceil_mode:
        grown = np.pad(ones, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)], constant_values=1)
        expected = window_sums(grown, PoolGeometry(kernel, strides, dilations))[0, 0]
        assert_same(expected, window_counts(shape[2:], geometry, includes_padding=True))
