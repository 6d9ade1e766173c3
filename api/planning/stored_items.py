"""Stored items: lists of plans, statistics and blobs, and deleting them.

A list reads no documents but the origins and qualities of its plans. Source: docs/service.md.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from planner.errors import PlannerError

from ..problems import Refused
from ..server.responses import Order, PageRequest, no_cursor, page_of_records, read_cursor
from ..storage.digests import DIGEST, digest_of
from ..storage.followers import drop_followers, followers
from ..storage.store import Kind, Store
from .plan_answers import quality_of
from .service import Service, find_model

MOST_LOOKS: Final = 2000
"""Records that one page of a filtered list looks at."""
_PLACES: Final[Mapping[Order, re.Pattern[str]]] = {
    "name": re.compile(DIGEST),
    "newest": re.compile(rf"\d{{19}} {DIGEST.removeprefix('^')}"),
}
"""The pattern of a cursor of each order: a place in one order is none in the other."""
T = TypeVar("T")


def list_files(store: Store, kind: Kind, page: PageRequest) -> dict[str, Any]:
    """A page of the files of a kind, with their sizes."""

    def record(name: str) -> dict[str, Any] | None:
        path = store.look(kind, digest_in(name))
        return None if path is None else {"digest": digest_in(name), "bytes": path.stat().st_size}

    return _page(store, kind, page, record)


def list_plans(
    store: Store, page: PageRequest, wanted: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """A page of the records of plans.

    Args:
      wanted: what fields of a record are to be; a `target` without a version is any version of it.
    """
    asked = {name: text for name, text in (wanted or {}).items() if text is not None}

    def record(name: str) -> dict[str, Any] | None:
        key = digest_in(name)
        path = store.look("plans", key)
        found = None if path is None else _record(store, key, path)
        return found if found is not None and _is_wanted(found, asked) else None

    return _page(store, "plans", page, record, MOST_LOOKS if asked else 0)


def list_models(
    service: Service, page: PageRequest, wanted: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """A page of the records of models; `wanted` as for plans."""
    store = service.store
    asked = {name: text for name, text in (wanted or {}).items() if text is not None}

    def record(name: str) -> dict[str, Any] | None:
        if not store.has("models", digest_in(name)):  # gone since
            return None
        found = find_model(service, digest_in(name))
        return found if _is_wanted(found, asked) else None

    return _page(store, "models", page, record, MOST_LOOKS if asked else 0)


def _page(
    store: Store, kind: Kind, page: PageRequest, record: Callable[[str], T | None], looks: int = 0
) -> dict[str, Any]:
    """Return a page of records of a kind and the cursor of the next.

    Raises:
      Refused: a cursor that no page in this order gave.
    """
    place = read_cursor(page.cursor)
    if place and not _PLACES[page.order].fullmatch(place):
        raise no_cursor()
    names = names_of(store, kind, page.order)
    items, after = page_of_records(names, page.limit, page.cursor, record, looks)
    return {"items": items, "next": after}


def names_of(store: Store, kind: Kind, order: Order) -> Iterator[str]:
    """Texts in whose order a list is: digests, or what sorts the newest first; `digest_in` reads both."""
    return store.digests(kind) if order == "name" else store.by_age(kind)


def digest_in(name: str) -> str:
    """The digest in a text of `names_of`."""
    return name.rpartition(" ")[2]


def _is_wanted(record: Mapping[str, Any], asked: Mapping[str, str]) -> bool:
    for name, text in asked.items():
        found = str(record.get(name))
        if found != text and not (name == "target" and found.partition("@")[0] == text):
            return False
    return True


def _record(store: Store, key: str, path: Path) -> dict[str, Any]:
    """The record of a plan without reading it; one whose request was not kept has no more than a size."""
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
