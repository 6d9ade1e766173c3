"""The verb `plan`: it makes a plan, writes it, and judges what is written."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from planner.cli.comparing import (
    Judging,
    bigger,
    compare_and_warn,
    is_negative,
    is_poor,
    judged_json,
    lost_text,
    missed,
    poor_losses,
    quality_json,
    quality_text,
    read_judging,
    slow,
    verdict_text,
)
from planner.cli.condition import Preparation, change_json, change_text, prepared
from planner.cli.console import held_warnings, progress, say, say_json, say_missed, warn
from planner.cli.effort import ANNOTATIONS, Attempt, Task, is_wanting, tried_harder
from planner.cli.files import STDIN, as_samples, keep_inputs, only_one_stdin, size_of, staging, write_folder
from planner.cli.help.choices import complete_format
from planner.cli.options import (
    AnnotationsOption,
    BestEffortOption,
    ConditionOption,
    CutOption,
    DataOption,
    DimOption,
    EvalDataOption,
    FunctionsOption,
    JsonOption,
    MethodOption,
    MetricOption,
    MinCoverageOption,
    MinMetricOption,
    MinSqnrOption,
    ModelFile,
    OutputOption,
    ReadersOption,
    ReferenceOption,
    StatsOption,
    TargetOption,
    parse_costs,
    read_annotations_argument,
    read_model,
    read_stats,
    read_target,
    sizes_of,
    stats_warnings,
)
from planner.cli.saved import with_sources
from planner.errors import InputError, UnsupportedExport, unknown_name

if TYPE_CHECKING:
    from planner.accuracy.verdict import Verdict
    from planner.calibration.statistics import Statistics
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plan_search.effort import Effort
    from planner.plans.plan import Plan

_NO_DATA: Final = "give samples with --data or statistics with --stats"
_OPEN: Final = re.compile(r"shape\[-?[0-9]+\] is not fixed \('([^']+)'\)")
_NO_NUMBERS: Final = "no sample gives any value a finite number: clean them"


def plan(
    model: ModelFile,
    *,
    target: TargetOption,
    out: Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Folder to write into.")],
    data: DataOption = None,
    eval_data: EvalDataOption = None,
    stats: StatsOption = None,
    method: MethodOption = None,
    readers: ReadersOption = 0,
    annotations: AnnotationsOption = None,
    cut: CutOption = None,
    dim: DimOption = None,
    condition: ConditionOption = None,
    strategy: Annotated[
        Literal["minimal", "rfc"], typer.Option(help="Least price, or the greedy order of MLIR's RFC.")
    ] = "minimal",
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="F",
            help="Also write this format; repeatable.",
            autocompletion=complete_format,
        ),
    ] = None,
    functions: FunctionsOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="COST=VALUE", help="A price over the target's own.")
    ] = None,
    bias_correction: Annotated[
        bool, typer.Option(help="Take the mean error of the integer weights out of the biases.")
    ] = True,
    best_effort: BestEffortOption = False,
    output: OutputOption = None,
    metric: MetricOption = None,
    min_sqnr: MinSqnrOption = None,
    min_metric: MinMetricOption = None,
    min_coverage: MinCoverageOption = None,
    reference: ReferenceOption = "written",
    json: JsonOption = False,
) -> int:
    """Plan a model for a target and write plan.json, plan.mlir, report.html and the formats asked for."""
    return carry_out(
        Order(
            model=model,
            target=target,
            out=out,
            data=data,
            eval_data=eval_data,
            stats=stats,
            method=method,
            readers=readers,
            annotations=annotations,
            cut=cut,
            dim=dim,
            condition=condition,
            strategy=strategy,
            formats=tuple(formats or ()),
            functions=functions,
            settings=tuple(settings or ()),
            bias_correction=bias_correction,
            best_effort=best_effort,
            judging=read_judging(reference, output, metric, min_sqnr, min_metric, min_coverage=min_coverage),
            json=json,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What `plan` and `quantize` are asked for; see their options.

    Attributes:
      effort: how hard to look for a better plan where the verdict is not good.
    """

    model: str
    target: str
    out: str
    data: str | None = None
    eval_data: str | None = None
    stats: str | None = None
    method: str | None = None
    readers: int = 0
    annotations: str | None = None
    cut: str | None = None
    dim: list[str] | None = None
    condition: str | None = None
    strategy: Literal["minimal", "rfc"] = "minimal"
    formats: tuple[str, ...] = ()
    functions: str | None = None
    settings: tuple[str, ...] = ()
    bias_correction: bool = True
    best_effort: bool = False
    judging: Judging = field(default_factory=Judging)
    effort: "Effort" = "quick"
    json: bool = False

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """Files that are read."""
        return (
            self.model,
            self.target,
            self.data,
            self.eval_data,
            self.stats,
            self.annotations,
            self.functions,
        )


