"""At defaults: why onnxruntime does not load or run an exported file as users do, with its optimisations on.

The levels are tried one after the other, and at the first that fails each optimisation by name: the message
says the node, the level, and what runs. Optimisations rewrite a file, so the error of the engine alone may
name nodes that the file does not have.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

import onnxruntime

from planner.calibration.samples import Feed, Source, open_samples
from planner.errors import EngineError, SampleError
from planner.formats.onnx.sessions import FAILURES, Optimisation, one_line, session_options
from planner.interpreter.compare import run_of_file
from planner.ir.expand import expand
from planner.ir.graph import Graph

OPTIMISATIONS: Final[Mapping[Optimisation, tuple[str, ...]]] = {
    "none": (),
    "basic": (
        "CommonSubexpressionElimination",
        "ConstantFolding",
        "DoubleQDQPairsRemover",
        "MatMulAddFusion",
        "QDQPropagationTransformer",
        "ReshapeFusion",
        "TransposeOptimizer",
        "WeightBiasQuantization",
    ),
    "extended": (
        "ConvActivationFusion",
        "DynamicQuantizeMatMulFusion",
        "GeluFusion",
        "GemmActivationFusion",
        "LayerNormFusion",
        "MatMulActivationFusion",
        "MatMulIntegerToFloatFusion",
        "MatMulNBitsFusion",
        "MatMulScaleFusion",
        "QDQFinalCleanupTransformer",
        "QDQS8ToU8Transformer",
        "QDQSelectorActionTransformer",
    ),
    "all": ("NchwcTransformer", "NhwcTransformer"),
}
"""Optimisations of onnxruntime that are switched off by name, by the level that they come with."""
LARGE: Final = 200_000_000
"""Bytes from which on they are not tried one by one: each takes a session of its own."""
_OPTIONS: Final = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
"""Values of a session's `graph_optimization_level`."""
_TOLD: Final = "the exported file does not run at onnxruntime's defaults"
_LEVELS: Final[tuple[Optimisation, ...]] = get_args(Optimisation)
_NODES: Final = (
    re.compile(r"running (?P<kind>\S+) node\. Name:'(?P<name>[^']*)'"),
    re.compile(r"Node ?\((?P<name>[^()]*)\) Op \((?P<kind>[^()]*)\)"),
    re.compile(r"an implementation for (?P<kind>\S+?)\(\d+\) node with name '(?P<name>[^']*)'"),
)
_STATUS: Final = re.compile(r"^.*?(?:Status Message: |\[\w+Error\] |Exception during initialization: )")


def reason(graph: Graph, data: bytes | Path, samples: Source, told: str = "") -> str:
    """Return why a file does not load or run at onnxruntime's defaults; "" where it does.

    Args:
      told: the error's message, which begins with the sample that fails; else the first one is run.
    """
    graph = expand(graph)
    feed = _failing(graph, samples, told)
    if not _failure(graph, data, feed, "all"):
        return ""
    failures = {level: _failure(graph, data, feed, level) for level in _LEVELS}
    level = next(level for level in _LEVELS if failures[level])
    text = failures[level]
    node, why = _node(text), _STATUS.sub("", text).strip().rstrip(".") or text
    at = f"{node} fails" if node else "it fails"
    if level == "none":
        return f"{_TOLD}: {at} with and without optimisations: {why}"
    before = _LEVELS[_LEVELS.index(level) - 1]
    names = OPTIMISATIONS[level] if _size(data) < LARGE else ()
    name = next((name for name in names if not _failure(graph, data, feed, level, without=name)), "")
    cause = f", by {name}" if name else ""
    runs = f"at level {before} ({_OPTIONS[before]})"
    return f"{_TOLD}: {at} with optimisations of level {level}{cause}, and runs {runs}: {why}"


def _failing(graph: Graph, samples: Source, told: str) -> Feed:
    """The sample that a message names, else the first."""
    first: Feed | None = None
    for feed in open_samples(samples, graph, labeled=True).feeds:
        first = first or feed
        if not told or told.startswith(f"{feed.name}: "):
            return feed
    if first is None:
        raise SampleError("no samples to run the exported file on")
    return first


def _failure(graph: Graph, data: bytes | Path, feed: Feed, level: Optimisation, *, without: str = "") -> str:
    """Why a file does not load or run at a level; "" where it does."""
    try:
        session = onnxruntime.InferenceSession(
            data if isinstance(data, bytes) else str(data),
            session_options(level),
            providers=["CPUExecutionProvider"],
            disabled_optimizers=[without] if without else None,
        )
    except FAILURES as error:
        return one_line(error)
    try:
        run_of_file(graph, session)(feed.name, feed.arrays, graph.outputs)
    except EngineError as error:
        return one_line(error.__cause__) if isinstance(error.__cause__, Exception) else error.message
    return ""


def _node(text: str) -> str:
    """The node that an error of onnxruntime names: `Resize 'up'`."""
    found = next((match for pattern in _NODES if (match := pattern.search(text))), None)
    if found is None:
        return ""
    return f"{found['kind']} {found['name']!r}" if found["name"] else found["kind"]


def _size(data: bytes | Path) -> int:
    return len(data) if isinstance(data, bytes) else data.stat().st_size
