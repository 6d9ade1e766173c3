"""Service: what routes work with, and the work itself, one function a route; planning is in `planning`.

What strangers send is read in a child (`sandbox`); this process only moves files. Source: design 06.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from api.bodies import Gate
from api.problems import unknown
from api.sandbox import Sandbox
from api.schemas import ExportRequest, ModelRequest
from api.settings import Settings
from api.store import Store, digest_of
from api.writes import Writes
from planner.target.load import load_target, target_ids
from planner.target.records import Target


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts; `threads` bounds planning in this process."""

    settings: Settings
    store: Store
    sandbox: Sandbox
    threads: CapacityLimiter
    targets: Mapping[str, Target]
    writes: Writes
    gate: Gate


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


async def export_plan(service: Service, request: ExportRequest) -> dict[str, Any]:
    """Write a stored plan of a stored model in a format, in a child; the file becomes a blob."""
    store = service.store
    model = store.find("blobs", store.read_json("models", request.model)["blob"])
    plan = await service.writes.find(request.plan)
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


async def lint_target(service: Service, text: Path) -> dict[str, Any]:
    """Say what is wrong or odd in a target description, in a child."""
    return await service.sandbox.run("lint", text=str(text), reads=0)
