"""FINN's front half on our files: equal numbers from ConvertQONNXtoFINN to hardware layers.

FINN is no package, so these skip where nobody gave a checkout; docs/results/finn.md has whole models.
"""

import numpy as np
import pytest

import planner
from planner.formats.onnx.write import write_graph
from tests.formats.plans import model, residual_ops
from tests.oracles import finn

pytestmark = pytest.mark.soak

RNG = np.random.default_rng(9)
STEPS = ["tidy up", "streamline", "lower convolutions", "streamline again", "move transposes"]
STEPS += ["round thresholds", "hardware layers", "least widths"]


def residual_net():
    """Convolutions, one with attributes at their defaults, a residual Add with a Relu, layers of a matrix."""
    ops, shapes, constants = residual_ops(RNG)
    graph = model(ops, inputs=shapes, outputs={"y": (1, 5)}, constants=constants)
    return planner.load_model(write_graph(graph))


@pytest.mark.parametrize("bits", [{}, {"w": 4, "a": 4}])
def test_a_residual_net_becomes_hardware_with_the_numbers_of_its_plan(bits, tmp_path):
    graph = planner.with_bits(residual_net(), "finn-fpga", bits)
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(6)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "finn-fpga")
    wanted = [planner.evaluate(ready, plan, sample).outputs["y"] for sample in samples[:2]]
    files = [(planner.export(ready, plan, form), samples[:2]) for form in ("finn", "qonnx")]
    of_finn, of_qonnx = finn.run(tmp_path, files)
    assert [step.name for step in of_finn.steps] == STEPS
    assert [step.name for step in of_qonnx.steps] == ["ConvertQONNXtoFINN", *STEPS]
    for run in (of_finn, of_qonnx):
        assert not run.missed
        assert {"MVAU", "AddStreams", "Thresholding", "ConvolutionInputGenerator"} <= set(run.layers)
        largest = max(float(np.abs(y).max()) for y in wanted)
        assert all(step.difference is not None and step.difference <= 1e-6 * largest for step in run.steps)
        for y, found in zip(wanted, run.outputs, strict=True):
            np.testing.assert_allclose(found["y"], y, rtol=0, atol=2e-6 * largest)
