"""Verbs about models and samples: `calibrate`, `annotate`, `compare`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.comparing import judged_json, missed, quality_json, read_judging, say_comparison
from planner.cli.console import progress, say, say_json, say_missed, warn, write_text
from planner.cli.files import STDIN, as_samples, keep_from, only_one_stdin, read_bytes, readable, write_file
from planner.cli.options import (
    AnnotationsOption,
    DataOption,
    DimOption,
    EvalDataOption,
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
    RequiredData,
    StatsOption,
    read_annotations_argument,
    read_model,
    read_stats,
    sizes_of,
    stats_warnings,
)
from planner.errors import InputError, quantity

if TYPE_CHECKING:
    from planner.calibration.samples import Sample
    from planner.ir.graph import Graph


def calibrate(
    model: ModelFile,
    *,
    data: RequiredData,
    method: MethodOption = None,
    dim: DimOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="JSON", help="File to write; standard output if none."),
    ] = None,
    readers: ReadersOption = 0,
    json: JsonOption = False,
) -> None:
    """Run the float model over samples and write the range of every value."""
    import planner

    only_one_stdin(model, data)
    keep_from(out, model, data)
    graph = read_model(model, dims=sizes_of(dim))
    with as_samples(data, graph) as samples, progress("calibrating") as bar:
        stats = planner.calibrate(graph, samples, method=method or "minmax", progress=bar, readers=readers)
        odd = planner.odd_samples(graph, samples)
    for warning in (*odd, *stats_warnings(graph, stats)):
        warn(warning)
    if out is None:
        write_text(stats.to_json())
        return
    write_file(out, stats.to_json().encode())
    if json:
        say_json({"file": out, "method": stats.method, "samples": stats.samples, "values": len(stats.values)})
    else:
        say(
            f"wrote {out}: {quantity(len(stats.values), 'value')} over "
            f"{quantity(stats.samples, 'sample')}, {stats.method}"
        )


def annotate(
    model: ModelFile,
    *,
    stats: StatsOption = None,
    method: MethodOption = None,
    annotations: AnnotationsOption = None,
    dim: DimOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help=".json or .mlir to write; JSON to standard output if none."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Attach statistics and your own constraints to a model, and write it as an annotated model."""
    import planner
    from planner.formats.annotated.document import write_annotated
    from planner.formats.mlir.module import write_mlir

    only_one_stdin(model, stats, annotations)
    keep_from(out, model, stats, annotations)
    plain, seen = read_model(model, dims=sizes_of(dim)), None if stats is None else read_stats(stats, method)
    for warning in stats_warnings(plain, seen):
        warn(warning)
    graph = planner.annotate(
        plain,
        stats=seen,
        annotations=None if annotations is None else read_annotations_argument(annotations),
    )
    if out is None:
        write_text(write_annotated(graph))
        return
    writers = {".json": write_annotated, ".mlir": write_mlir}
    suffix = next((suffix for suffix in writers if out.endswith(suffix)), None)
    if suffix is None:
        raise InputError(f"cannot tell the format of {out!r}", hint="an annotated model is .json or .mlir")
    write_file(out, writers[suffix](graph).encode())
    facts = sum(len(value.facts) for value in graph.values.values())
    if json:
        say_json({"file": out, "model": graph.name, "facts": facts})
    else:
        say(f"wrote {out}: {graph.name} with {quantity(facts, 'constraint')}")


def compare(
    model: ModelFile,
    quantized: Annotated[str, typer.Argument(metavar="QUANTIZED", help="The exported ONNX file.")],
    *,
    data: DataOption = None,
    eval_data: EvalDataOption = None,
    dim: DimOption = None,
    output: OutputOption = None,
    metric: MetricOption = None,
    min_sqnr: MinSqnrOption = None,
    min_metric: MinMetricOption = None,
    min_coverage: MinCoverageOption = None,
    reference: ReferenceOption = "written",
    json: JsonOption = False,
) -> int:
    """Run a model and a quantized file of it side by side: SQNR and largest error of each output, metrics."""
    import planner
    from planner.accuracy.verdict import verdict_of
    from planner.formats.file_coverage import coverage_in_file

    only_one_stdin(model, quantized, data, eval_data)
    judging = read_judging(reference, output, metric, min_sqnr, min_metric, min_coverage=min_coverage)
    chosen = eval_data or data
    if chosen is None:
        raise InputError("no samples to compare on", hint="--eval-data, held out, or --data")
    graph = read_model(model, dims=sizes_of(dim))
    # A path, so that weights in a file beside it are found.
    given = (
        read_bytes(quantized, "quantized model")
        if quantized == STDIN
        else readable(quantized, "quantized model")
    )
    with as_samples(chosen, graph) as samples, progress("comparing") as bar:
        comparison = planner.compare(graph, given, samples, progress=bar, **judging.arguments)
        covered = None if min_coverage is None else coverage_in_file(given, _first(samples, graph))
    comparison = replace(comparison, held_out=True if eval_data is not None else None)
    for warning in (*comparison.warnings, *_unlike(graph, data, eval_data)):
        warn(warning)
    short = missed({"": comparison}, judging, verdict_of({}, {}, covered))
    if json:
        bounds = {"min_sqnr": min_sqnr, "min_metric": min_metric, "min_coverage": min_coverage}
        document = {"ok": not short, **bounds, "missed": short}
        outputs = {"outputs": quality_json({"": comparison})[""]}
        say_json(document | outputs | judged_json(comparison))
        return 1 if short else 0
    say_comparison(comparison)
    if short:
        say_missed(f"missed: {'; '.join(short)}")
    return 1 if short else 0


def _first(samples: str, graph: "Graph") -> "Sample":
    """Return the arrays of the first sample."""
    from planner.calibration.samples import open_samples

    return dict(next(iter(open_samples(samples, graph).feeds)).arrays)


def _unlike(graph: "Graph", data: str | None, held_out: str | None) -> tuple[str, ...]:
    """Warnings of held-out samples unlike those of calibration, where both are given."""
    import planner

    if data is None or held_out is None:
        return ()
    with as_samples(data, graph) as samples, as_samples(held_out, graph) as others:
        return planner.unlike_calibration(graph, planner.calibrate(graph, samples), others)
