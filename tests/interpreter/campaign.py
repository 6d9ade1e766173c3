"""The campaign: every quantized operator on 10^4 values of a storage, granularity and zero-point sign.

A case draws its operands, runs the operator in onnxruntime (optimisations off) and in the interpreter, and
gives both results. Scales are drawn in three ways: powers of two, so that results fall on ties; any; and an
output scale far too fine, so that most results saturate. All extremes of a storage are among its values.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from planner.interpreter.kernels.conv import conv_accumulate
from planner.interpreter.kernels.elementwise import (
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    qlinear_where,
)
from planner.interpreter.kernels.matmul import matmul_accumulate
from planner.interpreter.kernels.pooling import qlinear_average_pool, qlinear_global_average_pool
from planner.interpreter.kernels.softmax import qlinear_softmax
from planner.interpreter.kernels.stored import dequantize, quantize
from planner.interpreter.requantize import Grid, output_multiplier, requantize_float32
from planner.ir.graph import Op
from planner.ops.geometry.windows import PoolGeometry
from tests.interpreter.one_op import CONTRIB, STORAGES, run_op, scale, seeded, stored

VALUES = 10_000
SIGNS = ("negative", "zero", "positive")
SCALES = ("ties", "any", "saturated")
CHANNELS = 8
BLOCK = 40

# Element types of ONNX's own Q/DQ: numpy's, ONNX's, least and largest.
FORMATS: Mapping[str, tuple[Any, int, float, float]] = {
    "f8E4M3FN": (ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN, -448, 448),
    "f8E5M2": (ml_dtypes.float8_e5m2, TensorProto.FLOAT8E5M2, -57344, 57344),
    "i16": (np.int16, TensorProto.INT16, -32768, 32767),
    "i2": (ml_dtypes.int2, TensorProto.INT2, -2, 1),
    "i4": (ml_dtypes.int4, TensorProto.INT4, -8, 7),
    "i8": (np.int8, TensorProto.INT8, -128, 127),
    "u16": (np.uint16, TensorProto.UINT16, 0, 65535),
    "u2": (ml_dtypes.uint2, TensorProto.UINT2, 0, 3),
    "u4": (ml_dtypes.uint4, TensorProto.UINT4, 0, 15),
    "u8": (np.uint8, TensorProto.UINT8, 0, 255),
}


@dataclass(frozen=True)
class Case:
    """One cell of the campaign."""

    op: str
    storage: str
    granularity: str
    sign: str

    def __str__(self) -> str:
        return f"{self.op}-{self.storage}-{self.granularity}-{self.sign}"


def cases() -> Iterator[Case]:
    """Every cell; unsigned storages have no negative zero point, float ones only 0."""
    for name, (_, storages, granularities) in OPERATORS.items():
        for storage in storages:
            signs = SIGNS if storage[0] == "i" else SIGNS[1:2] if storage[0] == "f" else SIGNS[1:]
            for granularity in granularities:
                yield from (Case(name, storage, granularity, sign) for sign in signs)


def results(case: Case, round_: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Onnxruntime's result and ours for each way of drawing scales."""
    function = OPERATORS[case.op][0]
    for regime in SCALES:
        yield function(seeded(case, regime, round_), case, regime)


