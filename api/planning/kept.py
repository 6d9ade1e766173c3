"""Kept things: lists of plans, statistics and blobs, and taking them away.

A list reads no documents but the origins and qualities of its plans. Source: docs/service.md.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.errors import PlannerError

from ..problems import Refused
from ..server.responses import page_of
from ..storage.digests import digest_of
from ..storage.followers import drop_followers, followers
from ..storage.store import Kind, Store
from .plan_answers import quality_of
from .service import Service


def list_files(store: Store, kind: Kind, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of the files of a kind, with their sizes, in the order of their digests."""
    digests, after = page_of(store.digests(kind), limit, cursor)
    paths = ((digest, store.look(kind, digest)) for digest in digests)
    items = [{"digest": digest, "bytes": path.stat().st_size} for digest, path in paths if path is not None]
    return {"items": items, "next": after}


def list_plans(store: Store, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of the records of plans, in the order of their keys."""
    keys, after = page_of(store.digests("plans"), limit, cursor)
    paths = ((key, store.look("plans", key)) for key in keys)
    return {"items": [_record(store, key, path) for key, path in paths if path is not None], "next": after}


def _record(store: Store, key: str, path: Path) -> dict[str, Any]:
    """What is known of a plan without reading it; one whose request was not kept has no more than a size."""
    quality = store.read("qualities", key)
    record = {
        "key": key,
        "bytes": path.stat().st_size,
        "link": f"/v1/plans/{key}",
        "quality": quality_of(None if quality is None else json.loads(quality)),
    }
    text = store.read("origins", key)
    if text is None:
        return record
    origin = json.loads(text)
    request, *_, version = origin["request"]
    named = {name: request[name] if isinstance(request[name], str) else None for name in ("model", "stats")}
    return {**record, **named, "target": origin["target"], "edits": len(origin["steps"]), "version": version}


async def delete_plan(service: Service, key: str) -> None:
    """Take a plan away, with its origin, its quality, what follows from it, and the links of its requests.

    Raises:
      Refused: there is none, with the nearest.
    """
    store = service.store
    path = store.find("plans", key)
    text = store.read("origins", key)
    if text is not None:
        try:
            target = await service.targets.find(json.loads(text)["target"])
        except (
            PlannerError,
            Refused,
        ):  # gone, or a description that this version cannot load has no plans made by it either
            target = None
        if target is not None:
            _drop(store, "requests", digest_of(text + target.digest.encode()))
        _drop(store, "origins", key)
    _drop(store, "qualities", key)
    for link in list(_links(store, path)):
        _drop(store, "requests", link)
    store.drop("plans", key)
    drop_followers(store, key)


def delete_model(store: Store, digest: str) -> None:
    """Take the record of a model away; the names of its values stay where another model has the same.

    Raises:
      Refused: there is none, with the nearest.
    """
    store.drop("models", digest)
    others = frozenset(name for other in store.digests("models") for name in followers(store, other))
    drop_followers(store, digest, others)


def delete_file(store: Store, kind: Kind, digest: str) -> None:
    """Take a file away, with what follows from it.

    Raises:
      Refused: there is none, with the nearest.
    """
    store.drop(kind, digest)
    drop_followers(store, digest)


def _links(store: Store, plan: Path) -> Iterator[str]:
    """Digests of further requests that lead to a plan: each is another name of its file."""
    stands = plan.stat()
    if stands.st_nlink == 1:
        return
    for path in (store.root / "requests").glob("*/*"):
        if path.stat().st_ino == stands.st_ino:
            yield f"sha256:{path.name}"


def _drop(store: Store, kind: Kind, digest: str) -> None:
    if store.has(kind, digest):
        with suppress(Refused):  # somebody else just did
            store.drop(kind, digest)
