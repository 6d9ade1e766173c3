"""Weights alone in 8 bits: tables of embeddings and recurrent layers of `llm-w4`, as onnx-qdq writes them."""

import numpy as np
import pytest

import planner
from tests.formats.plans import model, op, op_types, run

RNG = np.random.default_rng(24)
TABLES = """
apiVersion: planner/v1
kind: Target
id: tables
version: 1.0.0
title: Tables of few bits
mode: fixed
extends: llm-w4
kernels:
  - {kernel: Gather, in: {t: w4g}, out: {y: f32}, axis: {t: 0}, when: {Gather.axis: 0, min_bits: {t: 4}}}
  - {kernel: Gather, in: {t: a4g}, out: {y: f32}, axis: {t: 0}, when: {Gather.axis: 0, min_bits: {t: 4}}}
  - {kernel: Gather, in: {t: a8g}, out: {y: f32}, axis: {t: 0}, when: {Gather.axis: 0, min_bits: {t: 8}}}
"""


def asked(graph, *names):
    values = dict.fromkeys(names, "!quant.any<i8>")
    return planner.annotate(graph, annotations={"format": "qplan.annotations/1", "values": values})


@pytest.mark.parametrize("width", [64, 44])
def test_a_table_of_embeddings(width):
    """Bit for bit the interpreter's rows, with a shorter last block too."""
    graph = model(
        [op("Gather", "t i", "y")],
        inputs={"i": (3,)},
        outputs={"y": (3, width)},
        constants={"t": RNG.normal(size=(50, width)).astype(np.float32)},
        dtypes={"i": "i64"},
    )
    ready = asked(graph, "t")
    plan = planner.plan(ready, "llm-w4")
    planner.check(plan, ready, planner.load_target("llm-w4"))
    data, sample = planner.export(ready, plan, "onnx-qdq"), {"i": np.asarray([0, 49, 7])}
    assert (op_types(data), len(data) < graph.constants["t"].array.nbytes / 2) == (["Gather"], True)
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    assert not np.array_equal(wanted, graph.constants["t"].array[sample["i"]])
    np.testing.assert_array_equal(run(data, sample)[0], wanted)


def test_a_layer_of_lstm_in_both_directions():
    graph = model(
        [op("LSTM", "x w r", "y", hidden_size=16, direction="bidirectional")],
        inputs={"x": (5, 2, 8)},
        outputs={"y": (5, 2, 2, 16)},
        constants={
            "w": RNG.normal(size=(2, 64, 8)).astype(np.float32),
            "r": RNG.normal(size=(2, 64, 16)).astype(np.float32),
        },
    )
    ready = asked(graph, "w", "r")
    plan = planner.plan(ready, "llm-w4")
    planner.check(plan, ready, planner.load_target("llm-w4"))
    assert [kernel.kernel for kernel in plan.kernels_in_order if kernel.row is not None] == ["LSTM"]
    x = RNG.normal(size=(5, 2, 8)).astype(np.float32)
    data, floats = planner.export(ready, plan, "onnx-qdq"), planner.plan(graph, "llm-w4")
    assert len(data) < len(planner.export(graph, floats, "onnx-qdq")) / 2
    wanted = planner.evaluate(ready, plan, {"x": x}).outputs["y"]
    np.testing.assert_allclose(run(data, {"x": x})[0], wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("storage", ["i8", "u8", "i4", "u4"])
@pytest.mark.parametrize("width", [64, 44, 10])
def test_a_table_of_embeddings_read_row_by_row(storage, width):
    """As GatherBlockQuantized, which onnxruntime runs bit for bit as the interpreter does, and read again."""
    graph = model(
        [op("Gather", "t i", "y")],
        inputs={"i": (2, 2)},
        outputs={"y": (2, 2, width)},
        constants={"t": RNG.normal(size=(50, width)).astype(np.float32) + 1},
        dtypes={"i": "i64"},
    )
    block = 32 if width > 32 else 16
    counts = -(-width // block)
    zero = {"u8": ":100", "u4": ":3"}.get(storage, "")
    step = 0.04 if storage.endswith("8") else 0.6
    steps = (step * (1 + RNG.random((50, counts)))).tolist()
    rows = ", ".join("{" + ", ".join(f"{one}{zero}" for one in row) + "}" for row in steps)
    kind = f"!quant.uniform<{storage}:f32:{{0:1, 1:{block}}}, {{{rows}}}>"
    given = {"format": "qplan.annotations/1", "values": {"t": kind}}
    ready = planner.annotate(graph, annotations=given)
    plan = planner.plan(ready, TABLES)
    planner.check(plan, ready, planner.load_target(TABLES))
    data, sample = planner.export(ready, plan, "onnx-matmulnbits"), {"i": np.asarray([[0, 49], [7, -1]])}
    assert op_types(data) == ["GatherBlockQuantized"]
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    np.testing.assert_array_equal(run(data, sample)[0], wanted)
    if counts == 1:
        return  # one scale a row is a type of another kind, of which a reader asks for the width alone
    read = planner.load_model(data)
    assert [one.type for one in read.ops] == ["Gather"]
    np.testing.assert_array_equal(
        planner.evaluate(read, planner.plan(read, TABLES), sample).outputs["y"], wanted
    )
