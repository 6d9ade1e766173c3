"""Verbs that make and use plans: `plan`, `export`, `check`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from planner.cli.console import progress, say, say_json, warn
from planner.cli.files import as_path, write_file, write_folder
from planner.cli.options import (
    AnnotationsOption,
    DataOption,
    FunctionsOption,
    JsonOption,
    MethodOption,
    ModelFile,
    ModelOption,
    PlanFile,
    StatsOption,
    TargetOption,
    parse_costs,
    read_annotations_argument,
    read_model,
    read_plan,
    read_stats,
    read_target,
    require_ranges,
)
from planner.errors import InputError, PlanInvalid, unknown_name

if TYPE_CHECKING:
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan


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
    json: JsonOption = False,
) -> None:
    """Plan a model for a target and write plan.json, plan.mlir, report.html and the formats asked for."""
    import planner

    _check_choices(formats or [], data, stats)
    costs = parse_costs(settings or [])
    device = read_target(target, functions)
    graph = read_model(model)
    if data is None:
        ranged = _annotated(graph, None if stats is None else read_stats(stats), annotations)
        planned = planner.plan(ranged, device, strategy=strategy, functions=None, **costs)
        files, comparisons = _exports(ranged, planned, formats or [], None)
    else:
        with as_path(data, ".npz") as samples:
            with progress("calibrating") as bar:
                seen = planner.calibrate(graph, samples, method=method, progress=bar)
            ranged = _annotated(graph, seen, annotations)
            planned = planner.plan(ranged, device, strategy=strategy, functions=None, **costs)
            files, comparisons = _exports(ranged, planned, formats or [], samples)
    documents = {
        "plan.json": planned.to_json(),
        "plan.mlir": planned.to_mlir(),
        "report.html": planner.write_report(planned, comparisons),
    }
    written = write_folder(out, {name: text.encode() for name, text in documents.items()} | files)
    for warning in planned.warnings:
        warn(warning)
    summary = plan_summary(planned) | {"quality": quality_json(comparisons), "files": list(written)}
    if json:
        say_json(summary)
    else:
        say(summary_text(planned))
        say(quality_text(comparisons))
        say(f"wrote {', '.join(written)}")


def _check_choices(formats: list[str], data: str | None, stats: str | None) -> None:
    from planner.exporters.table import EXPORTERS

    for name in formats:
        if name not in EXPORTERS:
            raise unknown_name("export format", name, EXPORTERS)
    if data is not None and stats is not None:
        raise InputError("--data and --stats both give ranges", hint="give one of them")


def _annotated(graph: "Graph", stats: Any, annotations: str | None) -> "Graph":
    import planner

    given = None if annotations is None else read_annotations_argument(annotations)
    ranged = planner.annotate(graph, stats=stats, annotations=given)
    require_ranges(ranged)
    return ranged


def _exports(
    graph: "Graph", planned: "Plan", formats: list[str], samples: str | None
) -> tuple[dict[str, bytes], "dict[str, Comparison]"]:
    """Write each format, and compare it with the float model where there are samples."""
    import planner

    files: dict[str, bytes] = {}
    comparisons: dict[str, Comparison] = {}
    for name in dict.fromkeys(formats):
        exported = planner.export(graph, planned, name)
        files[f"{name}.onnx"] = exported
        if samples is not None:
            comparisons[name] = planner.compare(graph, exported, samples)
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
    from planner.report.totals import totals

    count = totals(planned)
    whole = " (fully quantized)" if count.fully_quantized else ""
    whole = whole if count.integer else f": {planned.target.id} serves none of them, the plan is all float"
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
    from planner.report.html import decibels

    return "\n".join(
        f"  {name}: {output} {decibels(quality.sqnr)}, largest error {quality.max_error:.4g}"
        for name, comparison in comparisons.items()
        for output, quality in comparison.outputs.items()
    )


def export(
    plan_file: PlanFile,
    *,
    model: ModelOption,
    format: Annotated[str, typer.Option("--format", "-f", metavar="F", help="onnx-qdq, ...")],  # noqa: A002
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    json: JsonOption = False,
) -> None:
    """Write a planned model in a format that a real engine runs."""
    import planner

    planned = read_plan(plan_file)
    exported = planner.export(read_model(model), planned, format)
    write_file(out, exported)
    if json:
        say_json({"file": out, "format": format, "bytes": len(exported), "plan": planned.key})
    else:
        say(f"wrote {out} ({len(exported):,} bytes)")


def check(
    plan_file: PlanFile,
    *,
    model: ModelOption,
    target: TargetOption,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Check a plan independently against its model and target; exit code 1 if it does not hold."""
    import planner

    planned, graph, device = read_plan(plan_file), read_model(model), read_target(target, functions)
    try:
        planner.check(planned, graph, device)
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
