"""onnx-integer and finn, kernel by kernel and arithmetic by arithmetic equal to the interpreter."""

import numpy as np
import pytest

from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.formats.onnx.writer.integers.integer import write_integer
from planner.formats.qonnx.finn import write_finn
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.arithmetic.multipliers import Multiplier
from planner.ir.types.qtypes import storage, uniform
from tests.formats.plans import bias, i8, model, op, op_types, plan_of, run, u8, weight

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)
W = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32) * 0.2
D = RNG.normal(size=(4, 1, 3, 3)).astype(np.float32)
KN = RNG.normal(size=(6, 5)).astype(np.float32) * 0.5
LO, HI = np.array(-0.5, np.float32), np.array(1.5, np.float32)
ARITHMETICS = (
    *("exact_even", "float32_even", "gemmlowp", "tosa_double", "tosa_single"),
    *map(str, (Multiplier(16, "half_away", (0, 30)), Multiplier(10, "floor", (0, 40)))),
)
U, UO, S, SO, S4 = u8(0.03, 128), u8(0.05, 120), i8(0.03, 3), i8(0.06, -9), uniform(storage("i4"), 0.4, 1)


def conv(x, y, w=W, **attributes):
    kind = weight(w)
    b = RNG.normal(size=w.shape[0]).astype(np.float32)
    ops = [op("Conv", "x w b", "y", **attributes)]
    return ops, {"w": w, "b": b}, {"x": x, "w": kind, "b": bias(x, kind), "y": y}


def dense(x, y, **attributes):
    w = KN.T.copy() if attributes.get("transB") else KN
    kind = weight(w, 0 if attributes.get("transB") else 1)
    b = RNG.normal(size=5).astype(np.float32)
    ops = [op("Gemm", "x w b", "y", **attributes)]
    return ops, {"w": w, "b": b}, {"x": x, "w": kind, "b": bias(x, kind), "y": y}


CASES = {
    "conv": (*conv(U, UO, pads=[1] * 4), X, "ConvInteger"),
    "conv of signed bytes": (*conv(S, SO), X, "ConvInteger"),
    "conv of four bits": (*conv(S4, S4), X, "ConvInteger"),
    "conv by channel": (*conv(U, UO, D, group=4), X, "ConvInteger"),
    "gemm": (*dense(U, UO), X[0, 0], "MatMulInteger"),
    "gemm turned": (*dense(S, SO, transB=1), X[0, 0], "MatMulInteger"),
    "matmul": (
        [op("MatMul", "x w", "y")], {"w": KN}, {"x": U, "w": weight(KN, 1), "y": UO}, X, "MatMulInteger"),
    "matmul of activations": ([op("MatMul", "x x", "y")], {}, {"x": U, "y": UO}, X, "MatMulInteger"),
    "add": ([op("Add", "x w", "y")], {"w": X[:, :1].copy()}, {"x": U, "w": u8(0.02, 130), "y": UO}, X, "Add"),
    "add of signed bytes": ([op("Add", "x x", "y")], {}, {"x": S, "y": SO}, X, "Add"),
    "mul": ([op("Mul", "x x", "y")], {}, {"x": U, "y": UO}, X, "Mul"),
    "concat": ([op("Concat", "x w", "y", axis=1)], {"w": X + 1}, {"x": U, "w": UO, "y": UO}, X, "Concat"),
    "global average": ([op("GlobalAveragePool", "x", "y")], {}, {"x": U, "y": UO}, X, "ReduceSum"),
    "average of all": (
        [op("AveragePool", "x", "y", kernel_shape=[6, 6])], {}, {"x": S, "y": SO}, X, "ReduceSum"),
    "max pool": ([op("MaxPool", "x", "y", kernel_shape=[2, 2])], {}, {"x": U, "y": U}, X, "MaxPool"),
}  # fmt: skip


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_on_integers_equals_the_interpreter(name, arithmetic):
    ops, constants, types, x, kind = CASES[name]
    graph = model(ops, inputs={"x": x.shape}, outputs={"y": tuple("abcd"[: x.ndim])}, constants=constants)
    plan = plan_of(graph, [(["y"], " ".join(ops[0].inputs), "y")], types, arithmetic)
    data = write_integer(graph, plan)
    assert kind in op_types(data)
    wanted = Interpreter(graph, plan).run({"x": x}).outputs["y"]
    assert np.ptp(wanted) > 0
    np.testing.assert_array_equal(run(data, {"x": x})[0], wanted)


