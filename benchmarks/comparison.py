"""A quantized file beside its float source: accuracy, latency and what runs in integers, for any side.

Accuracy is measured with every graph optimisation off, which runs the file as written; `optimized`
figures run what onnxruntime fuses by default. Source: docs/accuracy.md.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from benchmarks.counting import executed_ops, float_ops, integer_ops, macs_by_op, quantize_nodes

Array = NDArray[Any]
Sample = Mapping[str, Array]
Record = dict[str, Any]

AS_WRITTEN: Final = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIMIZED: Final = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
SETTLING: Final = 0.1
"""Seconds: with less, a file in turn with four others took three times as long as alone."""
IN_A_ROW: Final = 3
"""Runs that count in a turn."""


def open_session(
    path: Path, level: onnxruntime.GraphOptimizationLevel, write_to: Path | None = None
) -> onnxruntime.InferenceSession:
    """Open a file on one CPU thread; `write_to` receives the optimised graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if write_to is not None:
        options.optimized_model_filepath = str(write_to)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def sqnr(
    reference: onnxruntime.InferenceSession, other: onnxruntime.InferenceSession, samples: Sequence[Sample]
) -> dict[str, float]:
    """Return dB by output: 10 log10(sum ref^2 / sum (ref - got)^2) over all samples.

    Equal outputs give infinity, NaN or infinite ones minus infinity.
    """
    names = [output.name for output in reference.get_outputs()]
    signal = dict.fromkeys(names, 0.0)
    noise = dict.fromkeys(names, 0.0)
    for sample in samples:
        pairs = zip(reference.run(names, dict(sample)), other.run(names, dict(sample)), strict=True)
        for name, (expected, got) in zip(names, pairs, strict=True):
            wide = expected.astype(np.float64)
            signal[name] += float(np.square(wide).sum())
            noise[name] += float(np.square(wide - got.astype(np.float64)).sum())
    return {name: decibel(signal[name], noise[name]) for name in names}


def decibel(signal: float, noise: float) -> float:
    """Return 10 log10(signal / noise), with the limits of `sqnr`."""
    if not math.isfinite(noise) or not math.isfinite(signal):
        return -math.inf
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


def latencies_ms(
    sessions: Sequence[onnxruntime.InferenceSession], sample: Sample, seconds: float = 1.5, runs: int = 5
) -> list[float]:
    """Return the median latency of each session, warm; turns alternate, so that noise meets all alike.

    Threads of a session go on waiting on the processors for a while after its run, and would slow the next
    session down: a turn begins with `SETTLING` seconds of runs that do not count.

    Args:
      sessions: two or more of one model.
      sample: their input.
      seconds: go on at least so long,
      runs: and for so many runs of each.
    """
    for session in [*sessions, *sessions]:
        session.run(None, dict(sample))
    taken: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[0]) < runs:
        for session, times in zip(sessions, taken, strict=True):
            settled = time.perf_counter() + SETTLING
            while time.perf_counter() < settled:
                session.run(None, dict(sample))
            for _ in range(IN_A_ROW):
                start = time.perf_counter()
                session.run(None, dict(sample))
                times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in taken]


def measure(source: Path, quantized: Path, batch: Sequence[Sample], work: Path) -> Record:
    """Return the figures of any quantized file beside its float source: the same for all sides.

    Args:
      source: the float file.
      quantized: a QDQ file with the same inputs and outputs.
      batch: held-out samples.
      work: a folder for the graph that onnxruntime writes after optimising.
    """
    graph = onnx.load(quantized)
    optimized = work / "optimized.onnx"
    reference = open_session(source, AS_WRITTEN)
    fast = open_session(quantized, OPTIMIZED, write_to=optimized)
    plain_db = sqnr(reference, open_session(quantized, AS_WRITTEN), batch)
    float_ms, integer_ms = latencies_ms([open_session(source, OPTIMIZED), fast], batch[0])
    on_integers, on_floats = executed_ops(onnx.load(optimized))
    quantize_count, dequantize_count = quantize_nodes(graph)
    return {
        "quantize_nodes": quantize_count,
        "dequantize_nodes": dequantize_count,
        "bytes": quantized.stat().st_size,
        "source_bytes": source.stat().st_size,
        "sqnr_db": plain_db,
        "sqnr_worst_db": min(plain_db.values()),
        "sqnr_optimized_db": sqnr(reference, fast, batch),
        "integer_ops": sorted_counts(integer_ops(graph)),
        "float_ops": sorted_counts(float_ops(graph)),
        "macs": macs_by_op(graph, batch[0]),
        "executed_on_integers": sorted_counts(on_integers),
        "executed_on_floats": sorted_counts(on_floats),
        "float_ms": float_ms,
        "integer_ms": integer_ms,
    }


def mac_share(macs: Mapping[str, Sequence[int]]) -> float:
    """Return the share of multiply-adds in integers, 1.0 where there are none."""
    total = sum(counts[1] for counts in macs.values())
    return sum(counts[0] for counts in macs.values()) / total if total else 1.0


def sorted_counts(found: Counter[str]) -> dict[str, int]:
    """Return counts by op type, in the order of the names."""
    return dict(sorted(found.items()))
