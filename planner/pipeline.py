"""The main job in a few functions: model, statistics, target, plan, file. Each can be called alone.

bytes -> `load_model` -> `annotate` -> `plan` (fuse, choose rows, propagate) -> `check` -> `export`.
Every step is a pure function of what it is given. Source: docs/library.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from planner.accuracy.consumers import measure_readers
from planner.accuracy.metrics import Metric
from planner.calibration.run import calibrate as run_calibration
from planner.calibration.run import calibrate_on, require_numbers
from planner.calibration.samples import Feed, Samples, Source, open_samples
from planner.calibration.statistics import ACCEPTED, Statistics
from planner.errors import InputError, ModelError, expect, require_name
from planner.factors.form import form_of_plan
from planner.foreign_files import foreign_folder, refuse_foreign
from planner.formats import annotated, mlir
from planner.formats.common.known_shapes import taken_for_one, with_fixed_sizes
from planner.formats.litert.identifier import starts_as_litert
from planner.formats.litert.reader.read import read_litert
from planner.formats.onnx.normalise import normalise
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.sessions import Optimisation
from planner.formats.onnx.writer.write import write_form
from planner.formats.stablehlo.identifier import is_serialized, payload
from planner.formats.stablehlo.reader.serialized import serialized_text
from planner.formats.table import EXPORTERS, form_of, refuse_bodies, refuse_layout, require_format
from planner.formats.to_file import write_to, write_whole
from planner.interpreter.compare import Comparison, Evaluated
from planner.interpreter.compare import compare as compare_models
from planner.interpreter.evaluate import Evaluation
from planner.interpreter.evaluate import evaluate as evaluate_plan
from planner.interpreter.reference import ReferenceKind
from planner.ir.dims import with_dims
from planner.ir.expand import expand
from planner.ir.graph import Graph, with_facts, with_sizes
from planner.model_objects import as_bytes, sniffed
from planner.plan_model import annotate, check, plan
from planner.plans.plan import Plan, require_plan

__all__ = [
    "annotate",
    "calibrate",
    "check",
    "compare",
    "evaluate",
    "export",
    "export_to",
    "load_model",
    "plan",
]

ModelSource: TypeAlias = Any
"""The sources that `load_model` takes; see there."""
_File: TypeAlias = str | Path | bytes

_READERS: Mapping[str, Callable[[_File, Mapping[str, int]], Graph]] = {
    "json": lambda source, dims: with_dims(annotated.read_annotated(_text(source)), dims),
    "litert": lambda source, dims: with_dims(read_litert(source), dims),
    "mlir": lambda source, dims: with_dims(_normal(mlir.read_mlir(_text(source))), dims),
    "onnx": lambda source, dims: read_onnx(source, dims=dims),
}


def load_model(
    source: ModelSource,
    *,
    format: str | None = None,  # noqa: A002 - the public name
    dims: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Read a model: an ONNX or LiteRT file, an annotated model as JSON or MLIR, a StableHLO program.

    Args:
      source: a path, the bytes of a file or an open one, an `onnx.ModelProto`, an MLIR module of xDSL or of
        MLIR's own bindings, a `torch.export.ExportedProgram` (through PyTorch's exporter), a
        `jax.export.Exported`. Files may be MLIR's bytecode, StableHLO's portable artifacts and those of
        `jax.export`.
      format: `onnx`, `litert`, `json` or `mlir`; by default a file's suffix says, or the bytes do.
      dims: sizes of dimensions that the model leaves open, by name (`batch`) or place (`input[0]`).
      outputs: values that become the outputs of the model; ops that compute only others are left out. Of ONNX
        models only.

    Raises:
      ModelError: the fault of the file and its place, or the kind of the file.
      InputError: an object that is no model.
      UnknownName: no input has such an open dimension; no value has such a name.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> model.inputs, model.outputs
      (('image',), ('probabilities',))
    """
    given = as_bytes(source)
    if format is None:
        suffix = "" if isinstance(given, bytes) else Path(given).suffix.removeprefix(".").lower()
        format = sniffed(given) if isinstance(given, bytes) else suffix  # noqa: A001
        format = "litert" if suffix == "tflite" or starts_as_litert(given) else format  # noqa: A001
        format = "mlir" if is_serialized(given) else format  # noqa: A001
        format = format if format in _READERS else "onnx"  # noqa: A001
    require_name("model format", format, _READERS)
    if not isinstance(given, bytes):
        given = Path(given)
        if not given.exists():
            raise ModelError(f"{source}: no such file")
        if given.is_dir() and foreign_folder(given) is None:
            raise ModelError(f"{source}: a folder, not a file")
    if format == "json":
        text = given if isinstance(given, bytes) else given.read_bytes()
        refuse_foreign("the model" if isinstance(given, bytes) else repr(str(given)), text)
    if outputs is None:
        return _READERS[format](given, dims or {})
    if format != "onnx":
        raise InputError(f"outputs are chosen of ONNX models, not of {format}")
    expect(outputs, (list, tuple), "outputs are a list of names of values")
    return read_onnx(given, dims=dims, outputs=tuple(outputs))


