"""Models: records of what uploaded files hold, listed, given and taken away."""

import json
from typing import Any

from anyio.to_thread import run_sync

from api.jobs.records import made
from api.planning.service import Service, laid_out, model_arguments, values_of
from api.schemas.requests import ModelRequest
from api.server.responses import page_of


async def read_model(service: Service, request: ModelRequest) -> dict[str, Any]:
    """Read an uploaded model in a child and keep the record of what it is."""
    record: dict[str, Any] = request.model_dump()
    store = service.store
    asked = {**model_arguments(store, record), "out": made("answers")}
    with store.draft() as folder:
        job, size = await run_sync(laid_out, store, asked, folder)
        summary = await service.sandbox.run("model", **job, reads=size)
        await run_sync(store.keep, "answers", values_of(summary.pop("plain")), folder / "out")
    digest = summary.pop("digest")
    record = {"digest": digest, **record, "bytes": size, **summary}
    await run_sync(store.put, "models", digest, json.dumps(record).encode())
    return record


def list_models(service: Service, limit: int, cursor: str | None) -> dict[str, Any]:
    """Say what the models are, a page of them in the order of their digests."""
    digests, after = page_of(service.store.digests("models"), limit, cursor)
    return {"items": [find_model(service, digest) for digest in digests], "next": after}


def find_model(service: Service, digest: str) -> dict[str, Any]:
    """Say what one model is.

    Raises:
      Refused: there is none, with the nearest.
    """
    found: dict[str, Any] = service.store.read_json("models", digest)
    return {"external_data": [], **found}
