"""Compare: the float model and a quantized ONNX file side by side in onnxruntime, sample by sample.

`SQNR = 10 log10(sum ref^2 / sum (ref - got)^2)` in dB, over all samples of an output. Optimisations are off
unless asked for: with them onnxruntime's numbers are no oracle. Source: design 05.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from planner.calibration.samples import Samples, Source, open_samples
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import ModelError, SampleError, expect
from planner.interpreter.memory import as_f32
from planner.interpreter.requantize import Array
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.onnx.quantized.dialect import QONNX
from planner.onnx.quantized.lowering import lower
from planner.onnx.read import read_written
from planner.onnx.sessions import (
    EXTERNAL_FOLDER,
    FAILURES,
    Optimisation,
    one_line,
    open_graph,
    open_session,
    session_options,
)
from planner.onnx.structure.expose_outputs import inner_tensors, with_outputs
from planner.onnx.write import write_graph
from planner.plans.rescales import pins

# A protobuf holds less than 2 GB: models with more weights go through a folder.
MAX_INLINE_BYTES: Final = 1 << 30
# QONNX's quantizers as a file spells the type of a node, its length before it; a file without has none.
_QUANTIZERS: Final = (b"\x05Quant", b"\x08IntQuant", b"\x0cBipolarQuant", b"\x0aFloatQuant", b"\x05Trunc")


@dataclass(frozen=True, slots=True)
class Quality:
    """Comparison of one tensor of the quantized file with the float model's.

    Attributes:
      sqnr: dB; infinite where there is no error, minus infinity where there is only error.
      max_error: the largest difference, real.
      elements: compared, over all samples.
    """

    sqnr: float
    max_error: float
    elements: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A quantized file against the float model.

    Attributes:
      samples: number of runs.
      outputs: by model output.
      values: by inner value, where asked for and both files have a float tensor of that name.
    """

    samples: int
    outputs: Mapping[str, Quality]
    values: Mapping[str, Quality] = field(default_factory=dict)

    @property
    def worst_sqnr(self) -> float:
        """The SQNR (dB) of the worst output: the model's figure."""
        return min((quality.sqnr for quality in self.outputs.values()), default=math.inf)


def compare(
    graph: Graph,
    data: bytes | str | Path,
    samples: Source | Samples,
    *,
    values: bool = False,
    optimisation: Optimisation = "none",
    exact_products: bool = False,
) -> Comparison:
    """Run both models on the same samples.

    Args:
      graph: the float model; its pins say how stored inputs and outputs of the file are to be read.
      data: the quantized file, as bytes or a path.
      samples: anything `open_samples` reads; gone through once.
      values: compare inner values too.
      optimisation: of the quantized file in onnxruntime; the float model always runs as written.
      exact_products: see `sessions.session_options`.

    Raises:
      ModelError: a file that is no model, that onnxruntime refuses, or whose inputs and outputs are others.
      SampleError: no samples, or one that does not fit or does not run.
    """
    opened = samples if isinstance(samples, Samples) else open_samples(samples, graph)
    data = _plain(data)
    watched = _watched(graph, data) if values else ()
    options = session_options(optimisation, exact_products=exact_products)
    pair = _Pair(graph, _float_session(graph, watched), _quantized_session(data, watched, options))
    pair.check_ports()
    tallies = {name: _Tally() for name in (*pair.outputs, *watched)}
    done = 0
    for feed in opened.feeds:
        wanted, got = pair.run(feed.name, feed.arrays, tuple(tallies))
        for name, tally in tallies.items():
            tally.add(wanted[name], got[name])
        done += 1
    if not done:
        raise SampleError("no samples to compare on", hint="the calibration samples will do")
    found = {name: tally.quality() for name, tally in tallies.items()}
    inner = {name: found[name] for name in watched}
    return Comparison(done, {name: found[name] for name in pair.outputs}, inner)


