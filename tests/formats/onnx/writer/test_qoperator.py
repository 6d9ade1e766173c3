"""onnx-qoperator: which operators are written, and that they compute what the Q/DQ file computes."""

import numpy as np
import pytest

from planner.constants.quantize import dequantize_array, quantize_array
from planner.formats.onnx.writer.qdq import write_qdq
from planner.formats.onnx.writer.qoperator import write_qoperator
from planner.formats.table import EXPORTERS
from planner.interpreter.kernels.conv import conv_accumulate
from planner.interpreter.requantize import output_multiplier, requantize_float32
from planner.ir.types.qtypes import Uniform, storage, uniform
from planner.ops.geometry.windows import ConvGeometry
from tests.formats.plans import (
    bias,
    execute,
    executed,
    i8,
    loaded,
    model,
    op,
    op_types,
    plan_of,
    run,
    u8,
    weight,
)

RNG = np.random.default_rng(6)
X = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
CONV = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32) * 0.1
KN = RNG.normal(size=(6, 5)).astype(np.float32) * 0.3
NK = np.ascontiguousarray(KN.T)
ROW = RNG.normal(size=5).astype(np.float32)
IN, OUT = u8(0.03, 128), u8(0.05, 120)


def linear(x: Uniform, w: np.ndarray, y: Uniform, axis: int = 0) -> dict[str, Uniform]:
    kind = weight(w, axis)
    return {"x": x, "w": kind, "b": bias(x, kind), "y": y}


def test_the_table_of_formats_is_sorted():
    assert list(EXPORTERS) == sorted(EXPORTERS)


