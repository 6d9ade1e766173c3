"""QLinearAdd, Mul, Where, Concat, Sigmoid, LeakyRelu, Clip, Relu equal onnxruntime, every element."""

from fractions import Fraction

import numpy as np
import pytest

from planner.interpreter.kernels.elementwise import (
    logistic,
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    qlinear_where,
)
from planner.interpreter.kernels.fused import fused_multiply_add
from planner.interpreter.requantize import Grid
from tests.interpreter.one_op import CONTRIB, STORAGES, assert_same, run_op, scale, seeded, stored, zero

EIGHT_BITS = ("u8", "i8")
BROADCASTS = [
    ((1,), (1,)),
    ((31,), (31,)),
    ((2, 33), (2, 33)),
    ((257, 257), (257, 257)),
    ((1, 256), (256, 1)),
    ((256, 1), (1, 256)),
    ((), (2, 65)),
    ((2, 65), (1,)),
    ((2, 3, 7, 5), (3, 1, 1)),
    ((3, 1, 1), (2, 3, 7, 5)),
    ((2, 3, 7, 5), (7, 5)),
    ((4, 1, 5), (2, 1, 3, 5)),
    ((2, 1, 1), (1, 3, 1)),
]


def grid(storage, s, z):
    _, low, high = STORAGES[storage]
    return Grid(float(s), int(z), low, high)


def near_ties(rng, y_scale, kind):
    """Input scales whose sums fall on or next to halves of the output's step."""
    simple = y_scale * np.float32(rng.integers(1, 40) / 2.0 ** rng.integers(1, 6))
    return [scale(rng), np.float32(simple), np.nextafter(np.float32(simple), np.float32(9))][kind]


