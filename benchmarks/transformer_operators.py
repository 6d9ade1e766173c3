"""Operators of transformers on every shipped target: in integers, in parts, or in float and why.

Each operator is a small model (`transformer_models`), read, calibrated, planned and checked.
Usage, from the repository root: `python -m benchmarks.transformer_operators [--write]`; `--write` puts the
tables into docs/results/transformer-operators.md, which a test keeps true.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import planner
from benchmarks.matrix_page import escaped, shorten
from benchmarks.transformer_models import OPERATORS, Operator, model_of, samples_of
from planner.installation import targets_folder
from planner.ir.graph import Graph, Region
from planner.ir.roles import is_movement
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.load import target_ids

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "transformer-operators.md"

HEAD: Final = """# Operators of transformers on every target

Made by `python -m benchmarks.transformer_operators --write` and kept true by a test: each operator is a model
of its own, read, calibrated, planned and checked for each shipped target.

| cell | the kernels of the operator that compute |
|---|---|
| integer | all of them |
| 3 of 5 | so many of them in integers, the others in float |
| weights | in float, with weights stored as integers |
| float | none of them |
| moves | there is none: its numbers are only moved |

What is [taken apart](../formats.md) as it is read counts by its parts, and a reason below names the part.
A device's kernel has a row where the device's document has it. Below, each target's file names the document
and, for some, what it lacks; that runs in float.
"""


def planned(operator: Operator, target: str) -> Plan:
    """A checked plan of the operator's model."""
    model = planner.load_model(model_of(operator))
    model = planner.annotate(model, stats=planner.calibrate(model, samples_of(operator)))
    plan = planner.plan(model, target)
    planner.check(plan, model)
    return plan


def computing(plan: Plan) -> Iterator[KernelPlan]:
    """Kernels on numbers of the model that do more than move them."""
    regions = {region.name: region for region in plan.graph.regions}
    for kernel in plan.kernels_in_order:
        if not _moves(regions[kernel.name], plan.graph):
            yield kernel


def _moves(region: Region, graph: Graph) -> bool:
    constant = all(not name or name in graph.constants for name in region.inputs)
    return constant or all(is_movement(op, graph) or op.type in _CASTS for op in region.ops)


_CASTS: Final = frozenset({"Cast", "CastLike", "Shape", "Range"})


def cell(plan: Plan) -> str:
    """The word or figures of a plan in the table."""
    kernels = list(computing(plan))
    if not kernels:
        return "moves"
    whole = sum(_is_integer(kernel, plan.graph) for kernel in kernels)
    if whole == len(kernels):
        return "integer"
    if whole:
        return f"{whole} of {len(kernels)}"
    stored = (port.type for kernel in kernels if kernel.row for port in kernel.inputs)
    return "weights" if any(kind is not None for kind in stored) else "float"


def _is_integer(kernel: KernelPlan, graph: Graph) -> bool:
    """Whether it reads stored integers of what the model computes."""
    read = [port.type for port in kernel.inputs if port.value and port.value not in graph.constants]
    return bool(kernel.row) and None not in read


def reasons(plan: Plan) -> dict[str, str]:
    """Why kernels that compute are in float, by kernel."""
    return {k.kernel: shorten(k.reason or "") for k in computing(plan) if not k.row}


def told_by_target(target: str, word: str) -> str:
    """The paragraph `word: ...` among the comments of a target's file; "" where it has none."""
    text = (targets_folder() / f"{target}.yaml").read_text(encoding="utf-8")
    lines = [line.removeprefix("#").strip() if line.startswith("#") else "" for line in text.splitlines()]
    found = re.search(rf"^{word}: (.*?)(?:\n\n|\Z)", "\n".join(lines), re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def page(targets: Sequence[str] = ()) -> str:
    """The whole page."""
    names = targets or target_ids()
    plans = {(op.name, target): planned(op, target) for op in OPERATORS for target in names}
    lines = [f"| operator | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for op in OPERATORS:
        row = " | ".join(cell(plans[op.name, target]) for target in names)
        lines.append(f"| {op.name} | {row} |")
    parts = [HEAD, "\n".join(lines), "\n## Why kernels stay in float\n"]
    parts += [_told(target, {op.name: plans[op.name, target] for op in OPERATORS}) for target in names]
    return "\n".join(parts)


def _told(target: str, plans: Mapping[str, Plan]) -> str:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for operator, plan in plans.items():
        for kernel, reason in reasons(plan).items():
            by_reason.setdefault((kernel, reason), []).append(operator)
    said = [told_by_target(target, "Sources?"), told_by_target(target, "Float")]
    title = f"### {target}\n\n" + "".join(f"{escaped(text)}\n\n" for text in said if text)
    if not by_reason:
        return f"{title}None do.\n"
    lines = ["| kernel | reason | of |", "|---|---|---|"]
    for (kernel, reason), operators in sorted(by_reason.items()):
        lines.append(f"| {kernel} | {escaped(reason)} | {', '.join(operators)} |")
    return title + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transformer_operators")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    text = page()
    if options.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