CASES = {
    "conv": (
        [op("Conv", "x w b", "y", pads=[1] * 4)],
        X,
        {"w": CONV, "b": ROW.repeat(2)[:8]},
        linear(IN, CONV, OUT),
        ["QLinearConv"],
    ),
    "conv i8": (
        [op("Conv", "x w b", "y")],
        X,
        {"w": CONV, "b": ROW.repeat(2)[:8]},
        linear(i8(0.03, 3), CONV, i8(0.05, -9)),
        ["QLinearConv"],
    ),
    "conv without bias": ([op("Conv", "x w", "y")], X, {"w": CONV}, linear(IN, CONV, OUT), ["QLinearConv"]),
    "conv to another storage": (
        [op("Conv", "x w", "y")],
        X,
        {"w": CONV},
        linear(IN, CONV, i8(0.05)),
        ["Conv"],
    ),
    "conv of u8 weights beside i8": (  # onnxruntime has no kernel for this pair
        [op("Conv", "x w", "y")],
        X,
        {"w": CONV},
        {"x": i8(0.03, 3), "w": u8(0.003, 128), "y": i8(0.05, -9)},
        ["Conv"],
    ),
    "matmul": ([op("MatMul", "x w", "y")], X, {"w": KN}, linear(IN, KN, OUT, 1), ["QLinearMatMul"]),
    "matmul of words": (
        [op("MatMul", "x w", "y")],
        X,
        {"w": KN},
        linear(uniform(storage("i16"), 0.001), KN, uniform(storage("i16"), 0.001), 1),
        ["MatMul"],
    ),
    "matmul row": (
        [op("MatMul", "x w", "m"), op("Add", "m b", "y")],
        X[0, 0],
        {"w": KN, "b": ROW},
        linear(IN, KN, OUT, 1),
        ["QGemm"],
    ),
    "matmul row, bias first": (
        [op("MatMul", "x w", "m"), op("Add", "b m", "y")],
        X[0, 0],
        {"w": KN, "b": ROW},
        linear(IN, KN, OUT, 1),
        ["QGemm"],
    ),
    "matmul cube": (
        [op("MatMul", "x w", "m"), op("Add", "m b", "y")],
        X,
        {"w": KN, "b": ROW},
        linear(IN, KN, OUT, 1),
        ["Reshape", "QGemm", "Reshape"],
    ),
    "gemm": (
        [op("Gemm", "x w b", "y", transB=1)],
        X[0, 0],
        {"w": NK, "b": ROW},
        linear(IN, NK, OUT),
        ["QGemm"],
    ),
    "gemm with a column": (
        [op("Gemm", "x w b", "y")],
        X[0, 0],
        {"w": KN, "b": ROW.repeat(6).reshape(5, 6).T.copy()},
        linear(IN, KN, OUT, 1) | {"b": None},
        ["Gemm"],
    ),
    "conv transpose": (
        [op("ConvTranspose", "x w", "y")],
        X,
        {"w": CONV[:4]},
        linear(IN, CONV[:4], OUT, 1),
        ["ConvTranspose"],
    ),
    "softmax": ([op("Softmax", "x", "y", axis=1)], X, {}, {"x": IN, "y": u8(1 / 256)}, ["QLinearSoftmax"]),
    "sigmoid": ([op("Sigmoid", "x", "y")], X, {}, {"x": IN, "y": u8(1 / 256)}, ["QLinearSigmoid"]),
    "leaky relu": ([op("LeakyRelu", "x", "y", alpha=0.1)], X, {}, {"x": IN, "y": OUT}, ["QLinearLeakyRelu"]),
    "average pool": (
        [op("AveragePool", "x", "y", kernel_shape=[2, 2], pads=[0, 0, 1, 1])],
        X,
        {},
        {"x": IN, "y": OUT},
        ["QLinearAveragePool"],
    ),
    "dilated pool": (
        [op("AveragePool", "x", "y", kernel_shape=[2, 2], dilations=[2, 2])],
        X,
        {},
        {"x": IN, "y": OUT},
        ["Max", "AveragePool"],
    ),
    "global pool": (
        [op("GlobalAveragePool", "x", "y")],
        X,
        {},
        {"x": IN, "y": OUT},
        ["QLinearGlobalAveragePool"],
    ),
    "add": (
        [op("Add", "x w", "y")],
        X,
        {"w": X[:, :1].copy()},
        {"x": IN, "w": u8(0.02, 130), "y": OUT},
        ["QLinearAdd"],
    ),
    "add of mixed storages": (
        [op("Add", "x w", "y")],
        X,
        {"w": X[:, :1].copy()},
        {"x": IN, "w": i8(0.02), "y": OUT},
        ["Add"],
    ),
    "mul": ([op("Mul", "x x", "y")], X, {}, {"x": IN, "y": OUT}, ["QLinearMul"]),
    "sub": ([op("Sub", "x w", "y")], X, {"w": X[:, :1].copy()}, {"x": IN, "w": IN, "y": OUT}, ["Sub"]),
    "concat": (
        [op("Concat", "x w", "y", axis=1)],
        X,
        {"w": X + 1},
        {"x": IN, "w": OUT, "y": OUT},
        ["QLinearConcat"],
    ),
    "concat of one type": (
        [op("Concat", "x w", "y", axis=1)],
        X,
        {"w": X + 1},
        {"x": IN, "w": IN, "y": IN},
        ["Concat"],
    ),
    "max pool": (
        [op("MaxPool", "x", "y", kernel_shape=[3, 3], pads=[1] * 4)],
        X,
        {},
        {"x": IN, "y": IN},
        ["MaxPool"],
    ),
    "max pool to another scale": (
        [op("MaxPool", "x", "y", kernel_shape=[3, 3])],
        X,
        {},
        {"x": IN, "y": OUT},
        ["MaxPool"],
    ),
    "pad": (
        [op("Pad", "x w", "y")],
        X,
        {"w": np.int64([0, 0, 1, 1, 0, 0, 1, 1])},
        {"x": IN, "y": IN},
        ["Pad"],
    ),
    "transpose of words": (
        [op("Transpose", "x", "y", perm=[0, 2, 1, 3])],
        X,
        {},
        dict.fromkeys("xy", uniform(storage("u16"), 0.001, 9000)),
        ["Transpose"],
    ),
    "resize": (
        [op("Resize", "x - w", "y", mode="nearest")],
        X,
        {"w": np.float32([1, 1, 2, 2])},
        {"x": IN, "y": IN},
        ["Resize"],
    ),
    "linear resize": (
        [op("Resize", "x - w", "y", mode="linear")],
        X,
        {"w": np.float32([1, 1, 2, 2])},
        {"x": IN, "y": IN},
        ["Resize"],
    ),
    "where": (
        [op("Where", "c x w", "y")],
        X,
        {"c": X > 0, "w": X + 1},
        {"x": IN, "w": OUT, "y": OUT},
        ["QLinearWhere"],
    ),
    "relu": ([op("Relu", "x", "y")], X, {}, dict.fromkeys("xy", i8(0.03, 3)), ["Clip"]),
}


def built(ops, x, constants, types):
    shapes = {"x": x.shape}
    floats = [n for n, a in constants.items() if a.dtype == np.float32 and ops[0].type != "Resize"]
    graph = model(ops, inputs=shapes, outputs={"y": None}, constants=constants)
    want = execute(write_qdq(graph, _unplanned(graph)), {"x": x})[0]
    graph = model(ops, inputs=shapes, outputs={"y": want.shape}, constants=constants)
    reads = " ".join(
        dict.fromkeys(n for o in ops for n in o.inputs if n == "x" or n in floats)
        if ops[0].type != "Mul"
        else ["x", "x"]
    )
    return graph, plan_of(graph, [([o.outputs[0] for o in ops], reads, "y")], types)


def _unplanned(graph):
    return plan_of(graph, [([o.outputs[0]], "", o.outputs[0]) for o in graph.ops], {})


@pytest.mark.parametrize("name", CASES)
def test_each_kernel_is_the_operator_it_should_be_and_agrees_with_qdq(name):
    ops, x, constants, types, expected = CASES[name]
    graph, plan = built(ops, x, constants, types)
    data = write_qoperator(graph, plan)
    assert op_types(data) == expected
    got, want = (run(d, {"x": x})[0] for d in (data, write_qdq(graph, plan)))
    steps = np.abs(got - want) / types["y"].scale
    assert np.max(steps) < 1.01
    assert np.mean(steps > 0.01) <= 0.02
    assert len(np.unique(got)) > 3


