"""Plan answers: documents about plans as bytes, always the same for the same plans.

`READERS` read them off stored plans: the server's own process those of small plans, a child the others.
`WHAT_IF` ask a plan that was made again for other constraints, in a child. Source: docs/specification.md,
section 6.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from planner.accuracy.coverage import coverage_of
from planner.accuracy.verdict import verdict_of
from planner.errors import InputError, UnknownName, quantity, unknown_name
from planner.plans.diff import PlanDiff, diff, outline, worded
from planner.plans.plan import Plan, Planned
from planner.plans.records import KernelPlan, Port
from planner.report.plan_charts import causes, reasons
from planner.report.totals import size_of, totals
from planner.what_if.pareto import Tradeoff, pareto
from planner.what_if.suggest import Suggestion, suggest

from .provenance import Step, apply_steps

MOST_REASONS: Final = 100
MOST_CHANGES: Final = 1000
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")

Arguments = Mapping[str, Any]


def ports(plans: Sequence[Plan], _: Arguments) -> bytes:
    """Every port of a plan, in plan order, one JSON object a line."""
    steps = {step.port: step.rule for step in plans[0].steps}
    lines = [
        json.dumps(_port(kernel, side, port, steps.get(port.address)))
        for kernel in plans[0].kernels_in_order
        for side, found in (("in", kernel.inputs), ("out", kernel.outputs))
        for port in found
        if port.value
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _port(kernel: KernelPlan, side: str, port: Port, rule: str | None) -> dict[str, Any]:
    return {
        "address": port.address,
        "kernel": kernel.name,
        "side": side,
        "value": port.value,
        "type": None if port.type is None else str(port.type),
        "rule": rule,
    }


def part(document: bytes, pointer: str) -> bytes:
    """The part of a JSON document at a pointer (RFC 6901), as JSON.

    Raises:
      InputError: no pointer.
      UnknownName: nothing is there, with the nearest names.
    """
    if pointer and not pointer.startswith("/"):
        raise InputError(f"{pointer!r} is no JSON pointer", hint="/kernels/0/name, or nothing for all of it")
    found = json.loads(document)
    for word in pointer.split("/")[1:]:
        name = word.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, list):
            raise UnknownName(
                f"unknown place {name!r}", hint=f"there are {quantity(len(found), 'entry')}, from 0"
            )
        else:
            raise unknown_name("part of the plan", name, found if isinstance(found, Mapping) else ())
    return json.dumps(found).encode()


def difference(plans: Sequence[Plan], _: Arguments) -> bytes:
    """The differences between two plans, kernel by kernel, with the reasons that changed."""
    found = diff(plans[0], plans[1])
    document = json.loads(found.to_json())
    head = {"before": plans[0].key, "after": plans[1].key, "same": found.is_empty}
    return json.dumps(head | document | {"lines": str(found).splitlines()}).encode()


def suggestions(plan: Planned, arguments: Arguments) -> bytes:
    """Edits that remove a rescale, each verified by planning again, smallest first."""
    rescale = arguments["rescale"]
    found = suggest(plan, rescale)
    lines = [line for n, one in enumerate(found, 1) for line in _suggestion(n, one)]
    nothing = f"no edit of the constraints near {rescale} removes it: its kernels need two types"
    document = {"plan": plan.key, "rescale": rescale, "suggestions": [one.to_dict() for one in found]}
    return json.dumps(document | {"lines": lines or [nothing]}).encode()


def _suggestion(n: int, one: Suggestion) -> list[str]:
    head, *figures = one.lines()
    return [f"{n}. {head}", *(f"   {line}" for line in figures)]


def tradeoffs(plan: Planned, arguments: Arguments) -> bytes:
    """The trade-offs of a component: rescaled elements against the worst bits lost."""
    found = pareto(plan, arguments["component"])
    document = {
        "plan": plan.key,
        "component": arguments["component"],
        "tradeoffs": [one.to_dict() for one in found],
        "lines": [_tradeoff(one) for one in found],
    }
    return json.dumps(document).encode()


def tradeoffs_of(answer: bytes) -> list[Tradeoff]:
    """The trade-offs of an answer of `tradeoffs`."""
    return [Tradeoff(**one) for one in json.loads(answer)["tradeoffs"]]


def _tradeoff(one: Tradeoff) -> str:
    limit = "no limit" if one.max_bits_lost is None else f"max_bits_lost {one.max_bits_lost:g}"
    how = "as planned" if one.chosen else f"with {limit}"
    return (
        f"{quantity(one.rescaled_elements, 'element', ',')} in {quantity(one.rescales, 'rescale')}, "
        f"worst bits lost {one.worst_bits_lost:.2f}, {how}"
    )


def preview(plan: Planned, steps: Sequence[Step]) -> dict[str, Any]:
    """The changes of edits in a plan, without the new plan itself: checking and writing it take longer."""
    after = apply_steps(plan, steps)
    found = outline(plan, after)
    changes = {name: getattr(found, name) for name in ("kernels", "ports", "rescales")}
    listed = {name: [asdict(one) for one in some[:MOST_CHANGES]] for name, some in changes.items()}
    lines = [worded(one) for some in changes.values() for one in some[:MOST_REASONS]]
    touched = sorted(_touched(plan, after, found))[:MOST_CHANGES]
    about = {"plan": plan.key, "same": found.is_empty, "touched": touched}
    return {**about, **listed, "totals": dict(found.totals), "lines": lines}


def _touched(before: Plan, after: Plan, found: PlanDiff) -> set[str]:
    """Kernels at which something changed: those that read a rescale, too."""
    gone, new = ({one.id: one.consumers for one in plan.rescales} for plan in (before, after))
    readers = [(new if one.after else gone)[one.at] for one in found.rescales]
    names = {one.at.rpartition(".")[0] for one in found.ports} | {one.at for one in found.kernels}
    return names | {name for some in readers for name, _ in some if name in before.kernels}


QUALITY: Final = (
    "format", "samples", "measured_on", "text", "grade", "reason", "keep_float", "accuracy", "coverage",
    "sqnr", "metrics",
)  # fmt: skip
"""Keys of a plan's stored quality that answers include; reports read the rest too."""


