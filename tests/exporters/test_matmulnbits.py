"""onnx-matmulnbits: packed blocks that onnxruntime unpacks to the planned numbers."""

import numpy as np
import pytest

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.onnx import block_packing
from planner.exporters.onnx.matmulnbits import pack, packed_bits, write_matmulnbits
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import storage, sub_channel
from tests.exporters.plans import model, op, op_types, plan_of, run

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


@pytest.mark.parametrize("name", ["i2", "i4", "i8", "u2", "u4", "u8"])
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


@pytest.mark.parametrize(("kind", "name"), [("Gather", "i4"), ("MatMul", "i3")])
def test_blocks_that_the_operator_does_not_take_are_refused(kind, name):
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
    plan = plan_of(
        graph, [(["y"], "w" if is_gather else "x w", "y")], {"w": blocks_of(name, turned=False, shift=False)}
    )
    with pytest.raises(UnsupportedExport, match=r"y.in\[.\] \('w', row row@1\) has scales per block"):
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
