"""Exports for hls4ml in its own C simulation: linear layers bit for bit, softmax as its tables have it."""

import numpy as np
import pytest

import planner
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.onnx.read import read_written
from planner.onnx.write import write_graph
from tests.exporters.plans import model, op
from tests.oracles.simulation import simulate

RNG = np.random.default_rng(1)
# What hls4ml adds of its own: sums in float on one side, and tables of 1024 entries for softmax.
WITHIN = {"TFC_2W2A": 2e-4, "qkeras_jettagging": 0.011}


def small():
    """A convolution, an activation, a pool and a dense layer, planned, with samples."""
    ops = [
        op("Conv", "x w b", "c", pads=(1, 1, 1, 1)),
        op("Relu", "c", "r"),
        op("MaxPool", "r", "p", kernel_shape=(2, 2), strides=(2, 2)),
        op("Flatten", "p", "f"),
        op("Gemm", "f v d", "y"),
    ]
    shapes = {"w": (4, 2, 3, 3), "b": (4,), "v": (64, 5), "d": (5,)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) * 0.3 for name, shape in shapes.items()}
    graph = model(ops, inputs={"x": (1, 2, 8, 8)}, outputs={"y": (1, 5)}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = RNG.normal(size=(8, 2, 8, 8)).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


def trained(path):
    """A model of the zoo, planned, with samples, and what its own file gives for them."""
    graph = planner.load_model(path)
    (name,) = graph.inputs
    samples = RNG.normal(size=(8, *graph.values[name].shape[1:])).astype(np.float32)
    runner = ModelRunner(read_written(path))
    results = [next(iter(runner.run({name: x[None]}).values())) for x in samples]
    return (
        planner.export(graph, planner.plan(graph, "hls4ml-fpga"), "hls4ml"),
        samples,
        np.concatenate(results),
    )


@pytest.mark.slow
def test_the_c_simulation_computes_what_the_models_do(models, tmp_path):
    graph, plan, samples = small()
    assert plan.fully_quantized
    interpreter = Interpreter(graph, plan, arithmetic="float32_quant")
    wanted = [np.concatenate([interpreter.run({"x": x[None]}).outputs["y"] for x in samples])]
    exports = [(planner.export(graph, plan, "hls4ml"), samples)]
    for name in WITHIN:
        data, samples, results = trained(models / "qonnx" / f"{name}.onnx")
        exports.append((data, samples))
        wanted.append(results)
    first, *others = simulate(tmp_path, exports)
    np.testing.assert_array_equal(first, wanted[0])
    for atol, got, result in zip(WITHIN.values(), others, wanted[1:], strict=True):
        assert np.ptp(result) > 0.5
        np.testing.assert_allclose(got.reshape(result.shape), result, rtol=0, atol=atol)
