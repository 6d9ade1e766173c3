"""Whole models in LiteRT's interpreter, reference kernels: every stored integer is the interpreter's."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.constants.quantize import quantize_array
from planner.formats.litert.writer.write import write_litert
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from tests.formats.litert.writer.running import integers, runtime_target, told, with_all_results
from tests.formats.tosa.writer.running import led
from tests.formats.tosa.writer.test_models import inputs
from tests.interpreter.test_whole_models import MODELS, digits, tiny
from tests.oracles import litert

NAMES = ("ad01_fp32", "digits", "pretrainedResnet", "vww_96_float")
# TRANSPOSEs: in front of the first convolution, and where the model itself flattens its channels first.
TRANSPOSES = {"ad01_fp32": 0, "digits": 0, "pretrainedResnet": 1, "vww_96_float": 1}
RANDOM = {
    "vision/mnist.onnx": {"TRANSPOSE": 1, "QUANTIZE": 1, "DEQUANTIZE": 1, "PAD": 0},
    "vision/squeezenet_real_fp32.onnx": {"CONCATENATION": 8, "CONV_2D": 26, "TRANSPOSE": 1, "PAD": 0},
    "vision/superres_real.onnx": {"CONV_2D": 4, "TRANSPOSE": 1, "PAD": 0},
    "vision/ultraface_slim320_op13.onnx": {"CONV_2D": 23, "DEPTHWISE_CONV_2D": 19, "PAD": 6},
}


def with_stored_inputs(graph, plan, device):
    """The model planned again with its inputs pinned to what their readers want.

    QUANTIZE rounds ties away from zero and the plan to even: 4 numbers of vww's 16 pictures.
    """
    kinds = {}
    for kernel in plan.kernels_in_order:
        kinds.update({port.value: port.type for port in kernel.inputs if port.value in graph.inputs})
    values = dict(graph.values)
    for name, kind in kinds.items():
        assert isinstance(kind, Uniform)
        values[name] = replace(values[name], facts=(*values[name].facts, kind))
    graph = replace(graph, values=values)
    return graph, planner.plan(graph, device)


def compared(graph, plan, samples, folder):
    """For each value the integers of its kernel, fed with what the file's kernels gave: (own, given)."""
    graph, plan = with_all_results(graph, plan)
    data = write_litert(graph, plan)
    kinds = {
        name: next(f for f in graph.values[name].facts if isinstance(f, Uniform)) for name in graph.inputs
    }
    fed = [{name: quantize_array(sample[name], kinds[name]) for name in graph.inputs} for sample in samples]
    found = litert.run(folder, [(data, fed)])[0]
    assert not isinstance(found, str), found
    interpreter = Interpreter(graph, plan)
    for sample, got in zip(samples, found, strict=True):
        given = {name: integers(plan, name, array) for name, array in got.items()}
        yield from led(interpreter, graph, plan, sample, given)


@pytest.mark.parametrize("name", NAMES)
def test_tiny_models(name, tmp_path):
    path, samples = digits() if name == "digits" else tiny(name)
    device = runtime_target()
    graph = planner.load_model(path)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    graph, plan = with_stored_inputs(graph, planner.plan(graph, device), device)
    own = write_litert(graph, plan)
    assert told(own).counts["TRANSPOSE"] == TRANSPOSES[name]
    values = 0
    for value, wanted, got in compared(graph, plan, inputs(name, samples), tmp_path):
        np.testing.assert_array_equal(got, wanted, err_msg=value)
        values += 1
    assert values == 16 * len(plan.kernels_in_order)


@pytest.mark.slow
@pytest.mark.parametrize("name", RANDOM)
def test_other_models(name, tmp_path):
    """Random inputs: what counts here are the operators."""
    if not (MODELS / name).exists():
        pytest.skip(f"no {MODELS / name}")
    graph, device, rng = planner.load_model(MODELS / name), runtime_target(), np.random.default_rng(0)
    sizes = {
        key: [size if isinstance(size, int) else 1 for size in graph.values[key].shape]
        for key in graph.inputs
    }
    sample = {key: rng.normal(size=shape).astype(np.float32) for key, shape in sizes.items()}
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    plan = planner.plan(graph, device)
    counts = told(write_litert(graph, plan)).counts
    assert {op: counts[op] for op in RANDOM[name]} == RANDOM[name]
    graph, plan = with_all_results(graph, plan)
    found = litert.run(tmp_path, [(write_litert(graph, plan), [sample])])[0]
    assert not isinstance(found, str), found
    wanted = Interpreter(graph, plan).run(sample)
    for value, array in found[0].items():
        np.testing.assert_array_equal(array, wanted.outputs[value], err_msg=value)
