"""Planning over HTTP: small annotated models here, all others in a child; answers come from the store.

A small annotated model holds no protobuf, is scanned, and cannot grow, so it is planned in a thread of this
process within milliseconds. Source: design 06, "Shape".
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio.to_thread import run_sync
from pydantic_core import to_json

from api.intake.scan import values_in
from api.intake.size_limits import check_extent
from api.jobs.records import File, made, stored, written
from api.planning.provenance import Origin, origin_text, read_origin
from api.planning.service import Asked, Service, laid_out, model_arguments
from api.problems import Refused
from api.schemas.requests import PlanRequest
from api.storage.store import Store, digest_of
from planner.annotated.document import annotated_from_data
from planner.calibration.annotate import annotate
from planner.calibration.statsjson import read_statistics
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.plans.explain import explain
from planner.plans.plan import Plan, for_model
from planner.plans.read_json import plan_from_json
from planner.propagation.propagate import propagate
from planner.target.records import Target
from planner.version import MADE_BY

SMALL: Final = 1 << 20
INLINE_BYTES: Final = 1 << 18
INLINE_VALUES: Final = 20_000
"""Of JSON: what is wrong with each of them would take kilobytes to say."""
MAX_SLICES: Final = 100_000
BLOCK: Final = 32
MOST_ASKED: Final = 4096


async def plan_again(service: Service, body: str) -> bytes | None:
    """Answer a body, by its digest, from the store that this process answered before; it need not be read."""
    asked = service.asked.get(body)
    if asked is None or (await service.shelf.find(asked.target)).digest != asked.target_digest:
        return None
    return await _answered(service.store, asked.digest)


def note_asked(service: Service, body: str, asked: Asked) -> None:
    """Note which request a body is, to know it again; of too many, the oldest is forgotten."""
    if len(service.asked) >= MOST_ASKED:
        service.asked.pop(next(iter(service.asked)))
    service.asked[body] = asked


async def plan_at_once(
    service: Service, request: PlanRequest, body: str | None = None
) -> bytes | tuple[Origin, str]:
    """Answer a plan request from the store, or plan a small model here.

    Args:
      body: digest of the request as it came, to know it again.

    Returns:
      The text of the plan; for what is left to a child, its origin and the digest of the request.

    Raises:
      Refused: unknown digests or names.
      PlannerError: what the planner refused of an annotated model.
    """
    target = await service.shelf.find(request.target)
    asked = {**vars(request), "options": request.options.model_dump()}
    del asked["target"]
    whole = to_json([asked, target.digest, MADE_BY])
    digest = digest_of(whole)
    if body is not None:
        note_asked(service, body, Asked(request.target, target.digest, digest))
    kept = await _answered(service.store, digest)
    if kept is not None:
        return kept
    origin = origin_text(_full_name(target), whole)
    light = len(whole) <= INLINE_BYTES and values_in(whole) <= INLINE_VALUES
    if light and is_small(service, request.model, request.stats):
        planned = partial(_planned_here, service.store, digest, asked, target, origin)
        text = await run_sync(planned, limiter=service.threads)
        if text is not None:
            return text
    return read_origin(origin), digest


async def _answered(store: Store, digest: str) -> bytes | None:
    """The plan that answers a request, if one was kept; a small file of this machine is read at once.

    A thread would take longer than the file does.
    """
    if store.objects is None:
        path = store.path("requests", digest)
        try:
            if path.stat().st_size <= SMALL:
                return path.read_bytes()
        except FileNotFoundError:
            return None
    return await run_sync(store.read, "requests", digest)


def _full_name(target: Target) -> str:
    return f"{target.id}@{target.version}"


def is_small(service: Service, model: str | Mapping[str, Any], stats: str | Mapping[str, Any] | None) -> bool:
    """Whether a request's own model may be planned in this process."""
    kernels = model.get("kernels") if isinstance(model, Mapping) else None
    stored = isinstance(stats, str)
    return isinstance(kernels, list) and len(kernels) <= service.settings.inline_kernels and not stored


def _planned_here(
    store: Store, digest: str, asked: Mapping[str, Any], target: Target, origin: bytes
) -> bytes | None:
    """Text of a plan made here, on disk before it is given."""
    planned = plan_here(asked, target)
    if planned is None:
        return None
    text = planned.to_json().encode()
    store.keep_plan(digest, planned.key, text, origin)
    return text


