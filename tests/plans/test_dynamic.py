"""Rows that quantize their activation at run time: planned, checked, computed, written, run."""

import json
from dataclasses import replace

import numpy as np
import onnx.helper as h
import onnxruntime as ort
import pytest

import planner
from planner.errors import PlanInvalid, PlannerError, TargetError, UnsupportedExport
from planner.formats.table import AS_GIVEN, EXPORTERS
from planner.interpreter.dynamic import quantized
from planner.ir.types.qtypes import storage
from planner.plans.work import work_of
from planner.target.records import DynamicRange
from tests.conversion.files import file_of
from tests.formats.plans import model, op, op_types

RNG = np.random.default_rng(8)
TARGET = """
apiVersion: planner/v1
kind: Target
id: at-run-time
version: 1.0.0
title: Activations quantized at run time
mode: fixed
types:
  w: WEIGHT
  f32: {storage: f32}
defaults: {on_no_kernel: float, bias: float}
fusions:
  - kernel: product
    pattern: ["Relu(Add(MatMul(x, w), b))", "Add(MatMul(x, w), b)", "MatMul(x, w)", "Gemm(x, w, b?)"]
    where: {w: constant}
  - {kernel: conv, pattern: "Relu?(Conv(x, w, b?))", where: {w: constant}}
kernels:
  - kernel: product
    in: {x: f32, w: w, b?: f32}
    out: {y: f32}
    axis: {w: out_channel}
    dynamic: DYNAMIC
  - {kernel: conv, in: {x: f32, w: w, b?: f32}, out: {y: f32}, axis: {w: out_channel}, dynamic: DYNAMIC}
"""
SIGNED = "{storage: i8, range: [-127, 127], granularity: axis, symmetric: true}"
CENTRED = "{storage: u8, granularity: axis, zero_point: 128}"
WHOLE = "{storage: u8}"
PER_TENSOR = "{storage: i8}"
SAY_IT = {"onnx-integer", "onnx-qdq", "onnx-qoperator", "onnx-qoperator-clip"}
WAYS = {
    "u8": "{storage: u8}",
    "i8": "{storage: i8}",
    "i8 symmetric": "{storage: i8, symmetric: true}",
    "u4": "{storage: u4}",
    "i8 per token": "{storage: i8, per: token, symmetric: true}",
    "i4 per token": "{storage: i4, per: token, symmetric: true}",
}


def target(way: str, weight: str = CENTRED):
    return planner.load_target(TARGET.replace("DYNAMIC", way).replace("WEIGHT", weight))


def net():
    """A convolution, a stack of matrices, a Gemm with factors: all that such rows serve."""
    shapes = {"k": (3, 3, 3, 3), "kb": (3,), "m": (6, 8), "mb": (8,), "g": (5, 8), "gb": (5,)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    ops = [
        op("Conv", "x k kb", "c", pads=[1, 1, 1, 1]),
        op("Relu", "c", "r"),
        op("MatMul", "r m", "p"),
        op("Add", "p mb", "a"),
        op("Relu", "a", "s"),
        op("Reshape", "s shape", "f"),
        op("Gemm", "f g gb", "y", transB=1, alpha=0.5, beta=2.0),
    ]
    constants["shape"] = np.asarray([-1, 8], np.int64)
    return model(ops, inputs={"x": (2, 3, 5, 6)}, outputs={"y": (30, 5)}, constants=constants)


def planned(way: str, weight: str = CENTRED):
    graph, device = net(), target(way, weight)
    plan = planner.plan(graph, device)
    planner.check(plan, graph, device)
    return graph, plan


def test_reals_are_quantized_by_their_own_range():
    x = RNG.normal(size=(7, 9)).astype(np.float32) * 3 + 1
    (stored, scale, zero) = ort_dynamic(x)
    found = quantized(x, DynamicRange(storage("u8")))
    np.testing.assert_array_equal(found.stored, stored)
    assert (found.scale, found.zero_point) == (scale, zero)
    by_token = quantized(x, DynamicRange(storage("i8"), per_token=True, symmetric=True))
    assert by_token.scale.shape == (7, 1)
    np.testing.assert_array_equal(np.abs(by_token.stored.astype(int)).max(axis=1), 127)
    for array in (np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32)):
        for by in (DynamicRange(storage("u8")), DynamicRange(storage("i8"), per_token=True, symmetric=True)):
            nothing = quantized(array, by)
            assert np.all(nothing.scale == 1)
            assert not np.any(nothing.stored.astype(int) - nothing.zero_point)


def ort_dynamic(x):
    graph = model([], inputs={"x": x.shape}, outputs={"x": x.shape}, constants={})
    assert graph is not None

    names = [("q", 2, x.shape), ("s", 1, ()), ("z", 2, ())]
    made = h.make_model(
        h.make_graph(
            [h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])],
            "one",
            [h.make_tensor_value_info("x", 1, x.shape)],
            [h.make_tensor_value_info(*name) for name in names],
        ),
        opset_imports=[h.make_opsetid("", 21)],
        ir_version=10,
    )
    return ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("weight", [CENTRED, SIGNED, PER_TENSOR], ids=["centred", "signed", "tensor"])
