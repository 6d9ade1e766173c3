"""The whole job on one file, and what came of it: plans and files for every target and format, their quality.

The reference is the source file in onnxruntime as it was written; where onnxruntime refuses the source, it is
the imported graph written out again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.checker.check import check
from planner.formats.onnx.dtypes import NUMPY
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.formats.table import EXPORTERS
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.target.load import load_target

Feeds = Mapping[str, np.ndarray]

TARGETS: Final = ("onnxruntime-cpu", "litert-int8", "teaching-npu")
FORMATS: Final = ("onnx-qdq", "onnx-qoperator")
SAMPLES: Final = 3
LEVELS: Final = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A model ready to be planned, its samples, and what the float model gives on them.

    Attributes:
      graph: imported and annotated.
      ports: (name, element type, shape) of the outputs as the source declares them.
    """

    graph: Graph
    samples: tuple[Feeds, ...]
    reference: tuple[list[Any], ...]
    ports: tuple[tuple[str, str, list[Any]], ...]


def open_session(source: bytes | Path, level: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = source if isinstance(source, bytes) else str(source)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def ports_of(session: onnxruntime.InferenceSession) -> tuple[tuple[str, str, list[Any]], ...]:
    return tuple((port.name, port.type, port.shape) for port in session.get_outputs())


def samples_of(graph: Graph) -> tuple[Feeds, ...]:
    """Seeded samples; open dimensions differ from one to the next, equal symbols are equal."""
    return tuple(_sample(graph, k) for k in range(SAMPLES))


def _sample(graph: Graph, k: int) -> Feeds:
    rng = np.random.default_rng(1000 + k)
    feeds = {}
    for name in graph.inputs:
        value = graph.values[name]
        shape = [dim if isinstance(dim, int) else 2 + k + len(dim or "none") % 3 for dim in value.shape or ()]
        dtype = NUMPY[value.dtype]
        if value.dtype == "string":
            feeds[name] = rng.choice(["a", "b", "other"], shape).astype(object)
        elif value.is_float:
            feeds[name] = np.asarray(rng.standard_normal(shape), dtype)
        else:
            feeds[name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def prepare(source: bytes | Path) -> Prepared:
    """Import, calibrate, annotate."""
    graph = read_onnx(source)
    samples = samples_of(graph)
    annotated = annotate(graph, stats=calibrate(graph, list(samples)))
    try:
        session = open_session(source, "none")
    except Exception:  # noqa: BLE001 - onnxruntime refuses some of these files, each in its own way
        session = open_session(write_graph(graph), "none")
    known = {port.name for port in session.get_inputs()}
    names = [port.name for port in session.get_outputs()]
    reference = [session.run(names, {k: v for k, v in sample.items() if k in known}) for sample in samples]
    return Prepared(annotated, samples, tuple(reference), ports_of(session))


def plan_of(prepared: Prepared, target: str) -> Plan:
    """Plan for a shipped target; the checker agrees."""
    device = load_target(target)
    plan = propagate(fuse(prepared.graph, device), device, model=model_digest(prepared.graph))
    check(plan, prepared.graph, device)
    return plan


def integer_kernels(plan: Plan) -> int:
    """Kernels that run by a row on integers."""
    return sum(
        kernel.row is not None
        and any(isinstance(port.type, Uniform) for port in (*kernel.inputs, *kernel.outputs))
        for kernel in plan.kernels_in_order
    )


def exported(prepared: Prepared, plan: Plan, form: str) -> bytes:
    return EXPORTERS[form](prepared.graph, plan)


def is_plain(data: bytes) -> bool:
    """Whether a file has operators of ONNX alone, so that onnx's checker can judge all of it."""
    return all(entry.domain in ("", "ai.onnx") for entry in onnx.load_from_string(data).opset_import)


def sqnr(prepared: Prepared, data: bytes, level: str) -> float:
    """Worst output in dB over all samples; infinite where nothing differs. Shapes and types must be equal."""
    session = open_session(data, level)
    assert [port.name for port in session.get_outputs()] == [name for name, _, _ in prepared.ports]
    assert [port.type for port in session.get_outputs()] == [kind for _, kind, _ in prepared.ports]
    known = {port.name for port in session.get_inputs()}
    assert known == set(prepared.graph.inputs)
    signal, noise = np.zeros(len(prepared.ports)), np.zeros(len(prepared.ports))
    for sample, wanted in zip(prepared.samples, prepared.reference, strict=True):
        got = session.run([name for name, _, _ in prepared.ports], dict(sample))
        for i, (a, b) in enumerate(zip(wanted, got, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.kind in "OSU":
                assert a.tolist() == b.tolist()
            elif a.dtype.kind == "f":
                wide = a.astype(np.float64)
                signal[i] += float(np.sum(wide * wide))
                noise[i] += float(np.sum((wide - b) ** 2))
    worst = [10 * math.log10(s / n) if s else -math.inf for s, n in zip(signal, noise, strict=True) if n]
    return min(worst, default=math.inf)
