"""Fan-out: one job as several works, and their results as one. Nothing here knows rows.

A search is two works: the search, and the plan that it found, made as any other is. A quantization is the
works of other jobs: calibration, plan, export, comparison and, where that is not good, a search.
A calibration is cut by samples; what its shards and their joining write is the same, to the last bit, as one
worker writes alone (`tasks`). Source: docs/service.md.
"""

import asyncio
import copy
import json
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any, Final

from planner.calibration.shards import cut

from ..server.tokens import DEFAULT
from ..tracing import Asked
from .child_process import Tell, accept
from .executors import Executor
from .records import File, follow_up, made, stored, work
from .task_names import QUANTIZE

MODEL: Final = ("model", "external", "called", "dims")
PLANNED: Final = (*MODEL, "stats", "target", "options", "steps")
"""Arguments of a search that its plan has too."""
SEARCHED: Final = (*PLANNED, "annotations", "effort", "metric", "output", "state")
"""Arguments of a quantization that its search has too."""


class _Tenants:
    """An executor for the works of one tenant, whatever parts they are cut into, that give way by `nice`."""

    def __init__(self, executor: Executor, tenant: str, nice: int, asked: Asked) -> None:
        self.executor = executor
        self.own = {"tenant": tenant, "nice": nice, "asked": asked}
        self.fan_from = executor.fan_from
        self.ahead = executor.ahead
        self.start, self.stop, self.slots = executor.start, executor.stop, executor.slots

    async def run(self, work: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run a work on the tenant's files."""
        return await self.executor.run({**work, **self.own}, tell)


async def run_work(
    executor: Executor,
    asked: Mapping[str, Any],
    tell: Tell,
    tenant: str = DEFAULT,
    nice: int = 0,
    *,
    by: Asked | None = None,
) -> dict[str, Any]:
    """Run a job's work, in parts where that pays or where one follows from another.

    Args:
      tenant: whose files it reads and makes.
      nice: by how much it lets others have the processor first.
      by: who asked.

    Raises:
      Refused, Unavailable, WorkerLost: as `Executor.run`.
    """
    executor = _Tenants(executor, tenant, nice, by or {})
    return await _run(executor, asked, tell)


async def _run(executor: Executor, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    if executor.fan_from is not None and asked["task"] == "calibrate" and asked["arguments"]["shard"] is None:
        return await calibrate_in_shards(executor, asked, tell, executor.fan_from)
    if asked["task"] == "search":
        return await search_and_plan(executor, asked, tell)
    if asked["task"] == QUANTIZE:
        return await quantize(executor, asked, tell)
    return await executor.run(asked, tell)


async def quantize(executor: Executor, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Calibrate, plan and compare; where the verdict is not good, search; write the best plan.

    The file is the one blob that is kept: files of a comparison or a search are not reported.

    Returns:
      The results of these works, and the keys of `stats` and `plan`.
    """
    arguments = asked["arguments"]
    take = {"shard": None, "readers": 0, "out": made("stats")}
    sampled = (*MODEL, "samples", "method")
    calibrated = await _run(
        executor, follow_up(asked, "calibrate", take, sampled), _in_phase(tell, "calibrating")
    )
    stats = str(calibrated["kept"]["out"])
    ready = _with_stats(asked, stats)
    annotations = arguments["annotations"]
    done = await _planned_and_compared(executor, ready, annotations, tell)
    found = None
    if arguments["effort"] != "quick" and not _is_good(arguments, done["quality"]):
        wanted = {"goal": None, "trials": None, "reference": "written", "out": made("answers")}
        wanted |= {"samples": _argument(ready, "evaluated")}
        search = {**follow_up(ready, "search", wanted, SEARCHED), "origin": ready["origin"]}
        found = await executor.run(search, _in_phase(tell, "searching"))
        if found["trials"][found["best"]]["asked"]:
            annotations = found["annotations"]
            done = await _planned_and_compared(executor, ready, annotations, tell)
    told = None if found is None else {"trials": len(found["trials"]), "given_up": found["given_up"]}
    written = {"plan": stored("plans", done["plan"]), "out": made("blobs"), **_correction(ready, annotations)}
    export = await executor.run(
        follow_up(ready, "export", written, (*MODEL, "format")), _in_phase(tell, "exporting")
    )
    warnings = list(dict.fromkeys([*calibrated["warnings"], *export["warnings"], *done["warnings"]]))
    return {**done, "export": export, "stats": stats, "search": told, "warnings": warnings}


def _is_good(arguments: Mapping[str, Any], quality: Mapping[str, Any]) -> bool:
    """Whether a plan is surely as good as its effort aims at: else the search finds out."""
    return arguments["effort"] == "normal" and arguments["metric"] is None and quality["grade"] == "good"


async def _planned_and_compared(
    executor: Executor, asked: Mapping[str, Any], annotations: Mapping[str, Any] | None, tell: Tell
) -> dict[str, Any]:
    """Plan with some annotations, and compare the plan's file on the samples to evaluate with."""
    arguments = asked["arguments"]
    plan = await executor.run(best_plan(asked, annotations), _in_phase(tell, "planning"))
    key = str(plan["key"])
    compared = {
        "plan": stored("plans", key),
        "quality": made("qualities", key),
        "samples": _argument(asked, "evaluated"),
        "values": False,
        "metrics": [] if arguments["metric"] is None else [arguments["metric"]],
        "reference": "written",
        "min_coverage": None,
        "out": made("answers"),
        **_correction(asked, annotations),
    }
    if arguments["told"]["held_out"]:
        compared["stats"] = _argument(asked, "stats")
    kept = (*MODEL, "told", "output")
    comparison = await executor.run(follow_up(asked, "compare", compared, kept), _in_phase(tell, "comparing"))
    return {"plan": key, "quality": comparison["quality"], "warnings": comparison["warnings"]}


def _correction(asked: Mapping[str, Any], annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    """The argument that says how the biases of the planned model are corrected; none where they are not."""
    if not asked["arguments"]["options"].get("correct_biases", False):
        return {}
    own = {name: _argument(asked, name) for name in ("stats", "target", "options")}
    return {"correction": {**own, "annotations": annotations}}


def _with_stats(asked: Mapping[str, Any], stats: str) -> dict[str, Any]:
    """A work whose plans have statistics, as their origin says too."""
    whole = follow_up(asked, str(asked["task"]), {"stats": stored("stats", stats)})
    origin = json.loads(asked["origin"])
    origin["request"][0]["stats"] = stats
    return {**whole, "origin": json.dumps(origin)}


def _argument(asked: Mapping[str, Any], name: str) -> Any:
    """An argument of a work with its files, as `work` takes it."""
    found = {name: copy.deepcopy(asked["arguments"][name])}
    for file in asked["files"]:
        if file["at"][0] == name:
            *parents, last = file["at"]
            reduce(getitem, parents, found)[last] = File(file["how"], tuple(file["what"]))
    return found[name]


def _in_phase(tell: Tell, phase: str) -> Tell:
    """Tell progress of one phase of several, unless it names a closer one itself."""

    def hear(progress: Mapping[str, Any]) -> None:
        tell({"phase": phase, **progress})

    return hear


async def search_and_plan(executor: Executor, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Search, and keep the best plan with its origin, as the request for it would."""
    found = await executor.run(asked, tell)
    plan = await executor.run(best_plan(asked, found["annotations"]), accept)
    return {**found, "plan": plan["key"]}


def best_plan(asked: Mapping[str, Any], annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    """The work of planning for a requested search, with other annotations."""
    planned = follow_up(asked, "plan", {"annotations": annotations, "out": made("plans")}, PLANNED)
    origin = json.loads(asked["origin"])
    origin["request"][0]["annotations"] = annotations
    return {**planned, "origin": json.dumps(origin)}


async def calibrate_in_shards(
    executor: Executor, asked: Mapping[str, Any], tell: Tell, fan_from: int
) -> dict[str, Any]:
    """Count the samples; where that pays, calibrate shards of them at once, and join the statistics.

    Args:
      fan_from: bytes of weights, those of all samples together, from where it pays.
    """
    counted = await executor.run(follow_up(asked, "count", {"out": made("answers")}), tell)
    samples = counted["samples"]
    pays = samples and samples * counted["bytes"] >= fan_from
    shards = cut(samples, await executor.slots() - executor.ahead) if pays else ()
    if len(shards) < 2:
        return await executor.run(asked, tell)
    done = [0] * len(shards)

    async def calibrate(place: int) -> str:
        def hear(progress: Mapping[str, Any]) -> None:
            done[place] = progress["done"]
            tell({"done": sum(done), "total": samples})

        # Parts are kept as `answers`, which nobody lists.
        more = {"shard": list(shards[place]), "out": made("answers")}
        part = await executor.run(follow_up(asked, "calibrate", more), hear)
        return str(part["kept"]["out"])

    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(calibrate(place)) for place in range(len(shards))]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    parts = [stored("answers", task.result()) for task in running]
    readers = asked["arguments"].get("readers", 0)
    # Readers are measured within the ranges of all samples, so after the merge; the last is kept as `stats`.
    out = made("answers" if readers else "stats")
    found = await executor.run(work("merge", {"parts": parts, "out": out}), tell)
    if readers:
        whole = {"stats": stored("answers", str(found["kept"]["out"]))}
        found = await executor.run(follow_up(asked, "readers", whole), tell)
    return {**found, "warnings": counted["warnings"]}