def carry_out(order: Order) -> int:
    """Plan, evaluate and write; where that is not good and the effort allows it, look for a better plan."""
    import planner
    from planner.accuracy.coverage import coverage_of
    from planner.accuracy.readers import SAMPLES
    from planner.accuracy.verdict import verdict_of
    from planner.exporters.to_file import has_large_weights
    from planner.plan_model import require_ranges
    from planner.plans.write_json import json_parts

    model, out, data, formats = order.model, order.out, order.data, list(order.formats)
    only_one_stdin(model, order.target, data, order.eval_data, order.stats, order.annotations)
    judging = order.judging
    _check_choices(formats, data, order.stats)
    _check_judging(judging, formats, data, order.eval_data)
    costs = parse_costs(order.settings)
    device = read_target(order.target, order.functions)
    graph = read_model(model, order.cut, dims=sizes_of(order.dim))

    def make(ready: "Graph") -> "Plan":
        with progress("planning") as bar:
            made = planner.plan(
                ready,
                device,
                strategy=order.strategy,
                functions=None,
                best_effort=order.best_effort,
                bias_pins="error",
                progress=bar,
                formats=order.formats,
                **costs,
            )
        with progress("checking") as bar:
            planner.check(made, ready, device, progress=bar)
        return made

    annotations = None if order.annotations is None else read_annotations_argument(order.annotations)
    with ExitStack() as stack:
        samples = None if data is None else stack.enter_context(as_samples(data, graph))
        held_out = (
            None if order.eval_data is None else stack.enter_context(as_samples(order.eval_data, graph))
        )
        floor = costs.get("wanted_db", device.costs.wanted_db)
        few = order.readers or (0 if floor is None else SAMPLES)
        seen = statistics_of(graph, samples, order.stats, order.method, readers=few)
        judging = replace(judging, samples=held_out or samples, held_out=held_out is not None)
        large: list[Path] = []

        def attempt(given: str | Mapping[str, Any] | None) -> Attempt:
            with held_warnings(order.effort != "quick") as held:
                wanted = Preparation(order.condition, seen, samples, given, correct=order.bias_correction)
                ready, changes = prepared(graph, device, wanted)
                planned = make(ready)
                require_ranges(planned, _NO_DATA if samples is None else _NO_NUMBERS)
                if has_large_weights(ready) and not large:
                    large.append(stack.enter_context(staging(out)))
                files, comparisons = _exports(
                    graph,
                    ready,
                    planned,
                    formats,
                    judging,
                    is_cut=order.cut is not None,
                    staged=large[0] if large else None,
                )
            return Attempt(ready, changes, planned, files, comparisons, given, tuple(held))

        made, tried = attempt(annotations), None
        staged = large[0] if large else None
        if order.effort != "quick" and seen is not None:
            if staged is None:
                task = Task(order, graph, device, seen, judging, attempt)
                made, tried = tried_harder(task, made)
            elif is_wanting(made.comparisons):
                warn("no better plan is looked for: the weights are too large for many trials (qplan search)")
        for warning in made.warnings:
            warn(warning)
        ready, planned, comparisons = made.ready, made.planned, made.comparisons
        odd = _odd_data(graph, seen, made.given, samples, held_out)
        lost = poor_losses(graph, ready, planned, comparisons, judging.samples)
        corrected = _corrected_file(planned.graph.name)
        source = str(Path(out) / corrected) if corrected in made.files else model
        whole = model if corrected in made.files and order.cut is None else STDIN
        told = with_sources(
            planned, out, model=source, target=order.target, reference=whole, dims=sizes_of(order.dim)
        )
        search = None if tried is None else tried.search
        documents: dict[str, Callable[[], Iterable[str]]] = {
            "plan.json": lambda: json_parts(told),
            "plan.mlir": lambda: [planned.to_mlir()],
            "report.html": lambda: [
                planner.write_report(planned, comparisons, losses=lost, stats=seen, search=search)
            ],
        }
        files = _documents(documents, staged) | {**made.files} | ({} if tried is None else {**tried.files})
        keep_inputs(out, files, order.inputs)
        own = {name: size_of(data) for name, data in files.items() if name != corrected}
        written = write_folder(out, files)
        warned = (
            *_leftovers(out, planned, files, order.inputs),
            *bigger(model, own),
            *slow(planned, formats),
        )
        for warning in (*odd, *stats_warnings(graph, seen), *planned.warnings, *warned):
            warn(warning)
    whole_verdict = verdict_of({}, {}, coverage_of(planned))
    short = missed(comparisons, judging, whole_verdict)
    if order.json:
        quality: dict[str, Any] = {
            "quality": quality_json(comparisons), "files": list(written), "missed": short,
        }  # fmt: skip
        quality |= {"verdict": _worst(comparisons, whole_verdict)}
        quality |= {} if tried is None else {"effort": tried.document}
        judged = {name: judged_json(comparison) for name, comparison in comparisons.items()}
        conditioned = {"conditioned": [change_json(change) for change in made.changes]}
        say_json(plan_summary(planned) | quality | {"judged": judged} | (conditioned if made.changes else {}))
    else:
        say(summary_text(planned))
        say("\n".join(f"  {change_text(change)}" for change in made.changes))
        say(quality_text(comparisons))
        say(verdict_text(comparisons, whole_verdict, formats))
        say("" if tried is None else tried.text)
        say(f"wrote {', '.join(written)}")
        given_data = order.eval_data if order.eval_data is not None else data
        poor = is_poor(comparisons)
        say(next_steps(out, planned, files, model, given_data, is_poor=poor, conditioned=bool(made.changes)))
        say(lost_text(lost))
        if short:
            say_missed(f"missed: {'; '.join(short)}")
    return 1 if short or is_negative(comparisons, judging, whole_verdict) else 0


