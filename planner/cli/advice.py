"""Verbs for comparisons and alternatives: `diff`, `losses`, `suggest`, `pareto`, `replan`, `restore`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import progress, say, say_json, say_table, warn_all
from planner.cli.files import as_samples, only_one_stdin, write_file
from planner.cli.job.summaries import plan_summary, summary_text
from planner.cli.options import (
    BestEffortOption,
    DimOption,
    FunctionsOption,
    JsonOption,
    PlanFile,
    PlannedModelOption,
    PlannedTargetOption,
    read_annotations_argument,
    read_plan,
    sizes_of,
)
from planner.cli.saved import Saved, read_reference, read_saved, with_sources
from planner.errors import quantity

if TYPE_CHECKING:
    from planner.plans.plan import Plan, Planned

OutOption = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Plan to write (plan.json).")]


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="plan.json before.")],
    after: Annotated[str, typer.Argument(metavar="B", help="plan.json after.")],
    *,
    json: JsonOption = False,
) -> int:
    """Compare two plans kernel by kernel, with the reasons that changed; exit code 1 if they differ."""
    import planner

    only_one_stdin(before, after)
    found = planner.diff(read_plan(before), read_plan(after))
    print_or_say(found.to_json(), str(found), json=json)
    return 0 if found.is_empty else 1


def losses(
    plan_file: PlanFile,
    *,
    data: Annotated[
        str, typer.Option("--data", metavar="DIR|NPZ", help="Samples: a folder of .npz, or one .npz of many.")
    ],
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", metavar="MODEL", help="The float model, if biases were corrected."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="NAME", help="Evaluate this output, not the worst.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Kernels and values to list.")] = 10,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """Attribute the error of a plan: the noise of each kernel alone, and remedies."""
    import planner
    from planner.accuracy import losses_text
    from planner.what_if.replan import as_planned

    saved = read_saved(plan_file, model, target, functions, data, dims=sizes_of(dim))
    source = read_reference(saved.plan, plan_file, reference, sizes_of(dim))
    known = as_planned(saved.plan, saved.model, saved.target)
    with as_samples(data, saved.model) as samples, progress("measuring") as bar:
        found = planner.losses(
            saved.model, known, samples, reference=source, output=output, limit=limit, progress=bar
        )
    if json:
        say_json(losses_text.losses_json(found))
        return
    say(losses_text.sentence(found))
    for one in found.outputs:
        say(f"  {losses_text.output_text(one)}")
    say_table(
        "Noise of each kernel alone",
        losses_text.KERNEL_HEAD,
        map(losses_text.kernel_row, found.kernels[:limit]),
    )
    worst = losses_text.worst_values(found, limit)
    say_table("Where the whole program gets worse", losses_text.VALUE_HEAD, map(losses_text.value_row, worst))
    lines = losses_text.remedy_lines(found)
    say("\n".join(["Most effective remedies, predicted:" if lines else "", *(f"  {line}" for line in lines)]))


def suggest(
    plan_file: PlanFile,
    rescale: Annotated[str, typer.Argument(metavar="RESCALE", help="A rescale of the plan (y#0).")],
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Find the smallest edits of the constraints that remove a rescale; exit code 1 if there are none."""
    import planner

    saved = read_saved(plan_file, model, target, functions, dims=sizes_of(dim))
    with progress("trying edits"):
        found = planner.suggest(saved.plan, rescale, model=saved.model, target=saved.target)
    if json:
        say_json({"rescale": rescale, "suggestions": [one.to_dict() for one in found]})
    elif not found:
        say(f"no edit of the constraints near {rescale} removes it: its kernels need two types")
    for n, one in enumerate(() if json else found, 1):
        head, *figures = one.lines()
        say(f"{n}. {head}")
        for line in figures:
            say(f"   {line}")
    return 0 if found else 1


