"""Questions: plans made again with other constraints, and answers about plans, by their keys.

Each is a pure function of a plan's key and the question, kept under the digest of both where the quota has
room, for as long as what it was made of. Small plans are read in this process, big ones in a child.
Source: docs/service.md.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from anyio.to_thread import run_sync

from planner.plans.explain import explain
from planner.plans.read_json import plan_from_json
from planner.report.resources import policy
from planner.version import MADE_BY

from ..jobs.records import File, made, stored, work, written
from ..jobs.task_names import HOLD
from ..problems import Refused
from ..schemas.requests import EditsRequest
from ..server.responses import make_cursor, no_cursor, read_cursor
from ..storage.answers import Answer, keep_answer, lacks_room, open_made, passing
from ..storage.digests import digest_of
from ..storage.followers import Source, follow, require_sources
from .known_targets import KnownTarget
from .plan_answers import READERS, part
from .planning import SMALL, find_or_make_plan, find_origin, plan_arguments
from .provenance import Step, with_steps
from .service import Service

MEASURED: Final = ("live", "report", "summary")
"""Answers that say how good a plan is."""


async def replan(service: Service, key: str, edits: EditsRequest) -> bytes:
    """Make a plan again with changed constraints; the answer is the text of the new plan.

    Raises:
      Refused: no such plan, or its model or target is gone.
      PlannerError: edits that do not fit, or constraints that cannot all hold now.
    """
    origin = await find_origin(service, key)
    return await find_or_make_plan(service, with_steps(origin, _steps(edits)))


async def preview(service: Service, key: str, edits: EditsRequest) -> dict[str, Any]:
    """Return the changes that edits would make in a plan, which a child of the caller's holds from then on.

    Raises:
      Refused: no such plan, or its model or target is gone.
      PlannerError: as `replan`.
    """
    origin = await find_origin(service, key)
    await service.targets.find(origin.target)
    asked = work(HOLD, await run_sync(plan_arguments, service, origin))
    return await service.residents.ask(service.sandbox, key, asked, _steps(edits))


def _steps(edits: EditsRequest) -> tuple[Step, ...]:
    changes = edits.model_dump(exclude={"restore", "format", "target", "best_effort"}, exclude_defaults=True)
    edited: tuple[Step, ...] = ({"edits": changes},) if changes else ()
    restored = tuple({"restore": kernel} for kernel in edits.restore)
    effort = {"best_effort": True} if edits.best_effort else {}
    moved: tuple[Step, ...] = ({"retarget": edits.target, **effort},) if edits.target is not None else ()
    return (*edited, *restored, *moved)


def answer_tag(verb: str, keys: Sequence[str], arguments: Mapping[str, str]) -> str:
    """The digest under which an answer about plans is kept."""
    return digest_of(json.dumps([verb, keys, arguments, MADE_BY], sort_keys=True).encode())


async def answer_what_if(service: Service, verb: str, key: str, arguments: Mapping[str, str]) -> Answer:
    """The answer to a what-if question (`WHAT_IF`); the plan is made again in a child.

    Raises:
      Refused: no such plan, name in it, or its model or target is gone.
    """
    origin = await find_origin(service, key)
    tag = answer_tag(verb, [key], arguments)
    sources: list[Source] = [("plans", key)]
    kept = await run_sync(_kept, service, tag, sources)
    if kept is not None:
        return kept
    await service.targets.find(origin.target)
    plan = await run_sync(plan_arguments, service, origin)
    return await _made(service, "study", plan | {"verb": verb, "arguments": dict(arguments)}, tag, sources)


def _kept(service: Service, tag: str, sources: Sequence[Source]) -> Answer | None:
    """An answer that is kept; what an earlier version kept follows from its sources from now on."""
    path = service.store.look("answers", tag)
    if path is not None and service.store.objects is None:
        follow(service.store, tag, sources)
    return None if path is None else Answer(path, tag)


async def _made(
    service: Service, task: str, asked: Mapping[str, Any], tag: str, sources: Sequence[Source]
) -> Answer:
    """Have a child make an answer, and keep it where the quota has room."""
    store, held = service.store, list[BinaryIO]()
    await run_sync(follow, store, tag, sources)
    try:
        out = work(task, {**asked, "out": made("answers", tag)})
        await service.sandbox.run(out, lambda path: held.append(open_made(path)))
    except Refused as error:
        if not (held and lacks_room(error)):
            raise
        return passing(tag, held.pop())
    finally:
        for file in held:
            file.close()
    await run_sync(require_sources, store, tag, sources)
    return Answer(store.path("answers", tag), tag)


async def report_parts(
    service: Service, key: str, addresses: Sequence[str], search: str | None
) -> dict[str, Any]:
    """The parts of a report beside its plan: trade-offs, made here on the first request, and a search.

    Raises:
      Refused: as `answer_what_if`; no such blob.
    """
    found: dict[str, Any] = {}
    if addresses:
        asked = [(one, await answer_what_if(service, "pareto", key, {"component": one})) for one in addresses]
        found["tradeoffs"] = {one: await run_sync(_as_file, answer) for one, answer in asked}
    if search is not None:
        await run_sync(service.store.find, "blobs", search)
        found["search"] = stored("blobs", search)
    return found


async def show_target(service: Service, target: KnownTarget) -> bytes:
    """The document of a target that was put: prices, fusions, rows by kernel; a child reads it.

    Raises:
      Refused: its description is gone.
    """
    name = f"{target.id}@{target.version}"
    tag = answer_tag("target", [name], {"digest": target.digest})
    sources: list[Source] = [("targets", digest_of(name.encode()))]
    answer = await run_sync(_kept, service, tag, sources)
    if answer is None:
        asked = {"target": await run_sync(service.targets.argument, name)}
        answer = await _made(service, "target", asked, tag, sources)
    with closing(answer):
        return await run_sync(answer.path.read_bytes)


def _as_file(answer: Answer) -> File:
    """An answer as an argument of a child: by its digest, or as it is where it is not kept."""
    if answer.held is None:
        return stored("answers", answer.tag)
    with answer.held:
        return written(answer.path.read_text(encoding="utf-8"))


async def answer_from_plans(service: Service, verb: str, *keys: str, **given: Any) -> Answer:
    """An answer that is read off plans: `ports`, `diff`, `summary`, `report`, its
    `live` form, or `view`; of `MEASURED` ones, off what was measured of the first plan too.

    Args:
      given: what `report_parts` found.

    Raises:
      Refused: no such plan.
    """
    paths = [await run_sync(service.store.find, "plans", key) for key in keys]
    # The header that goes with a report admits one script: a stored report with another would stand still.
    own = {"policy": policy()} if verb in ("report", "live") else {}
    quality = await run_sync(service.store.read, "qualities", keys[0]) if verb in MEASURED else None
    if quality is not None:
        own["quality"] = digest_of(quality)
    stats = await run_sync(_statistics, service, keys[0]) if verb in ("report", "live") else None
    if stats is not None:
        own["stats"] = json.dumps(stats.what) if stats.how == "stored" else digest_of(stats.what[0].encode())
    if given:
        own["given"] = json.dumps(given, default=asdict)
    tag = answer_tag(verb, keys, own)
    sources: list[Source] = [("plans", key) for key in keys]
    sources += [(*file.what,) for file in (stats, given.get("search")) if file and file.how == "stored"]
    kept = await run_sync(_kept, service, tag, sources)
    if kept is not None:
        return kept
    if sum(path.stat().st_size for path in paths) <= SMALL and verb in READERS:
        here = partial(_answer_here, verb, paths, quality)
        data = await service.in_turn(here)
        await run_sync(follow, service.store, tag, sources)
        answer = await run_sync(keep_answer, service.store, tag, data)
        if answer.held is None:
            await run_sync(require_sources, service.store, tag, sources)
        return answer
    asked: dict[str, Any] = {
        "verb": verb,
        "plans": [stored("plans", key) for key in keys],
        "quality": None if quality is None else written(quality.decode()),
        "stats": stats,
        "tradeoffs": {},
        "search": None,
        **given,
        "arguments": {},
    }
    return await _made(service, "read", asked, tag, sources)


def _statistics(service: Service, key: str) -> File | None:
    """The statistics that a plan was made with, if they are still there: a report draws their histograms."""
    origin = service.store.read("origins", key)
    if origin is None:
        return None
    stats = json.loads(origin)["request"][0]["stats"]
    if isinstance(stats, str):
        return stored("stats", stats) if service.store.has("stats", stats) else None
    return None if stats is None else written(json.dumps(stats))


def _answer_here(verb: str, paths: Sequence[Path], quality: bytes | None) -> bytes:
    known = None if quality is None else json.loads(quality)
    return READERS[verb]([plan_from_json(path.read_bytes()) for path in paths], {"quality": known})


async def explain_plan(service: Service, key: str, address: str) -> str:
    """Explain an address of a stored plan; a big plan is read in a child."""
    path = await run_sync(service.store.find, "plans", key)
    if path.stat().st_size > SMALL:
        asked = work("explain", {"plan": stored("plans", key), "address": address})
        return str((await service.sandbox.run(asked))["text"])
    return await service.in_turn(lambda: explain(plan_from_json(path.read_bytes()), address))


async def part_of_plan(service: Service, key: str, pointer: str) -> bytes:
    """The part of a stored plan at a JSON pointer; a big plan is read in a child.

    Raises:
      Refused: no such plan.
      PlannerError: no pointer, or nothing is there.
    """
    path = await run_sync(service.store.find, "plans", key)
    if path.stat().st_size <= SMALL:
        return await service.in_turn(lambda: part(path.read_bytes(), pointer))
    tag = answer_tag("part", [key], {"pointer": pointer})
    sources: list[Source] = [("plans", key)]
    answer = await run_sync(_kept, service, tag, sources)
    if answer is None:
        asked = {"plan": stored("plans", key), "pointer": pointer}
        answer = await _made(service, "part", asked, tag, sources)
    with closing(answer):
        return await run_sync(answer.path.read_bytes)


def page_of_lines(path: Path, limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
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
