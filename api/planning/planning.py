"""Planning: the one way to a plan, from its origin: out of the store, made in this process, or in a child.

A small annotated model holds no protobuf, is scanned, and cannot grow, so it is planned for a shipped target
in milliseconds by a thread of this process. Children plan every other model, and every model for a target
that was put: its conditions are untrusted, too. Source: docs/service.md.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from anyio.to_thread import run_sync
from pydantic_core import to_json

from planner.calibration.annotate import GLOB_SIGNS
from planner.calibration.statsjson import read_statistics
from planner.formats.annotated.document import annotated_from_data
from planner.ir.graph import Graph
from planner.plan_model import check_made
from planner.plans.plan import Planned
from planner.target.ports.labels import forget_labels
from planner.target.records import Target

from ..intake.scan import values_in
from ..intake.size_limits import check_sizes
from ..jobs.records import File, made, stored, work, written
from ..problems import Refused
from ..schemas.requests import PlanRequest
from ..storage.digests import digest_of
from ..storage.store import Store
from .known_targets import KnownTarget
from .provenance import Origin, apply_steps, is_before, make_plan, read_origin
from .service import Service, model_arguments

SMALL: Final = 1 << 20
INLINE_BYTES: Final = 1 << 18
INLINE_VALUES: Final = 20_000
"""Of JSON: a complaint about each of them would take kilobytes."""
MAX_SLICES: Final = 100_000
BLOCK: Final = 32
MAX_MATCHES: Final = 50_000
"""Globs of annotations and edits, times names in the model; each pair is matched."""
MOST_LABELS: Final = 1 << 10
"""Entries of about half a kilobyte that each cache of labels keeps after a plan."""


async def origin_of(service: Service, request: PlanRequest) -> Origin:
    """The origin of the plan that a request asks for.

    Raises:
      Refused: an unknown target.
    """
    target = await service.targets.find(request.target)
    asked = {**vars(request), "options": request.options.model_dump()}
    del asked["target"]
    return Origin(f"{target.id}@{target.version}", asked)


async def find_origin(service: Service, key: str) -> Origin:
    """The origin of a stored plan.

    Raises:
      Refused: no such plan, or one that another version of the planner made.
    """
    await run_sync(service.store.find, "plans", key)
    kept = await run_sync(service.store.read, "origins", key)
    if kept is None:
        raise Refused("plan-invalid", "the request of this plan was not kept", hint="send it again")
    return read_origin(kept)


async def find_or_make_plan(service: Service, origin: Origin) -> bytes:
    """Give the text of the plan of an origin.

    Raises:
      Refused: a model, statistics or target that is not there.
      PlannerError: the planner's refusal of an annotated model.
    """
    text = await plan_without_child(service, origin)
    if text is not None:
        return text
    result = await service.sandbox.run(await plan_work(service, origin))
    return await run_sync(service.store.find("plans", result["key"]).read_bytes)


async def plan_without_child(service: Service, origin: Origin) -> bytes | None:
    """Give the text of a plan that is stored, or small; None is left to a child."""
    target = await service.targets.find(origin.target)
    kept = await _stored_plan(service.store, _request_digest(origin, target))
    shipped = target.shipped
    if kept is not None or shipped is None or not _is_small(service, origin):
        return kept
    return await service.in_turn(lambda: _plan_here(service, origin, shipped))


async def plan_work(service: Service, origin: Origin) -> dict[str, Any]:
    """The work of making the plan of an origin, for a child.

    Raises:
      Refused: a model, statistics or target that is not there.
    """
    target = await service.targets.find(origin.target)
    arguments = await run_sync(plan_arguments, service, origin)
    return work("plan", arguments, link=_request_digest(origin, target), origin=origin.text.decode())


def plan_arguments(service: Service, origin: Origin) -> dict[str, Any]:
    """Arguments of the task `plan`, for an origin whose target was found; files as `File`.

    Raises:
      Refused: a model or statistics that are not there.
    """
    request, store = origin.request, service.store
    model = request["model"]
    if isinstance(model, str):
        arguments = model_arguments(store, store.read_json("models", model))
    else:
        arguments = {"model": written(to_json(model).decode()), "external": [], "dims": {}}
    return {
        **arguments,
        "stats": _stats_argument(store, request["stats"]),
        "annotations": request["annotations"],
        "target": service.targets.argument(origin.target),
        "options": request["options"],
        "steps": list(origin.steps),
        "out": made("plans"),
    }


def correction_of(service: Service, key: str) -> dict[str, Any]:
    """The argument that says how the biases of a plan's model were corrected; none where they were not.

    Raises:
      Refused: statistics or a target that are not there.
    """
    kept = service.store.read("origins", key)
    origin = None if kept is None else json.loads(kept)
    if origin is None or not origin["request"][0]["options"].get("correct_biases", False):
        return {}
    request = origin["request"][0]
    about = {name: request[name] for name in ("annotations", "options")}
    target = service.targets.argument(origin["target"])
    stats = _stats_argument(service.store, request["stats"])
    return {"correction": {**about, "stats": stats, "target": target}}


def _stats_argument(store: Store, stats: Any) -> File | None:
    if isinstance(stats, str):
        store.find("stats", stats)
        return stored("stats", stats)
    return None if stats is None else written(json.dumps(stats))


def _request_digest(origin: Origin, target: KnownTarget | Target) -> str:
    """The digest under which the plan of an origin is found; of the target, its content counts too."""
    return digest_of(origin.text + target.digest.encode())


async def _stored_plan(store: Store, digest: str) -> bytes | None:
    """The plan that answers a request, if one was kept; a small file of this machine is read at once.

    A thread would take longer than the file does.
    """
    if store.objects is None:
        path = store.path("requests", digest)
        try:
            if path.stat().st_size <= SMALL:
                return path.read_bytes()
        except FileNotFoundError:
            return None
    return await run_sync(store.read, "requests", digest)


def _is_small(service: Service, origin: Origin) -> bool:
    """Whether the model of an origin may be read in this process."""
    model, stats = origin.request["model"], origin.request["stats"]
    if isinstance(model, str) or isinstance(stats, str) or len(origin.text) > INLINE_BYTES:
        return False
    kernels = model.get("kernels")
    few = isinstance(kernels, list) and len(kernels) <= service.settings.inline_kernels
    return few and values_in(origin.text) <= INLINE_VALUES and _matches(origin) <= MAX_MATCHES


def _matches(origin: Origin) -> int:
    """The pairs of globs and names that are matched to make a plan, at most."""
    model = origin.request["model"]
    names = sum(len(part) for part in (model.get("values"), model.get("kernels")) if isinstance(part, list))
    return names * _globs_in([origin.request["annotations"], *origin.steps])


def _globs_in(asked: Any) -> int:
    """The texts with signs of a glob in annotations or edits."""
    if isinstance(asked, str):
        return int(not GLOB_SIGNS.isdisjoint(asked))
    if isinstance(asked, Mapping):
        return sum(_globs_in(key) + _globs_in(item) for key, item in asked.items())
    return sum(map(_globs_in, asked)) if isinstance(asked, list | tuple) else 0


def _plan_here(service: Service, origin: Origin, target: Target) -> bytes | None:
    """Plan in this process, and keep the plan before it is given."""
    plan = _edited_here(service, origin) or _made_here(origin, target)
    if plan is None:
        return None
    check_made(plan)
    forget_labels(MOST_LABELS)
    if origin.steps:
        service.edited.append((origin, plan))
    document = plan.to_json().encode()
    service.store.keep_plan(_request_digest(origin, target), plan.key, document, origin.text)
    return document


def _edited_here(service: Service, origin: Origin) -> Planned | None:
    """Edit the plan in memory that is the fewest edits away."""
    found = [(before, plan) for before, plan in service.edited if is_before(before, origin)]
    if not found:
        return None
    before, plan = max(found, key=lambda entry: len(entry[0].steps))
    return apply_steps(plan, origin.steps[len(before.steps) :])


def _made_here(origin: Origin, target: Target) -> Planned | None:
    """Plan a model; None where it turns out to be bigger than its kernels say."""
    request = origin.request
    graph = check_sizes(annotated_from_data(request["model"]))
    if not _is_light(graph):
        return None
    stats = None if request["stats"] is None else read_statistics(json.dumps(request["stats"]))
    return make_plan(graph, stats, target, request, origin.steps)


def _is_light(graph: Graph) -> bool:
    """Whether planning stays small: calls multiply, and so does a range per slice or block of a constant."""
    if graph.functions:
        return False
    slices = 0
    for name in graph.constants:
        value = graph.values[name]
        sizes = [dim for dim in value.shape or () if isinstance(dim, int)]
        slices += max(*sizes, value.elements // BLOCK, 1, 1)
    return slices <= MAX_SLICES
