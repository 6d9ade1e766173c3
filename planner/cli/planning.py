"""The verb `plan`: it makes a plan, writes it, and evaluates the files."""

from typing import Annotated, Final, Literal

import typer

from planner.cli.comparing import (
    read_judging,
)
from planner.cli.help.choices import complete_format
from planner.cli.job.order import Order, carry_out
from planner.cli.options import (
    AnnotationsOption,
    BestEffortOption,
    BitsOption,
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
)

_NO_DATA: Final = "give samples with --data or statistics with --stats"
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
    bits: BitsOption = None,
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
    """Plan a model for a target and write plan.json, plan.mlir, report.html and the requested formats."""
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
            bits=bits,
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