def _check_choices(formats: list[str], data: str | None, stats: str | None) -> None:
    from planner.exporters.table import EXPORTERS

    for name in formats:
        if name not in EXPORTERS:
            raise unknown_name("export format", name, EXPORTERS)
    if data is not None and stats is not None:
        raise InputError("--data and --stats both give ranges", hint="give one of them")


def _check_judging(judging: Judging, formats: list[str], data: str | None, eval_data: str | None) -> None:
    """Refuse to judge where nothing runs.

    Raises:
      InputError: no samples, or no format that onnxruntime runs.
    """
    from planner.exporters.runnable import is_comparable

    is_asked = judging.has_bound or judging.metrics or judging.output is not None or eval_data is not None
    if not is_asked:
        return
    if not any(map(is_comparable, formats)):
        raise InputError(
            "what evaluates files (--eval-data, --output, --metric, --min-sqnr, --min-metric) needs one that "
            "can be run here",
            hint="--format onnx-qdq, say",
        )
    if data is None and eval_data is None:
        raise InputError("no samples to judge by", hint="--eval-data, held out, or --data")


def statistics_of(
    graph: "Graph", samples: str | None, stats: str | None, method: str | None, *, readers: int = 0
) -> "Statistics | None":
    """Statistics of the samples, else those of a file, if any."""
    import planner

    if samples is None:
        return None if stats is None else read_stats(stats, method)
    with progress("calibrating") as bar:
        return planner.calibrate(graph, samples, method=method or "minmax", progress=bar, readers=readers)


def _odd_data(
    graph: "Graph",
    stats: "Statistics | None",
    annotations: str | Mapping[str, Any] | None,
    samples: str | None,
    held_out: str | None,
) -> tuple[str, ...]:
    """Warnings of samples that are no likely data, and of held-out ones unlike what calibration saw."""
    import planner

    annotated = planner.annotate(graph, annotations=annotations)
    odd = () if samples is None else planner.odd_samples(annotated, samples)
    if held_out is None or stats is None:
        return odd
    return (*odd, *planner.unlike_calibration(graph, stats, held_out))


