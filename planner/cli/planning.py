"""Verbs that make and use plans: `plan`, `export`, `check`."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from planner.cli.comparing import bigger, compare_as_used, is_poor, lost_text, poor_losses
from planner.cli.console import progress, say, say_json, warn
from planner.cli.files import (
    STDIN,
    as_samples,
    keep_from,
    keep_inputs,
    only_one_stdin,
    write_file,
    write_folder,
)
from planner.cli.options import (
    AnnotationsOption,
    BestEffortOption,
    DataOption,
    FunctionsOption,
    JsonOption,
    MethodOption,
    ModelFile,
    PlanFile,
    PlannedModelOption,
    PlannedTargetOption,
    StatsOption,
    TargetOption,
    parse_costs,
    read_annotations_argument,
    read_model,
    read_plan,
    read_stats,
    read_target,
    require_ranges,
    stats_warnings,
)
from planner.cli.saved import read_saved, read_saved_model, with_sources
from planner.errors import InputError, PlanInvalid, UnsupportedExport, unknown_name

if TYPE_CHECKING:
    from planner.calibration.statistics import Statistics
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan
    from planner.target.records import Target

_UNSAFE: Final = re.compile(r"[^\w.+-]+")


def plan(
    model: ModelFile,
    *,
    target: TargetOption,
    out: Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Folder to write into.")],
    data: DataOption = None,
    stats: StatsOption = None,
    method: MethodOption = "minmax",
    annotations: AnnotationsOption = None,
    strategy: Annotated[
        Literal["minimal", "rfc"], typer.Option(help="Least price, or the greedy order of MLIR's RFC.")
    ] = "minimal",
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", metavar="F", help="Also write this format; repeatable."),
    ] = None,
    functions: FunctionsOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="COST=VALUE", help="A price over the target's own.")
    ] = None,
    bias_correction: Annotated[
        bool, typer.Option(help="Take the mean error of the integer weights out of the biases.")
    ] = True,
    best_effort: BestEffortOption = False,
    json: JsonOption = False,
) -> None:
    """Plan a model for a target and write plan.json, plan.mlir, report.html and the formats asked for."""
    import planner

    only_one_stdin(model, target, data, stats, annotations)
    _check_choices(formats or [], data, stats)
    costs = parse_costs(settings or [])
    device = read_target(target, functions)
    graph = read_model(model)

    def make(ready: "Graph") -> "Plan":
        made = planner.plan(
            ready,
            device,
            strategy=strategy,
            functions=None,
            best_effort=best_effort,
            bias_pins="error",
            **costs,
        )
        planner.check(made, ready, device)
        return made

    if data is None:
        seen = None if stats is None else read_stats(stats)
        ready = _prepared(graph, device, seen, annotations, correct=bias_correction)
        planned = make(ready)
        require_ranges(graph, planned, "give samples with --data or statistics with --stats")
        files, comparisons = _exports(graph, ready, planned, formats or [], None)
        lost = None
    else:
        with as_samples(data, graph) as samples:
            with progress("calibrating") as bar:
                seen = planner.calibrate(graph, samples, method=method, progress=bar)
            ready = _prepared(graph, device, seen, annotations, correct=bias_correction)
            planned = make(ready)
            require_ranges(graph, planned, "no sample gives any value a finite number: clean them")
            files, comparisons = _exports(graph, ready, planned, formats or [], samples)
            lost = poor_losses(graph, ready, planned, comparisons, samples)
    corrected = _corrected_file(planned.graph.name)
    source = str(Path(out) / corrected) if corrected in files else model
    reference = model if corrected in files else STDIN
    told = with_sources(planned, out, model=source, target=target, reference=reference)
    documents = {
        "plan.json": told.to_json(),
        "plan.mlir": planned.to_mlir(),
        "report.html": planner.write_report(planned, comparisons, losses=lost),
    }
    files = {name: text.encode() for name, text in documents.items()} | files
    keep_inputs(out, files, (model, target, data, stats, annotations, functions))
    written = write_folder(out, files)
    own = {name: data for name, data in files.items() if name != _corrected_file(planned.graph.name)}
    warned = (*_leftovers(out, planned, files, model), *bigger(model, own))
    for warning in (*stats_warnings(graph, seen), *planned.warnings, *warned):
        warn(warning)
    summary = plan_summary(planned) | {"quality": quality_json(comparisons), "files": list(written)}
    if json:
        say_json(summary)
    else:
        say(summary_text(planned))
        say(quality_text(comparisons))
        say(f"wrote {', '.join(written)}")
        say(next_steps(out, planned, files, model, data, is_poor=is_poor(comparisons)))
        say(lost_text(lost))


def _check_choices(formats: list[str], data: str | None, stats: str | None) -> None:
    from planner.exporters.table import EXPORTERS

    for name in formats:
        if name not in EXPORTERS:
            raise unknown_name("export format", name, EXPORTERS)
    if data is not None and stats is not None:
        raise InputError("--data and --stats both give ranges", hint="give one of them")


def _prepared(
    graph: "Graph", device: "Target", stats: "Statistics | None", annotations: str | None, *, correct: bool
) -> "Graph":
    """Annotate, and correct biases where statistics allow it; the result has a name that files can have."""
    import planner

    given = None if annotations is None else read_annotations_argument(annotations)
    ranged = planner.annotate(graph, stats=stats, annotations=given)
    if stats is None or not stats.values or not correct:
        return ranged
    corrected = planner.correct_biases(ranged, device, stats)
    for note in corrected.notes[len(ranged.notes) :]:
        warn(note)
    if corrected.constants == ranged.constants:
        return ranged
    return replace(corrected, name=_UNSAFE.sub("_", corrected.name) or "model")


def _corrected_file(name: str) -> str:
    """The file of the float model with corrected biases: one that nobody takes for the result."""
    from planner.onnx.read import CORRECTED

    return f"{name}{CORRECTED}.onnx"


def _leftovers(out: str, planned: "Plan", files: Mapping[str, bytes], model: str) -> Iterator[str]:
    """Warnings of files of an earlier plan in the folder, which do not belong to this one."""
    from planner.exporters.table import EXPORTERS, file_name

    for file in (_corrected_file(planned.graph.name), *map(file_name, EXPORTERS)):
        path = Path(out) / file
        if path.name not in files and path.is_file() and not (Path(model).exists() and path.samefile(model)):
            yield f"{path} was there before and does not belong to this plan"


def next_steps(
    out: str,
    planned: "Plan",
    files: Mapping[str, bytes],
    model: str,
    data: str | None,
    *,
    is_poor: bool = False,
) -> str:
    """The purpose of each file, and commands to go on with: where it is lost, if quality is poor."""
    from planner.exporters.table import EXPORTERS, file_name
    from planner.report.totals import totals

    folder, lines = Path(out), []
    corrected = _corrected_file(planned.graph.name)
    source = str(folder / corrected) if corrected in files else model
    if corrected in files:
        lines.append(f"{source} is the float model with corrected biases: this plan is for it")
    count = totals(planned)
    if 0 < count.integer < count.kernels:
        floats = count.kernels - count.integer
        lines.append(f"{floats} kernel{'s stay' if floats > 1 else ' stays'} float: the report says why")
    plan_file = str(folder / "plan.json")
    output = next(iter(planned.graph.outputs), "ADDRESS")
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


def _float_model(graph: "Graph", ready: "Graph") -> dict[str, bytes]:
    """The corrected float model, which later verbs need beside the plan; nothing if it is the one given."""
    from planner.onnx.write import write_graph

    if ready.constants.keys() == graph.constants.keys():
        return {}
    try:
        return {_corrected_file(ready.name): write_graph(ready)}
    except UnsupportedExport as error:
        warn(f"the model with corrected biases is not written: {error.message}")
        return {}


def _exports(
    graph: "Graph", ready: "Graph", planned: "Plan", formats: list[str], samples: str | None
) -> tuple[dict[str, bytes], "dict[str, Comparison]"]:
    """Write the corrected model and each format, compared with the float model where there are samples."""
    import planner
    from planner.exporters.runnable import runnable
    from planner.exporters.table import file_name

    files = _float_model(graph, ready)
    comparisons: dict[str, Comparison] = {}
    for name in dict.fromkeys(formats):
        exported = planner.export(ready, planned, name)
        files[file_name(name)] = exported
        plain = None if samples is None else runnable(name, exported)
        if plain is not None and samples is not None:
            comparisons[name] = compare_as_used(graph, name, plain, samples)
    return files, comparisons


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
    """Totals of a plan in three lines."""
    from planner.propagation.selection.rows import NO_RANGE
    from planner.report.totals import totals

    count = totals(planned)
    whole = " (fully quantized)" if count.fully_quantized else ""
    if not count.integer:
        lacking = sum(kernel.reason == NO_RANGE for kernel in planned.kernels_in_order)
        why = f"{lacking} lack a range" if lacking else f"{planned.target.id} serves none of them"
        whole = f": {why}, the plan is all float"
    return (
        f"{planned.graph.name} on {planned.target.id} {planned.target.version}\n"
        f"  {count.integer} of {count.kernels} kernels on integers{whole}\n"
        f"  rescales: {count.rescales}, casts: {count.casts}, cost: {count.cost_text}"
    )


def quality_json(comparisons: "Mapping[str, Comparison]") -> dict[str, Any]:
    """SQNR (dB) and largest error of each output by format."""
    return {
        name: {
            output: {"sqnr": quality.sqnr, "max_error": quality.max_error}
            for output, quality in comparison.outputs.items()
        }
        for name, comparison in comparisons.items()
    }


def quality_text(comparisons: "Mapping[str, Comparison]") -> str:
    """A line for each output of each format."""
    from planner.accuracy.quality import decibels

    return "\n".join(
        f"  {name}: {output} {decibels(quality.sqnr)}, largest error {quality.max_error:.4g}"
        for name, comparison in comparisons.items()
        for output, quality in comparison.outputs.items()
    )


def export(
    plan_file: PlanFile,
    *,
    format: Annotated[str, typer.Option("--format", "-f", metavar="F", help="onnx-qdq, ...")],  # noqa: A002
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    model: PlannedModelOption = None,
    json: JsonOption = False,
) -> None:
    """Write a planned model in a format that a real engine runs."""
    import planner

    only_one_stdin(plan_file, model)
    keep_from(out, plan_file, model)
    planned = read_plan(plan_file)
    name, graph = read_saved_model(planned, plan_file, model)
    keep_from(out, name)
    exported = planner.export(graph, planned, format)
    write_file(out, exported)
    for warning in bigger(name, {Path(out).name: exported}):
        warn(warning)
    if json:
        say_json({"file": out, "format": format, "bytes": len(exported), "plan": planned.key})
    else:
        say(f"wrote {out} ({len(exported):,} bytes)")


def check(
    plan_file: PlanFile,
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Check a plan independently against its model and target; exit code 1 if it does not hold."""
    import planner

    saved = read_saved(plan_file, model, target, functions)
    planned, device = saved.plan, saved.target
    try:
        planner.check(planned, saved.model, device)
    except PlanInvalid as error:
        if not json:
            raise
        say_json({"ok": False, "port": error.port, "row": error.row, "message": error.message})
        return error.exit_code
    if json:
        say_json({"ok": True, "plan": planned.key})
    else:
        say(f"ok: {len(planned.kernels_in_order)} kernels hold on {device.id} {device.version}")
    return 0
