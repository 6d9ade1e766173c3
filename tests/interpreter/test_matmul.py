"""QLinearMatMul, MatMulInteger, MatMulIntegerToFloat and QGemm equal onnxruntime, every element."""

import numpy as np
import pytest

import planner
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.requantize import output_multiplier, requantize_float32, scaled_float32
from tests.formats.plans import model, op
from tests.interpreter.one_op import CONTRIB, STORAGES, assert_same, run_op, scale, stored, zero

SHAPES = [
    ((1, 1), (1, 1)),
    ((3, 7), (7, 5)),
    ((4, 64), (64, 33)),
    ((1, 1031), (1031, 10)),
    ((2, 3, 5, 19), (19, 17)),
    ((2, 3, 5, 19), (2, 3, 19, 4)),
    ((3, 1, 5, 8), (2, 8, 4)),
]
PAIRS = [("u8", "i8"), ("u8", "u8"), ("i8", "i8")]


@pytest.mark.parametrize(("a_storage", "b_storage"), PAIRS)
@pytest.mark.parametrize(
    ("a_shape", "b_shape", "per_column"),
    [(*shapes, False) for shapes in SHAPES] + [(*shapes, True) for shapes in SHAPES if len(shapes[1]) == 2],
)
def test_qlinear_matmul(a_shape, b_shape, a_storage, b_storage, per_column):
    """Weights as initializers (packed there) and as inputs, per tensor and, for matrices, per column."""
    rng = np.random.default_rng(sum(a_shape) + 7 * per_column)
    dtype, qmin, qmax = STORAGES[a_storage]
    a, b = stored(rng, a_storage, a_shape), stored(rng, b_storage, b_shape)
    columns = b_shape[-1] if per_column else None
    for spread in (1.0, 30.0):
        a_scale, b_scale = scale(rng, 1e-3, 1e-1), scale(rng, 1e-3, 1e-1, columns)
        bz = stored(rng, b_storage, columns) if per_column else zero(rng, b_storage)
        az, yz = zero(rng, a_storage), zero(rng, a_storage)
        ys = np.float32(a_scale * np.max(b_scale) * np.sqrt(a_shape[-1]) * 75 * 75 / 64 / spread)
        feeds = {"a": a, "as": a_scale, "az": az, "b": b, "bs": b_scale, "bz": bz, "ys": ys, "yz": yz}
        constants = [name for name in feeds if name not in {"a", "b"}]
        expected = run_op("QLinearMatMul", feeds, constants=constants, result=dtype)
        acc = matmul_accumulate(a, int(az), b, bz.astype(np.int64))
        got = requantize_float32(acc, output_multiplier(a_scale, b_scale, ys), int(yz), qmin, qmax)
        assert_same(expected, got)
        packed = run_op("QLinearMatMul", feeds, constants=[*constants, "b"], result=dtype)
        assert_same(packed, got)


@pytest.mark.parametrize(("a_storage", "b_storage"), [*PAIRS, ("i8", "u8")])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES[:5])
def test_matmul_integer(a_shape, b_shape, a_storage, b_storage, per_column):
    rng = np.random.default_rng(sum(a_shape))
    a, b = stored(rng, a_storage, a_shape), stored(rng, b_storage, b_shape)
    az = zero(rng, a_storage)
    bz = stored(rng, b_storage, b_shape[-1]) if per_column else zero(rng, b_storage)
    feeds = {"a": a, "b": b, "az": az, "bz": bz}
    expected = run_op("MatMulInteger", feeds, constants=("b", "az", "bz"), result=np.int32)
    assert_same(expected, matmul_accumulate(a, int(az), b, bz.astype(np.int64)))


