"""What if: plans made again with other constraints, and what follows from plans, by their keys.

Everything here is a pure function of a plan's key and what is asked, kept under the digest of both. Small
plans are read and edited in this process, all else in a child. Source: design 06, "Shape".
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from api.planning.answer_cache import READERS
from api.planning.plan_cache import Live
from api.planning.planning import SMALL, find_origin, is_small, lay_out_job, plan_here, plan_in_child
from api.planning.provenance import Origin, Step, applied, with_steps
from api.planning.service import Service
from api.schemas.requests import EditsRequest
from api.server.responses import make_cursor, no_cursor, read_cursor
from api.storage.store import digest_of
from planner.plans.read_json import plan_from_json
from planner.report.resources import policy
from planner.target.records import Target
from planner.version import MADE_BY


async def replan(service: Service, key: str, edits: EditsRequest) -> bytes:
    """Make a plan again with changed constraints; the answer is the text of the new plan.

    Raises:
      Refused: no such plan, or its model or target is gone.
      PlannerError: edits that do not fit, or constraints that cannot all hold now.
    """
    before = await find_origin(service, key)
    steps = _steps(edits)
    origin = with_steps(before, steps)
    text = origin.to_json()
    digest = digest_of(text)
    kept = await run_sync(service.store.read, "requests", digest)
    if kept is not None:
        return kept
    if is_small(service, origin.request["model"], origin.request["stats"]):
        target = await service.shelf.find(origin.target)
        edit = partial(_edit_here, service.live, key, before, steps, target)
        made = await run_sync(edit, limiter=service.threads)
        if made is not None:
            await run_sync(service.store.keep_plan, digest, *made, text)
            return made[1]
    return await plan_in_child(service, origin, digest)


def _steps(edits: EditsRequest) -> tuple[Step, ...]:
    changes = edits.model_dump(exclude={"restore", "format", "target", "best_effort"}, exclude_defaults=True)
    edited: tuple[Step, ...] = ({"edits": changes},) if changes else ()
    restored = tuple({"restore": kernel} for kernel in edits.restore)
    effort = {"best_effort": True} if edits.best_effort else {}
    moved: tuple[Step, ...] = ({"retarget": edits.target, **effort},) if edits.target is not None else ()
    return (*edited, *restored, *moved)


def _edit_here(
    live: Live, key: str, origin: Origin, steps: Sequence[Step], target: Target
) -> tuple[str, bytes] | None:
    plan = live.get(key)
    if plan is None:
        made = plan_here(origin.request, target)
        if made is None:
            return None
        plan = applied(made, origin.steps)
    after = applied(plan, steps)
    live.put(after)
    return after.key, after.to_json().encode()


def answer_tag(verb: str, keys: Sequence[str], arguments: Mapping[str, str]) -> str:
    """The digest under which an answer about plans is kept."""
    return digest_of(json.dumps([verb, keys, arguments, MADE_BY], sort_keys=True).encode())


async def study(service: Service, verb: str, key: str, arguments: Mapping[str, str]) -> tuple[Path, str]:
    """Path and tag of the answer of a study (`studies`) of a plan; it is made again in a child.

    Raises:
      Refused: no such plan, name in it, or its model or target is gone.
    """
    origin = await find_origin(service, key)
    tag = answer_tag(verb, [key], arguments)
    kept = await run_sync(service.store.look, "answers", tag)
    if kept is None:
        with service.store.draft() as folder:
            job = await lay_out_job(service, origin, folder)
            await service.sandbox.run("study", verb=verb, arguments=dict(arguments), **job)
            await run_sync(service.store.keep, "answers", tag, folder / "out")
    return kept or service.store.path("answers", tag), tag


async def read(service: Service, verb: str, *keys: str) -> tuple[Path, str]:
    """Path and tag of what stands in plans: `ports`, `diff` or `report`.

    Raises:
      Refused: no such plan.
    """
    paths = [await run_sync(service.store.find, "plans", key) for key in keys]
    # The header that goes with a report admits one script: a stored report with another would stand still.
    tag = answer_tag(verb, keys, {"policy": policy()} if verb == "report" else {})
    kept = await run_sync(service.store.look, "answers", tag)
    if kept is not None:
        return kept, tag
    size = sum(path.stat().st_size for path in paths)
    if size <= SMALL and verb in READERS:
        data = await run_sync(partial(_read_here, verb, paths), limiter=service.threads)
        await run_sync(service.store.put, "answers", tag, data)
        return service.store.path("answers", tag), tag
    with service.store.draft() as folder:
        plans, out = [str(path) for path in paths], str(folder / "out")
        await service.sandbox.run("read", verb=verb, plans=plans, arguments={}, out=out, reads=size)
        await run_sync(service.store.keep, "answers", tag, folder / "out")
    return service.store.path("answers", tag), tag


def _read_here(verb: str, paths: Sequence[Path]) -> bytes:
    return READERS[verb]([plan_from_json(path.read_bytes()) for path in paths], {})


def lines_of(path: Path, limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
    """A page of a file of JSON lines, and the cursor of the next; a cursor is a place in the file.

    Raises:
      Refused: a cursor that no page gave.
    """
    place = read_cursor(cursor) or "0"
    with path.open("rb") as file:
        start = int(place) if place.isdecimal() and len(place) < 16 else -1
        if start > 0:
            file.seek(start - 1)
        if start < 0 or (start and file.read(1) != b"\n"):
            raise no_cursor()
        found = [json.loads(line) for line in (file.readline() for _ in range(limit)) if line]
        after = file.tell()
        return found, make_cursor(str(after)) if file.read(1) else None
