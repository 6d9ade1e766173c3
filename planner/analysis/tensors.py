"""Tensors: a record of each tensor of a model: datatype, bounds and stuck channels, and the same on samples.

Source: QONNX InferDataTypes, `util.range_analysis`, `analysis.tensor_stats`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.analysis.datatypes import datatypes
from planner.analysis.ranges import Range, ranges
from planner.calibration.samples import Source, open_samples
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.quantized.compound_ops import open_compounds
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.read import read_written
from planner.formats.onnx.shapes import infer
from planner.interpreter.models import ModelRunner
from planner.ir.graph import Graph, Shape

_FEW: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Least and largest number of each channel, in reals; `(C,)`, of a tensor without channels `(1,)`."""

    lo: Array
    hi: Array

    @property
    def stuck(self) -> Mapping[int, float]:
        """Channels that have one number only, by index."""
        return {int(i): float(self.lo[i]) for i in np.flatnonzero(self.lo == self.hi)}


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Properties of a tensor that analysis found.

    Attributes:
      datatype: QONNX's name (`analysis.datatypes`).
      bounds: its range for any samples; None where an op has no rule, `why` names it.
      seen: its range on the samples; None without samples.
      is_constant: whether it follows from constants alone; then bounds are of the whole.
    """

    name: str
    shape: Shape | None
    datatype: str
    bounds: Span | None
    why: str = ""
    seen: Span | None = None
    is_constant: bool = False


def tensors(
    source: str | Path | bytes,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, tuple[Array | float, Array | float]] | None = None,
    samples: Source = (),
    axis: int = 1,
) -> Sequence[Tensor]:
    """Describe the inputs and every tensor of an ONNX file of any dialect, in order.

    Args:
      dims: sizes of open dimensions.
      inputs: least and largest numbers of inputs, `{"x": (0.0, 1.0)}` or arrays that broadcast to them.
      samples: as `planner.calibrate` takes them.
      axis: of the channels.
    """
    graph = read_written(source, dims=dims, opened=False)
    feeds = open_samples(samples, graph).feeds
    return tensors_of(graph, inputs=inputs, samples=(feed.arrays for feed in feeds), axis=axis)


def tensors_of(
    graph: Graph,
    *,
    inputs: Mapping[str, tuple[Array | float, Array | float]] | None = None,
    samples: Iterable[Mapping[str, Any]] = (),
    axis: int = 1,
) -> Sequence[Tensor]:
    """Describe the inputs of a model and every tensor it computes, in order.

    Args:
      graph: as `onnx.read.read_written(..., opened=False)` gives it.
      inputs: least and largest numbers of inputs, reals that broadcast to their shapes; of others those of
        the datatype that the file says, or none.
      samples: inputs by name; every tensor is seen on them.
      axis: of the channels.

    Raises:
      UnknownName: no such input.
      SampleError: ranges or samples that do not fit.
    """
    opened = infer(open_compounds(graph))
    kinds, bounds = datatypes(graph), ranges(opened, inputs or {})
    names = [*graph.inputs, *(out for op in graph.ops for out in op.outputs if out)]
    seen, runner = _Seen(axis), None
    for sample in samples:
        runner = runner or _runner(opened, names)
        seen.take({**{name: np.asarray(sample[name]) for name in graph.inputs}, **runner.run(sample)})
    described = []
    for name in names:
        found = bounds.get(name, Range(why="it stands inside an operator"))
        span = None
        if found.lo is not None and found.hi is not None:
            whole = np.atleast_1d(found.lo.min()), np.atleast_1d(found.hi.max())
            span = Span(*(whole if found.is_constant else found.per_channel(axis)))
        shape = opened.values[name].shape
        described.append(
            Tensor(name, shape, kinds[name], span, found.why, seen.spans.get(name), found.is_constant)
        )
    return described


def _runner(opened: Graph, names: Sequence[str]) -> ModelRunner:
    folded = fold_constants(opened)
    made = {out for op in folded.ops for out in op.outputs}
    return ModelRunner(folded, watched=[name for name in names if name in made])


@dataclass(slots=True)
class _Seen:
    axis: int
    spans: dict[str, Span] = field(default_factory=dict)

    def take(self, results: Mapping[str, Array]) -> None:
        for name, array in results.items():
            if array.dtype.kind not in "fiub" or not array.size:
                continue
            lo, hi = Range(array, array).per_channel(self.axis)
            old = self.spans.get(name)
            if old is not None and old.lo.shape == lo.shape:
                lo, hi = np.minimum(lo, old.lo), np.maximum(hi, old.hi)
            self.spans[name] = Span(lo, hi)


def rows(found: Iterable[Tensor], *, seen: bool) -> Sequence[tuple[str, ...]]:
    """The table of `qplan tensors`."""
    return [
        (tensor.name, " x ".join(map(str, tensor.shape or ())), tensor.datatype, _text(tensor.bounds),
         *([_text(tensor.seen)] if seen else []), _stuck(tensor))
        for tensor in found
    ]  # fmt: skip


def _text(span: Span | None) -> str:
    return "" if span is None else f"{span.lo.min():.6g} to {span.hi.max():.6g}"


def _stuck(tensor: Tensor) -> str:
    span = tensor.seen or tensor.bounds
    if span is None or tensor.is_constant:
        return ""
    at = list(span.stuck)
    return ", ".join(map(str, at[:_FEW])) + (f" and {len(at) - _FEW} more" if len(at) > _FEW else "")


def as_json(tensor: Tensor) -> Mapping[str, Any]:
    """A tensor as `qplan tensors --json` prints it; infinite ends are null."""
    return {
        "name": tensor.name,
        "shape": None if tensor.shape is None else list(tensor.shape),
        "datatype": tensor.datatype,
        "constant": tensor.is_constant,
        "bounds": _span_json(tensor.bounds),
        "why": tensor.why,
        "seen": _span_json(tensor.seen),
    }


def _span_json(span: Span | None) -> Mapping[str, Any] | None:
    if span is None:
        return None
    lo, hi = ([float(end) if np.isfinite(end) else None for end in ends] for ends in (span.lo, span.hi))
    return {"lo": lo, "hi": hi, "stuck": {str(at): number for at, number in span.stuck.items()}}
