"""Compare: a model, the reference, and a quantized ONNX file of it side by side, sample by sample.

Optimisations are off by default: with them onnxruntime's numbers are no oracle. `accuracy` evaluates the
numbers. Source: docs/formats.md; docs/accuracy.md.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import onnxruntime

from planner.accuracy.coverage import Coverage
from planner.accuracy.metrics import Metric, Score, judge_of, score_text
from planner.accuracy.quality import Quality, Tally, decibels
from planner.accuracy.verdict import Verdict, verdict_of
from planner.calibration.samples import Samples, Source, open_samples
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import EngineError, ModelError, SampleError, expect, require_name
from planner.formats.litert.identifier import is_litert
from planner.formats.litert.reader.read import read_litert_written
from planner.formats.onnx.quantized.compound_ops import open_compounds
from planner.formats.onnx.quantized.dialect import CHANNELS_LAST, OPERATORS, QONNX
from planner.formats.onnx.quantized.lowering import lower
from planner.formats.onnx.read import read_written
from planner.formats.onnx.sessions import (
    EXTERNAL_FOLDER,
    FAILURES,
    Optimisation,
    one_line,
    open_session,
    session_options,
)
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.structure.expose_outputs import inner_tensors, with_outputs
from planner.formats.onnx.write import write_graph
from planner.interpreter.calls import FLOAT32_QDQ
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.memory import as_f32
from planner.interpreter.reference import ReferenceKind, Run, named_in_reference, open_reference, run_session
from planner.interpreter.requantize import Array
from planner.ir.graph import WRITTEN_LEFT_OUT, Graph
from planner.ir.operators.axes import axes_of
from planner.ir.types.qtypes import Uniform
from planner.notebook import html_of, html_table
from planner.ops.axes import UNKNOWN
from planner.plans.plan import Plan
from planner.plans.rescales import pins

Found = TypeVar("Found")
LEAST_SQNR: Final = 10.0
"""dB below which an output is warned of: a third of its amplitude is noise."""
_ADVICE: Final = (
    "calibrate by another method, ask for 16 bits where it is lost (`qplan losses` says where), "
    "or keep kernels float (docs/accuracy.md)"
)
_REFERENCES: Final = {
    "float": "the float model",
    "stripped": "the model without its own quantizers",
    "written": "the model with its own quantizers",
}
_LEFT_OUT: Final = (
    "the annotated model lacks the quantizers of its own file, so the reference is the bare float model: "
    "compare with the ONNX file"
)
LEAST: Final = 4
BUDGET: Final = 50_000_000
"""Elements of all values times samples that the interpreter computes of a file; `LEAST` samples always."""
_BY: Final = "computed by the reference interpreter in the file's own arithmetic{}"
# A file may have sizes that the model leaves open.
_SAMPLE: Final = re.compile(r"Got invalid dimensions|Invalid rank for input|Unexpected input data type")
_GRIDS: Final = "as float operators on the grids of the .tflite file, not in its runtime's arithmetic"
# QONNX's ops as a file spells the type of a node, its length before it, and a domain.
_QUANTIZERS: Final = (
    *(bytes([len(kind)]) + kind.encode() for kind in OPERATORS),
    CHANNELS_LAST.encode(),
)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """A quantized file against the reference, the model that the user gave.

    Attributes:
      samples: number of runs.
      outputs: by model output.
      values: by inner value, on request where both files have a float tensor of that name.
      scores: by name of a metric, where the samples have labels or a metric was given.
      reference: `written` or `stripped`, with or without quantizers of its own, else `float`.
      held_out: whether the samples are others than those of calibration; None where that is not stated.
      notes: labels that are for no output, and why; a reference that is not the requested one.
      of: the object of the figures, if it is not the file itself.
      by: how the file was run, where no engine ran it.
      coverage: of the file's plan, where that is known.
      failure: why the file does not run at its engine's defaults; the figures are then of the file as it is
        written, optimisations off, or there are none.
    """

    samples: int
    outputs: Mapping[str, Quality]
    values: Mapping[str, Quality] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)
    reference: Literal["float", "stripped", "written"] = "float"
    held_out: bool | None = None
    notes: tuple[str, ...] = ()
    of: str = ""
    by: str = ""
    coverage: Coverage | None = field(default=None, compare=False)
    failure: str = ""

    def __repr__(self) -> str:
        return f"<Comparison {self.measured_on}: {self.verdict or 'no outputs'}>"

    def _repr_html_(self) -> str:
        """The notebook view: each output and group, and metrics of both."""
        outputs = [
            (f"{name}{label}", decibels(part.sqnr), f"{part.max_error:.4g}")
            for name, quality in self.outputs.items()
            for label, part in quality.parts.items()
        ]
        scores = [
            (name, score_text(name, score.quantized), score_text(name, score.reference))
            for name, score in self.scores.items()
        ]
        return html_of(
            f"Comparison {self.measured_on}: {self.verdict or 'no outputs'}",
            html_table(("output", "SQNR", "largest error"), outputs),
            html_table(("metric", "the file", "the model"), scores),
        )

    @property
    def verdict(self) -> Verdict | None:
        """Whether the file is good, fair or poor, and by which figure; None where nothing was compared."""
        return verdict_of(self.outputs, self.scores, self.coverage, of=self.of, failure=self.failure)

    @property
    def worst_sqnr(self) -> float:
        """The SQNR (dB) of the worst output, there of its worst group: the model's figure."""
        none = -math.inf if self.failure else math.inf
        return min((quality.worst for quality in self.outputs.values()), default=none)

    @property
    def measured_on(self) -> str:
        """The samples and the reference of the figures, as text."""
        kinds = {None: "{} samples", True: "{} held-out samples", False: "the {} calibration samples"}
        samples = kinds[self.held_out].format(self.samples)
        if self.samples == 1:
            samples = samples.replace("samples", "sample")
        plain = "onnxruntime's optimisations off" if self.failure else ""
        about = "".join(f", {text}" for text in (self.of, self.by, plain) if text)
        return f"on {samples} against {_REFERENCES[self.reference]}{about}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Outputs and groups of less than 10 dB (`LEAST_SQNR`), and labels that are for no output."""
        poor = [
            f"{name}{label} has {part.sqnr:.1f} dB, less than {LEAST_SQNR:g}: {_ADVICE}"
            for name, quality in self.outputs.items()
            for label, part in quality.parts.items()
            if part.sqnr == quality.worst < LEAST_SQNR
        ]
        return (*self.notes, *poor)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A plan as the interpreter computes it, in the arithmetic of a file of it.

    Attributes:
      model: that the plan is for, with the numbers of its constants.
      arithmetic: of all kernels; None: of each row.
    """

    model: Graph
    plan: Plan
    arithmetic: str | None = None


def compare(
    graph: Graph,
    data: bytes | str | Path | Plan | Evaluated,
    samples: Source | Samples,
    *,
    values: bool = False,
    optimisation: Optimisation = "none",
    exact_products: bool = False,
    reference: ReferenceKind = "written",
    known: Run | None = None,
    output: str | None = None,
    metrics: Sequence[str | Metric] = (),
    progress: Callable[[int, int | None], None] | None = None,
) -> Comparison:
    """Run both models on the same samples.

    Args:
      graph: the model; its fixed types say how stored inputs and outputs of the file are to be read.
      data: the quantized file, as bytes or a path; or a plan, which the interpreter runs as its file with
        Q/DQ pairs would be, for plans that no such file can say; or `Evaluated`, in another arithmetic.
      samples: anything `open_samples` reads, labels among it; iterated once.
      values: compare inner values too.
      optimisation: of the quantized file in onnxruntime; the reference always runs as written.
      exact_products: see `sessions.session_options`.
      reference: `stripped` leaves out the quantizers that the model's own file has.
      known: that reference, opened before, for outputs alone.
      output: the one that labels are for; by default the only one.
      metrics: names of `metrics.BUILT_IN`, or functions; top-1 and top-5 are there wherever labels fit.
      progress: called with (samples done, samples in all or None).

    Raises:
      ModelError: a file that is no model, that onnxruntime refuses, or whose inputs and outputs are others.
      SampleError: no samples, or one that does not fit or does not run; labels that do not fit.
      InputError: a metric that raises, or returns no number.
      UnknownName: no such output or metric.
    """
    require_name("reference", reference, get_args(ReferenceKind))
    opened = samples if isinstance(samples, Samples) else open_samples(samples, graph, labeled=True)
    watched: tuple[str, ...] = ()
    if isinstance(data, Plan):
        quantized = _run_of_plan(graph, data)
    elif isinstance(data, Evaluated):
        quantized = _run_evaluated(data)
    else:
        file = _plain(data)
        watched = named_in_reference(graph, _watched(graph, file), reference) if values else ()
        options = session_options(optimisation, exact_products=exact_products)
        quantized = run_of_file(graph, _quantized_session(file, watched, options))
    run = open_reference(graph, watched, reference) if known is None or watched else known
    pair = _Pair(graph, run, quantized)
    judge = judge_of(pair.outputs, output, metrics)
    axes = axes_of(graph)
    tallies = {name: Tally(is_cut=True, axes=axes.get(name, UNKNOWN)) for name in pair.outputs}
    tallies |= {name: Tally() for name in watched}
    done, limit = 0, _limit(graph) if isinstance(data, Evaluated) else None
    for feed in islice(opened.feeds, limit):
        wanted, got = pair.run(feed.name, feed.arrays, tuple(tallies))
        for name, tally in tallies.items():
            tally.add(wanted[name], got[name])
        judge.add(feed, _some(wanted, pair.outputs), _some(got, pair.outputs))
        done += 1
        if progress is not None:
            progress(done, min(opened.count, limit) if limit and opened.count else opened.count)
    if not done:
        raise SampleError("no samples to compare on", hint="the calibration samples will do")
    found = {name: tally.quality() for name, tally in tallies.items()}
    is_left_out = graph.written is None and WRITTEN_LEFT_OUT in graph.notes
    return Comparison(
        done,
        _some(found, pair.outputs),
        _some(found, watched),
        judge.scores(),
        "stripped" if is_left_out else "float" if graph.written is None else reference,
        notes=(*([_LEFT_OUT] if is_left_out and reference == "written" else ()), *judge.notes),
        of=_GRIDS if not isinstance(data, Plan | Evaluated) and is_litert(_bytes(data)) else "",
        by=_BY.format(_first(done, limit, opened.count)) if isinstance(data, Evaluated) else "",
    )


def _limit(graph: Graph) -> int:
    """Samples that the interpreter computes: all of a small model, a few of a large one."""
    return max(LEAST, BUDGET // max(1, sum(value.elements for value in graph.values.values())))


def _first(done: int, limit: int | None, count: int | None) -> str:
    return "" if done != limit or done == count else f", the first {done} of {count or 'more'}"


def _some(found: Mapping[str, Found], names: Iterable[str]) -> dict[str, Found]:
    return {name: found[name] for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    graph: Graph
    reference: Run
    quantized: Run

    @property
    def outputs(self) -> tuple[str, ...]:
        """Model outputs that are numbers."""
        values = self.graph.values
        return tuple(name for name in self.graph.outputs if values[name].dtype not in ("", "string"))

    def run(
        self, label: str, arrays: Mapping[str, Array], names: tuple[str, ...]
    ) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Results of both, in reals, by name."""
        pinned = _pinned(self.graph)
        wanted = self.reference(label, arrays, names)
        got = self.quantized(label, arrays, names)
        return wanted, {name: _real(got[name], wanted[name], pinned.get(name), name) for name in names}


