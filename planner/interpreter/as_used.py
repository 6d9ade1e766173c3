"""As used: compare a file as its users run it, and say what that loses.

A file for onnxruntime has its figures at the engine's defaults, on this processor. A file for another device
has the figures of what is written: how onnxruntime's kernels round, and what this processor loses in 16
bits, happens nowhere else. Every ONNX file has to run at the defaults.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.accuracy.verdict import GOOD_SQNR
from planner.calibration.samples import Source
from planner.errors import EngineError, ModelError
from planner.formats.runnable import is_engines_own
from planner.interpreter.at_defaults import reason
from planner.interpreter.compare import Comparison, Evaluated, compare
from planner.interpreter.reference import outputs_once
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.target.records import Files

LOSS: Final = 1.0
"""dB that optimisations may take: kernels fused from pairs round single numbers the other way."""
_PROCESSOR: Final = (
    ": this processor adds products of u8 and i8 in 16 bits, which is not exact "
    "(session.x64quantprecision, or weight_pairs: 128 in the target, avoid that)"
)


def compare_as_used(
    graph: Graph,
    name: str,
    data: bytes | Path | Plan | Evaluated,
    samples: Source,
    *,
    device: Files,
    **asked: Any,
) -> Comparison:
    """Compare a file in a format with the model; a note says where optimisations lose more than `LOSS`.

    A file in an ONNX format that fails at onnxruntime's defaults has the figures without optimisations,
    where it runs so, and the reason in `failure`.

    Args:
      graph: the float model.
      samples: gone through again where optimisations lose; the reference runs once.
      device: what the target says of its files; `runtime` is the engine that the device is.
      asked: more arguments of `compare`.
    """
    if isinstance(data, Evaluated | Plan):
        return compare(graph, data, samples, **asked)
    if device.runtime == "onnxruntime":
        # Inner values are many and large: of these nothing is remembered.
        if asked.get("known") is None and not asked.get("values"):
            asked["known"] = outputs_once(graph, asked.get("reference", "written"))
        return _at_defaults(graph, name, data, samples, **asked)
    if not is_engines_own(name):
        return compare(graph, data, samples, **asked)
    return _as_written(graph, data, samples, reason(graph, data, samples), **asked)


def _at_defaults(graph: Graph, name: str, data: bytes | Path, samples: Source, **asked: Any) -> Comparison:
    """The figures with optimisations, and a note of what those lose."""
    try:
        used = compare(graph, data, samples, optimisation="all", **asked)
    except EngineError as error:
        if not is_engines_own(name):
            return compare(graph, data, samples, **asked)
        why = reason(graph, data, samples, error.message) or error.message
        return _as_written(graph, data, samples, why, **asked)
    if used.worst_sqnr >= GOOD_SQNR:
        return used
    plain = compare(graph, data, samples, **asked)
    if not plain.worst_sqnr > used.worst_sqnr + LOSS:
        return used
    figures = f"{used.worst_sqnr:.1f} dB with onnxruntime's optimisations, {plain.worst_sqnr:.1f} without"
    cause = _PROCESSOR if _is_processor(graph, data, samples, plain, **asked) else ""
    return replace(used, notes=(*used.notes, figures + cause))


def _as_written(graph: Graph, data: bytes | Path, samples: Source, failure: str, **asked: Any) -> Comparison:
    """The figures without optimisations, where a file runs so, and why it fails with them."""
    try:
        return replace(compare(graph, data, samples, **asked), failure=failure)
    except EngineError:
        if not failure:
            raise
        return Comparison(0, {}, failure=failure)


def _is_processor(graph: Graph, data: bytes | Path, samples: Source, plain: Comparison, **asked: Any) -> bool:
    """Whether exact products are all that the optimised file lacks."""
    try:
        exact = compare(graph, data, samples, optimisation="all", exact_products=True, **asked)
    except ModelError:  # onnxruntime has no kernels of that kind for i8
        return False
    return not plain.worst_sqnr > exact.worst_sqnr + LOSS
