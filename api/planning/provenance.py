"""Provenance: the request and the edits that a plan comes from, and the plan made of them.

Kept as `origins` by the plan's key, so that a plan can be made again. Source: docs/service.md.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from pydantic_core import to_json

from planner.calibration.statistics import Statistics
from planner.errors import require_name, unknown_name
from planner.ir.graph import Graph, with_facts
from planner.plan_model import annotate, plan, require_ranges
from planner.plans.plan import Planned
from planner.target.load import load_target, target_ids
from planner.target.records import Costs, Target
from planner.version import MADE_BY
from planner.weight_conditioning.biases import correct_biases
from planner.what_if.replan import replan
from planner.what_if.restore import restore
from planner.what_if.retarget import retarget

from ..problems import Refused

MOST_STEPS: Final = 200
COSTS: Final = tuple(field.name for field in fields(Costs))

NO_RANGES: Final = (
    "calibrate the model on samples with POST /v1/calibrations and send the digest as `stats`, "
    "or annotate ranges"
)
"""Next step where a plan would be all in float."""

Step = Mapping[str, Any]
"""`{"edits": {...}}` as `replan` takes them, `{"restore": kernel}`, or `{"retarget": shipped target}`,
this with `"best_effort": True` where it is to be one."""


@dataclass(frozen=True)
class Origin:
    """The source of a plan.

    Attributes:
      target: `id@version`.
      request: a plan request without its target.
      version: `MADE_BY` of the planner that made the plan.
      steps: edits of the plan that the request asks for.
    """

    target: str
    request: Mapping[str, Any]
    version: str = MADE_BY
    steps: tuple[Step, ...] = ()

    @cached_property
    def text(self) -> bytes:
        """The JSON that is kept; it holds the model, so it is written once."""
        return to_json({"target": self.target, "steps": self.steps, "request": [self.request, self.version]})


def read_origin(text: bytes) -> Origin:
    """Read the text of an `Origin`.

    Raises:
      Refused: the plan was made by another version of the planner.
    """
    document = json.loads(text)
    request, *_, version = document["request"]
    if version != MADE_BY:
        raise Refused(
            "plan-invalid",
            f"planner {version} made this plan, this is {MADE_BY}",
            hint="send its request again",
        )
    return Origin(document["target"], request, version, tuple(document["steps"]))


def with_steps(origin: Origin, steps: Sequence[Step]) -> Origin:
    """The origin of an edited plan.

    Raises:
      Refused: the history is too long.
    """
    whole = (*origin.steps, *steps)
    if len(whole) > MOST_STEPS:
        raise Refused(
            "input-invalid",
            f"a plan is edited at most {MOST_STEPS} times",
            hint="put the edits into the annotations of a new request",
        )
    return replace(origin, steps=whole)


def is_before(earlier: Origin, later: Origin) -> bool:
    """Whether more edits lead from the plan of one origin to that of the other."""
    steps = earlier.steps  # they differ in most cases, and requests are long
    return steps == later.steps[: len(steps)] and earlier == replace(later, steps=steps)


def make_plan(
    graph: Graph, stats: Statistics | None, target: Target, request: Mapping[str, Any], steps: Sequence[Step]
) -> Planned:
    """Make the plan of an origin: in the server's process and in a child, this is how.

    Args:
      request: its `annotations` and `options` count; model and statistics were read from it.

    Raises:
      PlannerError: input that does not fit the model, or constraints that cannot all hold.
    """
    options = request["options"]
    for name in options["costs"]:  # `plan` takes them beside options of other names
        require_name("cost", name, COSTS)
    first = plan(
        prepared(graph, stats, target, request),
        target,
        strategy=options["strategy"],
        best_effort=options["best_effort"],
        bias_pins=options["bias_pins"],
        formats=options.get("formats", ()),
        **options["costs"],
    )
    return apply_steps(first, steps)


def prepared(graph: Graph, stats: Statistics | None, target: Target, request: Mapping[str, Any]) -> Graph:
    """The model that is planned: annotated and, where the request says so, with corrected biases.

    Raises:
      PlannerError: as `make_plan`.
    """
    model = annotate(graph, stats=stats, annotations=request["annotations"], target=target)
    if stats is None or not request["options"].get("correct_biases", False):
        return model
    return correct_biases(model, target, stats)


def with_corrections(
    graph: Graph, stats: Statistics | None, target: Target, request: Mapping[str, Any]
) -> Graph:
    """A model with the biases of the one that is planned and, as it came, with no more facts than its own.

    Edits may have changed the facts since; those of a plan stand in the plan.
    """
    found = with_facts(prepared(graph, stats, target, request), graph)
    added = found.values.keys() - graph.values.keys()
    bare = {name: replace(found.values[name], facts=()) for name in added}
    return replace(found, values={**found.values, **bare})


def apply_steps(plan: Planned, steps: Sequence[Step]) -> Planned:
    """Edit a plan.

    Raises:
      PlannerError: an edit that does not fit, or constraints that cannot all hold now; a plan all in float
        because nothing says a range.
    """
    for step in steps:
        if "restore" in step:
            plan = restore(plan, step["restore"])
        elif "retarget" in step:
            plan = retarget(plan, _shipped(step["retarget"]), best_effort=step.get("best_effort", False))
        else:
            plan = replan(plan, step["edits"])
    require_ranges(plan, NO_RANGES)
    return plan


def _shipped(name: str) -> Target:
    """A target by its id; never a path."""
    if name not in target_ids():
        raise unknown_name("target", name, target_ids())
    return load_target(name)
