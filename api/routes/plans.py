"""Plans: make one, give it, explain it, and ask what if."""

from contextlib import closing
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from ..intake.request_bodies import JsonRoute
from ..planning.job_requests import answer_plan
from ..planning.stored_items import delete_plan, list_plans
from ..planning.what_if import (
    answer_from_plans,
    answer_tag,
    answer_what_if,
    explain_plan,
    page_of_lines,
    part_of_plan,
    preview,
    replan,
    report_parts,
)
from ..problems import Refused
from ..schemas.examples import NO_DIGEST, PORT, RESCALE, VALUE
from ..schemas.openapi import PLAN_REF
from ..schemas.planned import (
    Difference,
    Explanation,
    PlanPage,
    PlanSummary,
    PlanView,
    PortPage,
    Preview,
    Suggestions,
    Tradeoffs,
)
from ..schemas.requests import EditsRequest, PlanRequest
from ..server.responses import (
    JSON,
    UNCHANGING,
    file_answer,
    json_answer,
    next_link,
    require_match,
    unchanged,
)
from ..storage.answers import Answer
from .parameters import JOB, NOT_MODIFIED, IfMatch, Listed, OrderedListed, PlanKey, Sent, ServiceOf

router = APIRouter(tags=["plans"], route_class=JsonRoute)

_PLAN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a plan, qplan.plan/1",
        "content": {"application/json": {"schema": PLAN_REF}},
    }
}
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"description": "an HTML page", "content": {"text/html": {"schema": {"type": "string"}}}}
}


