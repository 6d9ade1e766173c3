"""Service: what routes work with, and the work itself, one function a route.

Small annotated models are planned in a thread of this process: they hold no protobuf and are scanned. All
else that strangers send is read in a child (`sandbox`). Source: design 06.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from api.problems import unknown
from api.sandbox import Sandbox
from api.schemas import ExportRequest, ModelRequest, PlanRequest
from api.settings import Settings
from api.store import Store, digest_of
from planner.annotated.document import read_annotated
from planner.calibration.annotate import annotate
from planner.calibration.statsjson import read_statistics
from planner.errors import ModelError
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.plans.explain import explain
from planner.plans.planjson import plan_from_json
from planner.propagation.propagate import propagate
from planner.target.load import load_target, target_ids
from planner.target.records import Target
from planner.version import VERSION

SMALL: Final = 1 << 20
MAX_ELEMENTS: Final = 1 << 48
MAX_SLICES: Final = 100_000
BLOCK: Final = 32


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts; `threads` bounds planning in this process."""

    settings: Settings
    store: Store
    sandbox: Sandbox
    threads: CapacityLimiter
    targets: Mapping[str, Target]


def shipped_targets() -> dict[str, Target]:
    """Load every shipped target once."""
    return {name: load_target(name) for name in target_ids()}


def find_target(service: Service, name: str) -> Target:
    """Find a target by `id` or `id@version`.

    Raises:
      Refused: there is none, with the nearest.
    """
    name_alone, _, version = name.partition("@")
    target = service.targets.get(name_alone)
    if target is None or version not in ("", target.version):
        known = [*service.targets, *(f"{t.id}@{t.version}" for t in service.targets.values())]
        raise unknown("target", name, known)
    return target


async def read_model(service: Service, request: ModelRequest) -> dict[str, Any]:
    """Read an uploaded model in a child and keep the record of what it is."""
    path = service.store.find("blobs", request.blob)
    size = path.stat().st_size
    summary = await service.sandbox.run("model", model=str(path), reads=size)
    record = {"digest": summary.pop("digest"), "blob": request.blob, "bytes": size, **summary}
    data = json.dumps(record).encode()
    await run_sync(service.store.put, "models", record["digest"], data)
    return record


async def read_stats(service: Service, data: bytes) -> dict[str, Any]:
    """Read statistics in a child and keep them in their one layout."""
    with service.store.draft() as folder:
        (folder / "stats").write_bytes(data)
        out = folder / "out"
        summary = await service.sandbox.run(
            "stats", stats=str(folder / "stats"), out=str(out), reads=len(data)
        )
        digest = digest_of(out.read_bytes())
        await run_sync(service.store.keep, "stats", digest, out)
    return {"digest": digest, **summary}


async def make_plan(service: Service, request: PlanRequest) -> bytes:
    """Answer a plan request from the store, or plan; the answer is the text of the plan.

    Raises:
      Refused: unknown digests or names, or what a child refused.
      PlannerError: what the planner refused of an annotated model.
    """
    target = find_target(service, request.target)
    digest = _request_digest(request, target)
    if service.store.has("requests", digest):
        return await run_sync(service.store.path("requests", digest).read_bytes)
    if isinstance(request.model, dict) and _is_small(service, request):
        work = partial(_plan_here, service, request, target, digest)
        text = await run_sync(work, limiter=service.threads)
        if text is not None:
            return text
    return await _plan_in_child(service, request, target, digest)


def _request_digest(request: PlanRequest, target: Target) -> str:
    parts = [request.model_dump(exclude={"target"}), target.digest, VERSION]
    return digest_of(json.dumps(parts, sort_keys=True).encode())


def _is_small(service: Service, request: PlanRequest) -> bool:
    kernels = request.model.get("kernels") if isinstance(request.model, dict) else None
    stored = isinstance(request.stats, str)
    return isinstance(kernels, list) and len(kernels) <= service.settings.inline_kernels and not stored


def _plan_here(service: Service, request: PlanRequest, target: Target, digest: str) -> bytes | None:
    """Plan in this process; None where the model turns out to be bigger than its kernels say."""
    graph = read_annotated(json.dumps(request.model))
    if not _is_light(graph):
        return None
    stats = None if request.stats is None else read_statistics(json.dumps(request.stats))
    ready = annotate(graph, stats=stats, annotations=request.annotations)
    options = request.options
    planned = propagate(
        fuse(ready, target), target, strategy=options.strategy, model=model_digest(ready), **options.costs
    )
    text = planned.to_json().encode()
    service.store.put("plans", planned.key, text)
    service.store.link(digest, planned.key)
    return text


def _is_light(graph: Graph) -> bool:
    """Whether planning stays small: a range per slice or block of a constant is what can grow.

    Raises:
      ModelError: dimensions whose product no tensor has.
    """
    slices = 0
    for value in graph.values.values():
        if value.elements > MAX_ELEMENTS or any(isinstance(d, int) and d < 0 for d in value.shape or ()):
            raise ModelError(f"value {value.name!r} has the shape {list(value.shape or ())}")
        if value.name in graph.constants:
            sizes = [dim for dim in value.shape or () if isinstance(dim, int)]
            slices += max(*sizes, value.elements // BLOCK, 1, 1)
    return slices <= MAX_SLICES and len(graph.values) <= MAX_SLICES


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
    path = service.store.find("plans", key)
    if path.stat().st_size > SMALL:
        reads = path.stat().st_size
        return str(
            (await service.sandbox.run("explain", plan=str(path), address=address, reads=reads))["text"]
        )
    return await run_sync(
        lambda: explain(plan_from_json(path.read_bytes()), address), limiter=service.threads
    )


async def export_plan(service: Service, request: ExportRequest) -> dict[str, Any]:
    """Write a stored plan of a stored model in a format, in a child; the file becomes a blob."""
    store = service.store
    model = store.find("blobs", store.read_json("models", request.model)["blob"])
    plan = store.find("plans", request.plan)
    with store.draft() as folder:
        out = folder / "out"
        result = await service.sandbox.run(
            "export",
            model=str(model),
            plan=str(plan),
            format=request.format,
            out=str(out),
            reads=model.stat().st_size + plan.stat().st_size,
        )
        digest = await run_sync(_digest_of_file, out)
        await run_sync(store.keep, "blobs", digest, out)
    return {"blob": digest, "format": request.format, "link": f"/v1/blobs/{digest}", **result}


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


async def lint_target(service: Service, data: bytes) -> dict[str, Any]:
    """Say what is wrong or odd in a target description, in a child."""
    with service.store.draft() as folder:
        (folder / "target").write_bytes(data)
        return await service.sandbox.run("lint", text=str(folder / "target"), reads=len(data))
