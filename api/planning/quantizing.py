"""Quantizing: the work of a whole quantization and its answer; `jobs.fan_out` takes its steps.

Each step is a work of another kind of job, so nothing is decided here. Source: docs/service.md.
"""

from collections.abc import Mapping
from typing import Any, Final

from anyio.to_thread import run_sync

from ..jobs.records import carried, stored, work
from ..jobs.task_names import QUANTIZE
from ..problems import Refused, unknown
from ..schemas.quantized import QuantizationRequest
from ..schemas.requests import ModelRequest, PlanOptions, PlanRequest
from ..storage.followers import Source, follow
from .planning import origin_of, plan_arguments
from .searching import state_digest
from .service import Service, read_model

SEARCHED: Final = ("effort", "metric", "output")
"""Fields that the search of a request has too."""


async def quantization_work(service: Service, request: QuantizationRequest) -> dict[str, Any]:
    """The work of a whole quantization; a model that only lies in a blob is read first.

    Raises:
      Refused: a model, target or blob that is not there, or no model.
    """
    store = service.store
    target = await service.targets.find(request.target)
    model = await _known_model(service, request)
    evaluated = request.eval_samples or request.samples
    for blob in (request.samples, evaluated):
        await run_sync(store.find, "blobs", blob)
    options = PlanOptions(formats=[request.format], correct_biases=True)
    planned = PlanRequest(
        model=model, target=request.target, stats=None, annotations=request.annotations, options=options
    )
    origin = await origin_of(service, planned)
    arguments = await run_sync(plan_arguments, service, origin)
    # What a search measures rests on the statistics too, which follow from these.
    measured = {name: getattr(request, name) for name in ("samples", "eval_samples", "method", *SEARCHED[1:])}
    state = state_digest(origin.text, target.digest, measured)
    sources: list[Source] = [("models", model), ("blobs", request.samples), ("blobs", evaluated)]
    await run_sync(follow, store, state, sources)
    asked = {name: getattr(request, name) for name in ("method", "format", *SEARCHED)}
    told = {"format": request.format, "samples": evaluated, "held_out": request.eval_samples is not None}
    files = {
        "samples": stored("blobs", request.samples),
        "evaluated": stored("blobs", evaluated),
        "state": carried(state),
    }
    return work(QUANTIZE, {**arguments, **asked, **files, "told": told}, origin=origin.text.decode())


async def _known_model(service: Service, request: QuantizationRequest) -> str:
    """The digest of the model that a request names, itself or by its blob.

    Raises:
      Refused: neither is there; sizes or a name for a model that has them already.
    """
    given, store = request.model, service.store
    if await run_sync(store.has, "models", given):
        if request.dims or request.name:
            field = "dims" if request.dims else "name"
            raise Refused("input-invalid", f"{field} belongs to a model that is read from a blob")
        return given
    if not await run_sync(store.has, "blobs", given):
        raise unknown("model or blob", given, [])
    record = await read_model(service, ModelRequest(blob=given, dims=request.dims, name=request.name))
    return str(record["digest"])


def quantization_answer(told: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a whole quantization, from what is told of its work and the result of that."""
    export, quality, plan = result["export"], result["quality"], result["plan"]
    blob = export["kept"]["out"]
    parts = ("keep_float", "accuracy", "coverage")
    reason = quality["reason"] or quality["text"]
    search = result["search"] or {"trials": 0, "given_up": ""}
    return {
        "file": blob,
        "format": told["format"],
        "bytes": export["bytes"],
        "link": f"/v1/blobs/{blob}",
        "model": told["model"],
        "stats": result["stats"],
        "plan": plan,
        "report": f"/v1/plans/{plan}/report",
        "verdict": {"level": quality["grade"], "reason": reason, **{name: quality[name] for name in parts}},
        "quality": quality,
        "trials": search["trials"],
        "given_up": search["given_up"],
        "warnings": result["warnings"],
    }
