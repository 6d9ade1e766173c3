"""Searching: the work of a search, and its answer; a child searches.

Source: docs/service.md; docs/accuracy.md.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from anyio.to_thread import run_sync

from planner.plan_search.goals import goal_of

from ..jobs.records import carried, made, stored, work
from ..schemas.requests import PlanRequest, SearchRequest
from ..storage.digests import digest_of
from ..storage.followers import Source, follow
from .planning import origin_of, plan_arguments
from .service import Service

ASKED: Final = ("goal", "effort", "metric", "output", "trials", "reference")
MEASURED: Final = ("samples", "metric", "output", "reference")
"""Beside model, constraints and target: what measurements rest on, whatever the goal."""


async def search_work(service: Service, request: SearchRequest) -> dict[str, Any]:
    """The work of a search.

    Raises:
      Refused: a model, statistics, target or blob that is not there.
      InputError, UnknownName: no goal.
    """
    if request.goal is not None:
        goal_of(request.goal)
    target = await service.targets.find(request.target)
    given = ("model", "target", "stats", "annotations")
    origin = await origin_of(service, PlanRequest(**{name: getattr(request, name) for name in given}))
    arguments = await run_sync(plan_arguments, service, origin)
    await run_sync(service.store.find, "blobs", request.samples)
    asked = {name: getattr(request, name) for name in ASKED}
    if request.effort is not None and "trials" not in request.model_fields_set:
        asked["trials"] = None  # as many as the effort has
    measured = {name: getattr(request, name) for name in MEASURED}
    # Plans of an effort are measured as files are used, others as they are written.
    measured |= {} if request.effort is None else {"effort": True}
    state = state_digest(origin.text, target.digest, measured)
    model = request.model
    sources: list[Source] = [("blobs", request.samples)]
    sources += [("models", model)] if isinstance(model, str) else []
    await run_sync(follow, service.store, state, sources)
    files = {"samples": stored("blobs", request.samples), "state": carried(state), "out": made("blobs")}
    return work("search", {**arguments, **asked, **files}, origin=origin.text.decode())


def state_digest(origin: bytes, target: str, measured: Mapping[str, Any]) -> str:
    """The digest under which measurements are kept, for searches that may go on with them.

    Args:
      origin: of the plan without wishes; it names the version of the planner.
      target: digest of its content.
    """
    return digest_of(json.dumps([origin.decode(), target, measured]).encode())


def search_answer(_: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a search, from the result of its work."""
    about = {name: item for name, item in result.items() if name != "kept"}
    return {**about, "blob": result["kept"]["out"], "link": f"/v1/plans/{result['plan']}"}
