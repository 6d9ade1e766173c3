"""The oracle of whole plans: the onnx-qoperator file in onnxruntime, every inner tensor returned."""

import re
from collections.abc import Iterator

import numpy as np
import onnxruntime

from planner.formats.onnx.structure.expose_outputs import inner_tensors, with_outputs
from planner.formats.onnx.writer.onnx_file import shortened
from planner.formats.onnx.writer.qoperator import write_qoperator
from planner.interpreter.evaluate import Interpreter
from planner.ir.graph import Graph
from planner.plans.plan import Plan


def session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run_everything(data: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of the file's main graph, by name."""
    opened = session(with_outputs(data, inner_tensors(data)))
    names = [port.name for port in opened.get_outputs()]
    return dict(zip(names, opened.run(names, feeds), strict=True))


def assert_file_agrees(graph: Graph, plan: Plan, samples: list[dict[str, np.ndarray]]) -> int:
    """The file's stored integers and outputs are the interpreter's, every element; how many values."""
    data = write_qoperator(graph, plan)
    interpreter = Interpreter(graph, plan, arithmetic="float32_even")
    for sample in samples:
        evaluation = interpreter.run(sample)
        got = run_everything(data, sample)
        for name, stored in evaluation.stored.items():
            if name in sample:
                continue
            tensors = [*_stored(name, got)] or [got[name]]
            # Long names are cut, and those that have the same ends are numbered.
            tensor = next((found for found in tensors if np.array_equal(found, stored)), tensors[0])
            assert tensor.dtype == stored.dtype, name
            np.testing.assert_array_equal(stored, tensor, err_msg=name)
        for name, array in evaluation.outputs.items():
            np.testing.assert_array_equal(array, got[name], err_msg=name)
    return len(evaluation.stored)


def _stored(name: str, got: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    stem = re.escape(shortened(f"{name}_quantized"))
    return (array for known, array in got.items() if re.fullmatch(rf"{stem}(_\d+)?", known))


def unshaped(graph: Graph) -> Graph:
    """The same with nothing said of the shapes of outputs, which hand-built models get wrong."""
    values = {
        name: type(value)(name, None if name in graph.outputs else value.shape, value.dtype, value.facts)
        for name, value in graph.values.items()
    }
    return Graph(
        graph.name, values, graph.ops, graph.inputs, graph.outputs, graph.constants, opsets=graph.opsets
    )