@pytest.mark.parametrize(("a_storage", "b_storage"), PAIRS)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.37])
def test_qgemm(a_storage, b_storage, per_column, trans_b, alpha):
    """With and without a bias, and without a scale of the result, which then is float."""
    rng = np.random.default_rng(11 + trans_b)
    dtype, qmin, qmax = STORAGES[a_storage]
    a, b = stored(rng, a_storage, (5, 37)), stored(rng, b_storage, (19, 37) if trans_b else (37, 19))
    az, yz, a_scale = zero(rng, a_storage), zero(rng, a_storage), scale(rng, 1e-3, 1e-1)
    b_scale = scale(rng, 1e-3, 1e-1, 19 if per_column else None)
    bz = stored(rng, b_storage, 19) if per_column else zero(rng, b_storage)
    ys = np.float32(a_scale * np.max(b_scale) * 37**0.5 * 75 * 75 / 64 / 5)
    order = ["a", "as", "az", "b", "bs", "bz"]
    attributes = {"transB": trans_b, "alpha": alpha}
    for bias in (None, rng.integers(-9000, 9000, 19).astype(np.int32)):
        feeds = {"a": a, "as": a_scale, "az": az, "b": b, "bs": b_scale, "bz": bz}
        feeds |= {} if bias is None else {"c": bias}
        ends = [*order, "" if bias is None else "c"]
        constants = [name for name in feeds if name != "a"]
        acc = matmul_accumulate(a, int(az), b.T if trans_b else b, bz.astype(np.int64), bias)
        expected = run_op(
            "QGemm",
            {**feeds, "ys": ys, "yz": yz},
            constants=[*constants, "ys", "yz"],
            order=[*ends, "ys", "yz"],
            result=dtype,
            domain=CONTRIB,
            attributes=attributes,
        )
        multiplier = output_multiplier(a_scale, b_scale, ys, alpha=alpha)
        assert_same(expected, requantize_float32(acc, multiplier, int(yz), qmin, qmax))
        floats = run_op(
            "QGemm",
            feeds,
            constants=constants,
            order=ends if bias is not None else order,
            result=np.float32,
            domain=CONTRIB,
            attributes=attributes,
        )
        assert_same(floats, scaled_float32(acc, output_multiplier(a_scale, b_scale, 1.0, alpha=alpha)))


@pytest.mark.parametrize(("a_storage", "b_storage"), PAIRS)
@pytest.mark.parametrize(
    ("a_shape", "b_shape", "per_column"),
    [(*shapes, False) for shapes in SHAPES] + [(*shapes, True) for shapes in SHAPES if len(shapes[1]) == 2],
)
def test_matmul_integer_to_float(a_shape, b_shape, a_storage, b_storage, per_column):
    """The sum in float32 times the product of the scales; scales of any size, sums beyond 2^24 among them."""
    rng = np.random.default_rng(sum(a_shape) + 5 * per_column)
    a, b = stored(rng, a_storage, a_shape), stored(rng, b_storage, b_shape)
    columns = b_shape[-1] if per_column else None
    az = zero(rng, a_storage)
    bz = stored(rng, b_storage, columns) if per_column else zero(rng, b_storage)
    acc = matmul_accumulate(a, int(az), b, bz.astype(np.int64))
    for low in (1e-30, 1e-3, 1e10):
        a_scale, b_scale = scale(rng, low, 10 * low), scale(rng, 1e-3, 1e-1, columns)
        feeds = {"a": a, "b": b, "as": a_scale, "bs": b_scale, "az": az, "bz": bz}
        for constants in ([*feeds][2:], [*feeds][1:]):
            expected = run_op(
                "MatMulIntegerToFloat", feeds, constants=constants, result=np.float32, domain=CONTRIB
            )
            assert_same(expected, scaled_float32(acc, output_multiplier(a_scale, b_scale, 1.0)))


def test_accumulators_beyond_float64_are_exact():
    a = np.array([[2**40 + 1, -3]], np.int64)
    b = np.array([[2**20 + 1], [2**39 + 7]], np.int64)
    assert int(matmul_accumulate(a, 0, b)[0, 0]) == (2**40 + 1) * (2**20 + 1) - 3 * (2**39 + 7)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8", "qnn-htp", "tosa-int8", "stablehlo"])
@pytest.mark.parametrize(
    ("a", "b", "y"),
    [
        ((5,), (5,), ()),
        ((3, 5), (5,), (3,)),
        ((2, 3, 5), (5,), (2, 3)),
        ((5,), (5, 4), (4,)),
        ((5,), (2, 5, 4), (2, 4)),
    ],
)
@pytest.mark.parametrize("is_weight", [False, True])
def test_vectors_have_no_axis_more_than_the_float_model(a, b, y, target, is_weight):
    """Sums of weights go along an axis that a vector lacks; a scale has an axis that a number lacks."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(b).astype(np.float32)
    inputs = {"a": a} if is_weight else {"a": a, "b": b}
    graph = model(
        [op("MatMul", "a b", "y")],
        inputs=inputs,
        outputs={"y": y},
        constants={"b": weights} if is_weight else {},
    )
    samples = [
        {name: rng.standard_normal(s).astype(np.float32) for name, s in inputs.items()} for _ in range(2)
    ]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, target)
    assert plan.kernels["op_y"].row is not None
    for sample in samples:
        got = planner.evaluate(ready, plan, sample).outputs["y"]
        wanted = np.matmul(sample["a"], sample.get("b", weights))
        assert got.shape == y
        np.testing.assert_allclose(got, wanted, atol=0.1)