def _pinned(graph: Graph) -> Mapping[str, Uniform]:
    """Fixed integer types of the model's inputs and outputs."""
    return {name: kind for name, kind in pins(graph).items() if kind is not None}


def _stored(arrays: Mapping[str, Array], kinds: Mapping[str, Uniform]) -> Mapping[str, Array]:
    """Inputs with those of `kinds` quantized."""
    return {
        name: quantize_array(as_f32(array), kinds[name]) if name in kinds else array
        for name, array in arrays.items()
    }


def _run_of_plan(graph: Graph, plan: Plan) -> Run:
    interpreter, pinned = Interpreter(graph, plan, arithmetic=FLOAT32_QDQ), _pinned(graph)
    return lambda _, arrays, names: _some(interpreter.run(_stored(arrays, pinned)).outputs, names)


def _run_evaluated(given: Evaluated) -> Run:
    """Outputs in reals, whatever the plan's boundary stores."""
    interpreter = Interpreter(given.model, given.plan, arithmetic=given.arithmetic)
    pinned = _pinned(given.plan.graph)

    def run(_: str, arrays: Mapping[str, Array], names: Sequence[str]) -> Mapping[str, Array]:
        found = interpreter.run(arrays).outputs
        return {
            name: dequantize_array(found[name], pinned[name])
            if name in pinned and found[name].dtype.kind in "iu"
            else found[name]
            for name in names
        }

    return run