@pytest.mark.parametrize("write", [write_integer, write_finn])
@pytest.mark.parametrize("arithmetic", [name for name in ARITHMETICS if name != "float32_even"])
def test_averages_within_one_type_have_the_ties_of_their_row(write, arithmetic):
    """Of four stored integers every other average is a tie: in TOSA's arithmetics as AVG_POOL2D has it."""
    ops = [op("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[2, 2])]
    graph = model(ops, inputs={"x": (1, 4, 64, 64)}, outputs={"y": (1, 4, 32, 32)}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": S, "y": S}, arithmetic)
    sample = {"x": RNG.normal(size=(1, 4, 64, 64)).astype(np.float32)}
    wanted = Interpreter(graph, plan).run(sample).outputs["y"]
    got = ModelRunner(read_written(write(graph, plan))).run(sample)["y"]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_a_fused_activation_is_the_clip_of_the_requantize(arithmetic, activation):
    ops, constants, types = conv(U, uniform(storage("u8"), 0.02, 40))
    bounds = {"lo": LO, "hi": HI} if activation == "Clip" else {}
    ops = [op("Conv", "x w b", "c"), op(activation, " ".join(("c", *bounds)), "y")]
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": tuple("abcd")}, constants={**constants, **bounds})
    plan = plan_of(graph, [(["c", "y"], "x w b", "y")], types, arithmetic)
    data = write_integer(graph, plan)
    assert op_types(data).count("Clip") == 1
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    np.testing.assert_array_equal(run(data, {"x": X})[0], wanted)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_a_rescale_on_an_edge_is_integer_too(arithmetic):
    ops = [op("MaxPool", "x", "a", kernel_shape=[2, 2]), op("MaxPool", "a", "y", kernel_shape=[2, 2])]
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": tuple("abcd")}, constants={})
    types = {"x": U, "a": U, "y.in[0]": SO, "y": SO}
    plan = plan_of(graph, [(["a"], "x", "a"), (["y"], "a", "y")], types, arithmetic)
    data = write_integer(graph, plan)
    assert "Div" in op_types(data)
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    np.testing.assert_array_equal(run(data, {"x": X})[0], wanted)


@pytest.mark.parametrize("arithmetic", ["exact_even", "float32_even"])
@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-9])
def test_a_sum_far_beyond_its_result_saturates(scale, arithmetic):
    """A multiplier of thousands or millions does not leave 64 bits."""
    y = u8(scale, 7)
    graph = model([op("Add", "x x", "y")], inputs={"x": X.shape}, outputs={"y": tuple("abcd")}, constants={})
    plan = plan_of(graph, [(["y"], "x x", "y")], {"x": u8(0.03, 128), "y": y}, arithmetic)
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    assert len(np.unique(wanted)) > 1
    np.testing.assert_array_equal(run(write_integer(graph, plan), {"x": X})[0], wanted)


def coarse_concat(scale):
    """A concat whose first operand has steps far beyond the result, as behind an attention mask."""
    y = u8(scale, 7)
    ops = [op("Concat", "x w", "y", axis=1)]
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": tuple("abcd")}, constants={"w": X * scale})
    return graph, plan_of(graph, [(["y"], "x w", "y")], {"x": u8(0.03, 128), "w": y, "y": y}, "exact_even")


@pytest.mark.parametrize("scale", [1e-4, 1e-6])
def test_a_rescale_far_beyond_its_result_saturates(scale):
    graph, plan = coarse_concat(scale)
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    assert len(np.unique(wanted)) > 2
    np.testing.assert_array_equal(run(write_integer(graph, plan), {"x": X})[0], wanted)


@pytest.mark.parametrize("scale", [1e-9, 1e-12, 1e-30, 1e-38])
def test_quotients_of_more_than_32_bits_are_refused(scale):
    """Onnxruntime's Clip of int64 gives the lower end for them."""
    with pytest.raises(UnsupportedExport, match="no integer ONNX operators compute Concat"):
        write_integer(*coarse_concat(scale))


def test_what_no_integer_operator_computes_is_refused():
    w = RNG.normal(size=(4, 2, 3, 3)).astype(np.float32)
    graph = model(
        [op("ConvTranspose", "x w", "y")],
        inputs={"x": X.shape},
        outputs={"y": tuple("abcd")},
        constants={"w": w},
    )
    types = {"x": U, "w": weight(w, 1), "y": UO}
    plan = plan_of(graph, [(["y"], "x w", "y")], types, "tosa_single")
    with pytest.raises(
        UnsupportedExport, match=r"y.out\[0\] \(row row@1\): no integer ONNX operators compute ConvT"
    ):
        write_integer(graph, plan)


SIGNED = np.linspace(-1.1, 1.3, X.shape[1], dtype=np.float32).reshape(1, -1, 1, 1)
FINN = {
    "conv": (*conv(S, SO, pads=[1] * 4), X),
    "conv with zero points": (*conv(U, UO, pads=[1] * 4), X),
    "gemm": (*dense(U, UO), X[0, 0]),
    "gemm turned": (*dense(S4, S4, transB=1), X[0, 0]),
    "matmul of rank 3": ([op("MatMul", "x w", "y")], {"w": KN}, {"x": U, "w": weight(KN, 1), "y": UO}, X[0]),
    "add of one scale": ([op("Add", "x x", "y")], {}, {"x": S, "y": SO}, X),
    "add per channel": (
        [op("Add", "x w", "y")], {"w": X[:1, :, :1, :1].copy()}, {"x": S, "w": i8(0.02), "y": SO}, X),
    "relu": ([op("Relu", "x", "y")], {}, {"x": S, "y": S}, X),
    "clip": ([op("Clip", "x lo hi", "y")], {"lo": LO, "hi": HI}, {"x": S, "y": S}, X),
    "global average": ([op("GlobalAveragePool", "x", "y")], {}, {"x": U, "y": UO}, X),
    "average": ([op("AveragePool", "x", "y", kernel_shape=[2, 2])], {}, {"x": S, "y": SO}, X),
    "transpose": ([op("Transpose", "x", "y", perm=[0, 2, 3, 1])], {}, {"x": S, "y": S}, X),
    "relu of another scale": ([op("Relu", "x", "y")], {}, {"x": S, "y": UO}, X),
    "sigmoid": ([op("Sigmoid", "x", "y")], {}, {"x": S, "y": SO}, X),
    "mul per channel, some negative": (
        [op("Mul", "x k", "y")], {"k": SIGNED}, {"x": U, "k": i8(0.02), "y": SO}, X),
    "a constant less x": ([op("Sub", "k x", "y")], {"k": SIGNED}, {"k": i8(0.02), "x": U, "y": SO}, X),
    "div by one number": (
        [op("Div", "x k", "y")], {"k": SIGNED[0, 1, 0, 0]}, {"x": S, "k": i8(0.02), "y": UO}, X),
    "normalisation": (
        [op("BatchNormalization", "x k o o v", "y")],
        {"k": SIGNED.reshape(-1), "o": SIGNED.reshape(-1) / 2, "v": SIGNED.reshape(-1) ** 2},
        {"x": U, "y": SO}, X),
    "a chain": (
        [op("Mul", "x k", "a"), op("Sub", "a k", "b"), op("Relu", "b", "y")],
        {"k": SIGNED}, {"x": S, "y": UO}, X),
}  # fmt: skip


@pytest.mark.parametrize("name", FINN)
def test_thresholds_equal_the_interpreter(name):
    ops, constants, types, x = FINN[name]
    sizes = {"y": tuple("abcd"[: x.ndim])}
    graph = model(ops, inputs={"x": x.shape}, outputs=sizes, constants=constants)
    ports = " ".join(item for item in ops[0].inputs if item in types)
    plan = plan_of(graph, [([item.outputs[0] for item in ops], ports, "y")], types, "exact_even")
    data = write_finn(graph, plan)
    wanted = Interpreter(graph, plan).run({"x": x}).outputs["y"]
    assert np.ptp(wanted) > 0
    np.testing.assert_array_equal(ModelRunner(read_written(data)).run({"x": x})["y"], wanted)


def test_a_float_bias_is_in_the_thresholds():
    ops, constants, types = conv(S, SO)
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": (2, 8, 4, 4)}, constants=constants)
    plan = plan_of(graph, [(["y"], "x w b", "y")], {**types, "b": None}, "exact_even")
    data = write_finn(graph, plan)
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    np.testing.assert_array_equal(ModelRunner(read_written(data)).run({"x": X})["y"], wanted)
    np.testing.assert_array_equal(run(write_integer(graph, plan), {"x": X})[0], wanted)


def test_finn_refuses_what_thresholds_do_not_compute():
    """A function that falls and rises has no thresholds."""
    graph = model([op("Abs", "x", "y")], inputs={"x": (4,)}, outputs={"y": (4,)}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": S, "y": SO}, "exact_even")
    with pytest.raises(UnsupportedExport, match=r"y.out\[0\] \(row row@1\): thresholds do not compute Abs"):
        write_finn(graph, plan)
