"""Queries about how batches get on: retries, pace, what a batch waits for."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch


async def retry_of(session: AsyncSession, batch_id: str) -> Batch | None:
    """The batch that runs the unanswered lines of this one again, if there is one."""
    found = await session.execute(select(Batch).where(Batch.retry_of == batch_id))
    return found.scalar_one_or_none()