def zeros(rng, storage, sign, size=None):
    """Zero points of a sign, the storage's ends among them."""
    _, low, high = FORMATS[storage][1:]
    if sign == "zero":
        return np.zeros(size or (), np.int64)
    pool = [low, -1, max(low, -3)] if sign == "negative" else [high, 1, max(1, high // 2 + 1)]
    return np.asarray(rng.choice(pool, size), np.int64)


def steps(rng, regime, size=None):
    """Scales: powers of two, or any."""
    if regime == "ties":
        return np.asarray(2.0 ** rng.integers(-6, 2, size), np.float32)
    return np.asarray(scale(rng, 1e-3, 1.0, size), np.float32)


def out_step(rng, regime, typical):
    """An output scale for results of a typical size, on a power of two where ties are wanted."""
    if regime == "saturated":
        return np.float32(typical / 5000)
    wanted = np.float32(typical / rng.uniform(20, 100))
    return np.float32(2.0 ** np.round(np.log2(wanted))) if regime == "ties" else wanted


def integers(rng, storage, shape):
    """Stored integers with both ends of the storage in every tensor."""
    q = stored(rng, storage, shape)
    flat = q.reshape(-1)
    flat[:: max(2, flat.size // 50)] = STORAGES[storage][1]
    flat[1 :: max(2, flat.size // 50)] = STORAGES[storage][2]
    return q


def reals(rng, s, shape, factor):
    """Reals that matter to a quantizer: ties, their neighbours, both zeros, huge and infinite ones."""
    half = (rng.integers(-300, 301, shape) * np.float32(0.5)).astype(np.float32) * s
    x = np.where(rng.random(shape) < 0.5, half, rng.standard_normal(shape).astype(np.float32) * 60 * s)
    x = np.where(rng.random(shape) < 0.2, np.nextafter(x, rng.choice([-np.inf, np.inf], shape)), x)
    x = (x * np.float32(factor)).astype(np.float32)
    x.reshape(-1)[:8] = [0.0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-38, -1e-38]
    return x


def parameters(rng, case, regime, shape):
    """Scale and zero point of a granularity, and the attributes that say it."""
    size = {"axis": (shape[0],), "block": (shape[0], shape[1] // BLOCK), "tensor": ()}[case.granularity]
    s, z = steps(rng, regime, size or None), zeros(rng, case.storage, case.sign, size or None)
    attributes = {"axis": {"axis": 0}, "block": {"axis": 1, "block_size": BLOCK}, "tensor": {}}
    return s, z, attributes[case.granularity]


def quantize_dequantize(kind: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """QuantizeLinear, its stored numbers cast to float32; or DequantizeLinear behind it."""

    def run(rng, case, regime):
        shape = (CHANNELS, VALUES // CHANNELS + BLOCK - VALUES // CHANNELS % BLOCK)
        dtype, code, *_ = FORMATS[case.storage]
        s, z, attributes = parameters(rng, case, regime, shape)
        wide = np.repeat(s, BLOCK, axis=1) if case.granularity == "block" else s
        wide = wide[:, None] if case.granularity == "axis" else wide
        x = reals(rng, wide, shape, 1000 if regime == "saturated" else 1)
        if case.storage.endswith("2"):
            # Further out the engine overflows, see `two_bits`.
            x = np.clip(x, -wide * np.float32(2.0**30), wide * np.float32(2.0**30))
        op = Op("q", "QuantizeLinear", (), (), attributes)
        (q,) = quantize(op, [x, s, z.astype(dtype)])
        last = helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)
        got = q.astype(np.float32)
        if kind == "DequantizeLinear":
            last = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes)
            (got,) = dequantize(Op("d", "DequantizeLinear", (), (), attributes), [q, s, z.astype(dtype)])
        return run_pair((x, s, z.astype(np.float32)), code, attributes, last), got

    return run


def run_pair(operands, code, attributes, last):
    """QuantizeLinear of (x, scale, zero point) to an element type, and a last node that gives y."""
    x, s, z = operands
    first = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes)
    zero = helper.make_tensor("z", code, z.shape, z.reshape(-1).tolist())
    graph = helper.make_graph(
        [first, last],
        "pair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(s, "s"), zero],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        data.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


def two_bits(x, s, z, storage):
    """What onnxruntime stores in 2 bits: from 2^31 steps on the least int32, and the zero point added."""
    _, _, low, high = FORMATS[storage]
    with np.errstate(over="ignore"):
        steps = np.rint(x / np.float32(s)).astype(np.float64)
    steps = np.where(np.abs(steps) < 2.0**31, steps, -(2.0**31)).astype(np.int64)
    return np.clip((steps + z).astype(np.int32), low, high)


def _grid(storage, s, z):
    _, low, high = STORAGES[storage]
    return Grid(float(s), int(z), low, high)


def _typed(storage, number):
    return np.asarray(number).astype(STORAGES[storage][0])


def _run(op, feeds, storage, *, domain=CONTRIB, data=("x",), **more):
    names = [name for name in feeds if name not in data]
    return run_op(op, feeds, constants=names, result=STORAGES[storage][0], domain=domain, **more)


def _product(rng, case, regime, size):
    """Scales and zero points of x, w and y, w's per column or not, for sums of `size` products."""
    weight = "i8"
    columns = None if case.granularity == "tensor" else CHANNELS
    xs, ws = steps(rng, regime), steps(rng, regime, columns)
    xz, yz = (_typed(case.storage, zeros(rng, case.storage, case.sign)) for _ in range(2))
    wz = _typed(weight, zeros(rng, weight, case.sign, columns))
    ys = out_step(rng, regime, float(xs * ws.max()) * np.sqrt(size) * 75 * 75)
    return {"xs": xs, "xz": xz, "ws": ws, "wz": wz, "ys": ys, "yz": yz}


def qlinear_conv(rng, case, regime):
    x = integers(rng, case.storage, (1, 4, 38, 38))
    w, b = integers(rng, "i8", (CHANNELS, 4, 3, 3)), rng.integers(-9000, 9000, CHANNELS).astype(np.int32)
    p = _product(rng, case, regime, 36)
    feeds = {"x": x, "xs": p["xs"], "xz": p["xz"], "w": w, "ws": p["ws"], "wz": p["wz"]}
    feeds |= {"ys": p["ys"], "yz": p["yz"], "b": b}
    factor = output_multiplier(p["xs"], p["ws"], p["ys"])
    factor = factor.reshape(-1, 1, 1) if factor.ndim else factor
    acc = conv_accumulate(x, int(p["xz"]), w, p["wz"].astype(np.int64), b)
    got = requantize_float32(acc, factor, int(p["yz"]), *STORAGES[case.storage][1:])
    return _run("QLinearConv", feeds, case.storage, domain=""), got


def qlinear_matmul(rng, case, regime):
    a, w = integers(rng, case.storage, (VALUES // CHANNELS, 37)), integers(rng, "i8", (37, CHANNELS))
    p = _product(rng, case, regime, 37)
    feeds = {"x": a, "xs": p["xs"], "xz": p["xz"], "w": w, "ws": p["ws"], "wz": p["wz"]}
    feeds |= {"ys": p["ys"], "yz": p["yz"]}
    acc = matmul_accumulate(a, int(p["xz"]), w, p["wz"].astype(np.int64))
    factor = output_multiplier(p["xs"], p["ws"], p["ys"])
    got = requantize_float32(acc, factor, int(p["yz"]), *STORAGES[case.storage][1:])
    return _run("QLinearMatMul", feeds, case.storage, domain=""), got


def qgemm(rng, case, regime):
    a, w = integers(rng, case.storage, (VALUES // CHANNELS, 37)), integers(rng, "i8", (37, CHANNELS))
    c = rng.integers(-9000, 9000, CHANNELS).astype(np.int32)
    p = _product(rng, case, regime, 37)
    feeds = {"x": a, "xs": p["xs"], "xz": p["xz"], "w": w, "ws": p["ws"], "wz": p["wz"], "c": c}
    feeds |= {"ys": p["ys"], "yz": p["yz"]}
    acc = matmul_accumulate(a, int(p["xz"]), w, p["wz"].astype(np.int64), c)
    factor = output_multiplier(p["xs"], p["ws"], p["ys"])
    got = requantize_float32(acc, factor, int(p["yz"]), *STORAGES[case.storage][1:])
    return _run("QGemm", feeds, case.storage), got


def integer_product(kind: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """MatMulInteger and ConvInteger: sums alone."""

    def run(rng, case, regime):
        del regime
        columns = None if case.granularity == "tensor" else CHANNELS
        xz = _typed(case.storage, zeros(rng, case.storage, case.sign))
        wz = _typed("i8", zeros(rng, "i8", case.sign, columns))
        if kind == "MatMulInteger":
            x = integers(rng, case.storage, (VALUES // CHANNELS, 37))
            w = integers(rng, "i8", (37, CHANNELS))
            got = matmul_accumulate(x, int(xz), w, wz.astype(np.int64))
        else:
            x = integers(rng, case.storage, (1, 4, 38, 38))
            w = integers(rng, "i8", (CHANNELS, 4, 3, 3))
            got = conv_accumulate(x, int(xz), w, wz.astype(np.int64))
        feeds = {"x": x, "w": w, "xz": xz, "wz": wz}
        return run_op(kind, feeds, constants=("w", "xz", "wz"), result=np.int32), got

    return run


def binary(kind: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """QLinearAdd and QLinearMul."""

    def run(rng, case, regime):
        a, b = integers(rng, case.storage, VALUES), integers(rng, case.storage, VALUES)
        sa, sb = steps(rng, regime), steps(rng, regime)
        za, zb, zy = (_typed(case.storage, zeros(rng, case.storage, case.sign)) for _ in range(3))
        typical = float(sa * sb) * 75 * 75 if kind == "QLinearMul" else float(sa + sb) * 75
        sy = out_step(rng, regime, typical)
        feeds = {"x": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
        ours = qlinear_mul if kind == "QLinearMul" else qlinear_add
        grids = [_grid(case.storage, *item) for item in ((sa, za), (sb, zb), (sy, zy))]
        return _run(kind, feeds, case.storage, data=("x", "b")), ours(a, grids[0], b, grids[1], grids[2])

    return run


def unary(kind: str, ours: Callable[..., np.ndarray], shape, attributes) -> Callable[..., Any]:
    """An operator of one tensor."""

    def run(rng, case, regime):
        x = integers(rng, case.storage, shape)
        sx = steps(rng, regime)
        zx, zy = (_typed(case.storage, zeros(rng, case.storage, case.sign)) for _ in range(2))
        sy = out_step(rng, regime, float(sx) * 75)
        if kind in _UNIT:
            # Nothing is below 0: a zero point at the upper end would leave one result.
            sy, zy = _unit_step(rng, regime), np.minimum(zy, zy.dtype.type(5))
        feeds = {"x": x, "sx": sx, "zx": zx, "sy": sy, "zy": zy}
        grids = _grid(case.storage, sx, zx), _grid(case.storage, sy, zy)
        return _run(kind, feeds, case.storage, attributes=attributes), ours(x, *grids)

    return run


def _unit_step(rng, regime):
    """A scale for results from 0 to 1."""
    return {"ties": np.float32(1 / 256), "any": scale(rng, 1e-3, 0.1), "saturated": np.float32(1e-5)}[regime]


def concat(rng, case, regime):
    arrays = [integers(rng, case.storage, (VALUES // 2,)) for _ in range(2)]
    scales, zs = [steps(rng, regime) for _ in range(2)], [zeros(rng, case.storage, case.sign) for _ in "ab"]
    sy, zy = out_step(rng, regime, float(scales[0]) * 75), zeros(rng, case.storage, case.sign)
    feeds = {"sy": sy, "zy": _typed(case.storage, zy)}
    for i in range(2):
        feeds |= {f"x{i}": arrays[i], f"s{i}": scales[i], f"z{i}": _typed(case.storage, zs[i])}
    grids = [_grid(case.storage, s, z) for s, z in zip(scales, zs, strict=True)]
    got = qlinear_concat(arrays, grids, _grid(case.storage, sy, zy), 0)
    return _run("QLinearConcat", feeds, case.storage, data=("x0", "x1"), attributes={"axis": 0}), got


def where(rng, case, regime):
    condition = rng.random(VALUES) < 0.5
    a, b = integers(rng, case.storage, VALUES), integers(rng, case.storage, VALUES)
    sa, sb = steps(rng, regime), steps(rng, regime)
    za, zb, zy = (_typed(case.storage, zeros(rng, case.storage, case.sign)) for _ in range(3))
    sy = out_step(rng, regime, float(sa + sb) * 75)
    feeds = {"c": condition, "x": a, "sa": sa, "za": za, "b": b, "sb": sb, "zb": zb, "sy": sy, "zy": zy}
    sides = (a, _grid(case.storage, sa, za)), (b, _grid(case.storage, sb, zb))
    got = qlinear_where(condition, *sides, _grid(case.storage, sy, zy))
    return _run("QLinearWhere", feeds, case.storage, data=("c", "x", "b")), got


_UNIT = frozenset({"QLinearSigmoid", "QLinearSoftmax"})
_BYTES = ("i8", "u8")
_TENSOR = ("tensor",)
_COLUMN = ("tensor", "axis")
_ALL = ("tensor", "axis", "block")
_PLANE = (4, 8, 20, 20)

# What computes a case, which storages its activations have, and of what its parameters are one.
OPERATORS: Mapping[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Any, tuple[str, ...]]] = {
    "ConvInteger": (integer_product("ConvInteger"), ("u8",), _TENSOR),
    "DequantizeLinear": (quantize_dequantize("DequantizeLinear"), tuple(FORMATS), _ALL),
    "MatMulInteger": (integer_product("MatMulInteger"), _BYTES, _COLUMN),
    "QGemm": (qgemm, _BYTES, _COLUMN),
    "QLinearAdd": (binary("QLinearAdd"), _BYTES, _TENSOR),
    "QLinearAveragePool": (
        unary(
            "QLinearAveragePool",
            lambda x, *grids: qlinear_average_pool(x, *grids, PoolGeometry((2, 2))),
            _PLANE,
            {"kernel_shape": [2, 2]},
        ),
        _BYTES,
        _TENSOR,
    ),
    "QLinearConcat": (concat, _BYTES, _TENSOR),
    "QLinearConv": (qlinear_conv, _BYTES, _COLUMN),
    "QLinearGlobalAveragePool": (
        unary("QLinearGlobalAveragePool", qlinear_global_average_pool, (10, 1000, 3, 3), {}),
        _BYTES,
        _TENSOR,
    ),
    "QLinearLeakyRelu": (
        unary(
            "QLinearLeakyRelu",
            lambda x, *grids: qlinear_leaky_relu(x, *grids, 0.125),
            (VALUES,),
            {"alpha": 0.125},
        ),
        _BYTES,
        _TENSOR,
    ),
    "QLinearMatMul": (qlinear_matmul, _BYTES, _COLUMN),
    "QLinearMul": (binary("QLinearMul"), _BYTES, _TENSOR),
    "QLinearSigmoid": (unary("QLinearSigmoid", qlinear_sigmoid, (VALUES,), {}), _BYTES, _TENSOR),
    "QLinearSoftmax": (
        unary("QLinearSoftmax", qlinear_softmax, (1000, 10), {"axis": -1, "opset": 13}),
        _BYTES,
        _TENSOR,
    ),
    "QLinearWhere": (where, _BYTES, _TENSOR),
    "QuantizeLinear": (quantize_dequantize("QuantizeLinear"), tuple(FORMATS), _ALL),
}
