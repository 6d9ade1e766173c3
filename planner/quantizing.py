"""Quantize: the whole job in one call, from a float model and samples to a file, its plan and a verdict.

Every step is one of `pipeline`'s and can be called alone; nothing is decided here. Source: docs/library.md.
"""

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.accuracy.coverage import coverage_of
from planner.accuracy.metrics import Metric
from planner.accuracy.unseen_values import unlike_calibration
from planner.accuracy.verdict import Verdict, missed_coverage, require_share, verdict_of
from planner.bits import missed_bits, with_bits
from planner.calibration.odd_samples import odd_samples
from planner.calibration.samples import Source, open_samples
from planner.calibration.sizes_seen import agreed_sizes
from planner.calibration.sources.foreign import replayable
from planner.calibration.statistics import Statistics
from planner.errors import (
    InputError,
    PlannerError,
    UnsupportedExport,
    require_name,
)
from planner.factors.form import has_fixed_sizes
from planner.formats.file_coverage import coverage_of_file
from planner.formats.runnable import ARITHMETICS, not_the_file, runnable
from planner.formats.table import EXPORTERS, FORMATS, misnamed, require_format
from planner.formats.to_file import STREAMED, copy_written, has_large_weights, write_to
from planner.interpreter.as_used import compare_as_used
from planner.interpreter.compare import Comparison, Evaluated
from planner.ir.graph import HALVES, LEFT_BEHIND, Graph
from planner.ir.kernel_requests import with_wanted
from planner.model_objects import as_bytes
from planner.notebook import html_of, html_table
from planner.pipeline import (
    ModelSource,
    annotate,
    calibrate,
    check,
    exportable,
    load_model,
    open_sizes,
    plan,
    unread_format,
)
from planner.plan_search.aims import BUDGETS, EFFORTS, Effort, aim_of
from planner.plan_search.effort import Made, bench_for, try_harder, worst_of
from planner.plan_search.search import Search
from planner.plan_search.trials import State
from planner.plans.plan import Plan
from planner.target.load import TargetSource, as_target
from planner.target.records import QuantFn, Target
from planner.weight_conditioning.biases import correct_biases as corrected

