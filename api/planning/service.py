"""Service: what routes work with, and the work itself, one function a route; planning is in `planning`.

What strangers send is read in a child (`sandbox`); this process only moves files. Source: design 06.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import Engine

from api.intake.bodies import Gate
from api.intake.sandbox import Sandbox
from api.jobs.dispatcher import Dispatcher
from api.jobs.records import File, made, stored
from api.planning.known_targets import Shelf
from api.planning.plan_cache import Live
from api.problems import Refused
from api.schemas.requests import ExportRequest
from api.settings import Settings
from api.storage.store import Kind, Store, digest_of, digest_of_file
from api.storage.uploads import Uploads


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan request: the name of its target and the digest that this had, and the request's own digest."""

    target: str
    target_digest: str
    digest: str


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts.

    Attributes:
      threads: bounds planning in this process.
      asked: plan requests by the digests of their bodies.
    """

    settings: Settings
    store: Store
    sandbox: Sandbox
    threads: CapacityLimiter
    shelf: Shelf
    gate: Gate
    uploads: Uploads
    engine: Engine
    dispatcher: Dispatcher
    live: Live = field(default_factory=Live)
    asked: dict[str, Asked] = field(default_factory=dict)


async def read_stats(service: Service, given: Mapping[str, Any], text: bytes) -> dict[str, Any]:
    """Read statistics, or the blob that holds them, in a child and keep them in their one layout.

    Raises:
      Refused: what is wrong with them, or no such blob.
    """
    with service.store.draft() as folder:
        path, out = folder / "stats", folder / "out"
        if given.keys() == {"blob"}:
            path = await run_sync(service.store.find_whole, "blobs", str(given["blob"]))
        else:
            path.write_bytes(text)
        reads = path.stat().st_size
        summary = await service.sandbox.run("stats", stats=str(path), out=str(out), reads=reads)
        await run_sync(_check_names, service.store, out)
        digest = digest_of(out.read_bytes())
        await run_sync(service.store.keep, "stats", digest, out)
    return {"digest": digest, **summary}


def _check_names(store: Store, written: Path) -> None:
    """Refuse statistics of values that their model does not have, where we have the model."""
    stats = json.loads(written.read_bytes())
    values = values_of(stats["model"])
    if not store.has("answers", values):
        return
    known = store.read_json("answers", values)
    strangers = sorted(set(stats["values"]) - set(known))
    if strangers:
        more = f", and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        near = get_close_matches(strangers[0], known, n=3, cutoff=0.4)
        raise Refused("unknown-value", f"the model has no value {strangers[0]!r}{more}", nearest=near)


def values_of(plain: str) -> str:
    """Under which answer the names of a model's values are kept, by its digest without facts."""
    return digest_of(f"values {plain}".encode())


def model_arguments(store: Store, record: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a task of a model: its file and its external data.

    Args:
      record: of a model, or a request for one.

    Raises:
      Refused: a blob that is not there.
    """
    given = record.get("external_data", ())
    for blob in (record["blob"], *(entry["blob"] for entry in given)):
        store.find("blobs", blob)
    external = [[entry["location"], stored("blobs", entry["blob"])] for entry in given]
    return {"model": stored("blobs", record["blob"]), "external": external}


def laid_out(store: Store, arguments: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], int]:
    """Arguments of a task with paths for their files, and the bytes that the task reads.

    Args:
      folder: a draft's, for files that are written now, and for what the task makes.

    Raises:
      Refused: a file that is not there, or damaged.
    """
    reads = 0

    def path(key: str, item: Any) -> Any:
        nonlocal reads
        if isinstance(item, Mapping):
            return {name: path(name, inner) for name, inner in item.items()}
        if isinstance(item, list):
            return [path(f"{key}{k}", inner) for k, inner in enumerate(item)]
        if not isinstance(item, File):
            return item
        if item.how == "made":
            return str(folder / key)
        if item.how == "stored":
            found = store.find_whole(cast(Kind, item.what[0]), item.what[1])
        else:
            found = folder / f"{key}.given"
            found.write_text(item.what[0], encoding="utf-8")
        reads += found.stat().st_size
        return str(found)

    return path("", arguments), reads


async def export_plan(service: Service, request: ExportRequest) -> dict[str, Any]:
    """Write a stored plan of a stored model in a format, in a child; the file becomes a blob."""
    store = service.store
    record = await run_sync(store.read_json, "models", request.model)
    await run_sync(store.find, "plans", request.plan)
    plan, out = stored("plans", request.plan), made("blobs")
    asked = {**model_arguments(store, record), "plan": plan, "format": request.format, "out": out}
    with store.draft() as folder:
        job, reads = await run_sync(laid_out, store, asked, folder)
        result = await service.sandbox.run("export", **job, reads=reads)
        digest = await run_sync(digest_of_file, folder / "out")
        await run_sync(store.keep, "blobs", digest, folder / "out")
    return {"blob": digest, "format": request.format, "link": f"/v1/blobs/{digest}", **result}


async def lint_target(service: Service, text: Path) -> dict[str, Any]:
    """Say what is wrong or odd in a target description, in a child."""
    return await service.sandbox.run("lint", text=str(text), name="text", reads=0)
