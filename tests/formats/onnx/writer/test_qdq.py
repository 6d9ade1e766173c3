"""onnx-qdq: what is written, and that onnxruntime computes the plan's numbers with it."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

import planner
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.formats.onnx.attributes import GRAPH
from planner.formats.onnx.writer.qdq import write_qdq
from planner.formats.onnx.writer.storage_types import held
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import evaluate
from planner.ir.graph import Constant, Op, Opaque
from planner.ir.types.qtypes import FloatType, NoneType, Uniform, storage, uniform
from tests.formats.plans import bias, executed, i8, loaded, model, op, op_types, plan_of, run, u8, weight

RNG = np.random.default_rng(5)
X = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
W = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32) * 0.1
B = RNG.normal(size=8).astype(np.float32)
IN = u8(0.03, 128)


def fake(x: np.ndarray, kind: Uniform) -> np.ndarray:
    """Reals as a stored tensor of this type sees them."""
    return dequantize_array(quantize_array(x, kind), kind)


def conv_graph(activation: str = "", **facts):
    ops = [op("Conv", "x w b", "c", pads=[1, 1, 1, 1])]
    constants = {"w": W, "b": B}
    if activation == "Relu":
        ops.append(op("Relu", "c", "y"))
    elif activation:
        lo, hi = activation.split()
        constants |= {"lo": np.float32(lo), "hi": np.float32(hi)}
        ops.append(op("Clip", "c lo hi", "y"))
    last = ops[-1].outputs[0]
    return model(ops, inputs={"x": X.shape}, outputs={last: (1, 8, 6, 6)}, constants=constants, facts=facts)


def conv_plan(graph, y: Uniform, x: Uniform = IN):
    results = [o.outputs[0] for o in graph.ops]
    types = {"x": x, "w": weight(W), "b": bias(x, weight(W)), results[-1]: y}
    return plan_of(graph, [(results, "x w b", results[-1])], types)


def float_conv() -> np.ndarray:
    graph = conv_graph()
    data = write_qdq(graph, plan_of(graph, [(["c"], "x w b", "c")], {}))
    return run(data, {"x": X})[0]


def quantized_conv() -> np.ndarray:
    """The convolution of fake-quantized operands, before its own quantization."""
    w, b = weight(W), bias(IN, weight(W))
    graph = model(
        [op("Conv", "x w b", "c", pads=[1, 1, 1, 1])],
        inputs={"x": X.shape},
        outputs={"c": (1, 8, 6, 6)},
        constants={"w": fake(W, w), "b": fake(B, b)},
    )
    return run(write_qdq(graph, plan_of(graph, [(["c"], "x w b", "c")], {})), {"x": fake(X, IN)})[0]


def test_an_all_float_plan_is_the_model_itself():
    graph = conv_graph("Relu")
    data = write_qdq(graph, plan_of(graph, [(["c"], "x w b", "c"), (["y"], "c", "y")], {}))
    proto = loaded(data)
    assert [n.op_type for n in proto.graph.node] == ["Conv", "Relu"]
    assert {i.name for i in proto.graph.initializer} == {"w", "b"}
    assert (proto.ir_version, proto.opset_import[0].version) == (10, 21)


def test_a_conv_stores_its_weights_and_bias_as_integers_and_reads_what_it_should():
    graph = conv_graph()
    y = u8(0.05, 120)
    data = write_qdq(graph, conv_plan(graph, y))
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in loaded(data).graph.initializer}
    assert stored["w_quantized"].dtype == np.int8
    assert stored["b_quantized"].dtype == np.int32
    assert "w" not in stored
    got = run(data, {"x": X})[0]
    np.testing.assert_array_equal(got, fake(quantized_conv(), y))


@pytest.mark.parametrize(
    ("activation", "kind", "left"),
    [
        ("Relu", u8(0.05, 0), []),  # the type cuts where Relu does
        ("Relu", u8(0.05, 100), ["Clip"]),  # u8 is cut as it is stored
        ("Relu", i8(0.05, -128), []),
        ("Relu", i8(0.05, 0), ["Relu"]),
        ("Relu", uniform(storage("i8", -127, 126), 0.05, -20), ["Clip"]),
        ("0 6", u8(6 / 255, 0), []),
        ("0 6", u8(0.01, 0), []),  # never gets as high as 6
        ("0 6", u8(0.05, 0), ["Clip"]),
        ("-1 1", u8(2 / 255, 127), ["Clip"]),  # 128 steps above zero, 1 needs 127
        ("-1 1", i8(0.05, 3), ["Clip"]),
    ],
)
def test_a_fused_activation_is_a_clamp_of_the_stored_result(activation, kind, left, tmp_path):
    graph = conv_graph(activation)
    data = write_qdq(graph, conv_plan(graph, kind))
    assert op_types(data) == ["Conv", *left]
    got = run(data, {"x": X})[0]
    q = quantize_array(quantized_conv(), kind).astype(int)
    lo, hi = (0.0, np.inf) if activation == "Relu" else map(float, activation.split())
    low, high = quantize_array(np.float32([lo, hi]), kind).astype(int)
    want = ((np.clip(q, low, high) - kind.zero_point).astype(np.float32)) * np.float32(kind.scale)
    np.testing.assert_array_equal(got, want)
    assert "QLinearConv" in executed(data, tmp_path)


def test_a_narrow_activation_range_saturates_there():
    graph = conv_graph()
    kind = uniform(storage("u8", 16, 200), 0.01, 100)
    data = write_qdq(graph, conv_plan(graph, kind))
    got = run(data, {"x": X})[0]
    np.testing.assert_array_equal(got, fake(quantized_conv(), kind))
    assert op_types(data) == ["Conv", "Clip"]


def test_a_narrow_sixteen_bit_range_saturates_too():
    graph = conv_graph()
    kind = uniform(storage("i16", -300, 400), 0.001, 7)
    got = run(write_qdq(graph, conv_plan(graph, kind)), {"x": X})[0]
    np.testing.assert_array_equal(got, fake(quantized_conv(), kind))


@pytest.mark.parametrize("text", ["i4", "u2", "i12", "u11", "i1"])
def test_other_widths_lie_in_bytes_and_words(text):
    graph = conv_graph()
    kind = uniform(storage(text), 0.1, 0)
    data = write_qdq(graph, conv_plan(graph, kind))
    got = run(data, {"x": X})[0]
    np.testing.assert_array_equal(got, fake(quantized_conv(), kind))
    low, high = kind.storage.qmin * 0.1, kind.storage.qmax * 0.1
    assert low - 1e-6 <= got.min() < got.max() <= high + 1e-6


VIEWS = [
    op("Reshape", "x s", "r"),
    op("Transpose", "r", "t", perm=[1, 0]),
    op("Unsqueeze", "t u", "v"),
    op("Slice", "v b e", "y"),
]
NUMBERS = {"s": np.int64([16, 9]), "u": np.int64([0]), "b": np.int64([0, 2, 0]), "e": np.int64([1, 8, 16])}


@pytest.mark.parametrize("last", ["", "Sigmoid"])
@pytest.mark.parametrize("kind", [u8(0.03, 3), i8(0.03, 3)], ids=["u8", "i8"])
def test_views_of_one_type_have_no_pair_of_their_own(kind, last, tmp_path):
    ops, end = ([*VIEWS, op(last, "y", "z")], "z") if last else (VIEWS, "y")
    graph = model(ops, inputs={"x": X.shape}, outputs={end: (1, 6, 16)}, constants=NUMBERS)
    types = {**dict.fromkeys(("x", "r", "t", "v", "y"), kind), "z": u8(1 / 256)}
    kernels = [(["r"], "x", "r"), (["t"], "r", "t"), (["v"], "t", "v"), (["y"], "v", "y")]
    data = write_qdq(graph, plan_of(graph, [*kernels, (["z"], "y", "z")] if last else kernels, types))
    kinds = [node.op_type for node in loaded(data).graph.node]
    assert kinds.count("QuantizeLinear") == (2 if last else 1)
    wanted = fake(X, kind).reshape(16, 9).T[None, 2:8]
    wanted = fake(1 / (1 + np.exp(-wanted)), u8(1 / 256)) if last else wanted
    np.testing.assert_array_equal(run(data, {"x": X})[0], wanted)
    if last:
        assert "QLinearSigmoid" in executed(data, tmp_path)


def test_a_view_is_stored_where_integers_are_asked_for():
    kind, other = u8(0.03, 3), u8(0.1, 0)
    ops = [op("Transpose", "x", "t", perm=[1, 0]), op("Sigmoid", "t", "y"), op("Tanh", "t", "z")]
    x = X[0, 0]
    facts = {"p": (kind,)}
    ops.append(op("Reshape", "x s", "p"))
    graph = model(
        ops,
        inputs={"x": x.shape},
        outputs={"y": x.shape, "z": x.shape, "p": (36,)},
        constants={"s": np.int64([36])},
        facts=facts,
    )
    types = {"x": kind, "t": kind, "p": kind, "y": u8(1 / 256), "z.in[0]": other, "z": u8(1 / 128)}
    kernels = [(["t"], "x", "t"), (["y"], "t", "y"), (["z"], "t", "z"), (["p"], "x", "p")]
    y, z, p = run(write_qdq(graph, plan_of(graph, kernels, types)), {"x": x})
    seen = fake(x, kind).T
    np.testing.assert_array_equal(y, fake(1 / (1 + np.exp(-seen)), u8(1 / 256)))
    np.testing.assert_array_equal(z, fake(np.tanh(fake(seen, other)), u8(1 / 128)))
    np.testing.assert_array_equal(p, quantize_array(x, kind).reshape(36))


def test_names_do_not_grow_with_those_of_the_model():
    stem = "model/" + "a_very_long_layer/" * 20
    ops = [op("Sigmoid", "x", f"{stem}1"), op("Tanh", f"{stem}1", f"{stem}2")]
    graph = model(ops, inputs={"x": (2, 3)}, outputs={f"{stem}2": (2, 3)}, constants={})
    types = {"x": IN, f"{stem}1": u8(1 / 256), f"{stem}2": u8(1 / 128)}
    kernels = [([f"{stem}1"], "x", f"{stem}1"), ([f"{stem}2"], f"{stem}1", f"{stem}2")]
    proto = loaded(write_qdq(graph, plan_of(graph, kernels, types)))
    ours = {name for node in proto.graph.node for name in (*node.output, *node.input)} - set(graph.values)
    assert max(map(len, ours)) <= 80


def test_a_shared_value_and_a_shared_bias_have_one_tensor_per_type():
    ops = [
        op("Conv", "x w b", "p", pads=[1, 1, 1, 1]),
        op("Conv", "x w b", "q", pads=[1, 1, 1, 1]),
        op("Conv", "x w b", "r", pads=[1, 1, 1, 1]),
        op("Concat", "p q r", "y", axis=1),
    ]
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": (1, 24, 6, 6)}, constants={"w": W, "b": B})
    coarse, w, y = u8(0.1, 128), weight(W), u8(0.05, 120)
    types = {
        "p.in[0]": IN,
        "q.in[0]": coarse,
        "r.in[0]": IN,
        "w": w,
        **{f"{k}.in[2]": bias(x, w) for k, x in (("p", IN), ("q", coarse), ("r", IN))},
        **dict.fromkeys("pqry", y),
    }
    kernels = [*(([k], "x w b", k) for k in "pqr"), (["y"], "p q r", "y")]
    data = write_qdq(graph, plan_of(graph, kernels, types))
    proto = loaded(data)
    names = [i.name for i in proto.graph.initializer]
    assert {n for n in names if n.startswith("b_quantized")} >= {"b_quantized", "b_quantized_1"}
    assert sum(n.op_type == "QuantizeLinear" and n.input[0] == "x" for n in proto.graph.node) == 2
    got = run(data, {"x": X})[0]
    np.testing.assert_array_equal(got[:, :8], got[:, 16:])
    np.testing.assert_array_equal(got[:, :8], fake(quantized_conv(), y))


def test_a_value_returned_and_consumed_keeps_its_name():
    ops = [op("Sigmoid", "x", "m"), op("Sigmoid", "m", "y")]
    graph = model(ops, inputs={"x": (2, 3)}, outputs={"m": (2, 3), "y": (2, 3)}, constants={})
    types = {"x": IN, "m": u8(1 / 255), "y": u8(1 / 255)}
    data = write_qdq(graph, plan_of(graph, [(["m"], "x", "m"), (["y"], "m", "y")], types))
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    m, y = run(data, {"x": x})
    np.testing.assert_array_equal(m, fake(1 / (1 + np.exp(-fake(x, IN))), u8(1 / 255)))
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-m)), atol=0.6 / 255)


def test_pinned_inputs_and_outputs_are_stored():
    kind, out = u8(0.05, 128), i8(0.02, 3)
    graph = model(
        [op("Neg", "x", "y")],
        inputs={"x": (2, 3)},
        outputs={"y": (2, 3)},
        constants={},
        facts={"x": (kind,), "y": (out,)},
    )
    data = write_qdq(graph, plan_of(graph, [(["y"], "x", "y")], {"x": kind, "y": out}))
    proto = loaded(data)
    types = [v.type.tensor_type.elem_type for v in (proto.graph.input[0], proto.graph.output[0])]
    assert types == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8]
    q = RNG.integers(0, 256, (2, 3)).astype(np.uint8)
    np.testing.assert_array_equal(run(data, {"x": q})[0], quantize_array(-dequantize_array(q, kind), out))


def test_users_of_a_pinned_value_start_from_the_pin():
    fine, pin, y = u8(0.01, 128), u8(0.2, 128), u8(0.01, 128)
    ops = [op("Neg", "x", "m"), op("Neg", "m", "y")]
    graph = model(ops, inputs={"x": (64,)}, outputs={"y": (64,)}, constants={}, facts={"m": (pin,)})
    types = {"x": fine, "m": fine, "y": y}
    data = write_qdq(graph, plan_of(graph, [(["m"], "x", "m"), (["y"], "m", "y")], types))
    x = RNG.normal(size=64).astype(np.float32) * 0.5
    m = fake(fake(-fake(x, fine), fine), pin)
    np.testing.assert_array_equal(run(data, {"x": x})[0], fake(-fake(m, fine), y))


def test_a_value_marked_none_reaches_its_users_in_float():
    kind = u8(0.01, 128)
    ops = [op("Neg", "x", "m"), op("Neg", "m", "y")]
    graph = model(ops, inputs={"x": (64,)}, outputs={"y": (64,)}, constants={}, facts={"m": (NoneType(),)})
    data = write_qdq(graph, plan_of(graph, [(["m"], "x", "m"), (["y"], "m", "y")], {"x": kind, "m": kind}))
    x = RNG.normal(size=64).astype(np.float32) * 0.5
    np.testing.assert_array_equal(run(data, {"x": x})[0], -fake(-fake(x, kind), kind))


def test_a_float_island_reads_and_gives_floats():
    kind = u8(0.02, 128)
    ops = [op("Neg", "x", "a"), op("Erf", "a", "e"), op("Neg", "e", "y")]
    graph = model(ops, inputs={"x": (64,)}, outputs={"y": (64,)}, constants={})
    types = {"x": kind, "a": kind, "y.in[0]": kind, "y": kind}
    kernels = [(["a"], "x", "a"), (["e"], "a", "e"), (["y"], "e", "y")]
    data = write_qdq(graph, plan_of(graph, kernels, types))
    x = RNG.normal(size=64).astype(np.float32)
    y, e = run(data, {"x": x}, ["e"])
    np.testing.assert_array_equal(y, fake(-fake(e, kind), kind))


def test_two_ports_of_one_kernel_may_read_one_value_in_two_types():
    fine, coarse, y = u8(0.02, 128), u8(0.5, 128), u8(0.1, 0)
    graph = model([op("Mul", "x x", "y")], inputs={"x": (64,)}, outputs={"y": (64,)}, constants={})
    types = {"y.in[0]": fine, "y.in[1]": coarse, "y": y}
    data = write_qdq(graph, plan_of(graph, [(["y"], "x x", "y")], types))
    x = RNG.normal(size=64).astype(np.float32)
    np.testing.assert_array_equal(run(data, {"x": x})[0], fake(fake(x, fine) * fake(x, coarse), y))


def test_names_of_the_model_survive_and_ours_step_aside():
    kind = u8(0.02, 128)
    x, y, taken = "in'a'/\"b\"", "x/y", "x/y_quantized"
    ops = [op("Neg", x, y), op("Neg", y, taken)]
    graph = model(ops, inputs={x: (4,)}, outputs={y: (4,), taken: (4,)}, constants={})
    kernels = [([y], x, y), ([taken], y, taken)]
    data = write_qdq(graph, plan_of(graph, kernels, {x: kind, y: kind, taken: kind}))
    proto = loaded(data)
    assert [v.name for v in (*proto.graph.input, *proto.graph.output)] == [x, y, taken]
    names = [n.name for n in proto.graph.node]
    assert len(set(names)) == len(names)
    values = RNG.normal(size=4).astype(np.float32)
    a, b = run(data, {x: values})
    np.testing.assert_array_equal(a, fake(-fake(values, kind), kind))
    np.testing.assert_array_equal(b, fake(-a, kind))


def test_a_relu_of_its_own_between_equal_types_works_on_integers_or_vanishes():
    for kind, left in ((u8(0.02, 100), ["Clip"]), (u8(0.02, 0), []), (i8(0.02, 0), ["Relu"])):
        graph = model([op("Relu", "x", "y")], inputs={"x": (64,)}, outputs={"y": (64,)}, constants={})
        data = write_qdq(graph, plan_of(graph, [(["y"], "x", "y")], {"x": kind, "y": kind}))
        assert op_types(data) == left
        x = RNG.normal(size=64).astype(np.float32)
        np.testing.assert_array_equal(run(data, {"x": x})[0], np.maximum(fake(x, kind), 0))


def test_a_half_precision_model_casts_at_the_border():
    kind = u8(0.02, 128)
    x = RNG.normal(size=64).astype(np.float16)
    dtypes = dict.fromkeys("xy", "f16")
    graph = model(
        [op("Neg", "x", "y")], inputs={"x": (64,)}, outputs={"y": (64,)}, constants={}, dtypes=dtypes
    )
    data = write_qdq(graph, plan_of(graph, [(["y"], "x", "y")], {"x": kind, "y": kind}))
    got = run(data, {"x": x})[0]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, fake(-fake(x, kind).astype(np.float16), kind).astype(np.float16))


def test_wide_biases_fit_or_are_floats_of_their_grid():
    graph = conv_graph()
    w = weight(W)
    kernels = [(["c"], "x w b", "c")]
    wide = {"x": IN, "w": w, "b": bias(IN, w, "i64"), "c": u8(0.05, 120)}
    got = run(write_qdq(graph, plan_of(graph, kernels, wide)), {"x": X})[0]
    np.testing.assert_array_equal(got, run(write_qdq(graph, conv_plan(graph, wide["c"])), {"x": X})[0])
    tiny = uniform(storage("i64"), 1e-12)
    data = write_qdq(graph, plan_of(graph, kernels, wide | {"b": tiny}))
    (found,) = [one for one in onnx.load_from_string(data).graph.initializer if one.name == "b_dequantized"]
    reals = dequantize_array(quantize_array(np.asarray(graph.constants["b"].array), tiny), tiny)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found), reals)
    plan = plan_of(graph, kernels, wide | {"b": tiny})
    wanted = evaluate(graph, plan, {"x": X}, arithmetic="float32_qdq").outputs["c"]
    np.testing.assert_array_equal(run(data, {"x": X})[0], wanted)
    # What a format has to write as integers is refused.
    with pytest.raises(UnsupportedExport, match="constant 'b' stored as i64 needs more than 32 bits"):
        held(quantize_array(np.asarray(graph.constants["b"].array), tiny), "b", tiny)


@pytest.mark.parametrize(
    ("port", "kind", "message"),
    [
        (
            "x",
            uniform(storage("i24"), 0.1),
            r"c.in\[0\] \('x', row row@1\) is .*i24.*: 24 bits; onnx-qdq accepts i1..i16",
        ),
        ("c", uniform(storage("i32"), 0.1), r"c.out\[0\] .*: 32 bits; onnx-qdq accepts i1..i16"),
        ("b", uniform(storage("i32"), 0.1, 5), r"c.in\[2\] .*: a zero point or no sign on more than 16 bits"),
        ("x", uniform(storage("f8E5M2"), 0.1), r"c.in\[0\] .*: float storage"),
        (
            "x",
            Uniform(storage("i4"), (0.125,) * 3, (0,) * 3, blocks=((1, 1),), grid=(1, 3, 1, 1)),
            r"c.in\[0\] .*: scales per block",
        ),
    ],
)
def test_types_it_cannot_say_are_refused_by_port_and_row(port, kind, message):
    graph = conv_graph()
    types = {"x": IN, "w": weight(W), "b": bias(IN, weight(W)), "c": u8(0.05, 120)} | {port: kind}
    with pytest.raises(UnsupportedExport, match=message):
        write_qdq(graph, plan_of(graph, [(["c"], "x w b", "c")], types))


def test_a_constant_without_numbers_is_refused():
    graph = conv_graph()
    plan = conv_plan(graph, u8(0.05, 120))
    bare = replace(graph, constants={**graph.constants, "w": Constant()})
    with pytest.raises(UnsupportedExport, match="constant 'w' has a range but no numbers"):
        write_qdq(bare, plan)


def test_shape_arithmetic_that_a_kernel_needs_is_written_although_no_kernel_plans_it():
    ops = [op("Shape", "x", "s"), op("Neg", "x", "n"), op("Reshape", "n s", "y"), op("Size", "n", "unread")]
    dtypes = {"s": "i64", "unread": "i64"}
    graph = model(ops, inputs={"x": (2, 3)}, outputs={"y": (2, 3)}, constants={}, dtypes=dtypes)
    kind = u8(0.02, 128)
    kernels = [(["s"], "x", ""), (["n"], "x", "n"), (["y"], "n", "y"), (["unread"], "", "")]
    plan = plan_of(graph, kernels, {"n": kind, "n.in[0]": kind, "y": kind})
    live = tuple(k for k in plan.kernels_in_order if k.name in ("n", "y"))
    data = write_qdq(graph, replace(plan, kernels_in_order=live))
    assert op_types(data) == ["Shape", "Neg", "Reshape"]
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(data, {"x": x})[0], fake(-fake(x, kind), kind))


@pytest.mark.parametrize(("kind", "opset"), [(u8(0.03, 3), 21), (i8(0.03, 3), 20)])
def test_onnxruntimes_optimizer_takes_stored_values_in_front_of_a_reshape(kind, opset, tmp_path):
    ops = [op("Neg", "x", "n"), op("Reshape", "n s", "r"), op("Erf", "r", "y")]
    graph = model(ops, inputs={"x": (2, 3)}, outputs={"y": (6,)}, constants={"s": np.int64([6])})
    kernels = [(["n"], "x", "n"), (["r"], "n", "r"), (["y"], "r", "y")]
    data = write_qdq(graph, plan_of(graph, kernels, {"x": kind, "n": kind}))
    assert loaded(data).opset_import[0].version == opset
    assert "Erf" in executed(data, tmp_path)


@pytest.mark.parametrize(("kind", "opset"), [(u8(0.03, 3), 21), (i8(0.03, 3), 20)])
def test_onnxruntimes_optimizer_takes_a_matmul_row_of_rank_three(kind, opset, tmp_path):
    w, row = RNG.normal(size=(6, 5)).astype(np.float32), RNG.normal(size=5).astype(np.float32)
    ops = [op("MatMul", "x w", "m"), op("Add", "m b", "y")]
    graph = model(ops, inputs={"x": (2, 3, 6)}, outputs={"y": (2, 3, 5)}, constants={"w": w, "b": row})
    types = {"x": kind, "w": weight(w, 1), "b": bias(kind, weight(w, 1)), "y": kind}
    data = write_qdq(graph, plan_of(graph, [(["m", "y"], "x w b", "y")], types))
    assert loaded(data).opset_import[0].version == opset
    assert "QGemm" in executed(data, tmp_path)


STORED = [EXPORTERS[name] for name in ("onnx-qcdq", "onnx-qdq", "onnx-qoperator", "onnx-qoperator-clip")]


def branching(captured: str) -> Op:
    """An If whose bodies read a value of the graph around them."""
    bodies = {}
    for branch, kind in (("then_branch", "Neg"), ("else_branch", "Identity")):
        node = onnx.helper.make_node(kind, [captured], [f"{branch}_m_quantized"])
        out = onnx.helper.make_tensor_value_info(f"{branch}_m_quantized", onnx.TensorProto.FLOAT, [4])
        body = onnx.helper.make_graph([node], branch, [], [out])
        bodies[branch] = Opaque(GRAPH, body.SerializeToString())
    return Op("branch", "If", ("c",), ("y",), bodies, (captured,))


def test_a_body_reads_a_stored_value_in_float_under_its_own_name():
    kind = u8(0.02, 128)
    ops = [op("Neg", "x", "m"), branching("m")]
    graph = model(ops, inputs={"x": (4,), "c": ()}, outputs={"y": (4,)}, constants={}, dtypes={"c": "bool"})
    plan = plan_of(graph, [(["m"], "x", "m"), (["y"], "m", "y")], {"x": kind, "m": kind, "y.in[0]": None})
    data = write_qdq(graph, plan)
    names = [name for node in loaded(data).graph.node for name in node.output]
    assert "m" in names
    assert "m_quantized" not in names
    x = RNG.normal(size=4).astype(np.float32)
    for c, sign in ((True, 1), (False, -1)):
        np.testing.assert_array_equal(
            run(data, {"x": x, "c": np.asarray(c)})[0], sign * -fake(-fake(x, kind), kind)
        )


def test_a_body_that_reads_a_stored_input_is_refused():
    kind = u8(0.02, 128)
    graph = model(
        [branching("x")],
        inputs={"x": (4,), "c": ()},
        outputs={"y": (4,)},
        constants={},
        dtypes={"c": "bool"},
        facts={"x": (kind,)},
    )
    with pytest.raises(UnsupportedExport, match="a subgraph of 'branch' reads 'x' in float"):
        write_qdq(graph, plan_of(graph, [(["y"], "x", "y")], {"x": None}))


@pytest.mark.parametrize("write", STORED)
def test_outputs_that_nothing_computes_are_bound_to_their_names(write):
    kind = u8(0.02, 128)
    constant = RNG.normal(size=4).astype(np.float32)
    graph = model(
        [op("Relu", "x", "y")],
        inputs={"x": (4,)},
        outputs={"y": (4,), "k": (4,)},
        constants={"k": constant},
        facts={"y": (u8(0.02, 0),), "x": (u8(0.02, 0),), "k": (kind,)},
    )
    data = write(graph, plan_of(graph, [(["y"], "x", "y")], {"x": u8(0.02, 0), "y": u8(0.02, 0)}))
    x = RNG.integers(0, 256, 4).astype(np.uint8)
    y, k = run(data, {"x": x})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(k, quantize_array(constant, kind))


@pytest.mark.parametrize("write", STORED)
def test_a_split_has_a_stored_tensor_per_result(write):
    kind = u8(0.02, 128)
    ops = [op("Split", "x", "a b", num_outputs=2), op("Neg", "b", "y")]
    graph = model(ops, inputs={"x": (8,)}, outputs={"a": (4,), "y": (4,)}, constants={})
    kernels = [(["a"], "x", "a b"), (["y"], "b", "y")]
    data = write(graph, plan_of(graph, kernels, dict.fromkeys("xaby", kind)))
    x = RNG.normal(size=8).astype(np.float32)
    a, y = run(data, {"x": x})
    np.testing.assert_array_equal(
        np.concatenate([a, y]), np.concatenate([fake(x[:4], kind), fake(-fake(x[4:], kind), kind)])
    )


def test_a_kernel_in_another_float_is_refused():
    graph = conv_graph()
    with pytest.raises(UnsupportedExport, match=r"c.in\[0\] .* is bf16: a kernel in that float"):
        write_qdq(graph, plan_of(graph, [(["c"], "x w b", "c")], {"x": FloatType("bf16")}))


def test_a_lower_bound_on_several_scales_is_cut_in_reals():
    """Its stored value differs from slice to slice."""
    kind = uniform(storage("i8"), (0.01, 0.02), axis=1)
    ops = [op("Add", "x x", "c"), op("Clip", "c lo", "y")]
    lo = np.array(-0.5, np.float32)
    graph = model(ops, inputs={"x": (1, 2)}, outputs={"y": (1, 2)}, constants={"lo": lo})
    data = write_qdq(graph, plan_of(graph, [(["c", "y"], "x x", "y")], {"x": i8(0.01), "y": kind}))
    (got,) = run(data, {"x": np.array([[-0.4, -0.4]], np.float32)})
    np.testing.assert_allclose(got, [[-0.5, -0.5]], atol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats_are_computed_in_float32(kind):
    """Between DequantizeLinear and QuantizeLinear there is float32, in the file as in the interpreter."""
    dtype = "f16" if kind is np.float16 else "f64"
    graph = model(
        [op("Conv", "x w b", "c"), op("Concat", "c x", "y", axis=1)],
        inputs={"x": (1, 4, 40, 40)},
        outputs={"y": (1, 12, 40, 40)},
        constants={"w": W[:, :, :1, :1].astype(kind), "b": B.astype(kind)},
        dtypes=dict.fromkeys("xcy", dtype),
    )
    made = weight(W[:, :, :1, :1])
    types = {"c.in[0]": IN, "c.in[1]": made, "c.in[2]": bias(IN, made), "c": u8(0.02, 128)}
    plan = plan_of(graph, [(("c",), "x w b", "c"), (("y",), "c x", "y")], types)
    sample = {"x": RNG.normal(size=(1, 4, 40, 40)).astype(kind)}
    (got,) = run(write_qdq(graph, plan), sample)
    assert np.array_equal(got, evaluate(graph, plan, sample, arithmetic="float32_qdq").outputs["y"])
    with pytest.raises(UnsupportedExport, match=rf"c.in\[0\] \('x'\) is {dtype} in the model"):
        EXPORTERS["qonnx"](graph, plan)


def test_a_pin_of_words_that_no_port_has():
    """The file is of the opset whose QuantizeLinear has words, whatever else would want an older one."""
    words = uniform(storage("i16"), 0.001)
    graph = model(
        [op("Reshape", "x shape", "a"), op("Neg", "a", "b"), op("Exp", "b", "y")],
        inputs={"x": (2, 3)},
        outputs={"y": (6,)},
        constants={"shape": np.array([6])},
        facts={"x": (words,), "a": (words,)},
    )
    kernels = [(("a",), "x", "a"), (("b",), "a", "b"), (("y",), "b", "y")]
    plan = plan_of(graph, kernels, {"b.in[0]": i8(0.01), "b": i8(0.01), "y.in[0]": None})
    data = write_qdq(graph, plan)
    assert loaded(data).opset_import[0].version == 21
    run(data, {"x": np.zeros((2, 3), np.int16)})


def test_texts_among_the_outputs():
    texts = onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [2], [b"a", b"b"])
    ends = [
        onnx.helper.make_tensor_value_info(name, kind, [2]) for name, kind in (("x", 1), ("y", 1), ("s", 8))
    ]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    source = onnx.helper.make_model(onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [texts]))
    facts = {"format": "qplan.annotations/1", "values": {"x": "!quant.calibrated<f32<-1.0:1.0>>"}}
    graph = planner.annotate(planner.load_model(source.SerializeToString()), annotations=facts)
    plan = planner.plan(graph, "litert-int8")
    _, got = run(planner.export(graph, plan, "onnx-qdq"), {"x": X[0, 0, 0, :2]})
    assert got.tolist() == ["a", "b"]
    for form in ("stablehlo", "stablehlo-int"):
        with pytest.raises(UnsupportedExport, match="'s' is a constant of string"):
            planner.export(graph, plan, form)