@router.post("/plans", operation_id="make_plan", response_class=Response, responses=_PLAN | JOB)
async def post_plan(body: PlanRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Plan a model for a target; the same request gets the same plan, from the store."""
    return await answer_plan(service, request, body, sent)


@router.get("/plans", operation_id="list_plans")
async def get_plans(
    service: ServiceOf,
    listing: OrderedListed,
    *,
    model: Annotated[
        str | None,
        Query(max_length=100, description="only plans of this model, by digest", examples=[NO_DIGEST]),
    ] = None,
    target: Annotated[
        str | None,
        Query(
            max_length=200,
            description="only plans for this target, `id` or `id@version`",
            examples=["litert-int8"],
        ),
    ] = None,
) -> PlanPage:
    """List the plans with their targets, models and quality."""
    wanted = {"model": model, "target": target}
    page = await run_sync(list_plans, service.store, listing.asked, wanted)
    return PlanPage.model_validate(listing.linked(page))


@router.delete("/plans/{key}", operation_id="delete_plan", status_code=204)
async def remove_plan(
    key: PlanKey,
    request: Request,
    service: ServiceOf,
    if_match: IfMatch = None,  # noqa: ARG001 - for OpenAPI; `require_match` reads it
) -> None:
    """Delete a plan; the same request makes it again."""
    await run_sync(service.store.find, "plans", key)
    require_match(request, key)
    await delete_plan(service, key)


@router.get(
    "/plans/{key}", operation_id="get_plan", response_class=FileResponse, responses=_PLAN | NOT_MODIFIED
)
async def get_plan(key: PlanKey, request: Request, service: ServiceOf) -> Response:
    """Get a stored plan."""
    return file_answer(request, await run_sync(service.store.find, "plans", key), key, **UNCHANGING)


@router.post("/plans/{key}:replan", operation_id="replan", response_class=Response, responses=_PLAN)
async def post_replan(key: PlanKey, body: EditsRequest, service: ServiceOf) -> Response:
    """Plan again with changed constraints, or with kernels moved back to float."""
    return Response(await replan(service, key, body), media_type=JSON)


@router.post("/plans/{key}:preview", operation_id="preview")
async def post_preview(key: PlanKey, body: EditsRequest, service: ServiceOf) -> Preview:
    """Preview the effect of changed constraints; nothing is stored, and `:replan` makes the plan."""
    return Preview.model_validate(await preview(service, key, body))


@router.get("/plans/{key}/ports", operation_id="list_ports", response_model=PortPage, responses=NOT_MODIFIED)
async def get_ports(key: PlanKey, service: ServiceOf, listing: Listed) -> Any:
    """List the ports of a plan with their types, in plan order."""
    asked = listing.asked
    with closing(await answer_from_plans(service, "ports", key)) as found:
        items, after = await run_sync(page_of_lines, found.path, asked.limit, asked.cursor)
    tag = answer_tag("ports", [key], {"limit": str(asked.limit), "cursor": asked.cursor or ""})
    answer = json_answer(listing.request, tag, lambda: {"plan": key, "items": items, "next": after})
    answer.headers.update(next_link(listing.request, after))
    return answer


@router.get(
    "/plans/{key}/explain", operation_id="explain_plan", response_model=Explanation, responses=NOT_MODIFIED
)
async def get_explanation(
    key: PlanKey,
    port: Annotated[str, Query(max_length=1000, description="port, value, kernel, rescale", examples=[PORT])],
    request: Request,
    service: ServiceOf,
) -> Any:
    """Explain the type of a port, value, kernel or rescale."""
    text = await explain_plan(service, key, port)
    tag = answer_tag("explain", [key], {"port": port})
    return json_answer(request, tag, lambda: {"plan": key, "address": port, "lines": text.splitlines()})


@router.get(
    "/plans/{key}/part",
    operation_id="get_plan_part",
    response_class=Response,
    responses={200: {"description": "JSON", "content": {JSON: {"schema": {}}}}, **NOT_MODIFIED},
)
async def get_part(
    key: PlanKey,
    pointer: Annotated[
        str,
        Query(
            max_length=1000, description="JSON pointer (RFC 6901) into the plan", examples=["/kernels/0/name"]
        ),
    ],
    request: Request,
    service: ServiceOf,
) -> Response:
    """Get the part of a plan at a JSON pointer."""
    text = await part_of_plan(service, key, pointer)
    tag = answer_tag("part", [key], {"pointer": pointer})
    headers = {"ETag": f'"{tag}"', **UNCHANGING}
    return unchanged(request, tag) or Response(text, media_type=JSON, headers=headers)


@router.get(
    "/plans/{key}/suggest",
    operation_id="suggest",
    response_class=FileResponse,
    responses={200: {"model": Suggestions}, **NOT_MODIFIED},
)
async def get_suggestions(
    key: PlanKey,
    rescale: Annotated[str, Query(max_length=1000, description="a rescale, y#0", examples=[RESCALE])],
    request: Request,
    service: ServiceOf,
) -> Response:
    """Find edits that remove a rescale, each verified by planning again, smallest first."""
    return _answered(request, await answer_what_if(service, "suggest", key, {"rescale": rescale}))


@router.get(
    "/plans/{key}/pareto",
    operation_id="pareto",
    response_class=FileResponse,
    responses={200: {"model": Tradeoffs}, **NOT_MODIFIED},
)
async def get_tradeoffs(
    key: PlanKey,
    component: Annotated[str, Query(max_length=1000, description="a value or rescale", examples=[VALUE])],
    request: Request,
    service: ServiceOf,
) -> Response:
    """List the trade-offs of a component: rescaled elements against the worst bits lost."""
    return _answered(request, await answer_what_if(service, "pareto", key, {"component": component}))


@router.get(
    "/plans/{key}/diff",
    operation_id="diff_plans",
    response_class=FileResponse,
    responses={200: {"model": Difference}, **NOT_MODIFIED},
)
async def get_difference(
    key: PlanKey,
    against: Annotated[str, Query(max_length=100, description="key of the plan after", examples=[NO_DIGEST])],
    request: Request,
    service: ServiceOf,
) -> Response:
    """Compare two plans kernel by kernel, with the reasons that changed."""
    return _answered(request, await answer_from_plans(service, "diff", key, against))


@router.get(
    "/plans/{key}/summary",
    operation_id="summarize_plan",
    response_class=FileResponse,
    responses={200: {"model": PlanSummary}, **NOT_MODIFIED},
)
async def get_summary(key: PlanKey, request: Request, service: ServiceOf) -> Response:
    """Get the totals of a plan and the reasons of its float kernels."""
    return _answered(request, await answer_from_plans(service, "summary", key))


@router.get(
    "/plans/{key}/view",
    operation_id="view_plan",
    response_class=FileResponse,
    responses={200: {"description": "qplan.view/1", "model": PlanView}, **NOT_MODIFIED},
)
async def get_view(
    key: PlanKey,
    request: Request,
    service: ServiceOf,
    before: Annotated[
        str | None,
        Query(max_length=100, description="key of a plan whose differences are marked", examples=[NO_DIGEST]),
    ] = None,
) -> Response:
    """Get the layout of a plan for drawing it."""
    return _answered(
        request, await answer_from_plans(service, "view", key, *([] if before is None else [before]))
    )


@router.get(
    "/plans/{key}/report",
    operation_id="report",
    response_class=FileResponse,
    responses=_PAGE | NOT_MODIFIED,
)
async def get_report(
    key: PlanKey,
    request: Request,
    service: ServiceOf,
    *,
    before: Annotated[
        str | None,
        Query(max_length=100, description="key of a plan; later changes are marked", examples=[NO_DIGEST]),
    ] = None,
    live: Annotated[
        bool,
        Query(description="for a page that plans again, see plans.md; not with before", examples=[False]),
    ] = False,
    pareto: Annotated[
        list[Annotated[str, Field(max_length=1000)]] | None,
        Query(max_length=8, description="values or rescales whose trade-offs are drawn", examples=[[VALUE]]),
    ] = None,
    search: Annotated[
        str | None,
        Query(max_length=100, description="blob of a search: its front is drawn", examples=[NO_DIGEST]),
    ] = None,
) -> Response:
    """Get the report of a plan: one HTML file that works offline."""
    verb = "live" if live and before is None else "report"
    given = await report_parts(service, key, pareto or [], search)
    answer = await answer_from_plans(service, verb, key, *([] if before is None else [before]), **given)
    return _answered(request, answer, "text/html; charset=utf-8", **{"Content-Disposition": "inline"})


def _answered(request: Request, answer: Answer, media: str = JSON, **headers: str) -> Response:
    """Give an answer; one that is not kept goes once it was sent."""
    try:
        given = file_answer(request, answer.path, answer.tag, media, **headers)
    except Refused:
        answer.close()
        raise
    if answer.held is not None:
        given.background = BackgroundTask(answer.close)
    return given