def calibrate(
    model: Graph,
    samples: Source,
    *,
    method: str = "minmax",
    progress: Callable[[int, int | None], None] | None = None,
    executor: Executor | None = None,
    parts: int = 4,
    readers: int = 0,
) -> Statistics:
    """Run the float model over samples and record the range of every value.

    Args:
      samples: a folder of .npz files, one .npz, or an iterable of {input name: array}; streamed.
      method: `minmax`, `percentile`, `percentile:99.9`, `mse` or `entropy`; docs/accuracy.md compares them.
      progress: called with (samples done, samples in all or None).
      executor: runs `parts` of the samples at once, one thread each; any of `concurrent.futures`.
      readers: number of samples, the first ones, on which to measure also the dB at each value's consumers
        after rounding it to 8 and to 16 bits, which is compared with `costs.wanted_db` of a target.

    Raises:
      SampleError: a sample of the wrong name, shape or element type; samples of nothing but NaN.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> stats
      <Statistics of 22 values over 128 samples, minmax>
    """
    flat = expand(model)
    expect(method, str, f"a calibration method is one of {ACCEPTED}")
    if progress is not None and not callable(progress):
        raise InputError(f"progress is a function of (samples done, samples in all), not {progress!r}")
    if isinstance(readers, bool) or not isinstance(readers, int) or readers < 0:
        raise InputError(f"readers is a number of samples, 0 or more, not {readers!r}")
    if executor is not None:
        if not hasattr(executor, "submit"):
            raise InputError(f"executor is one of concurrent.futures, with a submit, not {executor!r}")
        sharded = calibrate_on(executor, flat, samples, parts=parts, method=method, progress=progress)
        seen = require_numbers(flat, sharded)
        return measure_readers(flat, seen, samples, count=readers) if readers else seen
    opened, first = open_samples(samples, flat), list[Feed]()
    if readers:
        opened = Samples(_keeping(opened.feeds, first, readers), opened.count)
    seen = require_numbers(flat, run_calibration(flat, opened, method=method, progress=progress))
    return measure_readers(flat, seen, Samples(iter(first), len(first)), count=readers) if readers else seen


def _keeping(feeds: Iterable[Feed], first: list[Feed], most: int) -> Iterator[Feed]:
    """The samples as they come, the first of them kept."""
    for feed in feeds:
        if len(first) < most:
            first.append(feed)
        yield feed


def export(
    model: Graph,
    plan: Plan,
    format: str,  # noqa: A002 - the public name
    *,
    accuracy_level: int | None = None,
) -> bytes:
    """Write the planned model in a format real engines run; `check` comes first.

    Args:
      accuracy_level: of `onnx-matmulnbits` alone, 0 to 4: how exact activations are inside the operator at
        least; 1, float32, by default.

    Raises:
      UnsupportedExport: the format cannot express this plan; names port and row. Or has no such level.
      PlanInvalid: the plan does not fit the model.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> file = planner.export(ready, plan, "onnx-qdq")
    """
    model = _exportable(model, plan, format)
    form = None if accuracy_level is None else form_of(format, accuracy_level)
    return EXPORTERS[format](model, plan) if form is None else write_form(model, plan, form)


def export_whole(
    model: Graph,
    plan: Plan,
    format: str,  # noqa: A002 - as `export`
    path: Path,
    *,
    accuracy_level: int | None = None,
    external: Path | None = None,
) -> int:
    """`export` into one file, weight by weight, in the place itself; the bytes written are returned.

    Args:
      external: a file for the weights, which the model calls by its name.

    Raises:
      UnsupportedExport, PlanInvalid: as `export`.
    """
    model = _exportable(model, plan, format)
    return write_whole(model, plan, format, path, level=accuracy_level, external=external)


def _exportable(model: Graph, plan: Plan, name: str) -> Graph:
    """The model as exporters take it, once the plan is checked and the format has all of it."""
    require_format(name)
    model = expand(model)
    check(plan, model)
    return exportable(model, plan, name)


def exportable(model: Graph, plan: Plan, name: str) -> Graph:
    """The model as `EXPORTERS` and `write_to` take it, of a plan that `check` accepted with this model.

    Raises:
      UnsupportedExport: a format without the bodies of the model, or of another layout than the target reads.
    """
    model = with_sizes(form_of_plan(model, plan.graph), plan.graph)
    refuse_bodies(plan, name)
    refuse_layout(plan, name)
    model = with_fixed_sizes(model, name)
    return with_facts(model, plan.graph) if "best_effort" in plan.options else model


