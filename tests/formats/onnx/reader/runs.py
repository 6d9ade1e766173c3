"""Running a source file and what we re-emit of it in onnxruntime, on the same random inputs."""

import warnings
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime as ort
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Graph

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_SYMBOL = 2


def model(text: str, *, opset: int = 21, ir: int = 8, domains: str = "") -> bytes:
    """The bytes of a model in onnx's text form, without its header."""
    header = f'<ir_version: {ir}, opset_import: ["" : {opset}{domains}]>\n'
    return onnx.parser.parse_model(header + text).SerializeToString()


def session(source: bytes | Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    what = source if isinstance(source, bytes) else str(source)
    return ort.InferenceSession(what, options, providers=["CPUExecutionProvider"])


def random_feeds(source: bytes | Path, seed: int = 0, **given: np.ndarray) -> dict[str, np.ndarray]:
    """A random array for every input of a model; integers are 0 and 1."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in session(source).get_inputs():
        shape = [dim if isinstance(dim, int) else _SYMBOL for dim in port.shape]
        if port.name in given:
            feeds[port.name] = given[port.name]
        elif port.type in _DTYPES:
            feeds[port.name] = rng.standard_normal(shape).astype(_DTYPES[port.type])
        else:
            kind = np.bool_ if port.type == "tensor(bool)" else np.int64
            feeds[port.name] = rng.integers(0, 2, shape).astype(kind)
    return feeds


def outputs(source: bytes | Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ran = session(source)
    names = [port.name for port in ran.get_outputs()]
    return dict(zip(names, ran.run(names, feeds), strict=True))


def assert_same_numbers(
    source: bytes | Path, graph: Graph, feeds: dict[str, np.ndarray] | None = None, rtol: float = 1e-4
) -> None:
    """Source and re-emitted file agree: names, shapes, types, and numbers relative to the largest."""
    feeds = random_feeds(source) if feeds is None else feeds
    wanted, got = outputs(source, feeds), outputs(write_graph(graph), feeds)
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        assert (got[name].shape, got[name].dtype) == (array.shape, array.dtype)
        reach = float(np.max(np.abs(array), initial=0.0))
        np.testing.assert_allclose(got[name], array, rtol=rtol, atol=1e-5 * reach, err_msg=name)


def read_same(source: bytes | Path, feeds: dict[str, np.ndarray] | None = None) -> Graph:
    """Import, and prove that the import changed no number."""
    graph = read_onnx(source)
    assert_same_numbers(source, graph, feeds)
    return graph


def op_types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


@cache
def every_node_case() -> list[TestCase]:
    """The onnx package's own node tests; making them warns of numbers that overflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def kind_of(case: TestCase, kinds: Collection[str]) -> str:
    """The first operator of a case that is one of these; "" where none is."""
    return next((node.op_type for node in case.model.graph.node if node.op_type in kinds), "")


def check_each(cases: Collection[TestCase], check: Callable[[TestCase], None]) -> None:
    """Check cases, and name the one that fails.

    Cases are made here and not for parameters of tests: each process that collects tests would make them all.
    """
    assert cases
    for case in cases:
        try:
            check(case)
        except BaseException as error:
            error.add_note(f"in {case.name}")
            raise
