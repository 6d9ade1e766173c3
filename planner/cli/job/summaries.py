"""Summaries of a plan: its totals, and the commands to go on with."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.job.files import corrected_in
from planner.errors import quantity

if TYPE_CHECKING:
    from planner.accuracy.verdict import Verdict
    from planner.interpreter.compare import Comparison
    from planner.plans.plan import Plan


def next_steps(
    out: str,
    planned: "Plan",
    files: Mapping[str, Any],
    model: str,
    data: str | None,
    *,
    is_wanting: bool = False,
    conditioned: bool = False,
) -> str:
    """Return the purpose of each file, and commands to go on with.

    Args:
      is_wanting: the accuracy is less than good, so the first command shows which kernels lose it.
      conditioned: the float model written beside the plan has other weights than the one given.
    """
    from planner.accuracy.coverage import coverage_of
    from planner.accuracy.verdict import coverage_part
    from planner.formats.table import EXPORTERS, file_name
    from planner.pipeline import unread_format

    folder, lines = Path(out), []
    corrected = corrected_in(planned.graph.name, files)
    source = str(folder / corrected) if corrected else model
    if corrected:
        kind = "conditioned float model" if conditioned else "float model with corrected biases"
        lines.append(f"{source} is the {kind}: this plan is for it")
    plan_file = str(folder / "plan.json")
    covered = coverage_of(planned)
    commands: list[tuple[str, ...]] = [("losses", out, "--data", data)] if is_wanting and data else []
    if coverage_part(covered).level != "good" and covered.largest_float_kernel:
        # Where most of the work falls back to float, that is what to look at.
        commands.append(("explain", plan_file, covered.largest_float_kernel))
    output = next(iter(planned.graph.outputs), "ADDRESS")
    commands = commands or [("explain", plan_file, output)]
    names = [name for name in EXPORTERS if file_name(name) in files]
    read = planned.target.files.formats
    if names and all(unread_format(planned, name) for name in names):
        lines.append(f"tools of {planned.target.id} read {' or '.join(read)} alone: add --format {read[0]}")
    lines.append(f"next: open {folder / 'report.html'}, or")
    lines += [f"  {shlex.join(('qplan', *words))}" for words in commands]
    exported = next((str(folder / file_name(name)) for name in names if name.startswith("onnx-")), None)
    if not names:
        name = "onnx-qdq"
        line = ("qplan", "export", plan_file, "--model", source, "--format", name)
        lines.append(f"  {shlex.join((*line, '--out', str(folder / file_name(name))))}")
    elif data is None and exported is not None:
        lines.append(f"  {shlex.join(('qplan', 'compare', model, exported))} --data SAMPLES")
    return "\n".join(lines)


def kept_text(plan_line: Sequence[str]) -> str:
    """Return the next step where nothing is written, since the float model is as good.

    Args:
      plan_line: the command that writes the plan with its report.
    """
    return "\n".join(
        (
            "nothing is written; --force writes the files all the same",
            f"why, kernel by kernel: {shlex.join(plan_line)}",
        )
    )


def worst_verdict(
    comparisons: "Mapping[str, Comparison]", verdict: "Verdict | None"
) -> dict[str, Any] | None:
    """Return the verdict of the worst file as JSON data; of the plan alone where none was compared."""
    from planner.accuracy.verdict import LEVELS

    found = [one for comparison in comparisons.values() if (one := comparison.verdict) is not None]
    # The first of the worst, and a reason to keep the float model before any other.
    worst = min(found, key=lambda one: (LEVELS.index(one.level), not one.keeps_float), default=verdict)
    return None if worst is None else worst.to_dict()


def plan_summary(planned: "Plan") -> dict[str, Any]:
    """Return totals of a plan as JSON data."""
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
    """Return totals of a plan in three lines, four on a device of several engines."""
    from planner.accuracy.coverage import coverage_of
    from planner.ir.dims import COUNTED, TAKEN
    from planner.ir.graph import HALVES, LEFT_BEHIND
    from planner.propagation.selection.choice import NO_RANGE
    from planner.propagation.selection.wanted_rows import ANNOTATED
    from planner.report.totals import totals

    count = totals(planned)
    whole = " (fully quantized)" if count.fully_quantized else ""
    if not count.integer:
        lacking = sum(kernel.reason == NO_RANGE for kernel in planned.kernels_in_order)
        asked = all(kernel.reason == ANNOTATED for kernel in planned.kernels_in_order)
        why = "as requested" if asked else f"{planned.target.id} serves none of them"
        why = f"{lacking} lack a range" if lacking else why
        whole = f": {why}, the plan is all float"
    # The number that the verdict has, too: a model may have hundreds of kernels that only compute shapes.
    counted = max(count.integer, coverage_of(planned).kernels)
    if others := count.kernels - counted if count.integer else 0:
        whole += f"; {others} more compute shapes, or move data between float kernels"
    engines = f"\n  engines: {count.engines_text}" if count.engines else ""
    begin = (COUNTED, TAKEN, HALVES, LEFT_BEHIND)
    told = (note for note in planned.graph.notes if note.startswith(begin))
    engines += "".join(f"\n  {note}" for note in told)
    return (
        f"{planned.graph.name} on {planned.target.id} {planned.target.version}\n"
        f"  {count.integer} of {quantity(count.kernels - others, 'kernel')} quantized{whole}\n"
        f"  rescales: {count.rescales}, casts: {count.casts}, cost: {count.cost_text}{engines}"
    )