def open_sizes(model: Graph, plan: Plan, format: str) -> tuple[str, ...]:  # noqa: A002 - as `export`
    """Return the warning of a format of fixed sizes where neither model nor samples say some of them."""
    text = taken_for_one(exportable(model, plan, format), format)
    return (text,) if text else ()


def unread_format(plan: Plan, format: str) -> tuple[str, ...]:  # noqa: A002 - as `export`
    """Return the warning of a file in a format that the tools of the plan's device do not read."""
    read = plan.target.files.formats
    if not read or format in read:
        return ()
    tools = f"tools of {plan.target.id} read {' or '.join(read)} alone"
    return (f"{tools}, and this file is {format}: format={read[0]!r} writes theirs",)


def export_to(
    model: Graph,
    plan: Plan,
    format: str,  # noqa: A002 - the public name
    path: str | Path,
    *,
    external: bool | None = None,
    accuracy_level: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> tuple[Path, ...]:
    """`export` to a path, whole or not at all: large weights go tensor by tensor into a file beside it.

    Args:
      path: of the model; weights beside it are `PATH.data`.
      external: weights beside the model or in it; by default beside it where those of the float model lie in
        files and have 256 MB or more.
      accuracy_level: as `export` has it.
      progress: called with (kernels written, kernels in all).

    Returns:
      The files written, the model first.

    Raises:
      UnsupportedExport: as `export`; external data in a format that has none.
      InputError: a place that cannot be written.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> ready = planner.annotate(model, kernels={"*": "float"})
      >>> plan = planner.plan(ready, "litert-int8")
      >>> [file.name for file in planner.export_to(ready, plan, "onnx-qdq", "out/digits-float.onnx")]
      ['digits-float.onnx']
    """
    model = _exportable(model, plan, format)
    return write_to(
        model, plan, format, Path(path), external=external, level=accuracy_level, progress=progress
    )


def evaluate(
    model: Graph, plan: Plan, sample: Mapping[str, np.ndarray], *, arithmetic: str | None = None
) -> Evaluation:
    """Run a plan in the reference interpreter: stored integers and reals of every value.

    Args:
      arithmetic: requantize by this instead of each row's own (`float32_even` is onnxruntime's).

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> sample = {"image": np.zeros((1, 1, 8, 8), "float32")}
      >>> planner.evaluate(ready, plan, sample).outputs["probabilities"].shape
      (1, 10)
    """
    require_plan(plan)
    return evaluate_plan(model, plan, sample, arithmetic=arithmetic)


def compare(
    model: Graph | ModelSource,
    data: bytes | str | Path | Evaluated,
    samples: Source,
    *,
    optimisation: Optimisation = "none",
    exact_products: bool = False,
    reference: ReferenceKind = "written",
    output: str | None = None,
    metrics: Sequence[str | Metric] = (),
    progress: Callable[[int, int | None], None] | None = None,
) -> Comparison:
    """Run a model and a quantized ONNX file of it side by side: SQNR (dB), largest error, metrics.

    Args:
      model: the float model, loaded or as `load_model` takes it.
      data: the quantized file, a path or its bytes; or a plan as the interpreter computes a file of it.
      samples: arrays `label` or `labels` beside the inputs evaluate scores of classes.
      optimisation: the level at which onnxruntime loads the file; its own default is `all`.
      exact_products: x86 without VNNI adds products of u8 and i8 in 16 bits, unless this is set.
      reference: of a model that has quantizers of its own: as `written`, or `stripped` of them.
      output: the output that labels are for; by default the only one.
      metrics: `top1`, `top5`, `cross_entropy`, or functions `metric(outputs, labels) -> float`: arrays of all
        samples by name of the output, larger is better.
      progress: called with (samples done, samples in all or None).

    Raises:
      SampleError: samples or labels that do not fit.
      InputError: a metric that raises, or returns no number.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> file = planner.export(ready, plan, "onnx-qdq")
      >>> planner.compare(model, file, "examples/digits/test.npz").samples
      450
    """
    return compare_models(
        expand(model if isinstance(model, Graph) else load_model(model)),
        data,
        samples,
        optimisation=optimisation,
        exact_products=exact_products,
        reference=reference,
        output=output,
        metrics=metrics,
        progress=progress,
    )


def _normal(model: Graph) -> Graph:
    """Bring a program that was read as ONNX ops (StableHLO) to their normal form; others stay as written."""
    is_normal = bool(model.scopes)  # loops and branches are in place, each in normal form
    return normalise(model) if model.opsets and not model.regions and not is_normal else model


def _text(source: _File) -> str:
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if payload(data) is not None:
        return serialized_text(data)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"not text: byte {error.start} is no UTF-8") from None
