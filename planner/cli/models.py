"""Verbs about models and samples: `calibrate`, `annotate`, `compare`."""

import math
from typing import Annotated

import typer

from planner.cli.console import progress, say, say_json, say_table, warn, write_text
from planner.cli.files import STDIN, as_samples, keep_from, only_one_stdin, read_bytes, readable, write_file
from planner.cli.options import (
    AnnotationsOption,
    JsonOption,
    MethodOption,
    ModelFile,
    StatsOption,
    read_annotations_argument,
    read_model,
    read_stats,
    stats_warnings,
)
from planner.errors import InputError

RequiredData = Annotated[
    str, typer.Option("--data", metavar="DIR|NPZ", help="Samples: a folder of .npz, or one .npz of many.")
]


def calibrate(
    model: ModelFile,
    *,
    data: RequiredData,
    method: MethodOption = "minmax",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="JSON", help="File to write; standard output if none."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run the float model over samples and write the range of every value."""
    import planner
    from planner.calibration.statsjson import write_statistics

    only_one_stdin(model, data)
    keep_from(out, model, data)
    graph = read_model(model)
    with as_samples(data, graph) as samples, progress("calibrating") as bar:
        stats = planner.calibrate(graph, samples, method=method, progress=bar)
    for warning in stats_warnings(graph, stats):
        warn(warning)
    text = write_statistics(stats)
    if out is None:
        write_text(text)
        return
    write_file(out, text.encode())
    if json:
        say_json({"file": out, "method": stats.method, "samples": stats.samples, "values": len(stats.values)})
    else:
        say(f"wrote {out}: {len(stats.values)} values over {stats.samples} samples, {stats.method}")


def annotate(
    model: ModelFile,
    *,
    stats: StatsOption = None,
    annotations: AnnotationsOption = None,
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
    from planner.annotated.document import write_annotated
    from planner.mlir.module import write_mlir

    only_one_stdin(model, stats, annotations)
    keep_from(out, model, stats, annotations)
    plain, seen = read_model(model), None if stats is None else read_stats(stats)
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
        say(f"wrote {out}: {graph.name} with {facts} constraints")


def compare(
    model: ModelFile,
    quantized: Annotated[str, typer.Argument(metavar="QUANTIZED", help="The exported ONNX file.")],
    *,
    data: RequiredData,
    min_sqnr: Annotated[
        float | None, typer.Option("--min-sqnr", metavar="DB", help="Exit code 1 if an output is below.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run the float model and a quantized file side by side: SQNR and largest error of each output."""
    import planner
    from planner.accuracy.quality import decibels

    only_one_stdin(model, quantized, data)
    if min_sqnr is not None and math.isnan(min_sqnr):
        raise InputError("--min-sqnr: NaN is no number of decibels")
    graph = read_model(model)
    # A path, so that weights in a file beside it are found.
    given = (
        read_bytes(quantized, "quantized model")
        if quantized == STDIN
        else readable(quantized, "quantized model")
    )
    with as_samples(data, graph) as samples:
        comparison = planner.compare(graph, given, samples)
    below = [
        output
        for output, quality in comparison.outputs.items()
        if min_sqnr is not None and not quality.sqnr >= min_sqnr
    ]
    if json:
        outputs = {
            output: {"sqnr": quality.sqnr, "max_error": quality.max_error}
            for output, quality in comparison.outputs.items()
        }
        say_json({"ok": not below, "min_sqnr": min_sqnr, "outputs": outputs})
        return 1 if below else 0
    rows = [
        (output, decibels(quality.sqnr), f"{quality.max_error:.6g}")
        for output, quality in comparison.outputs.items()
    ]
    say_table("Against the float model", ("output", "SQNR", "largest error"), rows)
    if below:
        say(f"below {min_sqnr} dB: {', '.join(below)}")
    return 1 if below else 0
