"""Queries about dispatchers: the leases under which rows are claimed and results are written.

A dispatcher's id is its fencing token: it is on every row it holds, and every write names it.
Liveness is judged by the database's clock alone.
"""

from __future__ import annotations

from typing import cast

from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncSession


async def acquire(
    session: AsyncSession, dispatcher_id: str, engine_url: str, *, stale_s: float
) -> bool:
    """Become the engine's dispatcher, unless another one's heartbeat is younger than `stale_s`."""
    taken = await session.scalar(
        text(
            """
            INSERT INTO dispatchers (id, engine_url, acquired_at, heartbeat_at)
            VALUES (:id, :url, statement_timestamp(), statement_timestamp())
            ON CONFLICT (engine_url) DO UPDATE
              SET id = EXCLUDED.id, acquired_at = EXCLUDED.acquired_at,
                  heartbeat_at = EXCLUDED.heartbeat_at
              WHERE dispatchers.heartbeat_at
                    < statement_timestamp() - make_interval(secs => :stale_s)
            RETURNING id
            """
        ),
        {"id": dispatcher_id, "url": engine_url, "stale_s": stale_s},
    )
    return taken is not None


async def renew(session: AsyncSession, dispatcher_id: str) -> bool:
    """Beat the heart; false where the lease is another's by now."""
    renewed = await session.execute(
        text("UPDATE dispatchers SET heartbeat_at = statement_timestamp() WHERE id = :id"),
        {"id": dispatcher_id},
    )
    return bool(cast("CursorResult[object]", renewed).rowcount)


async def release(session: AsyncSession, dispatcher_id: str) -> None:
    """Give the lease up; nothing happens where it is another's by now."""
    await session.execute(text("DELETE FROM dispatchers WHERE id = :id"), {"id": dispatcher_id})


async def forget_stale(session: AsyncSession, *, stale_s: float) -> list[str]:
    """End leases whose heartbeat is older than `stale_s`; the engine urls they were for."""
    found = await session.execute(
        text(
            """
            DELETE FROM dispatchers
            WHERE heartbeat_at < statement_timestamp() - make_interval(secs => :stale_s)
            RETURNING engine_url
            """
        ),
        {"stale_s": stale_s},
    )
    return list(found.scalars())


async def engine_urls(session: AsyncSession) -> set[str]:
    """The engines that have a dispatcher."""
    found = await session.execute(text("SELECT engine_url FROM dispatchers"))
    return set(found.scalars())
