"""Fan-out: one job as several works, and their results as one. Nothing here knows rows.

A search is two works: the search, and the plan that it found, made as any other is.
A calibration is cut by samples; what its shards and their joining write is the same, to the last bit, as one
worker writes alone (`tasks`). Source: docs/service.md.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from planner.calibration.shards import cut

from ..server.tokens import DEFAULT
from .child_process import Tell, accept
from .executors import Executor
from .records import follow_up, made, stored, work

PLANNED: Final = ("model", "external", "dims", "stats", "target", "options", "steps")
"""Arguments of a search that its plan has too."""


class _Tenants:
    """An executor for the works of one tenant, whatever parts they are cut into, that give way by `nice`."""

    def __init__(self, executor: Executor, tenant: str, nice: int) -> None:
        self.executor = executor
        self.own = {"tenant": tenant, "nice": nice}
        self.fan_from = executor.fan_from
        self.ahead = executor.ahead
        self.start, self.stop, self.slots = executor.start, executor.stop, executor.slots

    async def run(self, work: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run a work on the tenant's files."""
        return await self.executor.run({**work, **self.own}, tell)


async def run_work(
    executor: Executor, asked: Mapping[str, Any], tell: Tell, tenant: str = DEFAULT, nice: int = 0
) -> dict[str, Any]:
    """Run a job's work, in parts where that pays or where one follows from another.

    Args:
      tenant: whose files it reads and makes.
      nice: by how much it lets others have the processor first.

    Raises:
      Refused, Unavailable, WorkerLost: as `Executor.run`.
    """
    executor = _Tenants(executor, tenant, nice)
    if executor.fan_from is not None and asked["task"] == "calibrate" and asked["arguments"]["shard"] is None:
        return await calibrate_in_shards(executor, asked, tell, executor.fan_from)
    if asked["task"] == "search":
        return await search_and_plan(executor, asked, tell)
    return await executor.run(asked, tell)


async def search_and_plan(executor: Executor, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Search, and keep the best plan with its origin, as the request for it would."""
    found = await executor.run(asked, tell)
    plan = await executor.run(best_plan(asked, found["annotations"]), accept)
    return {**found, "plan": plan["key"]}


def best_plan(asked: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The work of planning what a search was asked for, with other annotations."""
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