def quality_of(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The quality of a plan for a client, of what is kept of it."""
    return None if kept is None else {name: kept.get(name) for name in QUALITY}


def summary(plans: Sequence[Plan], given: Arguments) -> bytes:
    """Totals of a plan, why kernels run in float, and its quality, where somebody measured it."""
    plan = plans[0]
    count = totals(plan)
    document = {
        "plan": plan.key,
        "model": plan.graph.name,
        "target": f"{plan.target.id}@{plan.target.version}",
        "kernels": count.kernels,
        "integer": count.integer,
        "rescales": count.rescales,
        "casts": count.casts,
        "cost": count.cost,
        "excused": count.excused,
        "optimal": count.optimal,
        "work": count.work.total,
        "work_unit": count.work_unit,
        "weight_bytes": size_of(plan),
        "reasons": {reason: sum(kinds.values()) for reason, kinds in reasons(plan)[:MOST_REASONS]},
        "causes": [cause.text() for cause in causes(plan)[:MOST_REASONS]],
        "warnings": list(plan.warnings[:MOST_REASONS]),
        "verdict": _verdict(plan),
        "formats": list(plan.target.files.formats),
        "quality": quality_of(given["quality"]),
    }
    return json.dumps(document).encode()


def _verdict(plan: Plan) -> dict[str, Any] | None:
    """Return the verdict on a plan alone: by its coverage."""
    covered = coverage_of(plan)
    found = verdict_of({}, {}, replace(covered, fallbacks=covered.fallbacks[:MOST_REASONS]))
    return None if found is None else found.to_dict()


READERS: Final[Mapping[str, Callable[[Sequence[Plan], Arguments], bytes]]] = {
    "diff": difference,
    "ports": ports,
    "summary": summary,
}

WHAT_IF: Final[Mapping[str, Callable[[Planned, Arguments], bytes]]] = {
    "pareto": tradeoffs,
    "suggest": suggestions,
}
