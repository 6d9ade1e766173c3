"""QLinearSoftmax equals onnxruntime, every element, its fault included."""

import numpy as np
import pytest

from planner.interpreter.kernels.softmax import overflows, qlinear_softmax
from planner.interpreter.requantize import Grid
from tests.interpreter.one_op import CONTRIB, STORAGES, assert_same, run_op, scale, seeded, stored, zero

SHAPES = [(1, 1), (3, 2), (5, 10), (2, 1001), (2, 3, 4, 7), (4, 64, 65)]


def check(x, x_grid, y_grid, *, storage, axis, opset, fixed_shapes=True):
    dtype, low, high = STORAGES[storage]
    (sx, zx), (sy, zy) = x_grid, y_grid
    feeds = {"x": x, "sx": np.float32(sx), "zx": dtype(zx), "sy": np.float32(sy), "zy": dtype(zy)}
    expected = run_op(
        "QLinearSoftmax",
        feeds,
        constants=("sx", "zx", "sy", "zy"),
        result=dtype,
        domain=CONTRIB,
        attributes={"axis": axis, "opset": opset},
        fixed_shapes=fixed_shapes,
    )
    grids = Grid(float(sx), int(zx), low, high), Grid(float(sy), int(zy), low, high)
    assert_same(expected, qlinear_softmax(x, *grids, axis=axis, opset=opset))
    return expected


@pytest.mark.parametrize("storage", ["u8", "i8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax(shape, storage, opset):
    """Steps of 1/256 and others, fine and coarse inputs, lengths 1 to 1001, every axis."""
    rng = seeded(shape, storage, opset)
    for i in range(12):
        x = stored(rng, storage, shape)
        sy = [np.float32(1 / 256), scale(rng, 1e-3, 0.1), np.float32(1 / 255)][i % 3]
        zy = STORAGES[storage][1] if i % 3 == 0 else zero(rng, storage)
        axis = int(rng.integers(-len(shape), len(shape)))
        x_grid = scale(rng, 1e-3, 0.5), zero(rng, storage)
        fixed = i % 2 == 0
        check(x, x_grid, (sy, zy), storage=storage, axis=axis, opset=opset, fixed_shapes=fixed)


def test_a_certain_class_saturates():
    """256 / 256 is one step more than an 8-bit storage holds."""
    x = np.array([[127, -128, -128]], np.int8)
    got = check(x, (0.1, 0), (1 / 256, -128), storage="i8", axis=-1, opset=13)
    assert got[0].tolist() == [127, -128, -128]


def test_the_inverse_of_the_output_scale_is_floored():
    """At 1/200.9 the kernel writes steps of 1/200: targets should fix a scale whose inverse is an integer."""
    x = np.array([[255, 0, 0]], np.uint8)
    got = check(x, (0.1, 0), (1 / 200.9, 0), storage="u8", axis=-1, opset=13)
    assert got[0].tolist() == [200, 0, 0]


@pytest.mark.parametrize(
    ("size", "step", "is_so"),
    [(32, 2**-12, False), (31, 2**-12, True), (1, 2**-8, True), (2, 2**-8, False)],
)
def test_a_softmax_may_overflow_where_its_steps_are_too_fine_for_its_size(size, step, is_so):
    """128 steps in 1/n surely do not."""
    assert overflows(size, step) == is_so
