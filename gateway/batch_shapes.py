"""Batches as the wire has them, with what is known beyond the official fields."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import BatchExtension, BatchObject
from batch.extension import extend
from engine_adapter.client.pool import EnginePool
from gateway.engines.row_states import at_engines
from store.models import Batch
from store.repositories import file as files
from store.repositories import progress


async def shape(session: AsyncSession, engines: EnginePool, batch: Batch) -> BatchObject:
    return (await shapes(session, engines, [batch]))[0]


async def shapes(
    session: AsyncSession,
    engines: EnginePool,
    batches: Sequence[Batch],
    *,
    errors_apart: bool = False,
) -> list[BatchObject]:
    """Some batches, read together; see `BatchObject.of`."""
    said = await extensions(session, engines, batches)
    return [
        BatchObject.of(batch, one, errors_apart=errors_apart)
        for batch, one in zip(batches, said, strict=True)
    ]


async def extensions(
    session: AsyncSession, engines: EnginePool, batches: Sequence[Batch]
) -> list[BatchExtension]:
    """What is known of some batches beyond the official fields, for the wire and for pages."""
    if not batches:
        return []
    readings = await progress.read_batches(session, [batch.id for batch in batches])
    service = await progress.recent_service(session)
    now = await files.now(session)
    models_up = {model.id for model in engines.models() if model.up}
    said = [
        extend(batch, readings.get(batch.id), service, now=now, models_up=models_up)
        for batch in batches
    ]
    for batch, one in zip(batches, said, strict=True):
        reported = at_engines(engines.members, batch.id)
        if one.at_engine is not None and reported is not None:
            one.at_engine = reported.fitted(one.at_engine.rows)
    return said
