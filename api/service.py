"""Service: what routes work with, and the work itself, one function a route; planning is in `planning`.

What strangers send is read in a child (`sandbox`); this process only moves files. Source: design 06.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from api.bodies import Gate
from api.live import Live
from api.problems import Refused
from api.sandbox import Sandbox
from api.schemas import ExportRequest
from api.settings import Settings
from api.shelf import Shelf
from api.store import Store, digest_of
from api.uploads import Uploads
from api.writes import Writes


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts; `threads` bounds planning in this process."""

    settings: Settings
    store: Store
    sandbox: Sandbox
    threads: CapacityLimiter
    shelf: Shelf
    writes: Writes
    gate: Gate
    uploads: Uploads
    live: Live = field(default_factory=Live)


async def read_stats(service: Service, data: bytes) -> dict[str, Any]:
    """Read statistics in a child and keep them in their one layout."""
    with service.store.draft() as folder:
        (folder / "stats").write_bytes(data)
        out = folder / "out"
        summary = await service.sandbox.run(
            "stats", stats=str(folder / "stats"), out=str(out), reads=len(data)
        )
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


def model_files(store: Store, record: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """What a child needs to read a model: paths of its file and its external data, and the bytes of all.

    Args:
      record: of a model, or a request for one.

    Raises:
      Refused: a blob that is not there.
    """
    model = store.find_whole("blobs", record["blob"])
    given = record.get("external_data", ())
    external = [(entry["location"], store.find_whole("blobs", entry["blob"])) for entry in given]
    size = sum(path.stat().st_size for path in (model, *(path for _, path in external)))
    return {"model": str(model), "external": [[name, str(path)] for name, path in external]}, size


async def export_plan(service: Service, request: ExportRequest) -> dict[str, Any]:
    """Write a stored plan of a stored model in a format, in a child; the file becomes a blob."""
    store = service.store
    record = store.read_json("models", request.model)
    plan = await service.writes.find(request.plan)
    with store.draft() as folder:
        files, size = await run_sync(model_files, store, record)
        out = folder / "out"
        result = await service.sandbox.run(
            "export",
            **files,
            plan=str(plan),
            format=request.format,
            out=str(out),
            reads=size + plan.stat().st_size,
        )
        digest = await run_sync(_digest_of_file, out)
        await run_sync(store.keep, "blobs", digest, out)
    return {"blob": digest, "format": request.format, "link": f"/v1/blobs/{digest}", **result}


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


async def lint_target(service: Service, text: Path) -> dict[str, Any]:
    """Say what is wrong or odd in a target description, in a child."""
    return await service.sandbox.run("lint", text=str(text), name="text", reads=0)
