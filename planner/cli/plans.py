"""Verbs that read a plan: `show`, `view`, `explain`, `export`, `check`, `training-spec`."""

import json as jsonlib
from typing import Annotated

import typer

from planner.cli.comparing import bigger, slow
from planner.cli.console import progress, say, say_json, say_table, warn
from planner.cli.files import keep_from, only_one_stdin, put_text
from planner.cli.help.choices import complete_format
from planner.cli.job.summaries import plan_summary, summary_text
from planner.cli.options import (
    DimOption,
    ExternalOption,
    FunctionsOption,
    JsonOption,
    OutFile,
    PlanFile,
    PlannedModelOption,
    PlannedTargetOption,
    read_plan,
    read_stats,
    sizes_of,
)
from planner.cli.saved import read_saved, read_saved_model
from planner.errors import PlanInvalid


def _lines(items: object) -> str:
    return "\n".join(items) if isinstance(items, list) else str(items)


def show(plan_file: PlanFile, *, json: JsonOption = False) -> None:
    """Show a plan: totals, kernels with their rows and types, rescales."""
    from planner.plans.explain import type_text
    from planner.report.totals import port_text, row_text

    planned = read_plan(plan_file)
    kernels = [
        {
            "name": kernel.name,
            "kernel": kernel.kernel,
            "row": None if kernel.row is None else row_text(planned, kernel),
            "reason": kernel.reason,
            "inputs": [port_text(port) for port in kernel.inputs],
            "outputs": [port_text(port) for port in kernel.outputs],
        }
        for kernel in planned.kernels_in_order
    ]
    rescales = [
        {
            "id": rescale.id,
            "kind": rescale.kind,
            "from": type_text(rescale.from_type),
            "to": type_text(rescale.to_type),
            "consumers": [f"{kernel}.in[{index}]" for kernel, index in rescale.consumers],
            "elements": rescale.elements,
            "cost": rescale.cost,
        }
        for rescale in planned.rescales
    ]
    if json:
        say_json(plan_summary(planned) | {"kernel_table": kernels, "rescale_table": rescales})
        return
    say(summary_text(planned))
    for warning in planned.warnings:
        say(f"  warning: {warning}")
    say_table(
        "Kernels",
        ("name", "kernel", "row, or why float", "inputs", "outputs"),
        (
            (
                k["name"],
                k["kernel"],
                k["row"] or k["reason"] or "float",
                _lines(k["inputs"]),
                _lines(k["outputs"]),
            )
            for k in kernels
        ),
    )
    say_table(
        "Rescales",
        ("rescale", "kind", "from", "to", "read by", "cost"),
        (
            (r["id"], r["kind"], r["from"], r["to"], _lines(r["consumers"]), f"{r['cost']:,.0f}")
            for r in rescales
        ),
    )


def view(
    plan_file: PlanFile,
    *,
    before: Annotated[
        str | None, typer.Option("--before", metavar="PLAN", help="Mark changes since this plan.json.")
    ] = None,
    stats: Annotated[
        str | None,
        typer.Option("--stats", metavar="JSON", help="Draw values with these statistics' histograms."),
    ] = None,
    pareto: Annotated[
        list[str] | None,
        typer.Option(
            "--pareto", metavar="ADDRESS", help="Draw the trade-offs of a value or rescale; repeatable."
        ),
    ] = None,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> None:
    """Write the page of a plan: its graph and its tables, one offline HTML file."""
    import planner
    from planner.report.view import view_of

    others = [name for name in (before, stats) if name is not None]
    only_one_stdin(plan_file, model, target, *others)
    saved = (
        read_saved(plan_file, model, target, functions, *others, out=out, dims=sizes_of(dim))
        if pareto
        else None
    )
    planned = read_plan(plan_file) if saved is None else saved.plan
    earlier = None if before is None else read_plan(before)
    if json:
        say_json(view_of(planned, earlier))
        return
    keep_from(out, *others)
    seen = None if stats is None else read_stats(stats)
    fronts = {}
    if saved is not None:
        with progress("weighing"):
            fronts = {
                address: planner.pareto(planned, address, model=saved.model, target=saved.target)
                for address in pareto or ()
            }
    report = planner.write_report(planned, before=earlier, stats=seen, tradeoffs=fronts)
    put_text(report, out, plan_file)


def explain(
    plan_file: PlanFile,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A port (conv1.in[0]), value, rescale (y#0) or kernel.")
    ],
    *,
    json: JsonOption = False,
) -> None:
    """Say in words why something in a plan is as it is."""
    import planner

    planned = read_plan(plan_file)
    text = planner.explain(planned, address)
    if json:
        say_json({"address": address, "plan": planned.key, "lines": text.splitlines()})
    else:
        say(text)


def export(
    plan_file: PlanFile,
    *,
    format: Annotated[  # noqa: A002
        str,
        typer.Option("--format", "-f", metavar="F", help="onnx-qdq, ...", autocompletion=complete_format),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    accuracy_level: Annotated[
        int | None,
        typer.Option(
            "--accuracy-level", metavar="N", help="Of onnx-matmulnbits, 0 to 4; 1 is float32, 4 int8."
        ),
    ] = None,
    model: PlannedModelOption = None,
    external: ExternalOption = None,
    dim: DimOption = None,
    json: JsonOption = False,
) -> None:
    """Write a planned model in a format that a real engine runs."""
    import planner
    from planner.formats.table import misnamed
    from planner.pipeline import open_sizes

    only_one_stdin(plan_file, model)
    keep_from(out, plan_file, model)
    planned = read_plan(plan_file)
    name, graph = read_saved_model(planned, plan_file, model, sizes_of(dim))
    keep_from(out, name)
    with progress(f"exporting {format}") as bar:
        written = planner.export_to(
            graph, planned, format, out, external=external, accuracy_level=accuracy_level, progress=bar
        )
    sizes = {file.name: file.stat().st_size for file in written}
    own = (*misnamed(out, format), *bigger(name, sizes), *slow(planned, [format]))
    for warning in (*own, *open_sizes(graph, planned, format)):
        warn(warning)
    size = sizes[written[0].name]
    if json:
        told = {"file": out, "format": format, "bytes": size, "plan": planned.key}
        beside = {"external_data": [str(file) for file in written[1:]]} if written[1:] else {}
        say_json(told | beside)
    else:
        more = "".join(f", {file} ({sizes[file.name]:,} bytes)" for file in written[1:])
        say(f"wrote {out} ({size:,} bytes){more}")


def check(
    plan_file: PlanFile,
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Check a plan independently against its model and target; exit code 1 if it does not hold."""
    import planner

    saved = read_saved(plan_file, model, target, functions, dims=sizes_of(dim))
    planned, device = saved.plan, saved.target
    try:
        with progress("checking") as bar:
            planner.check(planned, saved.model, device, progress=bar)
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


def training_spec(
    plan_file: PlanFile,
    *,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NAME", help="Leave the scale of this value or glob; repeatable."),
    ] = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> None:
    """Write the constraints of a plan on training: types, tied scales, grids and limits, as JSON."""
    import planner

    planned = read_plan(plan_file)
    text = planner.training_spec(planned, keep=keep or ()).to_json()
    if json:
        say_json(jsonlib.loads(text))
        return
    put_text(text, out, plan_file)