def binary(op, storage, shapes, rng, kinds):
    dtype = STORAGES[storage][0]
    a, b = stored(rng, storage, shapes[0]), stored(rng, storage, shapes[1])
    sy = scale(rng, 1e-2, 2)
    sa, sb = near_ties(rng, sy, kinds[0]), near_ties(rng, sy, kinds[1])
    za, zb, zy = (zero(rng, storage) for _ in range(3))
    feeds = {"a": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
    constants = [name for name in feeds if name not in {"a", "b"}]
    expected = run_op(op, feeds, constants=constants, result=dtype, domain=CONTRIB)
    return expected, (a, grid(storage, sa, za), b, grid(storage, sb, zb), grid(storage, sy, zy))


@pytest.mark.parametrize("storage", EIGHT_BITS)
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize(
    ("op", "function"), [("QLinearAdd", qlinear_add), ("QLinearMul", qlinear_mul)], ids=["add", "mul"]
)
def test_add_and_mul(op, function, shapes, storage):
    """All broadcasting orders, odd lengths, ties and near ties: the fused rounding is modelled exactly."""
    rng = seeded(op, shapes, storage)
    for kinds in [(0, 0), (1, 1), (2, 1), (1, 2), (2, 2), (0, 1), (1, 0)] * 2:
        expected, arguments = binary(op, storage, shapes, rng, kinds)
        assert_same(expected, function(*arguments))


@pytest.mark.parametrize("storage", EIGHT_BITS)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_extreme_scales_saturate(op, storage):
    """Beyond 32 bits the CPU's conversion gives the minimum, whatever the sign."""
    rng = seeded(op, storage)
    dtype = STORAGES[storage][0]
    a, b = stored(rng, storage, 300), stored(rng, storage, 300)
    for scales in ((1e8, 1e-8), (1e-8, 1e8), (1e30, 1e-30), (1e3, 1e-5)):
        (sa, sy), sb = np.array(scales, np.float32), np.float32(0.3)
        za, zy = zero(rng, storage), zero(rng, storage)
        feeds = {"a": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": za, "sy": sy, "zy": zy}
        constants = [name for name in feeds if name not in {"a", "b"}]
        expected = run_op(op, feeds, constants=constants, result=dtype, domain=CONTRIB)
        function = qlinear_add if op == "QLinearAdd" else qlinear_mul
        got = function(a, grid(storage, sa, za), b, grid(storage, sb, za), grid(storage, sy, zy))
        assert_same(expected, got)


@pytest.mark.parametrize("storage", EIGHT_BITS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(storage, axis):
    rng = seeded(storage, axis)
    dtype = STORAGES[storage][0]
    for _ in range(12):
        shapes = [[5, 6, 7] for _ in range(3)]
        for shape in shapes:
            shape[axis] = int(rng.integers(1, 9))
        arrays = [stored(rng, storage, shape) for shape in shapes]
        sy, zy = scale(rng, 1e-2), zero(rng, storage)
        scales = [near_ties(rng, sy, 0), near_ties(rng, sy, 1), sy]
        zeros = [zero(rng, storage), zero(rng, storage), zy]
        feeds = {"sy": sy, "zy": zy}
        for i, triple in enumerate(zip(arrays, scales, zeros, strict=True)):
            feeds |= dict(zip((f"x{i}", f"s{i}", f"z{i}"), triple, strict=True))
        constants = [name for name in feeds if not name.startswith("x")]
        expected = run_op(
            "QLinearConcat",
            feeds,
            constants=constants,
            result=dtype,
            domain=CONTRIB,
            attributes={"axis": axis},
        )
        grids = [grid(storage, s, z) for s, z in zip(scales, zeros, strict=True)]
        assert_same(expected, qlinear_concat(arrays, grids, grid(storage, sy, zy), axis))


@pytest.mark.parametrize("storage", EIGHT_BITS)
@pytest.mark.parametrize("shape", [(1,), (4, 65)])
def test_where(storage, shape):
    rng = seeded(storage, shape)
    dtype = STORAGES[storage][0]
    for _ in range(10):
        condition = rng.integers(0, 2, shape).astype(bool)
        a, b = stored(rng, storage, shape), stored(rng, storage, shape)
        sa, sb, sy = scale(rng), scale(rng), scale(rng, 1e-2)
        za, zb, zy = (zero(rng, storage) for _ in range(3))
        feeds = {"c": condition, "a": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
        constants = [name for name in feeds if name not in {"a", "b", "c"}]
        expected = run_op("QLinearWhere", feeds, constants=constants, result=dtype, domain=CONTRIB)
        got = qlinear_where(
            condition, (a, grid(storage, sa, za)), (b, grid(storage, sb, zb)), grid(storage, sy, zy)
        )
        assert_same(expected, got)


@pytest.mark.parametrize("storage", EIGHT_BITS)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_tables(op, storage):
    """Every stored value, many scales, those with ties among them."""
    rng = seeded(op, storage)
    dtype, low, high = STORAGES[storage]
    x = np.arange(low, high + 1).astype(dtype)
    for i in range(60):
        sy = [scale(rng, 1e-3), np.float32(1 / 256), scale(rng, 1e-6, 1e-4)][i % 3]
        sx = near_ties(rng, sy, i % 2) if op == "QLinearLeakyRelu" else scale(rng, 1e-3)
        zx, zy = zero(rng, storage), zero(rng, storage)
        feeds = {"x": x, "sx": sx, "zx": zx, "sy": sy, "zy": zy}
        constants = ("sx", "zx", "sy", "zy")
        alpha = float(np.float32(rng.choice([0.01, 0.125, 0.3])))
        attributes = {"alpha": alpha} if op == "QLinearLeakyRelu" else {}
        expected = run_op(op, feeds, constants=constants, result=dtype, domain=CONTRIB, attributes=attributes)
        grids = grid(storage, sx, zx), grid(storage, sy, zy)
        if op == "QLinearSigmoid":
            assert_same(expected, qlinear_sigmoid(x, *grids))
        else:
            assert_same(expected, qlinear_leaky_relu(x, *grids, alpha))


def test_logistic_in_float32_is_the_same_bits():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-20, 20, 20001), rng.normal(0, 1, 20000)]).astype(np.float32)
    assert_same(run_op("Sigmoid", {"x": x}, result=np.float32), logistic(x))


def test_fused_multiply_add_rounds_once():
    """Against exact rational arithmetic, with addends that put the sum on or next to a tie of float32."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(4000).astype(np.float32) for _ in range(2))
    c = (rng.standard_normal(4000) * 10.0 ** rng.integers(-9, 9, 4000)).astype(np.float32)
    c[:2000] = np.round(a[:2000] * b[:2000], 2) * np.float32(2**22)
    # Sums that float64 rounds to a tie of float32, from above and from below.
    a[:500], b[:500] = np.float32(2.0**-24) * np.float32(1 + 2.0**-23), np.float32(1 - 2.0**-23)
    a[:250] *= -1
    c[:500] = 1 + np.arange(500) * np.float32(2.0**-23)
    got = fused_multiply_add(a, b, c)
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        distance = abs(Fraction(float(got[i])) - exact)
        for towards in (np.float32(-np.inf), np.float32(np.inf)):
            other = np.nextafter(got[i], towards)
            assert distance <= abs(Fraction(float(other)) - exact)