@pytest.mark.parametrize("activation", ["", "Relu"])
@pytest.mark.parametrize(("x", "y"), [(IN, OUT), (i8(0.03, 3), i8(0.05, -9)), (IN, u8(0.05, 0))])
def test_conv_is_the_interpreters_bit_for_bit(activation, x, y):
    b = RNG.normal(size=8).astype(np.float32)
    ops = [op("Conv", "x w b", "c", pads=[1] * 4, strides=[2, 2])]
    ops += [op("Relu", "c", "y")] if activation else []
    last = ops[-1].outputs[0]
    graph = model(
        ops,
        inputs={"x": X.shape},
        outputs={last: (1, 8, 3, 3)},
        constants={"w": CONV, "b": b},
        facts={last: (y,), "x": (x,)},
    )
    types = linear(x, CONV, y) | {last: y}
    data = write_qoperator(graph, plan_of(graph, [([o.outputs[0] for o in ops], "x w b", last)], types))
    q = quantize_array(X, x)
    stored = quantize_array(CONV, types["w"]), quantize_array(b, types["b"])
    geometry = ConvGeometry(strides=(2, 2), pads=(1, 1, 1, 1))
    acc = conv_accumulate(q, x.zero_point, stored[0], 0, stored[1], geometry=geometry)
    factor = output_multiplier(x.scale, np.float32(types["w"].scales), y.scale).reshape(1, -1, 1, 1)
    low = y.zero_point if activation else y.storage.qmin
    want = requantize_float32(acc, factor, y.zero_point, low, y.storage.qmax)
    np.testing.assert_array_equal(run(data, {"x": q})[0], want)


def test_a_fused_activation_clips_stored_integers():
    for kind, left in ((u8(0.05, 0), []), (u8(0.05, 9), ["Clip"]), (i8(0.05, 3), ["Clip"])):
        x = IN if not kind.storage.signed else i8(0.03)
        ops = [op("Conv", "x w", "c"), op("Relu", "c", "y")]
        graph = model(ops, inputs={"x": X.shape}, outputs={"y": (1, 8, 4, 4)}, constants={"w": CONV})
        data = write_qoperator(graph, plan_of(graph, [(["c", "y"], "x w", "y")], linear(x, CONV, kind)))
        assert op_types(data) == ["QLinearConv", *left]
        got = run(data, {"x": X})[0]
        assert got.min() == 0
        assert got.max() > 0


def test_a_value_wanted_in_two_types_is_rescaled_through_float():
    ops = [op("Sigmoid", "x", "m"), op("Sigmoid", "m", "a"), op("Concat", "m a", "y", axis=0)]
    graph = model(ops, inputs={"x": (8,)}, outputs={"y": (16,), "m": (8,)}, constants={})
    kind, y = u8(1 / 200, 10), u8(1 / 100)
    types = {"x": IN, "m": kind, "a": y, "y.in[0]": y, "y": y, "a.in[0]": kind}
    kernels = [(["m"], "x", "m"), (["a"], "m", "a"), (["y"], "m a", "y")]
    data = write_qoperator(graph, plan_of(graph, kernels, types))
    assert op_types(data) == ["QLinearSigmoid", "QLinearSigmoid", "Concat"]
    x = RNG.normal(size=8).astype(np.float32)
    joined, m = run(data, {"x": x})
    np.testing.assert_array_equal(joined[:8], dequantize_array(quantize_array(m, y), y))
    assert sum(n.op_type == "QuantizeLinear" for n in loaded(data).graph.node) == 2


def test_an_unknown_batch_is_folded_into_rows():
    ops = [op("MatMul", "x w", "m"), op("Add", "m b", "y")]
    graph = model(ops, inputs={"x": ("N", 6, 6)}, outputs={"y": ("N", 6, 5)}, constants={"w": KN, "b": ROW})
    plan = plan_of(graph, [(["m", "y"], "x w b", "y")], linear(IN, KN, OUT, 1))
    got, want = (run(write(graph, plan), {"x": X[0]})[0] for write in (write_qoperator, write_qdq))
    assert got.shape == (4, 6, 5)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][4][-1].startswith("QLinear")])
def test_onnxruntime_makes_the_same_operator_of_the_qdq_file(name, tmp_path):
    ops, x, constants, types, expected = CASES[name]
    assert expected[-1] in executed(write_qdq(*built(ops, x, constants, types)), tmp_path)


def test_a_qdq_file_with_a_dilated_pool_survives_onnxruntimes_optimizer(tmp_path):
    ops, x, constants, types, expected = CASES["dilated pool"]
    assert expected[-1] in executed(write_qdq(*built(ops, x, constants, types)), tmp_path)