@pytest.mark.parametrize("way", WAYS)
def test_onnxruntime_gives_the_interpreters_numbers(way, weight, level):
    per_token = "token" in way
    graph, plan = matrices(WAYS[way], weight) if per_token else planned(WAYS[way], weight)
    served = [kernel.kernel for kernel in plan.kernels_in_order if kernel.row]
    assert served == (["product"] if per_token else ["conv", "product", "product"])
    x = tokens() if per_token else RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(planner.export(graph, plan, "onnx-integer"), options)
    np.testing.assert_array_equal(
        session.run(None, {"x": x})[0], planner.evaluate(graph, plan, {"x": x}).outputs["y"]
    )


def tokens():
    """Rows of very different sizes: one scale for all would leave nothing of the small ones."""
    return (RNG.normal(size=(4, 6)) * np.logspace(-3, 3, 4)[:, None]).astype(np.float32)


def matrices(way: str, weight: str = CENTRED):
    rng = np.random.default_rng(9)
    constants = {"m": rng.normal(size=(6, 8)).astype(np.float32), "b": rng.normal(size=8).astype(np.float32)}
    graph = model(
        [op("MatMul", "x m", "p"), op("Add", "p b", "y")],
        inputs={"x": (4, 6)},
        outputs={"y": (4, 8)},
        constants=constants,
    )
    plan = planner.plan(graph, target(way, weight))
    planner.check(plan, graph)
    return graph, plan


def test_onnxruntime_makes_its_own_kernels_of_them(tmp_path):
    """The patterns that quantize_dynamic writes, so that both become DynamicQuantizeMatMul."""
    graph, plan = planned(WHOLE)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    ort.InferenceSession(planner.export(graph, plan, "onnx-integer"), options)
    fused = op_types((tmp_path / "fused.onnx").read_bytes())
    assert fused.count("DynamicQuantizeMatMul") == 2
    assert fused.count("ConvInteger") == 1


def test_products_of_one_input_share_what_it_is_quantized_to(tmp_path):
    """Queries and keys of one tensor, say: quantized once, and each product is MatMulIntegerToFloat."""
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=(8, 4)).astype(np.float32) for name in ("q", "k")}
    nodes = [h.make_node("MatMul", ["x", name], [f"y{name}"], f"n{name}") for name in arrays]
    data = file_of(nodes, {"x": (1, [3, 8])}, ["yq", "yk"], arrays)
    graph = planner.load_model(data)
    plan = planner.plan(graph, "onnxruntime-dynamic")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    file = planner.export(graph, plan, "onnx-integer")
    session = ort.InferenceSession(file, options)
    fused = op_types((tmp_path / "fused.onnx").read_bytes())
    assert sorted(fused) == ["DynamicQuantizeLinear", "MatMulIntegerToFloat", "MatMulIntegerToFloat"]
    x = rng.normal(size=(3, 8)).astype(np.float32)
    wanted = planner.evaluate(graph, plan, {"x": x}).outputs
    for name, got in zip(("yq", "yk"), session.run(["yq", "yk"], {"x": x}), strict=True):
        assert np.allclose(got, wanted[name], rtol=1e-5, atol=1e-6)


def test_a_scale_for_each_token_keeps_the_small_ones():
    x = tokens()
    graph, by_token = matrices(WAYS["i8 per token"])
    _, whole = matrices(WAYS["i8 symmetric"])
    exact = x @ graph.constants["m"].array + graph.constants["b"].array
    fine, coarse = (
        np.abs(planner.evaluate(graph, plan, {"x": x}).outputs["y"] - exact).max(axis=1)
        for plan in (by_token, whole)
    )
    assert fine[0] < coarse[0] / 4


def test_plans_keep_it_and_the_checker_reads_it():
    graph, plan = planned(WAYS["i8 symmetric"])
    told = planner.plan_from_json(plan.to_json())
    assert told.key == plan.key
    written = json.loads(plan.to_json())["target"]["rows"]
    assert all(row["dynamic"] == {"symmetric": True, "storage": "i8"} for row in written.values())
    planner.check(told, graph)
    # Tokens of a convolution are none.
    rows = {
        key: replace(row, dynamic=DynamicRange(storage("i8"), True, True))
        for key, row in told.target.rows.items()
    }
    with pytest.raises(PlanInvalid, match="quantized at run time"):
        planner.check(replace(told, target=replace(told.target, rows=rows)), graph)


def test_what_it_cannot_serve_stays_float_and_says_why():
    graph = model(
        [op("MatMul", "x z", "p"), op("Conv", "i k", "c")],
        inputs={"x": (2, 4, 6), "z": (2, 6, 3), "i": (1, 3, 5, 5)},
        outputs={"p": (2, 4, 3), "c": (1, 2, 3, 3)},
        constants={"k": RNG.normal(size=(2, 3, 3, 3)).astype(np.float32)},
    )
    text = TARGET.replace("    where: {w: constant}\n", "")
    device = planner.load_target(text.replace("DYNAMIC", WAYS["i8 per token"]).replace("WEIGHT", SIGNED))
    plan = planner.plan(graph, device)
    told = [kernel.reason or "" for kernel in plan.kernels_in_order]
    assert all("per token, of matrices" in reason for reason in told), told