def pareto(
    plan_file: PlanFile,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="A value, or a rescale (y#0).")],
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """List the trade-offs of a component: rescaled elements against the worst bits lost."""
    import planner

    saved = read_saved(plan_file, model, target, functions, dims=sizes_of(dim))
    with progress("weighing"):
        found = planner.pareto(saved.plan, address, model=saved.model, target=saved.target)
    if json:
        say_json({"address": address, "tradeoffs": [one.to_dict() for one in found]})
        return
    say_table(
        f"Trade-offs around {address}",
        ("rescaled elements", "rescales", "worst bits lost", "--set max_bits_lost=", "this plan"),
        (
            (
                f"{one.rescaled_elements:,}",
                str(one.rescales),
                f"{one.worst_bits_lost:.2f}",
                "none" if one.max_bits_lost is None else f"{one.max_bits_lost:g}",
                "*" if one.chosen else "",
            )
            for one in found
        ),
    )


def replan(
    plan_file: PlanFile,
    *,
    edits: Annotated[str, typer.Option("--edits", metavar="YAML", help="Annotations over the plan's own.")],
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    out: OutOption,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """Plan again with changed constraints."""
    import planner

    saved = read_saved(plan_file, model, target, functions, edits, out=out, dims=sizes_of(dim))
    changes = read_annotations_argument(edits)
    with progress("planning again"):
        after = planner.replan(saved.plan, changes, model=saved.model, target=saved.target)
    _write(after, out, saved, saved.target_name, json=json)


def restore(
    plan_file: PlanFile,
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="A kernel of the plan.")],
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    out: OutOption,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """Put one kernel back into float, with casts around it."""
    import planner

    saved = read_saved(plan_file, model, target, functions, out=out, dims=sizes_of(dim))
    with progress("planning again"):
        after = planner.restore(saved.plan, kernel, model=saved.model, target=saved.target)
    _write(after, out, saved, saved.target_name, json=json)


def retarget(
    plan_file: PlanFile,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other target: an id or a file.")],
    *,
    model: PlannedModelOption = None,
    target: PlannedTargetOption = None,
    dim: DimOption = None,
    out: OutOption,
    functions: FunctionsOption = None,
    best_effort: BestEffortOption = False,
    json: JsonOption = False,
) -> None:
    """Plan a planned model for another target, whose `legalize` table takes coarse kernels apart."""
    import planner

    saved = read_saved(plan_file, model, target, functions, other, out=out, dims=sizes_of(dim))
    fine = planner.load_target(other)
    with progress("planning again"):
        after = planner.retarget(
            saved.plan, fine, model=saved.model, source=saved.target, best_effort=best_effort
        )
    _write(after, out, saved, other, json=json)
    if not json:
        say("\n".join(_compared(saved.plan, after)))
    warn_all(after.warnings if best_effort or after.annotated.regions else ())


def _compared(before: "Plan", after: "Plan") -> list[str]:
    """Quantized kernels and price of two plans of one model, side by side: neither says much alone."""
    from planner.plans.diff import FLOATS, plan_totals, price_note

    totals = [plan_totals(plan) for plan in (before, after)]
    lines = [
        f"  {plan.target.id}: {len(plan.kernels_in_order) - count[FLOATS]:g} of "
        f"{quantity(len(plan.kernels_in_order), 'kernel')} quantized, cost {plan.cost:g}"
        for plan, count in zip((before, after), totals, strict=True)
    ]
    note = price_note({name: (totals[0][name], totals[1][name]) for name in totals[0]})
    return ["compared:", *lines, *([f"  {note}"] if note else [])]


def print_or_say(document: str, text: str, *, json: bool) -> None:
    """One of the two forms."""
    if json:
        typer.echo(document)
    else:
        say(text)


def _write(planned: "Planned", out: str, saved: Saved, target: str, *, json: bool) -> None:
    import planner

    planner.check(planned, planned.annotated, planned.whole_target)
    told = with_sources(
        planned,
        Path(out).parent,
        model=saved.model_name,
        target=target,
        reference=saved.reference_name,
        dims=saved.dims,
    )
    write_file(out, told.to_json().encode())
    if json:
        document: dict[str, Any] = plan_summary(planned) | {"file": out}
        say_json(document)
    else:
        say(summary_text(planned))
        say(f"wrote {out}")
