"""The verb `search`: the plan of least work that is as good as asked, with the annotations that make it."""

import json as jsonlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from planner.cli.comparing import read_judging
from planner.cli.console import progress_of_phases, say, say_json, say_missed, say_table, warn_all
from planner.cli.files import as_samples, keep_inputs, only_one_stdin, write_folder
from planner.cli.job.order import statistics_of
from planner.cli.job.summaries import summary_text
from planner.cli.options import (
    AnnotationsOption,
    DimOption,
    FunctionsOption,
    JsonOption,
    MethodOption,
    MetricOption,
    ModelFile,
    OutputOption,
    ReferenceOption,
    StatsOption,
    TargetOption,
    read_annotations_argument,
    read_model,
    read_target,
    sizes_of,
)
from planner.cli.saved import with_sources

if TYPE_CHECKING:
    from planner.plan_search.search import Search

UNREACHED: Final = 3
"""Exit code where no plan reaches the goal."""
STATE: Final = "search.json"
ANNOTATIONS: Final = "annotations.json"


def search(
    model: ModelFile,
    *,
    target: TargetOption,
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            metavar="G",
            help="sqnr=30, metric=0.9, drop=1% (least work); work=0.5, size=25MB, coverage=0.9, ...",
        ),
    ],
    data: Annotated[
        str, typer.Option("--data", metavar="DIR|NPZ", help="Samples to calibrate and to measure with.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Folder to write into.")],
    eval_data: Annotated[
        str | None,
        typer.Option("--eval-data", metavar="DIR|NPZ", help="Measure with these, held out, not with --data."),
    ] = None,
    stats: StatsOption = None,
    method: MethodOption = None,
    annotations: AnnotationsOption = None,
    dim: DimOption = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Plans that are measured, at most.")] = 40,
    metric: MetricOption = None,
    output: OutputOption = None,
    reference: ReferenceOption = "written",
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="FILE", help="Measurements so far; OUT/search.json by default."),
    ] = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Find the plan of least work that reaches a goal, or the best within means; exit code 3 if none does."""
    import planner
    from planner.accuracy.consumers import SAMPLES
    from planner.calibration.annotations import annotations_document
    from planner.plan_search import search_text
    from planner.plan_search.search import merged_annotations

    only_one_stdin(model, target, data, eval_data, stats, annotations)
    judging = read_judging(reference, output, metric, None, None)
    device, graph = read_target(target, functions), read_model(model, dims=sizes_of(dim))
    given = None if annotations is None else read_annotations_argument(annotations)
    Path(out).mkdir(parents=True, exist_ok=True)
    kept = Path(out) / STATE if state is None else Path(state)
    with ExitStack() as stack:
        samples = stack.enter_context(as_samples(data, graph))
        held_out = samples if eval_data is None else stack.enter_context(as_samples(eval_data, graph))
        few = 0 if device.costs.wanted_db is None else SAMPLES
        seen = statistics_of(graph, None if stats else samples, stats, method, readers=few)
        ready = planner.annotate(graph, stats=seen, annotations=given, target=device)
        runs, bar = stack.enter_context(progress_of_phases("measuring noise", "searching"))
        found = planner.search(
            ready,
            device,
            held_out,
            goal=goal,
            metric=next(iter(judging.metrics), None),
            output=output,
            trials=trials,
            reference=reference,
            state=kept,
            progress=bar,
            measuring=runs,
        )
    asked = merged_annotations(None if given is None else annotations_document(given), found.best.kernels)
    planned = planner.plan(planner.annotate(graph, stats=seen, annotations=asked, target=device), device)
    planner.check(planned, planned.annotated, device)
    recorded = with_sources(planned, out, model=model, target=target, reference=model, dims=sizes_of(dim))
    documents = {
        ANNOTATIONS: jsonlib.dumps(asked, indent=1) + "\n",
        "plan.json": recorded.to_json(),
        "plan.mlir": planned.to_mlir(),
        "report.html": planner.write_report(planned, search=found),
    }
    files = {name: text.encode() for name, text in documents.items()}
    keep_inputs(out, files, (model, target, data, eval_data, stats, annotations, functions))
    written = write_folder(out, files)
    warn_all(planned.warnings)
    if json:
        say_json({**search_text.search_json(found), "files": list(written), "state": str(kept)})
    else:
        _say(found, (*written, str(kept)), summary_text(planned))
    if not found.met:
        say_missed(search_text.sentence(found))
    return 0 if found.met else UNREACHED


def _say(found: "Search", written: tuple[str, ...], summary: str) -> None:
    from planner.plan_search import search_text

    say(search_text.sentence(found))
    say_table(
        "Front: no plan measured is as good for less work",
        search_text.FRONT_HEAD,
        search_text.front_rows(found),
    )
    say(summary)
    say(f"wrote {', '.join(written)}")
    say(f"next: qplan plan MODEL ... --annotations {written[0]} --no-bias-correction makes this plan again")