def _corrected_file(name: str) -> str:
    """The file of the float model with corrected biases: one that nobody takes for the result."""
    from planner.onnx.read import CORRECTED

    return f"{name}{CORRECTED}.onnx"


def _leftovers(
    out: str, planned: "Plan", files: Mapping[str, Any], inputs: Iterable[str | None]
) -> Iterator[str]:
    """Warnings of files of an earlier plan in the folder, which do not belong to this one."""
    from planner.exporters.table import EXPORTERS, file_name

    given = [Path(name) for name in inputs if name is not None and Path(name).exists()]
    for file in (_corrected_file(planned.graph.name), *map(file_name, EXPORTERS), ANNOTATIONS):
        path = Path(out) / file
        if path.name not in files and path.is_file() and not any(map(path.samefile, given)):
            yield f"{path} was there before and does not belong to this plan"


def next_steps(
    out: str,
    planned: "Plan",
    files: Mapping[str, Any],
    model: str,
    data: str | None,
    *,
    is_poor: bool = False,
    conditioned: bool = False,
) -> str:
    """The purpose of each file, and commands to go on with: where it is lost, if quality is poor.

    Args:
      conditioned: the float model written beside the plan has other weights than the one given.
    """
    from planner.accuracy.coverage import coverage_of
    from planner.accuracy.verdict import coverage_part
    from planner.exporters.table import EXPORTERS, file_name
    from planner.report.totals import totals

    folder, lines = Path(out), []
    corrected = _corrected_file(planned.graph.name)
    source = str(folder / corrected) if corrected in files else model
    if corrected in files:
        kind = "conditioned float model" if conditioned else "float model with corrected biases"
        lines.append(f"{source} is the {kind}: this plan is for it")
    count = totals(planned)
    if 0 < count.integer < count.kernels:
        floats = count.kernels - count.integer
        lines.append(f"{floats} kernel{'s stay' if floats > 1 else ' stays'} float: the report says why")
    plan_file = str(folder / "plan.json")
    output = next(iter(planned.graph.outputs), "ADDRESS")
    covered = coverage_of(planned)
    if covered.fallbacks and coverage_part(covered).level != "good":
        # Where most of the work falls back to float, that is what to look at.
        output = covered.fallbacks[0].kernel
        sizes = _OPEN.findall(" ".join(one.reason for one in covered.fallbacks))
        lines += [f"an open size keeps kernels in float; to fix it: --dim {size}=1" for size in sizes[:1]]
    words = ("losses", out, "--data", data) if is_poor and data else ("explain", plan_file, output)
    lines += [f"next: open {folder / 'report.html'}, or", f"  {shlex.join(('qplan', *words))}"]
    names = [name for name in EXPORTERS if file_name(name) in files]
    exported = next((str(folder / file_name(name)) for name in names if name.startswith("onnx-")), None)
    if not names:
        name = "onnx-qdq"
        line = ("qplan", "export", plan_file, "--model", source, "--format", name)
        lines.append(f"  {shlex.join((*line, '--out', str(folder / f'{name}.onnx')))}")
    elif data is None and exported is not None:
        lines.append(f"  {shlex.join(('qplan', 'compare', model, exported))} --data SAMPLES")
    return "\n".join(lines)


def _documents(
    documents: Mapping[str, Callable[[], Iterable[str]]], staged: Path | None
) -> dict[str, bytes | Path]:
    """Texts as bytes; of a large model, whose texts are long, one after the other in files."""
    if staged is None:
        return {name: "".join(parts()).encode() for name, parts in documents.items()}
    for name, parts in documents.items():
        with progress(f"writing {name}"), (staged / name).open("w", encoding="utf-8", newline="") as file:
            file.writelines(parts())
    return {name: staged / name for name in documents}


def _float_model(
    graph: "Graph", ready: "Graph", *, is_cut: bool, staged: Path | None
) -> dict[str, bytes | Path]:
    """The float model that later verbs need beside the plan; nothing if it is the file given."""
    from planner.exporters.to_file import write_float
    from planner.onnx.write import write_graph

    if not is_cut and all(
        graph.constants.get(name) is constant for name, constant in ready.constants.items()
    ):
        return {}
    name = _corrected_file(ready.name)
    try:
        if staged is not None:
            return {file.name: file for file in write_float(ready, staged / name)}
        return {name: write_graph(ready)}
    except UnsupportedExport as error:
        warn(f"the model with corrected biases is not written: {error.message}")
        return {}


