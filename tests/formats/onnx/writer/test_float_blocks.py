"""Weights in blocks of floats: OCP's MX formats and NVFP4, planned, interpreted, written and read again.

ONNX's reference evaluator runs every file; onnxruntime those without 4-bit floats, which its CPU cannot read.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import planner
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import PlanInvalid, TargetError, UnsupportedExport
from planner.formats.table import AS_GIVEN, EXPORTERS
from planner.ir.types.qtypes import Uniform, storage, uniform
from planner.ir.types.scales import common_factor, held_in
from tests.formats.plans import model, op, run

FLOATS = {
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
NAMED = {
    "MXFP4": ("f4E2M1FN", 32, "e8m0"),
    "MXFP6": ("f6E3M2FN", 32, "e8m0"),
    "MXFP8": ("f8E4M3FN", 32, "e8m0"),
    "MXFP8 wide": ("f8E5M2", 32, "e8m0"),
    "NVFP4": ("f4E2M1FN", 16, "f8E4M3FN"),
    "four bits": ("i4", 16, "f8E4M3FN"),
}
WRITTEN = [name for name in NAMED if name != "MXFP6"]
TARGET = """
apiVersion: planner/v1
kind: Target
id: blocks-of-floats
version: 1.0.0
title: Blocks of floats
mode: fixed
types:
  w: {{storage: {0}, granularity: block, block_size: {1}, short_block: true, symmetric: true, scales: {2}}}
  f32: {{storage: f32}}
defaults: {{on_no_kernel: float, bias: float}}
fusions:
  - {{kernel: product, pattern: "MatMul(x, w)", where: {{w: constant, w.rank: 2}}}}
kernels:
  - {{kernel: product, in: {{x: f32, w: w}}, out: {{y: f32}}}}
