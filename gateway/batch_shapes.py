"""Batches as the wire has them, with what is known beyond the official fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import BatchExtension, BatchObject
from batch.extension import extend
from batch.states import BatchStatus
from engine_adapter.client.pool import EnginePool
from gateway.engines.row_states import at_engines
from store.models import Batch
from store.repositories import file as files
from store.repositories import progress, statements


async def shape(session: AsyncSession, engines: EnginePool, batch: Batch) -> BatchObject:
    return (await shapes(session, engines, [batch]))[0]


async def shape_new(session: AsyncSession, engines: EnginePool, batch: Batch) -> BatchObject:
    """A batch that was just created: the database's clock is known by it."""
    return (await shapes(session, engines, [batch], now=batch.created_at))[0]


async def shapes(
    session: AsyncSession,
    engines: EnginePool,
    batches: Sequence[Batch],
    *,
    errors_apart: bool = False,
    now: datetime | None = None,
) -> list[BatchObject]:
    """Some batches, read together; see `BatchObject.of` and `extensions`."""
    said = await extensions(session, engines, batches, now=now)
    names = await files.names(session, [batch.input_file_id for batch in batches])
    for batch, one in zip(batches, said, strict=True):
        one.input_filename = names.get(batch.input_file_id)
    return [
        BatchObject.of(batch, one, errors_apart=errors_apart)
        for batch, one in zip(batches, said, strict=True)
    ]


async def extensions(
    session: AsyncSession,
    engines: EnginePool,
    batches: Sequence[Batch],
    *,
    now: datetime | None = None,
) -> list[BatchExtension]:
    """What is known of some batches beyond the official fields, for the wire and for pages.

    Args:
        session: Of the reads.
        engines: What engines report of the rows they have.
        batches: Which.
        now: The database's clock, where it is known.
    """
    if not batches:
        return []
    running = [batch.id for batch in batches if batch.status == BatchStatus.IN_PROGRESS]
    readings = await progress.read_batches(session, running) if running else {}
    service = await progress.recent_service(session)
    now = now or await statements.now(session)
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
