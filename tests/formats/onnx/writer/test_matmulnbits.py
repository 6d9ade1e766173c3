"""onnx-matmulnbits: packed blocks that onnxruntime unpacks to the planned numbers."""

import numpy as np
import onnx
import pytest

import planner
from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.onnx.writer import block_packing
from planner.formats.onnx.writer.matmulnbits import pack, packed_bits, write_matmulnbits
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform, storage, sub_channel
from tests.formats.plans import model, op, op_types, plan_of, run

RNG = np.random.default_rng(0)
K, N, BLOCK = 64, 10, 16
X = RNG.normal(size=(5, K)).astype(np.float32)
B = RNG.normal(size=N).astype(np.float32)


def blocks_of(name: str, *, turned: bool, shift: bool, block: int = BLOCK):
    store, count = storage(name), K // block * N
    middle = 0 if store.signed else 1 << store.bits - 1
    zeros = [middle - int(z) for z in RNG.integers(0, 2, count)] if shift else middle
    scales = (RNG.uniform(0.5, 1.5, count) * 4 / (1 << store.bits)).tolist()
    grid = (N, K // block) if turned else (K // block, N)
    sizes = {1: block, 0: 1} if turned else {0: block, 1: 1}
    return sub_channel(store, scales, zeros, blocks=sizes, grid=grid)


@pytest.mark.parametrize("name", ["i2", "i3", "i4", "i6", "i8", "u2", "u3", "u4", "u8"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shift", [False, True])
def test_a_gemm_agrees_with_the_interpreter(name, turned, shift):
    w = RNG.normal(size=(N, K) if turned else (K, N)).astype(np.float32)
    graph = model(
        [op("Gemm", "x w b", "y", transB=int(turned))],
        inputs={"x": X.shape},
        outputs={"y": (5, N)},
        constants={"w": w, "b": B},
    )
    plan = plan_of(graph, [(["y"], "x w b", "y")], {"w": blocks_of(name, turned=turned, shift=shift)})
    data = write_matmulnbits(graph, plan)
    assert op_types(data) == ["MatMulNBits", "Add"]
    wanted = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    assert np.ptp(wanted) > 1
    np.testing.assert_allclose(run(data, {"x": X})[0], wanted, rtol=0, atol=2e-5)


def test_a_matmul_of_rank_three_with_a_bias():
    x, w = X.reshape(1, 5, K), RNG.normal(size=(K, N)).astype(np.float32)
    ops = [op("MatMul", "x w", "m"), op("Add", "m b", "y")]
    graph = model(ops, inputs={"x": x.shape}, outputs={"y": (1, 5, N)}, constants={"w": w, "b": B})
    kind = blocks_of("i4", turned=False, shift=False, block=32)
    plan = plan_of(graph, [(["m", "y"], "x w b", "y")], {"w": kind})
    wanted = Interpreter(graph, plan).run({"x": x}).outputs["y"]
    np.testing.assert_allclose(run(write_matmulnbits(graph, plan), {"x": x})[0], wanted, rtol=0, atol=2e-5)


def test_bits_are_packed_low_first():
    assert packed_bits(np.asarray([1, 2, 3]), 4).tolist() == [0x21, 0x03]
    assert packed_bits(np.asarray([1, 2, 3, 0, 1]), 2).tolist() == [0b00111001, 1]


@pytest.mark.parametrize("kind", ["Gather", "MatMul"])
def test_a_plan_without_any_such_product_is_refused(kind):
    """Blocks elsewhere, or smaller, are dequantized as in onnx-qdq; a file of them alone is no such."""
    block = 16 if kind == "Gather" else 8
    w = RNG.normal(size=(K, N)).astype(np.float32)
    is_gather = kind == "Gather"
    ops = [op("Gather", "w i", "y")] if is_gather else [op("MatMul", "x w", "y")]
    graph = model(
        ops,
        inputs={"i": (2,)} if is_gather else {"x": X.shape},
        outputs={"y": None},
        constants={"w": w},
        dtypes={"i": "i64"} if is_gather else {},
    )
    blocks = blocks_of("i4", turned=False, shift=False, block=block)
    plan = plan_of(graph, [(["y"], "w" if is_gather else "x w", "y")], {"w": blocks})
    with pytest.raises(
        UnsupportedExport,
        match=r"nothing in this plan becomes a MatMulNBits: 1 kernels on rows of .*, 0 in float; "
        r"y.in\[.\] is !quant.uniform<i4.*; onnx-matmulnbits accepts i2..i8 or u2..u8 in blocks",
    ):
        write_matmulnbits(graph, plan)


@pytest.mark.parametrize("name", ["i2", "i4", "i8", "u2", "u4", "u8"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("piece", [64, 1 << 17])
def test_packing_in_pieces_is_packing_the_stored_integers(name, turned, piece, monkeypatch):
    monkeypatch.setattr(block_packing, "PIECE", piece)
    w = (4 * RNG.normal(size=(N, K) if turned else (K, N))).astype(np.float32)
    w[3, 4], w[5, 1], w[2, 2] = np.nan, np.inf, -np.inf
    kind = blocks_of(name, turned=turned, shift=True)
    stored = quantize_array(w, kind).astype(np.int64)
    stored += (1 << kind.storage.bits - 1) if kind.storage.signed else 0
    by_column = stored if turned else stored.T
    wanted = packed_bits(by_column.reshape(N, K // BLOCK, BLOCK), kind.storage.bits)
    np.testing.assert_array_equal(pack(w, kind, axis=int(turned)).stored, wanted)


def test_a_model_in_float_is_refused():
    graph = model([op("Relu", "x", "y")], inputs={"x": (2, 3)}, outputs={"y": (2, 3)}, constants={})
    plan = planner.plan(graph, "llm-w4")
    with pytest.raises(UnsupportedExport, match="0 kernels on rows of llm-w4, 1 in float; no weight has"):
        planner.export(graph, plan, "onnx-matmulnbits")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("depth", [1, 15, 17, 40])
def test_a_shorter_last_block_is_filled_up(turned, depth):
    w = RNG.normal(size=(N, depth) if turned else (depth, N)).astype(np.float32)
    count = -(-depth // 16)
    axes = ((0, 1), (1, 16)) if turned else ((0, 16), (1, 1))
    grid = (N, count) if turned else (count, N)
    scales = tuple(float(np.float32(scale)) for scale in RNG.uniform(0.1, 0.5, N * count))
    kind = Uniform(storage("i4"), scales, (0,) * (N * count), "f32", None, axes, grid)
    stored = quantize_array(w, kind).astype(np.int64) + 8
    by_column = stored if turned else stored.T
    found = pack(w, kind, axis=int(turned)).stored.reshape(N, -1)
    numbers = np.stack([found & 15, found >> 4], -1).reshape(N, -1)
    assert numbers.shape == (N, 16 * count)
    np.testing.assert_array_equal(numbers[:, :depth], by_column)


@pytest.mark.parametrize("level", range(5))
def test_a_level_of_accuracy(level):
    """On a processor onnxruntime sums in float32 but for int8, which costs up to 1 % of the range."""
    graph = model(
        [op("MatMul", "x w", "y")],
        inputs={"x": X.shape},
        outputs={"y": (5, N)},
        constants={"w": RNG.normal(size=(K, N)).astype(np.float32)},
    )
    plan = planner.plan(graph, "llm-w4")
    data = planner.export(graph, plan, "onnx-matmulnbits", accuracy_level=level)
    (node,) = onnx.load_from_string(data).graph.node
    assert [item.i for item in node.attribute if item.name == "accuracy_level"] == [level]
    wanted = planner.evaluate(graph, plan, {"x": X}).outputs["y"]
    near = 0.01 * float(np.ptp(wanted)) if level == 4 else 2e-5
    np.testing.assert_allclose(run(data, {"x": X})[0], wanted, rtol=0, atol=near)


@pytest.mark.parametrize(
    ("form", "level", "said"),
    [
        ("onnx-matmulnbits", 5, "accuracy level 5; MatMulNBits accepts 0 .the engine's choice., 1 "),
        ("onnx-qdq", 1, "onnx-qdq has no accuracy levels; accepted: onnx-matmulnbits"),
    ],
)
def test_a_level_that_is_none(form, level, said):
    graph = model([op("Relu", "x", "y")], inputs={"x": (2, 3)}, outputs={"y": (2, 3)}, constants={})
    with pytest.raises(UnsupportedExport, match=said):
        planner.export(graph, planner.plan(graph, "llm-w4"), form, accuracy_level=level)