def plan_here(request: Mapping[str, Any], target: Target) -> Plan | None:
    """Plan in this process; None where the model turns out to be bigger than its kernels say."""
    graph = check_extent(annotated_from_data(request["model"]))
    if not _is_light(graph):
        return None
    stats = None if request["stats"] is None else read_statistics(json.dumps(request["stats"]))
    ready = annotate(graph, stats=stats, annotations=request["annotations"])
    options = request["options"]
    planned = propagate(
        fuse(ready, target),
        target,
        strategy=options["strategy"],
        model=model_digest(ready),
        best_effort=options["best_effort"],
        bias_pins=options["bias_pins"],
        depths=None,
        **options["costs"],
    )
    return for_model(planned, ready)


def _is_light(graph: Graph) -> bool:
    """Whether planning stays small: calls multiply, and so does a range per slice or block of a constant."""
    if graph.functions:
        return False
    slices = 0
    for name in graph.constants:
        value = graph.values[name]
        sizes = [dim for dim in value.shape or () if isinstance(dim, int)]
        slices += max(*sizes, value.elements // BLOCK, 1, 1)
    return slices <= MAX_SLICES


async def plan_in_child(service: Service, origin: Origin, digest: str) -> bytes:
    """Make the plan of an origin in a child, and keep it as the answer of a request."""
    store = service.store
    with store.draft() as folder:
        job = await lay_out_job(service, origin, folder)
        result = await service.sandbox.run("plan", **job)
        await run_sync(store.put, "origins", result["key"], origin.to_json())
        await run_sync(store.keep, "plans", result["key"], folder / "out")
    await run_sync(store.link, digest, result["key"])
    return await run_sync(store.path("plans", result["key"]).read_bytes)


async def lay_out_job(service: Service, origin: Origin, folder: Path) -> dict[str, Any]:
    """Say what a child needs to make the plan of an origin: files in a draft's folder, the rest as data.

    Raises:
      Refused: a model, statistics or target that is not there any more.
    """
    await service.shelf.find(origin.target)
    return await run_sync(_lay_out_job, service, origin, folder)


def _lay_out_job(service: Service, origin: Origin, folder: Path) -> dict[str, Any]:
    job, reads = laid_out(service.store, plan_arguments(service, origin), folder)
    return {**job, "reads": reads}


def plan_arguments(service: Service, origin: Origin) -> dict[str, Any]:
    """What the task `plan` wants to know of an origin, whose target is on the shelf; files as `File`.

    Raises:
      Refused: a model, statistics or target that is not there any more.
    """
    request, store = origin.request, service.store
    model, stats = request["model"], request["stats"]
    text = service.shelf.text(origin.target)
    return {
        **(
            model_arguments(store, store.read_json("models", model))
            if isinstance(model, str)
            else {"model": written(json.dumps(model)), "external": []}
        ),
        "stats": _stats_file(store, stats),
        "annotations": request["annotations"],
        "target": {"name": text[1], "text": text[0]} if text else {"name": origin.target.partition("@")[0]},
        "options": request["options"],
        "steps": list(origin.steps),
        "out": made("plans"),
    }


def _stats_file(store: Store, stats: str | Mapping[str, Any] | None) -> File | None:
    if isinstance(stats, str):
        store.find("stats", stats)
        return stored("stats", stats)
    return None if stats is None else written(json.dumps(stats))


async def find_origin(service: Service, key: str) -> Origin:
    """Where a plan comes from.

    Raises:
      Refused: no such plan, or one that another version of the planner made.
    """
    await run_sync(service.store.find, "plans", key)
    kept = await run_sync(service.store.read, "origins", key)
    if kept is None:
        raise Refused("plan-invalid", "the request of this plan was not kept", hint="send it again")
    return read_origin(kept)


async def explain_plan(service: Service, key: str, address: str) -> str:
    """Explain an address of a stored plan; a big plan is read in a child."""
    path = await run_sync(service.store.find, "plans", key)
    if path.stat().st_size > SMALL:
        reads = path.stat().st_size
        return str(
            (await service.sandbox.run("explain", plan=str(path), address=address, reads=reads))["text"]
        )
    return await run_sync(
        lambda: explain(plan_from_json(path.read_bytes()), address), limiter=service.threads
    )
