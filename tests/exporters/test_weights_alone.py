"""Weights alone in 8 bits: tables of embeddings and recurrent layers of `llm-w4`, as onnx-qdq writes them."""

import numpy as np
import pytest

import planner
from tests.exporters.plans import model, op, op_types, run

RNG = np.random.default_rng(24)


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