"""


def weight(depth: int = 80) -> np.ndarray:
    """Columns of many sizes; one whole block of zeros, a last one that is shorter."""
    made = np.random.default_rng(4).normal(size=(depth, 6)) * np.logspace(-3, 3, 6)
    made[:32, 2] = 0
    return made.astype(np.float32)


def net(array: np.ndarray):
    return model(
        [op("MatMul", "x w", "y")],
        inputs={"x": (3, array.shape[0])},
        outputs={"y": (3, array.shape[1])},
        constants={"w": array},
    )


def planned(name: str, array: np.ndarray | None = None):
    graph = net(weight() if array is None else array)
    target = planner.load_target(TARGET.format(*NAMED[name]))
    plan = planner.plan(graph, target)
    planner.check(plan, graph, target)
    (kernel,) = plan.kernels_in_order
    return graph, plan, kernel.inputs[1].type


@pytest.mark.parametrize("name", NAMED)
def test_scales_are_what_the_format_keeps(name):
    _, _, kind = planned(name)
    store, size, _ = NAMED[name]
    assert kind.storage.name == store
    assert dict(kind.blocks) == {0: size, 1: 1}
    grid = np.asarray(kind.scales).reshape(kind.grid)
    for row, column in np.ndindex(*kind.grid):
        block = weight()[row * size : (row + 1) * size, column]
        most = float(np.abs(block).max()) / kind.storage.qmax
        if not most:
            continue
        if name in {"NVFP4", "four bits"}:
            assert grid[row, column] == pytest.approx(max(most, grid.max() / 28672), rel=1 / 16)
        else:
            assert grid[row, column] == 2.0 ** np.ceil(np.log2(most))
    if kind.storage.name.startswith("f"):
        stored = quantize_array(weight(), kind)
        spread = np.repeat(grid, size, axis=0)[: len(weight())].astype(np.float32)
        limit = np.float32(kind.storage.qmax)
        want = np.clip(weight() / spread, -limit, limit).astype(FLOATS[store])
        np.testing.assert_array_equal(stored.view(np.uint8), want.view(np.uint8))
        np.testing.assert_array_equal(dequantize_array(stored, kind), want.astype(np.float32) * spread)


@pytest.mark.parametrize("name", WRITTEN)
def test_files_have_the_plans_numbers(name):
    graph, plan, kind = planned(name)
    data = planner.export(graph, plan, "onnx-qdq")
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    eye = np.eye(80, dtype=np.float32)[[0, 40, 79]]
    want = planner.evaluate(graph, plan, {"x": eye}).outputs["y"]
    np.testing.assert_array_equal(want, dequantize_array(quantize_array(weight(), kind), kind)[[0, 40, 79]])
    np.testing.assert_array_equal(ReferenceEvaluator(data).run(None, {"x": eye})[0], want)
    if kind.storage.name != "f4E2M1FN":
        np.testing.assert_array_equal(run(data, {"x": eye})[0], want)


ALIKE = np.full((80, 6), 0.75, np.float32)
"""Scales of all blocks are one number."""


@pytest.mark.parametrize("array", [weight(), weight()[:16], ALIKE], ids=["many", "one block", "alike"])
@pytest.mark.parametrize("name", [name for name in WRITTEN if name != "four bits"])
def test_files_are_read_with_their_pins(name, array):
    graph, plan, kind = planned(name, array)
    again = planner.load_model(planner.export(graph, plan, "onnx-qdq"))
    target = planner.load_target(TARGET.format(*NAMED[name]))
    found = planner.plan(again, target)
    assert found.kernels_in_order[0].inputs[1].type == kind
    assert not found.rescales
    x = np.random.default_rng(5).normal(size=(3, len(array))).astype(np.float32)
    np.testing.assert_array_equal(
        planner.evaluate(again, found, {"x": x}).outputs["y"],
        planner.evaluate(graph, plan, {"x": x}).outputs["y"],
    )


def test_files_keep_scales_as_the_row_has_them():
    """A byte a block for exponents and NVFP4's scales; the sizes of opset and format that brought them."""
    kinds = {}
    for name in ("MXFP4", "NVFP4", "MXFP8"):
        graph, plan, _ = planned(name)
        read = onnx.load_from_string(planner.export(graph, plan, "onnx-qdq"))
        kinds[name] = sorted(
            onnx.TensorProto.DataType.Name(item.data_type) for item in read.graph.initializer
        )
        opset = 23 if name == "NVFP4" else 24
        assert (read.opset_import[0].version, read.ir_version) == (opset, opset - 12)
    assert kinds == {
        "MXFP4": ["FLOAT4E2M1", "FLOAT8E8M0"],
        "NVFP4": ["FLOAT", "FLOAT4E2M1", "FLOAT8E4M3FN"],
        "MXFP8": ["FLOAT8E4M3FN", "FLOAT8E8M0"],
    }


def test_a_strangers_factor_of_all_its_digits_is_kept():
    """NVFP4 as exporters of TensorRT write it: magnitudes by 6 * 448 in float32, no zero points."""
    array = weight(64)
    factor = np.float32(np.abs(array).max() / np.float32(6 * 448))
    own = np.abs(array).reshape(4, 16, 6).max(axis=1) / 6 / factor
    own = np.maximum(own, 2.0**-9).astype(ml_dtypes.float8_e4m3fn)
    scales = own.astype(np.float32) * factor
    stored = np.clip(array / np.repeat(scales, 16, axis=0), -6, 6).astype(ml_dtypes.float4_e2m1fn)
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["s8", "f"], ["s"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=16),
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    tensors = {"s8": own, "f": factor, "q": stored}
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "nvfp4",
            [onnx.helper.make_tensor_value_info("x", 1, [3, 64])],
            [onnx.helper.make_tensor_value_info("y", 1, [3, 6])],
            [numpy_helper.from_array(np.asarray(data), name) for name, data in tensors.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 23)],
    )
    graph = planner.load_model(made.SerializeToString())
    target = planner.load_target(TARGET.format(*NAMED["NVFP4"]))
    plan = planner.plan(graph, target)
    planner.check(plan, graph, target)
    kind = plan.kernels_in_order[0].inputs[1].type
    np.testing.assert_array_equal(np.asarray(kind.scales), scales.astype(np.float64).reshape(-1))
    again = onnx.load_from_string(planner.export(graph, plan, "onnx-qdq"))
    found = {item.name: numpy_helper.to_array(item) for item in again.graph.initializer}
    told = [array for array in found.values() if array.dtype == ml_dtypes.float4_e2m1fn]
    np.testing.assert_array_equal(told[0].view(np.uint8), stored.view(np.uint8))


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_a_scale_of_another_size_is_refused(name):
    graph, plan, kind = planned(name)
    target = planner.load_target(TARGET.format(*NAMED[name]))
    told = planner.plan_from_json(plan.to_json())
    (kernel,) = told.kernels_in_order
    at = len(kind.scales) - 1 - int(np.argmax(kind.scales[::-1]))  # the block of zeros has as large a one
    for factor, why in (
        (4.0, "coarser than the numbers|no values of"),
        (1.0009765625, "no power of two|no values of"),
    ):
        scales = tuple(
            float(np.float32(scale * factor)) if i == at else scale for i, scale in enumerate(kind.scales)
        )
        ports = (kernel.inputs[0], replace(kernel.inputs[1], type=replace(kind, scales=scales)))
        changed = replace(told, kernels_in_order=(replace(kernel, inputs=ports),))
        with pytest.raises(PlanInvalid, match=why):
            planner.check(changed, graph, target)


