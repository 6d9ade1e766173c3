"""ONNX sequences: computed within a float step, refused by name where they would leave it."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import planner
from planner.errors import ModelError
from planner.ir.graph import Graph
from planner.plans.plan import Plan

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,6] x) => (float[4,6] y)'


def planned(body: str, stored: str) -> tuple[Graph, Plan]:
    """The plan with a value asked for in 8 bits, or its kernel would be an integer island, and float."""
    file = onnx.parser.parse_model(f"{HEAD} {{ {body} }}")
    file.graph.initializer.append(numpy_helper.from_array(np.array(3), "three"))
    graph = planner.load_model(file.SerializeToString())
    stats = planner.calibrate(graph, [{"x": X}])
    asked = {"format": "qplan.annotations/1", "values": {stored: "!quant.any<i8>"}}
    return graph, planner.plan(planner.annotate(graph, stats=stats, annotations=asked), "litert-int8")


def test_a_sequence_within_float_ops():
    graph, plan = planned(
        "s = SplitToSequence<axis=1>(x, three) c = ConcatFromSequence<axis=1>(s) y = Mul(c, c)", "y"
    )
    found = planner.evaluate(graph, plan, {"x": X})
    assert plan.kernels["Mul_2"].row is not None
    np.testing.assert_allclose(found.outputs["y"], X * X, atol=0.02)


def test_a_sequence_across_a_quantized_kernel():
    graph, plan = planned(
        "s = SplitToSequence<axis=1>(x, three) c = ConcatFromSequence<axis=1>(s) m = Mul(c, c) "
        "t = SequenceInsert(s, m) i = Constant<value_int=-1>() e = SequenceAt(t, i) y = Add(e, x)",
        "m",
    )
    with pytest.raises(ModelError) as caught:
        planner.evaluate(graph, plan, {"x": X})
    assert str(caught.value) == (
        "SplitToSequence at 'SplitToSequence_0': 's' is no tensor (an ONNX sequence, say), and the reference "
        "interpreter passes only tensors between kernels (export the plan and run the file, or cut the model "
        "there)"
    )
