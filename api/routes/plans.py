"""Plans: make, give, explain."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.responses import FileResponse

from api.bodies import JsonRoute
from api.examples import PORT
from api.planning import explain_plan, make_plan
from api.routes.parts import PlanKey, ServiceOf
from api.schemas import Explanation, PlanRequest

router = APIRouter(tags=["plans"], route_class=JsonRoute)

_PLAN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a plan, qplan.plan/1",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.post("/plans", operation_id="make_plan", response_class=Response, responses=_PLAN)
async def post_plan(body: PlanRequest, service: ServiceOf) -> Response:
    """Plan a model for a target; the same request is the same plan, from the store."""
    return Response(await make_plan(service, body), media_type="application/json")


@router.get("/plans/{key}", operation_id="get_plan", response_class=FileResponse, responses=_PLAN)
async def get_plan(key: PlanKey, service: ServiceOf) -> Response:
    """Give a plan that was made before."""
    path = await service.writes.find(key)
    return FileResponse(path, media_type="application/json", headers={"ETag": f'"{key}"'})


@router.get("/plans/{key}/explain", operation_id="explain_plan")
async def get_explanation(
    key: PlanKey,
    port: Annotated[str, Query(max_length=1000, description="port, value, kernel, rescale", examples=[PORT])],
    service: ServiceOf,
) -> Explanation:
    """Say why a port, value, kernel or rescale is as it is."""
    text = await explain_plan(service, key, port)
    return Explanation(plan=key, address=port, lines=text.splitlines())