@dataclass(slots=True)
class _Tally:
    """Sums over the samples seen so far."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    elements: int = 0

    def add(self, wanted: Array, got: Array) -> None:
        reference, other = wanted.astype(np.float64), got.astype(np.float64)
        with np.errstate(invalid="ignore"):
            # Equal infinities and NaN at the same places are no error.
            is_same = (reference == other) | (np.isnan(reference) & np.isnan(other))
            error = np.where(is_same, 0.0, reference - other)
        error = np.where(np.isnan(error), math.inf, np.abs(error))
        finite = np.where(np.isfinite(reference), reference, 0.0)
        self.signal += float(np.sum(finite * finite))
        self.noise += float(np.sum(error * error))
        self.largest = max(self.largest, float(np.max(error, initial=0.0)))
        self.elements += reference.size

    def quality(self) -> Quality:
        if not self.noise:
            return Quality(math.inf, self.largest, self.elements)
        share = self.signal / self.noise
        sqnr = 10 * math.log10(share) if share > 0 else -math.inf
        return Quality(sqnr, self.largest, self.elements)


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    graph: Graph
    reference: onnxruntime.InferenceSession
    quantized: onnxruntime.InferenceSession

    @property
    def outputs(self) -> tuple[str, ...]:
        """Model outputs that are numbers."""
        values = self.graph.values
        return tuple(name for name in self.graph.outputs if values[name].dtype not in ("", "string"))

    def check_ports(self) -> None:
        """Compare the names at both models' boundaries.

        Raises:
          ModelError: an input of the file that the model lacks, or an output the other way round; an input
            that the file has stored and the model does not pin.
        """
        given = [port.name for port in self.quantized.get_outputs()]
        asked = [port.name for port in self.quantized.get_inputs()]
        for kind, names, known in (
            ("input", asked, self.graph.inputs),
            ("output", self.graph.outputs, given),
        ):
            for name in names:
                if name not in known:
                    here, there = ("the file", "the model") if kind == "input" else ("the model", "the file")
                    listed = ", ".join(map(repr, known)) or "none"
                    raise ModelError(
                        f"{here} has the {kind} {name!r}, {there} does not",
                        hint=f"is it another model's? {there} has {listed}",
                    )
        pinned = pins(self.graph)
        for port in self.quantized.get_inputs():
            if "int" in port.type and self.graph.values[port.name].is_float and port.name not in pinned:
                raise _unpinned(port.name, port.type.removeprefix("tensor(").removesuffix(")"), "write")

    def run(
        self, label: str, arrays: Mapping[str, Array], names: tuple[str, ...]
    ) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Results of both, in reals, by name."""
        pinned = {name: kind for name, kind in pins(self.graph).items() if kind is not None}
        stored = {
            name: quantize_array(as_f32(array), pinned[name]) if name in pinned else array
            for name, array in arrays.items()
        }
        wanted = _run(self.reference, label, arrays, names)
        got = _run(self.quantized, label, stored, names)
        return wanted, {name: _real(got[name], wanted[name], pinned.get(name), name) for name in names}


def _real(got: Array, wanted: Array, kind: Uniform | None, name: str) -> Array:
    if got.shape != wanted.shape:
        raise ModelError(f"{name!r} has shape {got.shape} in the file and {wanted.shape} in the float model")
    is_stored = wanted.dtype.kind == "f" and got.dtype.kind in "iu"
    if not is_stored:
        return got
    if kind is None:
        raise _unpinned(name, str(got.dtype), "read")
    return dequantize_array(got, kind)


def _unpinned(name: str, stored: str, verb: str) -> ModelError:
    return ModelError(
        f"{name!r} is stored as {stored} in the file, and the model pins no type to {verb} it with",
        hint="compare with the annotated model the plan was made from",
    )


def _run(
    session: onnxruntime.InferenceSession, label: str, arrays: Mapping[str, Array], names: tuple[str, ...]
) -> Mapping[str, Array]:
    used = {port.name for port in session.get_inputs()}
    feeds = {name: array for name, array in arrays.items() if name in used}
    try:
        results = session.run(list(names), feeds)
    except FAILURES as error:
        raise SampleError(f"{label}: onnxruntime cannot run the model: {one_line(error)}") from error
    return dict(zip(names, results, strict=True))


def _plain(data: bytes | str | Path) -> bytes | str | Path:
    """The file in operators that onnxruntime has: one with QONNX's quantizers is lowered."""
    held = _bytes(data)
    if not any(name in held for name in _QUANTIZERS):
        return data
    graph = read_written(data)
    return write_graph(lower(graph)) if any(op.type.startswith(QONNX) for op in graph.ops) else data


def _watched(graph: Graph, data: bytes | str | Path) -> tuple[str, ...]:
    computed = {name for op in graph.all_ops() for name in op.outputs}
    boundary = {*graph.inputs, *graph.outputs}
    return tuple(
        name
        for name in inner_tensors(_bytes(data))
        if name in computed and name not in boundary and graph.values[name].is_float
    )


def _float_session(graph: Graph, watched: Iterable[str]) -> onnxruntime.InferenceSession:
    outputs = (*graph.outputs, *watched)
    # No shapes for the new outputs: onnxruntime refuses claims that it infers otherwise.
    loose = {name: replace(graph.values[name], shape=None) for name in outputs}
    model = replace(graph, outputs=outputs, values={**graph.values, **loose})
    return open_graph(model, session_options(), inline=MAX_INLINE_BYTES)


def _quantized_session(
    data: bytes | str | Path, watched: tuple[str, ...], options: Any
) -> onnxruntime.InferenceSession:
    label = "the quantized file" if isinstance(data, bytes) else str(data)
    if not isinstance(data, bytes) and not Path(data).is_file():
        raise ModelError(f"{label}: no such file")
    if not watched:
        return _open(data if isinstance(data, bytes) else str(data), label, options)
    folder = None if isinstance(data, bytes) else str(Path(data).resolve().parent)
    return _open(with_outputs(_bytes(data), watched), label, options, folder)


def _open(
    source: bytes | str, label: str, options: Any, folder: str | None = None
) -> onnxruntime.InferenceSession:
    if folder is not None:
        options.add_session_config_entry(EXTERNAL_FOLDER, folder)
    try:
        return open_session(source, options)
    except FAILURES as error:
        raise ModelError(f"onnxruntime cannot load {label}: {one_line(error)}") from error


def _bytes(data: bytes | str | Path) -> bytes:
    expect(data, (bytes, str, Path), "a quantized file is a path or the bytes of one")
    if isinstance(data, bytes):
        return data
    if not Path(data).is_file():
        raise ModelError(f"{data}: no such file")
    return Path(data).read_bytes()
