"""Metrics of the server as text for Prometheus; the one route outside `/v1`."""

from typing import Final, get_args

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from ..jobs.queue import count
from ..jobs.records import State
from ..server.metrics import MEDIA_TYPE

STATES: Final = get_args(State)

router = APIRouter(tags=["server"])


@router.get("/metrics", operation_id="metrics", include_in_schema=False)
async def get_metrics(request: Request) -> Response:
    """Counters and histograms; with tokens, for those with the scope `metrics`."""
    state = request.app.state
    jobs = await run_sync(_jobs, state.service.engine)
    return Response(state.metrics.text(jobs, state.quotas.whole.used), media_type=MEDIA_TYPE)


def _jobs(engine: Engine) -> dict[str, int]:
    """Jobs by state; nothing while the database is away, for the rest is still worth reading."""
    try:
        return dict.fromkeys(STATES, 0) | count(engine)
    except DatabaseError:
        return {}
