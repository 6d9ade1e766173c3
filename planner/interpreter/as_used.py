"""As used: compare a file at onnxruntime's defaults, as its users run it, and say what that loses.

A file for a device that is not onnxruntime is judged with exact products: what this machine's processor
loses in 16 bits is no fault of the file and happens nowhere else.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from planner.accuracy.verdict import GOOD_SQNR
from planner.calibration.samples import Source
from planner.errors import EngineError, ModelError
from planner.exporters.runnable import is_engines_own
from planner.interpreter.at_defaults import reason
from planner.interpreter.compare import Comparison, Evaluated, compare
from planner.ir.graph import Graph
from planner.target.records import Files

LOSS: Final = 1.0
"""dB that optimisations may take: kernels fused from pairs round single numbers the other way."""
_PROCESSOR: Final = (
    ": this processor adds products of u8 and i8 in 16 bits, which is not exact "
    "(session.x64quantprecision, or weight_bits_effective: 7 in the target, avoid that)"
)


def compare_as_used(
    graph: Graph, name: str, data: bytes | Path | Evaluated, samples: Source, *, device: Files, **asked: Any
) -> Comparison:
    """Compare a file in a format with the model; a note says where optimisations lose more than `LOSS`.

    A file that users run in onnxruntime and that fails at its defaults has the figures without
    optimisations, where it runs so, and the reason in `failure`.

    Args:
      graph: the float model.
      device: what the target says of its files; `runtime` is the engine that the device is.
      asked: more arguments of `compare`.
    """
    if isinstance(data, Evaluated):
        return compare(graph, data, samples, **asked)
    is_here = device.runtime == "onnxruntime"
    try:
        used = compare(graph, data, samples, optimisation="all", exact_products=not is_here, **asked)
    except EngineError as error:
        return _unoptimised(graph, name, data, samples, error, is_here=is_here, **asked)
    if used.worst_sqnr >= GOOD_SQNR:
        return used
    plain = compare(graph, data, samples, **asked)
    if not plain.worst_sqnr > used.worst_sqnr + LOSS:
        return used
    figures = f"{used.worst_sqnr:.1f} dB with onnxruntime's optimisations, {plain.worst_sqnr:.1f} without"
    cause = _PROCESSOR if is_here and _is_processor(graph, data, samples, plain, **asked) else ""
    found = used if is_here else plain
    return replace(found, notes=(*found.notes, figures + cause))


def _unoptimised(
    graph: Graph,
    name: str,
    data: bytes | Path,
    samples: Source,
    error: EngineError,
    *,
    is_here: bool,
    **asked: Any,
) -> Comparison:
    """The figures of a file that fails with optimisations: as written, if that runs, and why it failed."""
    if not is_engines_own(name):
        return compare(graph, data, samples, **asked)
    why = reason(graph, data, samples, error.message)
    try:
        written = compare(graph, data, samples, **asked)
    except EngineError:
        written = Comparison(0, {})
    # Some kernels do not exist for exact products: such a file runs at the defaults, and there is no reason.
    is_sound = bool(written.outputs) and not is_here and not why
    return written if is_sound else replace(written, failure=why or error.message)


def _is_processor(graph: Graph, data: bytes | Path, samples: Source, plain: Comparison, **asked: Any) -> bool:
    """Whether exact products are all that the optimised file lacks."""
    try:
        exact = compare(graph, data, samples, optimisation="all", exact_products=True, **asked)
    except ModelError:  # onnxruntime has no kernels of that kind for i8
        return False
    return not plain.worst_sqnr > exact.worst_sqnr + LOSS
