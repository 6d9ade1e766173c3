"""HARD_SWISH: the scales at which the runtime's shifts of 16 bits hold, and a kernel in float beyond them."""

import numpy as np
import pytest

import planner
from tests.awkward.net import Net
from tests.oracles import litert

LEAST = 2.0**-16 * 128 * 3 / 32768
"""Scale of the operand below which the gate is shifted by more than 15 bits."""


@pytest.mark.parametrize(
    ("operand", "result", "is_quantized"),
    [
        (2**-7, 4.0, True),
        (2**-7, 4.01, False),  # the runtime gave 1 for every 0
        (0.5, 0.25, True),
        (0.5, 0.5 / 127.5, False),
        (LEAST * 1.01, LEAST, True),
        (LEAST * 0.99, LEAST, False),
    ],
)
def test_scales_within_the_limits(operand, result, is_quantized, tmp_path):
    net = Net(3)
    net.op("HardSwish", net.input("x", [1, 4, 4, 4]), out="y")
    net.output("y", None)
    types = {name: f"!quant.uniform<i8:f32, {scale}>" for name, scale in (("x", operand), ("y", result))}
    graph = planner.load_model(net.data(opset=21, ir=10))
    graph = planner.annotate(graph, annotations={"format": "qplan.annotations/1", "values": types})
    plan = planner.plan(graph, "litert-int8")
    [kernel] = plan.kernels_in_order
    assert (kernel.row is not None) is is_quantized
    samples = [{"x": np.arange(-128, 128, 4, np.int8).reshape(1, 4, 4, 4)}]
    [[found]] = litert.run(tmp_path, [(planner.export(graph, plan, "litert"), samples)])
    wanted = planner.evaluate(graph, plan, samples[0]).outputs["y"]
    np.testing.assert_array_equal(found["y"], wanted)
