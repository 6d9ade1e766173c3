"""Blocks of which the last is shorter: planned, checked, written, run by onnxruntime, and read again."""

import numpy as np
import pytest

import planner
from planner.formats.onnx.writer.qdq import write_qdq
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform, storage, sub_channel
from tests.formats.plans import model, op, op_types, plan_of, run

RNG = np.random.default_rng(21)
N = 10


def gemm(depth: int, *, turned: bool):
    w = RNG.normal(size=(N, depth) if turned else (depth, N)).astype(np.float32)
    return model(
        [op("Gemm", "x w b", "y", transB=int(turned))],
        inputs={"x": (5, depth)},
        outputs={"y": (5, N)},
        constants={"w": w, "b": RNG.normal(size=N).astype(np.float32)},
    )


def blocks_in(plan):
    return [
        port.type
        for kernel in plan.kernels_in_order
        for port in kernel.inputs
        if isinstance(port.type, Uniform) and port.type.grid
    ]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("depth", "block", "count"),
    [(172, 32, 6), (100, 32, 4), (65, 32, 3), (48, 16, 3), (20, 16, 2), (3, 16, 1)],  # fmt: skip,
)
def test_a_weight_that_no_block_divides(depth, block, count, turned):
    """Each file is bit for bit the interpreter's weight; MatMulNBits sums it in an order of its own."""
    graph = gemm(depth, turned=turned)
    plan = planner.plan(graph, "llm-w4")
    planner.check(plan, graph, planner.load_target("llm-w4"))
    (kind,) = blocks_in(plan)
    assert (dict(kind.blocks), kind.grid) == (
        ({0: 1, 1: block}, (N, count)) if turned else ({0: block, 1: 1}, (count, N))
    )
    assert planner.plan_from_json(plan.to_json()).key == plan.key
    x = RNG.normal(size=(5, depth)).astype(np.float32)
    wanted = planner.evaluate(graph, plan, {"x": x}).outputs["y"]
    for form, ops in (("onnx-matmulnbits", ["MatMulNBits", "Add"]), ("onnx-qdq", ["Gemm"])):
        data = planner.export(graph, plan, form)
        assert op_types(data) == ops
        np.testing.assert_allclose(run(data, {"x": x})[0], wanted, rtol=0, atol=2e-5)
        again = planner.load_model(data)
        np.testing.assert_allclose(
            planner.evaluate(again, planner.plan(again, "llm-w4"), {"x": x}).outputs["y"],
            wanted,
            rtol=0,
            atol=2e-5,
        )
    assert blocks_in(planner.plan(again, "llm-w4")) == [kind]  # of onnx-qdq


@pytest.mark.parametrize("name", ["i2", "i3", "i4", "i5", "i8", "u2", "u3", "u4", "u8"])
@pytest.mark.parametrize(("shape", "blocks", "grid"), [
    ((20, 3), {0: 8, 1: 1}, (3, 3)),
    ((20, 3), {0: 8}, (3, 1)),
    ((3, 21), {0: 1, 1: 16}, (3, 2)),
    ((6, 21), {0: 4, 1: 16}, (2, 2)),
    ((2, 21, 4), {0: 1, 1: 16}, (2, 2, 1)),
])  # fmt: skip
def test_onnxruntime_dequantizes_blocks_as_we_do(name, shape, blocks, grid):
    """Bit for bit, of every width, with zero points, along any axis."""
    store, count = storage(name), int(np.prod(grid))
    zeros = RNG.integers(max(store.qmin, -2), min(store.qmax, 2) + 1, count).tolist()
    kind = sub_channel(store, RNG.uniform(0.1, 0.5, count).tolist(), zeros, blocks=blocks, grid=grid)
    w = RNG.normal(size=shape).astype(np.float32)
    graph = model(
        [op("Mul", "x w", "y")], inputs={"x": shape}, outputs={"y": shape}, constants={"w": w}
    )  # times one: the weight itself
    plan = plan_of(graph, [(["y"], "x w", "y")], {"w": kind})
    x = np.ones(shape, np.float32)
    data = write_qdq(graph, plan)
    np.testing.assert_array_equal(run(data, {"x": x})[0], Interpreter(graph, plan).run({"x": x}).outputs["y"])


@pytest.mark.parametrize("size", [8, 20])
def test_stablehlo_cuts_off_what_fills_the_last_block(size):
    graph = gemm(size, turned=False)
    plan = planner.plan(graph, "llm-w4")
    text = planner.export(graph, plan, "stablehlo").decode()
    assert ("stablehlo.slice" in text) == (size == 20 or size < 16)


def test_a_target_without_short_blocks_leaves_them_float():
    """TensorRT's blocks divide: a pinned short one is no match, and the row says why."""
    graph = gemm(172, turned=False)
    short = blocks_in(planner.plan(graph, "llm-w4"))[0]
    pinned = planner.annotate(
        graph, annotations={"format": "qplan.annotations/1", "values": {"w": str(short)}}
    )
    whole = {f"{sign}{bits}g": {"short_block": False} for sign in "aw" for bits in (2, 3, 4, 8)}
    target = planner.load_target({
        "apiVersion": "planner/v1", "kind": "Target", "id": "whole", "version": "1.0.0", "mode": "fixed",
        "title": "Blocks that divide", "extends": "llm-w4", "types": whole,
    })  # fmt: skip
    plan = planner.plan(pinned, target)
    planner.check(plan, pinned, target)
    (kernel,) = plan.kernels_in_order
    assert kernel.row is None
    assert "has a fixed type whose last block is shorter" in kernel.reason


@pytest.mark.parametrize("name", ["i2", "i3", "i4", "i8", "u2", "u3", "u4", "u8"])
@pytest.mark.parametrize("depth", [64, 172])
def test_a_width_that_is_asked_for(name, depth):
    """`kernels` ask `llm-w4` for a storage: unsigned ones have a zero point per block."""
    graph = gemm(depth, turned=False)
    asked = planner.annotate(graph, kernels={"*": {"in": ["f32", name]}})
    plan = planner.plan(asked, "llm-w4")
    planner.check(plan, asked, planner.load_target("llm-w4"))
    (kind,) = blocks_in(plan)
    assert kind.storage == storage(name)
    assert any(kind.zero_points) == name.startswith("u")
    x = RNG.normal(size=(5, depth)).astype(np.float32)
    wanted = planner.evaluate(asked, plan, {"x": x}).outputs["y"]
    for form in ("onnx-matmulnbits", "onnx-qdq"):
        got = run(planner.export(asked, plan, form), {"x": x})[0]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
