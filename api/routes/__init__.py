"""Routes, one module a noun; each parses, calls one function and answers."""

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter

from . import blobs, exports, health, jobs, models, plans, quantizations, schemas, stats, targets, uploads

ROUTERS: Final[Sequence[APIRouter]] = (
    health.router,
    schemas.router,
    targets.router,
    blobs.router,
    uploads.router,
    models.router,
    stats.router,
    plans.router,
    quantizations.router,
    exports.router,
    jobs.router,
)