def test_work_counts_the_products_of_integers():
    weight = RNG.normal(size=(6, 8)).astype(np.float32)
    graph = model(
        [op("MatMul", "x m", "y")], inputs={"x": (4, 6)}, outputs={"y": (4, 8)}, constants={"m": weight}
    )
    plan = planner.plan(graph, target(WAYS["i8 symmetric"]))
    text = TARGET.replace("    dynamic: DYNAMIC\n", "").replace("DYNAMIC", WHOLE).replace("WEIGHT", CENTRED)
    stored = planner.plan(graph, planner.load_target(text))
    macs = 4 * 6 * 8
    assert work_of(stored).kernels - work_of(plan).kernels == macs * (32 - 8) * 8 / 1024


def test_formats_that_do_not_say_it_refuse():
    graph, plan = planned(WHOLE, SIGNED)
    for form in sorted(EXPORTERS.keys() - AS_GIVEN):
        if form not in SAY_IT:
            with pytest.raises(UnsupportedExport, match=r"while it runs|nothing in this plan"):
                planner.export(graph, plan, form)
    graph, plan = planned("{storage: i16, symmetric: true}")
    with pytest.raises(UnsupportedExport, match="integer ONNX operators multiply bytes, not i16"):
        planner.export(graph, plan, "onnx-integer")


@pytest.mark.parametrize(
    ("way", "weight", "told"),
    [
        ("{storage: i32}", SIGNED, "integers of up to 16 bits, not i32"),
        ("{storage: f8E4M3FN}", SIGNED, "integers of up to 16 bits"),
        ("{storage: u8, symmetric: true}", SIGNED, "symmetric needs signed storage"),
        ("{storage: i8, per: token}", SIGNED, "say symmetric: true"),
        ("{storage: u8}", "{storage: f32}", "has quantized weights"),
        ("{storage: u8}", "{storage: i4, granularity: block, block_size: 32}", "has quantized weights"),
        ("{storage: int8}", SIGNED, "i8 here"),
    ],
)
def test_what_makes_no_sense_is_refused(way, weight, told):
    with pytest.raises(TargetError, match=told):
        target(way, weight)
    with pytest.raises(TargetError, match="has no accumulator"):
        planner.load_target(
            TARGET.replace("dynamic: DYNAMIC}", f"dynamic: {WHOLE}, accumulator: i32}}")
            .replace("DYNAMIC", WHOLE)
            .replace("WEIGHT", SIGNED)
        )
    with pytest.raises(TargetError, match="reads its first input in f32"):
        planner.load_target(
            TARGET.replace("DYNAMIC", WHOLE)
            .replace("WEIGHT", SIGNED)
            .replace("{x: f32, w: w, b?: f32}", "{x: w, w: w}")
        )


def test_sums_beyond_32_bits_are_not_written():
    array = np.ones((80_000, 2), np.float32)
    graph = model(
        [op("MatMul", "x m", "y")], inputs={"x": (1, 80_000)}, outputs={"y": (1, 2)}, constants={"m": array}
    )
    plan = planner.plan(graph, "onnxruntime-dynamic")
    x = {"x": np.ones((1, 80_000), np.float32)}
    np.testing.assert_allclose(planner.evaluate(graph, plan, x).outputs["y"], 80_000, rtol=1e-6)
    with pytest.raises(UnsupportedExport, match="may leave the 32 bits"):
        planner.export(graph, plan, "onnx-integer")


def test_a_nan_gives_numbers_or_nan():
    graph, plan = matrices(WHOLE)
    x = tokens()
    x[0, 0] = np.nan
    assert planner.evaluate(graph, plan, {"x": x}).outputs["y"].shape == (4, 8)


def test_readers_of_one_weight_share_it():
    weight = RNG.normal(size=(64, 64)).astype(np.float32)
    ops = [
        op("Gemm", "x w", "a", transB=1),
        op("Gemm", "a w", "b", transB=1),
        op("Gemm", "b w", "y", transB=1),
    ]
    graph = model(ops, inputs={"x": (4, 64)}, outputs={"y": (4, 64)}, constants={"w": weight})
    data = planner.export(graph, planner.plan(graph, "onnxruntime-dynamic"), "onnx-integer")
    assert len(data) < 2 * weight.size


@pytest.mark.parametrize(
    "told", [{"storage": "i8", "per_token": True}, {"storage": "f8E4M3FN"}, {"storage": "i64"}]
)
def test_a_plan_whose_range_makes_no_sense_is_refused(told):
    _, plan = matrices(WHOLE)
    text = json.loads(plan.to_json())
    for row in text["target"]["rows"].values():
        row["dynamic"] = told
    with pytest.raises(PlannerError, match="dynamic"):
        planner.plan_from_json(json.dumps(text))
