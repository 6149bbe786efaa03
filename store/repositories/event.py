"""Queries about events: the history of a batch, only ever appended to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import BatchEvent
from store.session import ACTOR


def add(
    session: AsyncSession,
    batch_id: str,
    event: str,
    *,
    from_status: str | None = None,
    to_status: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Have the session's next flush write that something happened, in the same transaction.

    Who did it is who the transaction belongs to (`Database.unit_of_work`).
    """
    session.add(
        BatchEvent(
            batch_id=batch_id,
            event=event,
            from_status=from_status,
            to_status=to_status,
            actor=session.info.get(ACTOR),
            detail=dict(detail) if detail is not None else None,
        )
    )


async def append(
    session: AsyncSession,
    batch_id: str,
    event: str,
    *,
    from_status: str | None = None,
    to_status: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write at once that something happened: see `add`."""
    add(session, batch_id, event, from_status=from_status, to_status=to_status, detail=detail)
    await session.flush()


async def page(
    session: AsyncSession, batch_id: str, *, after_id: int, limit: int
) -> Sequence[BatchEvent]:
    """A batch's events that came after one, oldest first."""
    query = _of(batch_id).where(BatchEvent.id > after_id).order_by(BatchEvent.id)
    return (await session.scalars(query.limit(limit))).all()


async def last(session: AsyncSession, batch_id: str, *, limit: int) -> Sequence[BatchEvent]:
    """The last events of a batch, oldest first."""
    query = _of(batch_id).order_by(BatchEvent.id.desc())
    return (await session.scalars(query.limit(limit))).all()[::-1]


async def of_batch(session: AsyncSession, batch_id: str) -> Sequence[BatchEvent]:
    """A batch's events, oldest first."""
    return (await session.scalars(_of(batch_id).order_by(BatchEvent.id))).all()


def _of(batch_id: str) -> Select[BatchEvent]:
    return select(BatchEvent).where(BatchEvent.batch_id == batch_id)
