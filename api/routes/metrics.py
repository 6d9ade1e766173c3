"""Metrics of the server as text for Prometheus; the one route outside `/v1`."""

from fastapi import APIRouter, Request, Response

from api.metrics import MEDIA_TYPE

router = APIRouter(tags=["server"])


@router.get("/metrics", operation_id="metrics", include_in_schema=False)
async def get_metrics(request: Request) -> Response:
    """Counters and histograms; with tokens, for those with the scope `metrics`."""
    state = request.app.state
    return Response(state.metrics.text({}, state.quota.used), media_type=MEDIA_TYPE)
