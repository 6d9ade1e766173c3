"""Service: the parts of a running server, and its work on models, statistics and target descriptions.

A child reads untrusted input (`sandbox`); this process only moves files. Source: docs/service.md.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import Engine

from planner.errors import nearest_names
from planner.plans.plan import Planned

from ..intake.request_bodies import BodyLimits
from ..intake.sandbox import Sandbox
from ..intake.turns import Turns
from ..jobs.dispatcher import Dispatcher
from ..jobs.records import made, stored, work, written
from ..jobs.residents import Residents
from ..jobs.watch import Watch
from ..problems import Refused
from ..schemas.requests import ModelRequest
from ..server.tokens import DEFAULT
from ..settings import Settings
from ..storage.digests import value_names_digest
from ..storage.followers import Source, follow
from ..storage.store import Store
from ..storage.uploads import Uploads
from .known_targets import KnownTargets
from .provenance import Origin

MOST_EDITED: Final = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts, as one principal has them: what holds files is that of his tenant.

    Attributes:
      turns: bounds planning in this process.
      edited: the last plans that were edited in this process, with all they were made from.
    """

    settings: Settings
    store: Store
    sandbox: Sandbox
    turns: Turns
    targets: KnownTargets
    body_limits: BodyLimits
    uploads: Uploads
    engine: Engine
    dispatcher: Dispatcher
    watch: Watch
    residents: Residents
    threads: CapacityLimiter
    tenant: str = DEFAULT
    principal: str = ""
    edited: deque[tuple[Origin, Planned]] = field(default_factory=partial(deque, maxlen=MOST_EDITED))

    async def in_turn(self, call: Callable[[], T]) -> T:
        """Do something that takes a while in a thread of this process, once it is the principal's turn."""
        async with self.turns.place(self.principal):
            return await run_sync(call, limiter=self.threads)


class Tenants:
    """The services of one server: each tenant has a store, targets, uploads and memory of its own."""

    def __init__(self, service: Service) -> None:
        self.own = {DEFAULT: service}
        self.of: dict[tuple[str, str], Service] = {}

    async def find(self, tenant: str, principal: str) -> Service:
        """The service of a principal."""
        found = self.of.get((tenant, principal))
        if found is None:
            if tenant not in self.own:
                self.own[tenant] = await run_sync(self._opened, tenant)
            own = self.own[tenant]
            sandbox = own.sandbox.of(own.store, principal)
            found = self.of[(tenant, principal)] = replace(own, principal=principal, sandbox=sandbox)
        return found

    def _opened(self, tenant: str) -> Service:
        service = self.own[DEFAULT]
        store = service.store.of(tenant)
        store.open()
        return replace(
            service,
            tenant=tenant,
            store=store,
            targets=KnownTargets(store, service.targets.shipped),
            uploads=Uploads(service.settings, store),
            edited=deque(maxlen=MOST_EDITED),
        )


async def read_stats(service: Service, given: Mapping[str, Any], text: bytes) -> dict[str, Any]:
    """Read statistics, or the blob that holds them, in a child and keep them in their one layout.

    Raises:
      Refused: an error in them, or no such blob.
    """
    is_blob = given.keys() == {"blob"}
    stats = stored("blobs", str(given["blob"])) if is_blob else written(text.decode())
    asked = work("stats", {"stats": stats, "out": made("stats")})
    summary = await service.sandbox.run(asked, partial(_check_names, service.store))
    return {"digest": summary.pop("kept")["out"], **summary}


def _check_names(store: Store, statistics: Path) -> None:
    """Refuse statistics of values that their model does not have, where we have the model."""
    stats = json.loads(statistics.read_bytes())
    values = value_names_digest(stats["model"])
    if not store.has("answers", values):
        return
    known = store.read_json("answers", values)
    strangers = sorted(set(stats["values"]) - set(known))
    if strangers:
        more = f", and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        near = nearest_names(strangers[0], known)
        raise Refused("unknown-value", f"the model has no value {strangers[0]!r}{more}", nearest=near)


def model_arguments(store: Store, record: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that tell a task its model: the file and its external data.

    Args:
      record: of a model, or a request for one.

    Raises:
      Refused: a blob that is not there.
    """
    given = record.get("external_data", ())
    for blob in (record["blob"], *(entry["blob"] for entry in given)):
        store.find("blobs", blob)
    external = [[entry["location"], stored("blobs", entry["blob"])] for entry in given]
    about = {"called": record.get("name", ""), "dims": record.get("dims", {})}
    return {"model": stored("blobs", record["blob"]), "external": external, **about}


async def read_model(service: Service, request: ModelRequest) -> dict[str, Any]:
    """Read an uploaded model in a child and keep the record of it."""
    record: dict[str, Any] = request.model_dump()
    store = service.store
    arguments = await run_sync(model_arguments, store, record)
    summary = await service.sandbox.run(work("model", {**arguments, "out": made("answers")}))
    names = summary.pop("kept")["out"]
    del summary["key"]
    digest = summary.pop("digest")
    blobs = (record["blob"], *(entry["blob"] for entry in record["external_data"]))
    size = sum(store.path("blobs", blob).stat().st_size for blob in blobs)
    record = {"digest": digest, **record, "bytes": size, **summary}
    source: Source = ("models", digest)
    await run_sync(follow, store, names, [source])
    await run_sync(store.put, "models", digest, json.dumps(record).encode())
    return record


def find_model(service: Service, digest: str) -> dict[str, Any]:
    """The record of a model.

    Raises:
      Refused: there is none, with the nearest.
    """
    found: dict[str, Any] = service.store.read_json("models", digest)
    return {"external_data": [], "dims": {}, **found}
