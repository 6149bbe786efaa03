"""Queries about sessions of the dashboard that were ended, and forms of it that were sent."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import EndedSession


async def end(session: AsyncSession, ended_id: str, *, forget_after: timedelta) -> None:
    """End a session, and forget those that ended so long ago."""
    await session.execute(insert(EndedSession).values(id=ended_id).on_conflict_do_nothing())
    before = func.statement_timestamp() - forget_after
    await session.execute(delete(EndedSession).where(EndedSession.ended_at < before))


async def has_ended(session: AsyncSession, ended_id: str) -> bool:
    """Whether the session was ended."""
    found = await session.scalar(select(EndedSession.id).where(EndedSession.id == ended_id))
    return found is not None


async def is_first(session: AsyncSession, form_id: str, *, forget_after: timedelta) -> bool:
    """Whether a form comes for the first time; it is noted like a session that ended."""
    query = insert(EndedSession).values(id=form_id).on_conflict_do_nothing()
    made = await session.scalar(query.returning(EndedSession.id))
    before = func.statement_timestamp() - forget_after
    await session.execute(delete(EndedSession).where(EndedSession.ended_at < before))
    return made is not None