def run_of_file(graph: Graph, session: onnxruntime.InferenceSession) -> Run:
    """Return a quantized file as something to run on samples of the float model.

    Raises:
      ModelError: a file whose inputs and outputs are others than the model's; EngineError, when run, where
        onnxruntime refuses what the reference has run.
    """
    _check_ports(graph, session)
    whole = {port.name for port in session.get_inputs() if "int" in port.type}
    pinned = {name: kind for name, kind in _pinned(graph).items() if name in whole}

    def run(label: str, arrays: Mapping[str, Array], names: tuple[str, ...]) -> Mapping[str, Array]:
        try:
            return run_session(session, label, _stored(arrays, pinned), names)
        except SampleError as error:
            if _SAMPLE.search(error.message) or not isinstance(error.__cause__, Exception):
                raise
            told = one_line(error.__cause__)
            raise EngineError(
                f"{label}: onnxruntime cannot run the exported file: {told}"
            ) from error.__cause__

    return run


def _check_ports(graph: Graph, quantized: onnxruntime.InferenceSession) -> None:
    """Compare the names at both models' boundaries.

    Raises:
      ModelError: an input of the file that the model lacks, or an output the other way round; an input that
        the file has stored and the model has no fixed type for.
    """
    given = [port.name for port in quantized.get_outputs()]
    asked = [port.name for port in quantized.get_inputs()]
    for kind, names, known in (
        ("input", asked, graph.inputs),
        ("output", graph.outputs, given),
    ):
        for name in names:
            if name not in known:
                here, there = ("the file", "the model") if kind == "input" else ("the model", "the file")
                listed = ", ".join(map(repr, known)) or "none"
                raise ModelError(
                    f"{here} has the {kind} {name!r}, {there} does not",
                    hint=f"is it another model's? {there} has {listed}",
                )
    pinned = pins(graph)
    for port in quantized.get_inputs():
        if "int" in port.type and graph.values[port.name].is_float and port.name not in pinned:
            raise _unpinned(port.name, port.type.removeprefix("tensor(").removesuffix(")"), "write")


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
        f"{name!r} is stored as {stored} in the file, and the model has no fixed type to {verb} it with",
        hint="compare with the annotated model the plan was made from",
    )


