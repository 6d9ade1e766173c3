"""The verb `quantize`: `plan` with everything chosen that can be, for the first file in one line."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from planner.cli.comparing import read_judging
from planner.cli.console import warn
from planner.cli.files import STDIN
from planner.cli.help.choices import complete_format, complete_target
from planner.cli.job.order import Order, carry_out
from planner.cli.options import (
    AnnotationsOption,
    BitsOption,
    CutOption,
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
    RequiredData,
)

TARGET: Final = "onnxruntime-cpu"
FORMAT: Final = "onnx-qdq"
"""As `planner.quantizing` has them; a test says so. That module takes a second to load, help must not."""


def quantize(
    model: ModelFile,
    *,
    data: RequiredData,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            metavar="T",
            help="Shipped name (see target list) or a YAML file; onnxruntime-cpu by default.",
            autocompletion=complete_target,
        ),
    ] = TARGET,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="OUT", help="Folder to write into; MODEL-quantized if none."),
    ] = None,
    eval_data: EvalDataOption = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="F",
            help=f"Format of the file, {FORMAT} if none; repeatable.",
            autocompletion=complete_format,
        ),
    ] = None,
    effort: Annotated[
        Literal["quick", "normal", "high"],
        typer.Option(
            "--effort",
            help="Search on if the verdict is not good: quick 0 trials, normal 16, high 48.",
        ),
    ] = "normal",
    method: MethodOption = None,
    annotations: AnnotationsOption = None,
    bits: BitsOption = None,
    cut: CutOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    output: OutputOption = None,
    metric: MetricOption = None,
    min_sqnr: MinSqnrOption = None,
    min_metric: MinMetricOption = None,
    min_coverage: MinCoverageOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write the files even where the float model is as good.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Quantize a model in one call: calibrate, plan, check, export, compare, and say whether it is good."""
    from planner.formats.runnable import is_comparable
    from planner.formats.table import require_format

    written = list(formats or [FORMAT])
    for name in written:
        require_format(name)
    if not any(map(is_comparable, written)):
        warn(f"nothing runs {', '.join(written)}: {FORMAT} is written too, and is compared")
        written.append(FORMAT)
    stem = "model" if model == STDIN else Path(model).stem
    judging = read_judging("written", output, metric, min_sqnr, min_metric, min_coverage=min_coverage)
    return carry_out(
        Order(
            model=model,
            target=target,
            out=out or f"{stem}-quantized",
            data=data,
            eval_data=eval_data,
            method=method,
            annotations=annotations,
            bits=bits,
            cut=cut,
            dim=dim,
            formats=tuple(written),
            functions=functions,
            judging=judging,
            effort=effort,
            force=force,
            json=json,
        )
    )