def _exports(
    graph: "Graph",
    ready: "Graph",
    planned: "Plan",
    formats: list[str],
    judging: Judging,
    *,
    is_cut: bool,
    staged: Path | None,
) -> tuple[dict[str, bytes | Path], "dict[str, Comparison]"]:
    """Write the corrected model and each format, compared with the float model where there are samples.

    The plan was checked with this model just now: it is not checked again.

    Args:
      staged: where files of a large model are written.
    """
    from planner.accuracy.coverage import coverage_of
    from planner.exporters.common.known_shapes import taken_for_one
    from planner.exporters.runnable import ARITHMETICS, runnable
    from planner.exporters.table import EXPORTERS, file_name
    from planner.exporters.to_file import write_to
    from planner.interpreter.compare import Evaluated
    from planner.ir.expand import expand
    from planner.pipeline import exportable

    files = _float_model(graph, ready, is_cut=is_cut, staged=staged)
    comparisons: dict[str, Comparison] = {}
    for name in dict.fromkeys(formats):
        exported: bytes | Path
        with progress(f"exporting {name}") as bar:
            model = exportable(ready, planned, name)
            if text := taken_for_one(model, name):
                warn(text)
            if staged is None:
                exported = EXPORTERS[name](model, planned)
                files[file_name(name)] = exported
            else:
                written = write_to(model, planned, name, staged / file_name(name), progress=bar)
                files |= {file.name: file for file in written}
                exported = written[0]
        if judging.samples is None:
            continue
        runs: bytes | Path | Evaluated | None = runnable(name, exported)
        if name in ARITHMETICS:
            runs = Evaluated(expand(ready), planned, ARITHMETICS[name])
        if runs is not None:
            found = compare_and_warn(graph, name, runs, judging.samples, judging, device=planned.target.files)
            comparisons[name] = replace(found, coverage=coverage_of(planned))
    return files, comparisons


def _worst(comparisons: "Mapping[str, Comparison]", verdict: "Verdict | None") -> dict[str, Any] | None:
    """The verdict of the worst file as JSON data; of the plan alone where none was compared."""
    from planner.accuracy.verdict import LEVELS

    found = [one for comparison in comparisons.values() if (one := comparison.verdict) is not None]
    worst = min(found, key=lambda one: LEVELS.index(one.level), default=verdict)
    return None if worst is None else worst.to_dict()


def plan_summary(planned: "Plan") -> dict[str, Any]:
    """Totals of a plan as JSON data."""
    from dataclasses import asdict

    from planner.report.totals import totals

    target = {"id": planned.target.id, "version": planned.target.version, "digest": planned.target.digest}
    return {
        "key": planned.key,
        "model": {"name": planned.graph.name, "digest": planned.model},
        "target": target,
        **asdict(totals(planned)),
        "warnings": list(planned.warnings),
    }


def summary_text(planned: "Plan") -> str:
    """Totals of a plan in three lines, four on a device of several engines."""
    from planner.ir.dims import COUNTED, TAKEN
    from planner.propagation.selection.choice import NO_RANGE
    from planner.propagation.selection.wanted_rows import ANNOTATED
    from planner.report.totals import totals

    count = totals(planned)
    whole = " (fully quantized)" if count.fully_quantized else ""
    if not count.integer:
        lacking = sum(kernel.reason == NO_RANGE for kernel in planned.kernels_in_order)
        asked = all(kernel.reason == ANNOTATED for kernel in planned.kernels_in_order)
        why = "asked for" if asked else f"{planned.target.id} serves none of them"
        why = f"{lacking} lack a range" if lacking else why
        whole = f": {why}, the plan is all float"
    engines = f"\n  engines: {count.engines_text}" if count.engines else ""
    sized = (note for note in planned.graph.notes if note.startswith((COUNTED, TAKEN)))
    engines += "".join(f"\n  {note}" for note in sized)
    return (
        f"{planned.graph.name} on {planned.target.id} {planned.target.version}\n"
        f"  {count.integer} of {count.kernels} kernels on integers{whole}\n"
        f"  rescales: {count.rescales}, casts: {count.casts}, cost: {count.cost_text}{engines}"
    )