def _plain(data: bytes | str | Path) -> bytes | str | Path:
    """The file in operators that onnxruntime has: one with QONNX's quantizers is lowered, LiteRT's read."""
    held = _bytes(data)
    if is_litert(held):
        return write_graph(lower(read_litert_written(held, stored=True)))
    if not any(name in held for name in _QUANTIZERS):
        return data
    graph = read_written(data, opened=False)
    if not any(op.type.startswith((QONNX, CHANNELS_LAST)) for op in graph.ops):
        return data
    return write_graph(lower(infer(open_compounds(graph))))


def _watched(graph: Graph, data: bytes | str | Path) -> tuple[str, ...]:
    computed = {name for op in graph.all_ops() for name in op.outputs}
    boundary = {*graph.inputs, *graph.outputs}
    return tuple(
        name
        for name in inner_tensors(_bytes(data))
        if name in computed and name not in boundary and graph.values[name].is_float
    )


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
        raise EngineError(f"onnxruntime cannot load {label}: {one_line(error)}") from error


def _bytes(data: bytes | str | Path) -> bytes:
    expect(data, (bytes, str, Path), "a quantized file is a path or the bytes of one")
    if isinstance(data, bytes):
        return data
    if not Path(data).is_file():
        raise ModelError(f"{data}: no such file")
    return Path(data).read_bytes()