TARGET: Final = "onnxruntime-cpu"
"""The device whose engine is installed with the planner."""
FORMAT: Final = "onnx-qdq"
"""The format that most engines read."""
LOSS: Final = 1.0
"""dB that optimisations may take: kernels fused from pairs round single numbers the other way."""

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, repr=False, eq=False)
class Quantized:
    """The result of `quantize`.

    Attributes:
      data: the bytes of the quantized file, without its weights where these lie beside it.
      format: of the file.
      plan: a type for every tensor, with reasons.
      comparison: the file against the float model, run by onnxruntime or computed by the reference
        interpreter; None where neither that nor an `onnx-qdq` file of the same plan can be run.
      compared: the format of the file that was compared: `format`, or `onnx-qdq` where that says types
        alone; "" where none was.
      model: the float model that the plan is for: annotated, with corrected biases.
      statistics: ranges of its values.
      warnings: of the samples, the plan and the comparison.
      files: of a large model, the quantized file and that of its weights, in a temporary folder that goes
        with this object; `save` copies them. () where `data` is all of it.
      search: for a better plan, where the first one was not good; its `best` is this plan.
      given_up: the compromise of this plan, or that none was better; "" without a search.
      asked: requests of that search: `kernels` over your own that make this plan without one.
      min_coverage: the least share of the multiply-adds that you requested.
    """

    data: bytes
    format: str
    plan: Plan
    comparison: Comparison | None
    compared: str
    model: Graph
    statistics: Statistics
    warnings: tuple[str, ...]
    files: tuple[Path, ...] = ()
    search: Search | None = None
    given_up: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    min_coverage: float | None = None

    @property
    def size(self) -> int:
        """Bytes of the quantized file, weights beside it included."""
        return _bytes_of(self.data, self.files)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the file is good, fair or poor, by accuracy and coverage, and by which figure.

        If the file has no advantage over the float model, its `keeps_float` is true.
        """
        if self.comparison is None:
            return verdict_of({}, {}, coverage_of(self.plan))
        return self.comparison.verdict

    @property
    def missed(self) -> str:
        """The shortfall of `min_coverage`, or the reason to keep the float model; "" where there is none."""
        found = self.verdict
        return (
            ""
            if found is None or found.covered is None
            else missed_coverage(found.covered, self.min_coverage)
        )

    def save(self, path: str | Path) -> None:
        """Write the quantized file; the weights of a large one go to `PATH.data`.

        Raises:
          InputError: a path that cannot be written, or a name of another format's files.
        """
        for told in misnamed(str(path), self.format):
            raise InputError(told, hint=f"end the name in {FORMATS[self.format].suffix}")
        if self.files:
            copy_written(self.files, Path(path))
            return
        try:
            Path(path).write_bytes(self.data)
        except OSError as error:
            raise InputError(f"cannot write to {str(path)!r}: {error.strerror}") from error

    def __repr__(self) -> str:
        judged = self.verdict or "not compared"
        device = self.plan.target.id
        return f"<Quantized {self.plan.graph.name!r} for {device}: {self.size:,} bytes, {judged}>"

    def _repr_html_(self) -> str:
        """The notebook view: the verdict, size, plan and comparison in a line each."""
        rows = [
            ("verdict", self.verdict or "not compared"),
            ("file", f"{self.format}, {self.size:,} bytes"),
            ("plan", self.plan),
            ("measured", "" if self.comparison is None else self.comparison.measured_on),
            *((("search", self.given_up),) if self.given_up else ()),
            *(("warning", text) for text in self.warnings),
        ]
        return html_of(f"{self.plan.graph.name} for {self.plan.target.id}", html_table(("", ""), rows))


def quantize(
    model: Graph | ModelSource,
    samples: Source,
    *,
    target: TargetSource = TARGET,
    format: str = FORMAT,  # noqa: A002 - the public name
    eval_samples: Source | None = None,
    method: str = "minmax",
    annotations: str | Path | Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    bits: Mapping[str, int] | None = None,
    correct_biases: bool = True,
    metrics: Sequence[str | Metric] = (),
    output: str | None = None,
    min_coverage: float | None = None,
    functions: Mapping[str, QuantFn] | None = None,
    progress: Progress | None = None,
    effort: Effort = "normal",
    state: str | Path | None = None,
    executor: Executor | None = None,
) -> Quantized:
    """Quantize a float model for a device: calibrate, plan, check, export, compare.

    If accuracy is not good then, a search looks for a plan that is, for the least work; an interrupt ends the
    search, and the best plan so far is the result.

    Args:
      model: loaded, or anything `load_model` takes.
      samples: to calibrate with, 32 to 128 representative ones, as `calibrate` takes them.
      target: a shipped name, a path or a loaded target; by default that of the engine installed with it.
      format: of the file; `EXPORTERS` has the names.
      eval_samples: held-out samples for evaluation, with labels or not; by default `samples`.
      method: of calibration.
      annotations, kernels: your own constraints, as `annotate` takes them.
      bits: widths of all weights and activations, such as `{"w": 4, "a": 8}`, as `with_bits` takes them.
      correct_biases: take the mean error of the integer weights out of the biases.
      metrics, output: as `compare` takes them.
      min_coverage: the least share of the multiply-adds that is quantized: `missed` says where the plan falls
        short, and a search looks for plans that do not.
      functions: of the target's `fn` rules.
      progress: called with (name of the step, steps done, steps in all or None).
      effort: of that search: `quick` measures none; `normal` 16 plans at most; `high` 48, and aims further.
      state: a file of the measurements; a search that finds it resumes.
      executor: calibrates and measures noise on shards of the samples at once; any of `concurrent.futures`.

    Raises:
      InputError: a model, samples or a target that cannot be read, or the wrong format for the plan.
      Conflict: constraints that cannot all hold.

    Example:
      >>> model, samples = "examples/digits/digits.onnx", "examples/digits/calibration.npz"
      >>> done = planner.quantize(model, samples, target="litert-int8")
      >>> done.verdict.level
      'good'
    """
    require_format(format)
    require_name("effort", effort, EFFORTS)
    require_share(min_coverage, "min_coverage")
    tell = progress or (lambda _what, _done, _total: None)
    device = as_target(target, functions)
    held = replayable(samples)
    if isinstance(model, Graph):
        graph = model
    else:
        given = as_bytes(model)  # an open file can be read but once
        graph = load_model(given)
        sizes = sizes_to_read_with(graph, device, (format,), held)
        graph = load_model(given, dims=sizes) if sizes else graph
    graph = with_bits(graph, device, bits or {})
    judged_by = held if eval_samples is None else replayable(eval_samples)
    stats = calibrate(
        graph,
        held,
        method=method,
        progress=lambda done, all_: tell("calibrating", done, all_),
        executor=executor,
    )
    job = _Job(
        graph,
        device,
        held,
        judged_by,
        stats,
        format,
        annotations=annotations,
        kernels=kernels,
        bits=bits or {},
        correct=correct_biases,
        metrics=tuple(metrics),
        output=output,
        min_coverage=min_coverage,
        held_out=eval_samples is not None,
        tell=tell,
    )
    first = job.made({})
    if effort == "quick" or first.comparison is None or first.files:
        return first
    return _tried_harder(job, first, first.comparison, effort, state, executor=executor)


def sizes_to_read_with(
    graph: Graph, device: Target, formats: Sequence[str], samples: Source
) -> dict[str, int]:
    """Return sizes, as `load_model` takes them, with which branches that sizes decide are no branches.

    Only where files are written with fixed sizes, the model has branches or loops, and all samples agree;
    else {}: sizes alone are fixed as the plan is made.
    """
    if not graph.scopes or not has_fixed_sizes(device, formats):
        return {}
    feeds = open_samples(samples, graph).feeds
    return agreed_sizes(graph, ({name: array.shape for name, array in feed.arrays.items()} for feed in feeds))


@dataclass(frozen=True)
class _Job:
    """The arguments of a call of `quantize`, with measured ranges."""

    graph: Graph
    device: Target
    samples: Source
    judged_by: Source
    stats: Statistics
    format: str
    annotations: str | Path | Mapping[str, Any] | None
    kernels: Mapping[str, Any] | None
    bits: Mapping[str, int]
    correct: bool
    metrics: tuple[str | Metric, ...]
    output: str | None
    min_coverage: float | None
    held_out: bool
    tell: Progress

    def annotated(self) -> Graph:
        """The model with ranges and with what the user asks."""
        return annotate(
            self.graph,
            stats=self.stats,
            annotations=self.annotations,
            kernels=self.kernels,
            target=self.device,
        )

    def prepared(self, model: Graph) -> Graph:
        """An annotated model as it is planned."""
        return corrected(model, self.device, self.stats) if self.correct else model

    def made(self, asked: Mapping[str, Any]) -> Quantized:
        """Plan, check, export and compare, with more asked of kernels."""
        graph, device, tell = self.graph, self.device, self.tell
        ready = self.annotated()
        ready = with_wanted(ready, asked) if asked else ready
        if self.correct:
            tell("correcting biases", 0, None)
        ready = self.prepared(ready)
        tell("planning", 0, None)
        bar = partial(tell, "planning")
        found = plan(ready, device, formats=(self.format,), progress=bar)
        tell("checking", 0, None)
        check(found, ready, device, progress=partial(tell, "checking"))
        tell("exporting", 0, None)
        with ExitStack() as kept:
            folder = None
            if has_large_weights(ready):
                folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="qplan-")))
            written = _Written(ready, found, folder, partial(tell, "exporting"))
            data, files = written.file(self.format)
            compared, plain = _file_to_run(written, self.format, files[0] if files else data)
            comparison = None
            if plain is not None:
                comparison = replace(
                    compare_as_used(
                        graph,
                        compared,
                        plain,
                        self.judged_by,
                        device=found.target.files,
                        metrics=self.metrics,
                        output=self.output,
                        progress=partial(tell, "comparing"),
                    ),
                    held_out=self.held_out,
                    of=not_the_file(self.format, compared),
                    coverage=coverage_of_file(found, graph, self.format, _bytes_of(data, files)),
                )
            # Without the ranges of these very samples, which they can but fit.
            plainly = annotate(graph, annotations=self.annotations, kernels=self.kernels)
            warnings = [
                *odd_samples(plainly, self.samples),
                *found.warnings,
                *missed_bits(found, self.bits),
                *open_sizes(ready, found, self.format),
                *unread_format(found, self.format),
                *(note for note in graph.notes if note.startswith((HALVES, LEFT_BEHIND))),
            ]
            if self.held_out:
                warnings += unlike_calibration(graph, self.stats, self.judged_by)
            warnings += () if comparison is None else comparison.warnings
            made = Quantized(
                data,
                self.format,
                found,
                comparison,
                compared,
                ready,
                self.stats,
                tuple(warnings),
                files,
                min_coverage=self.min_coverage,
            )
            if files:
                weakref.finalize(made, kept.pop_all().close)
        return made


def _tried_harder(
    job: _Job,
    first: Quantized,
    comparison: Comparison,
    effort: Effort,
    state: str | Path | None,
    *,
    executor: Executor | None,
) -> Quantized:
    """The plan, or a better one that a search finds where its accuracy is not good."""
    aim = aim_of(
        BUDGETS[effort], [comparison], metric=next(iter(job.metrics), None), coverage=job.min_coverage
    )

    known = Made(first, worst_of(first.plan, [comparison], aim))
    if aim.reached(known.trial):
        return first
    bench = bench_for(
        job.annotated(),
        job.device,
        job.judged_by,
        aim,
        output=job.output,
        formats=(job.format,),
        prepare=job.prepared,
    )
    kept = None if state is None else State(bench.key(), Path(state))
    try:
        tried = try_harder(
            known,
            lambda made: (made.plan, [] if made.comparison is None else [made.comparison]),
            budget=BUDGETS[effort],
            aim=aim,
            bench=bench,
            make=lambda trial: job.made(trial.kernels),
            state=kept,
            phases=lambda: nullcontext(
                (partial(job.tell, "measuring noise"), partial(job.tell, "searching"))
            ),
            executor=executor,
        )
    except PlannerError as error:
        note = f"no better plan was looked for: {error.message}"
        return replace(first, warnings=(*first.warnings, note))
    done = tried.best.what
    return replace(
        done,
        search=tried.search,
        given_up=tried.text,
        asked=tried.best.trial.kernels,
        warnings=(*done.warnings, *filter(None, [tried.stopped])),
    )


def _bytes_of(data: bytes, files: Sequence[Path]) -> int:
    """The size of a file, of all files where its weights lie beside it."""
    return sum(file.stat().st_size for file in files) or len(data)


@dataclass(frozen=True)
class _Written:
    """Writes a plan in formats: into memory, or the weights of a large model into files of a folder."""

    model: Graph
    plan: Plan
    folder: Path | None
    progress: Callable[[int, int | None], None]

    def file(self, name: str) -> tuple[bytes, tuple[Path, ...]]:
        """The bytes of the file, and the files where its weights lie beside it."""
        # The plan was checked with this model just now: once is enough.
        model = exportable(self.model, self.plan, name)
        if self.folder is None or name not in STREAMED:
            return EXPORTERS[name](model, self.plan), ()
        goal = self.folder / f"{name}.onnx"
        files = write_to(model, self.plan, name, goal, external=True, progress=self.progress)
        return goal.read_bytes(), files


def _file_to_run(
    written: _Written, name: str, data: bytes | Path
) -> tuple[str, bytes | Path | Evaluated | None]:
    """The file as something that runs here, else one of the same plan in the usual format, and its format."""
    plain = runnable(name, data)
    if plain is not None:
        return name, plain
    if name in ARITHMETICS:
        return name, Evaluated(written.model, written.plan, ARITHMETICS[name])
    try:
        plainly, files = written.file(FORMAT)
    except UnsupportedExport:
        return "", None
    return FORMAT, files[0] if files else plainly
