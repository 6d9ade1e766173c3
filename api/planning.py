"""Planning over HTTP: small annotated models here, all others in a child; answers come from the store.

A small annotated model holds no protobuf, is scanned, and cannot grow, so it is planned in a thread of this
process within milliseconds. Source: design 06, "Shape".
"""

import json
from functools import partial
from typing import Final

from anyio.to_thread import run_sync

from api.extent import check_extent
from api.schemas import PlanRequest
from api.service import Service, find_target
from api.store import digest_of
from planner.annotated.document import read_annotated
from planner.calibration.annotate import annotate
from planner.calibration.statsjson import read_statistics
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.plans.explain import explain
from planner.plans.planjson import plan_from_json
from planner.propagation.propagate import propagate
from planner.target.records import Target
from planner.version import VERSION

SMALL: Final = 1 << 20
INLINE_BYTES: Final = 1 << 18
MAX_SLICES: Final = 100_000
BLOCK: Final = 32


async def make_plan(service: Service, request: PlanRequest) -> bytes:
    """Answer a plan request from the store, or plan; the answer is the text of the plan.

    Raises:
      Refused: unknown digests or names, or what a child refused.
      PlannerError: what the planner refused of an annotated model.
    """
    target = find_target(service, request.target)
    whole = _request_text(request, target)
    digest = digest_of(whole)
    if service.store.has("requests", digest):
        return await run_sync(service.store.path("requests", digest).read_bytes)
    if len(whole) <= INLINE_BYTES and _is_small(service, request):
        made = await run_sync(partial(_plan_here, request, target), limiter=service.threads)
        if made is not None:
            await service.writes.begin(digest, *made)
            return made[1]
    return await _plan_in_child(service, request, target, digest)


def _request_text(request: PlanRequest, target: Target) -> bytes:
    parts = [request.model_dump(exclude={"target"}), target.digest, VERSION]
    return json.dumps(parts, sort_keys=True).encode()


def _is_small(service: Service, request: PlanRequest) -> bool:
    kernels = request.model.get("kernels") if isinstance(request.model, dict) else None
    stored = isinstance(request.stats, str)
    return isinstance(kernels, list) and len(kernels) <= service.settings.inline_kernels and not stored


def _plan_here(request: PlanRequest, target: Target) -> tuple[str, bytes] | None:
    """Plan in this process; None where the model turns out to be bigger than its kernels say."""
    graph = check_extent(read_annotated(json.dumps(request.model)))
    if not _is_light(graph):
        return None
    stats = None if request.stats is None else read_statistics(json.dumps(request.stats))
    ready = annotate(graph, stats=stats, annotations=request.annotations)
    options = request.options
    planned = propagate(
        fuse(ready, target),
        target,
        strategy=options.strategy,
        model=model_digest(ready),
        best_effort=False,
        bias_pins="error",
        depths=None,
        **options.costs,
    )
    return planned.key, planned.to_json().encode()


def _is_light(graph: Graph) -> bool:
    """Whether planning stays small: a range per slice or block of a constant is what can grow."""
    slices = 0
    for name in graph.constants:
        value = graph.values[name]
        sizes = [dim for dim in value.shape or () if isinstance(dim, int)]
        slices += max(*sizes, value.elements // BLOCK, 1, 1)
    return slices <= MAX_SLICES


async def _plan_in_child(service: Service, request: PlanRequest, target: Target, digest: str) -> bytes:
    store = service.store
    with store.draft() as folder:
        if isinstance(request.model, dict):
            model = folder / "model"
            model.write_text(json.dumps(request.model), encoding="utf-8")
        else:
            model = store.find("blobs", store.read_json("models", request.model)["blob"])
        stats = folder / "stats" if isinstance(request.stats, dict) else None
        if stats is not None:
            stats.write_text(json.dumps(request.stats), encoding="utf-8")
        elif isinstance(request.stats, str):
            stats = store.find("stats", request.stats)
        result = await service.sandbox.run(
            "plan",
            model=str(model),
            stats=None if stats is None else str(stats),
            annotations=request.annotations,
            target=target.id,
            strategy=request.options.strategy,
            costs=request.options.costs,
            out=str(folder / "plan"),
            reads=model.stat().st_size + (0 if stats is None else stats.stat().st_size),
        )
        await run_sync(store.keep, "plans", result["key"], folder / "plan")
    await run_sync(store.link, digest, result["key"])
    return await run_sync(store.path("plans", result["key"]).read_bytes)


async def explain_plan(service: Service, key: str, address: str) -> str:
    """Explain an address of a stored plan; a big plan is read in a child."""
    path = await service.writes.find(key)
    if path.stat().st_size > SMALL:
        reads = path.stat().st_size
        return str(
            (await service.sandbox.run("explain", plan=str(path), address=address, reads=reads))["text"]
        )
    return await run_sync(
        lambda: explain(plan_from_json(path.read_bytes()), address), limiter=service.threads
    )
