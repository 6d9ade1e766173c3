"""Provenance: the request and the edits that a plan came from, so that it can be made again.

Kept as `origins` by the plan's key. Nothing here reads models. Source: design 06, "Shape".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.problems import Refused
from planner.errors import unknown_name
from planner.plans.plan import Plan
from planner.target.load import load_target, target_ids
from planner.target.records import Target
from planner.version import MADE_BY
from planner.what_if.replan import replan
from planner.what_if.restore import restore
from planner.what_if.retarget import retarget

MOST_STEPS: Final = 200

Step = Mapping[str, Any]
"""`{"edits": {...}}` as `replan` takes them, `{"restore": kernel}`, or `{"retarget": shipped target}`,
this with `"best_effort": True` where it is to be one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a plan comes from.

    Attributes:
      target: `id@version`.
      request: a plan request without its target.
      version: `MADE_BY` of the planner that made the plan.
      steps: what was done to the plan of the request.
    """

    target: str
    request: Mapping[str, Any]
    version: str
    steps: tuple[Step, ...] = ()

    def to_json(self) -> bytes:
        """As it is kept."""
        return origin_text(self.target, json.dumps([self.request, self.version]).encode(), self.steps)


def origin_text(target: str, request: bytes, steps: Sequence[Step] = ()) -> bytes:
    """An origin as it is kept; `request` is JSON of a list: first the request, last the version."""
    head = json.dumps({"target": target, "steps": list(steps)}).encode()
    return head[:-1] + b', "request": ' + request + b"}"


def read_origin(text: bytes) -> Origin:
    """Read what `origin_text` wrote.

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
    """The origin of what the steps make of its plan.

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
    return Origin(origin.target, origin.request, origin.version, whole)


def applied(plan: Plan, steps: Sequence[Step]) -> Plan:
    """The plan after steps.

    Raises:
      PlannerError: an edit that does not fit, or constraints that cannot all hold now.
    """
    for step in steps:
        if "restore" in step:
            plan = restore(plan, step["restore"])
        elif "retarget" in step:
            plan = retarget(plan, _shipped(step["retarget"]), best_effort=step.get("best_effort", False))
        else:
            plan = replan(plan, step["edits"])
    return plan


def _shipped(name: str) -> Target:
    """A target by its id; never a path."""
    if name not in target_ids():
        raise unknown_name("target", name, target_ids())
    return load_target(name)
