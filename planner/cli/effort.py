"""Effort of the verb `quantize`: where the verdict is not good, plans that a search proposes are tried.

Measurements lie beside the plan, so that the same command resumes where it was stopped.
Source: docs/search.md.
"""

import json as jsonlib
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from planner.cli.comparing import Judging
from planner.cli.console import progress_of_phases, warn
from planner.cli.files import keep_inputs
from planner.errors import InputError, PlannerError

if TYPE_CHECKING:
    from planner.calibration.statistics import Statistics
    from planner.cli.job.order import Order
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plan_search.aims import Aim, Budget
    from planner.plan_search.effort import Made
    from planner.plan_search.effort import Tried as Found
    from planner.plan_search.search import Search
    from planner.plan_search.trials import State, Trial
    from planner.plans.plan import Plan
    from planner.target.records import Target
    from planner.weight_conditioning.condition import Change

STATE: Final = "effort.json"
ANNOTATIONS: Final = "annotations.json"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A plan with its files and their figures.

    Attributes:
      ready: the model that the plan is for.
      changes: of conditioning.
      given: annotations that it was made with.
      warnings: held until it is known whether this is the plan.
    """

    ready: "Graph"
    changes: "tuple[Change, ...]"
    planned: "Plan"
    files: Mapping[str, bytes | Path]
    comparisons: "Mapping[str, Comparison]"
    given: str | Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of an effort.

    Attributes:
      text: what was given up for what, or why nothing was.
      document: as JSON data.
      files: that go with the plan: annotations that make it again.
      state: the file of what was measured.
      search: for the report.
    """

    text: str
    document: Mapping[str, Any]
    files: Mapping[str, bytes]
    state: str
    search: "Search | None"


@dataclass(frozen=True, slots=True)
class Task:
    """The work of an effort.

    Attributes:
      graph: as it was read.
      make: makes an attempt with other annotations.
    """

    order: "Order"
    graph: "Graph"
    device: "Target"
    stats: "Statistics"
    judging: Judging
    make: Callable[[str | Mapping[str, Any] | None], Attempt]

    def path(self, name: str) -> Path:
        """A file of the folder that is written."""
        return Path(self.order.out) / name


def is_wanting(comparisons: "Mapping[str, Comparison]") -> bool:
    """Whether the accuracy of a file that was compared is less than good."""
    found = [one.verdict for one in comparisons.values()]
    return any(one is not None and one.accuracy is not None and one.accuracy.level != "good" for one in found)


def tried_harder(task: Task, first: Attempt) -> tuple[Attempt, Tried | None]:
    """Search for a better plan where the verdict on one is not good.

    Returns:
      The plan to write, and what came of the search; None where there was none.
    """
    from planner.plan_search.aims import BUDGETS, aim_of
    from planner.plan_search.effort import Made, worst_of

    judging, budget = task.judging, BUDGETS[task.order.effort]
    if not budget.trials or not first.comparisons:
        return first, None
    aim = aim_of(
        budget,
        [*first.comparisons.values()],
        metric=next(iter(judging.metrics), None),
        min_sqnr=judging.min_sqnr,
        min_metric=judging.min_metric,
        coverage=judging.min_coverage,
    )
    known = Made(first, worst_of(first.planned, [*first.comparisons.values()], aim))
    if aim.reached(known.trial):
        return first, None
    try:
        found = _searched(task, known, aim, budget)
    except PlannerError as error:
        warn(f"no better plan was looked for: {error.message}")
        return first, None
    if found.stopped:
        warn(f"{found.stopped}; the same line goes on from there")
    return found.best.what, _Outcome(task, found).told()


def _searched(task: Task, first: "Made[Attempt]", aim: "Aim", budget: "Budget") -> "Found[Attempt]":
    import planner
    from planner.calibration.annotations import annotations_document
    from planner.plan_search.effort import bench_for, try_harder
    from planner.plan_search.search import merged_annotations

    keep_inputs(task.order.out, (STATE, ANNOTATIONS), task.order.inputs)
    own = first.what.given
    bench = bench_for(
        planner.annotate(task.graph, stats=task.stats, annotations=own, target=task.device),
        task.device,
        task.judging.samples or (),
        aim,
        output=task.judging.output,
        reference=task.judging.reference,
        formats=task.order.formats,
        prepare=lambda model: planner.correct_biases(model, task.device, task.stats),
    )
    given = None if own is None else annotations_document(own)
    state = _state(task.path(STATE), bench.key())
    with ending_as_interrupt():
        return try_harder(
            first,
            lambda made: (made.planned, [*made.comparisons.values()]),
            budget=budget,
            aim=aim,
            bench=bench,
            make=lambda trial: task.make(merged_annotations(given, trial.kernels)),
            state=state,
            phases=lambda: progress_of_phases(
                "measuring noise", f"searching a better plan ({task.order.effort})"
            ),
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a search, for people and programs."""

    task: Task
    found: "Found[Attempt]"

    def again(self) -> str:
        """The line that makes this plan without a search."""
        order = self.task.order
        words = [
            "qplan",
            "quantize",
            order.model,
            "--data",
            order.data or "SAMPLES",
            "--target",
            order.target,
        ]
        options: list[tuple[str, str | None]] = [("--format", name) for name in order.formats]
        options += [("--dim", size) for size in order.dim or ()]
        options += [("--method", order.method), ("--cut", order.cut), ("--functions", order.functions)]
        words += [word for option, value in options if value is not None for word in (option, value)]
        words += ["--annotations", str(self.task.path(ANNOTATIONS)), "--effort", "quick"]
        return f"this plan again, without a search: {shlex.join(words)}"

    def told(self) -> Tried:
        """The result as text, document and files."""
        found, files = self.found, {}
        if found.is_improved:
            files[ANNOTATIONS] = (jsonlib.dumps(found.best.what.given, indent=1) + "\n").encode()
        text = f"{self.task.order.effort} effort: {found.text}"
        lines = (text, self.again()) if found.is_improved else (text,)
        document = {
            "level": self.task.order.effort,
            "trials": found.found.trials,
            "stopped": found.is_stopped,
            "improved": found.is_improved,
            "text": text,
            "metric": found.aim.metric_name or "sqnr",
            "before": _figures(found.first.trial),
            "after": _figures(found.best.trial),
            "annotations": str(self.task.path(ANNOTATIONS)) if found.is_improved else None,
        }
        return Tried("\n".join(lines), document, files, str(self.task.path(STATE)), found.search)


def _figures(trial: "Trial") -> dict[str, Any]:
    return {
        "kernels": len(trial.kernels),
        "sqnr": trial.sqnr,
        "metric": trial.metric,
        "work": trial.work,
        "multiply_add_share": trial.mac_share,
    }


def _state(path: Path, key: str) -> "State":
    """The measurements for this model, target and samples; a file of others is started anew.

    Raises:
      InputError: a place that cannot be written.
    """
    from planner.plan_search.trials import State

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return State(key, path)
        except InputError:
            path.unlink(missing_ok=True)
            return State(key, path)
    except OSError as error:
        raise InputError(f"cannot write to {str(path.parent)!r}: {error.strerror}") from error


@contextmanager
def ending_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
