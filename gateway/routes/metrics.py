"""`/metrics` in Prometheus' text format (docs/metrics.md)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from gateway.dependencies import DatabaseDep, EnginesDep, MetricsDep, StorageDep
from store.models.file import STORES

router = APIRouter(tags=["metrics"])

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics")
async def get_metrics(
    metrics: MetricsDep, engines: EnginesDep, database: DatabaseDep, storage: StorageDep
) -> Response:
    """Everything measured; open to who can reach the port, and free of tenants' names."""
    for member in engines.members:
        metrics.engine_up.labels(member.url).set(member.up)
    for store in STORES:
        metrics.storage_full.labels(store).set(store in storage.full)
    metrics.runtime.read(engines.members)
    await metrics.webhooks.read(database)
    await metrics.dispatch.read(database)
    await metrics.workers.read(database)
    await metrics.batches.read(database, engines)
    return Response(await metrics.gathered(), media_type=_MEDIA_TYPE)