def test_formats_without_floats_name_the_port():
    graph, plan, _ = planned("MXFP6")
    for form in sorted(EXPORTERS.keys() - AS_GIVEN):
        with pytest.raises(UnsupportedExport, match="float"):
            planner.export(graph, plan, form)
    graph, plan, _ = planned("MXFP8")
    with pytest.raises(UnsupportedExport, match="nothing in this plan becomes a MatMulNBits"):
        planner.export(graph, plan, "onnx-matmulnbits")


def test_products_of_a_scale_and_its_factor_are_exact():
    spread = np.exp(np.random.default_rng(6).normal(size=4096) * 6)
    held = held_in(spread, "f8E4M3FN")
    factor = common_factor(held.tolist())
    own = (held / factor).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(own.astype(np.float64) * factor, held)
    np.testing.assert_array_equal(held.astype(np.float32), held)
    assert own.max() == 448
    assert common_factor(spread.astype(np.float32).tolist()) is None
    assert common_factor([float(np.float32(0.1))]) == pytest.approx(0.1 / 448)


@pytest.mark.parametrize("storage_name", ["u4", "i4"])
def test_a_block_of_zeros_has_no_say_beside_a_zero_point(storage_name):
    array = (1e-5 * np.random.default_rng(7).normal(size=(64, 4))).astype(np.float32)
    array[:16, 1] = 0
    zero = 8 if storage_name == "u4" else 0
    text = TARGET.format(storage_name, 16, "f8E4M3FN").replace("symmetric: true", f"zero_point: {zero}")
    graph, target = net(array), planner.load_target(text)
    plan = planner.plan(graph, target)
    planner.check(plan, graph, target)
    kind = plan.kernels_in_order[0].inputs[1].type
    found = dequantize_array(quantize_array(array, kind), kind)
    assert np.abs(found - array).max() < 0.1 * np.abs(array).max()


def test_floats_have_no_zero_points():
    for store in ("f8E4M3FN", "f4E2M1FN"):
        text = TARGET.format(store, 16, "f32").replace(", symmetric: true", "")
        plan = planner.plan(net(weight()), planner.load_target(text))
        assert not any(plan.kernels_in_order[0].inputs[1].type.zero_points)
        with pytest.raises(TargetError, match="floats have their own zero"):
            planner.load_target(TARGET.format(store, 16, "f32").replace("symmetric: true", "zero_point: 3"))


def test_every_number_of_the_float_may_be_a_scale():
    every = np.arange(1, 127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(
        0.01
    )
    assert common_factor(every.tolist()) == pytest.approx(0.01)


def test_a_float_of_a_tensor_is_no_block():
    """The same storages per tensor: what a text says of them."""
    assert str(uniform(storage("f4E2M1FN"), 0.5)) == "!quant.uniform<f4E2M1FN:f32, 0.5>"
    assert isinstance(planner.parse_type("!quant.uniform<f6E3M2FN:f32, 0.25>"), Uniform)
