"""Queries about dispatchers: the leases under which rows are claimed and results are written.

A dispatcher's id is its fencing token: it is on every row it holds, and every write names it.
Liveness is judged by the database's clock alone. A heartbeat from the future is as dead as one from
the past: the clock was set back, and whoever lives beats again by the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models.batch import OPEN
from store.repositories import engine as engines


async def acquire(session: AsyncSession, dispatcher_id: str, engine_url: str) -> bool:
    """Become the engine's dispatcher, unless it has one; stale ones are forgotten before."""
    taken = await session.scalar(
        text(
            """
            INSERT INTO dispatchers (id, engine_url, acquired_at, heartbeat_at)
            VALUES (:id, :url, statement_timestamp(), statement_timestamp())
            ON CONFLICT (engine_url) DO NOTHING
            RETURNING id
            """
        ),
        {"id": dispatcher_id, "url": engine_url},
    )
    return taken is not None


@dataclass(frozen=True, slots=True)
class Renewed:
    """A lease whose heart was beaten.

    Attributes:
        draining: Nothing new may be sent to its engine.
    """

    draining: bool


async def renew(session: AsyncSession, dispatcher_id: str) -> Renewed | None:
    """Beat the heart; none where the lease is another's by now."""
    renewed = await session.execute(
        text(
            """
            UPDATE dispatchers d SET heartbeat_at = statement_timestamp() WHERE id = :id
            RETURNING EXISTS (SELECT 1 FROM engines e
                              WHERE e.url = d.engine_url AND e.draining_at IS NOT NULL) AS draining
            """
        ),
        {"id": dispatcher_id},
    )
    row = renewed.one_or_none()
    return None if row is None else Renewed(row.draining)


async def release(session: AsyncSession, dispatcher_id: str) -> None:
    """Give the lease up; nothing happens where it is another's by now."""
    await session.execute(text("DELETE FROM dispatchers WHERE id = :id"), {"id": dispatcher_id})


@dataclass(frozen=True, slots=True)
class Gone:
    """A dispatcher whose heart has stopped.

    Attributes:
        died: It, and not the database: the server has been there since the last heartbeat.
    """

    id: str
    engine_url: str
    died: bool


async def forget_stale(
    session: AsyncSession, *, stale_s: float, engine_url: str | None = None
) -> list[Gone]:
    """End leases whose heartbeat is older than `stale_s`, of all engines or of one."""
    found = await session.execute(
        text(
            """
            DELETE FROM dispatchers
            WHERE abs(extract(epoch FROM statement_timestamp() - heartbeat_at)) > :stale_s
              AND (CAST(:url AS text) IS NULL OR engine_url = :url)
            RETURNING id, engine_url, heartbeat_at > pg_postmaster_start_time() AS died
            """
        ),
        {"stale_s": stale_s, "url": engine_url},
    )
    return [Gone(**row) for row in found.mappings()]


async def idle_engines(
    session: AsyncSession, static: Sequence[str], *, stale_s: float
) -> list[str]:
    """The engines that should have a dispatcher and have none: while rows wait, all that are open.

    Args:
        session: An open transaction.
        static: The addresses of ENGINE_URLS.
        stale_s: Age at which a heartbeat counts as stopped.
    """
    if not await has_claimable_rows(session):
        return []
    found = await session.execute(
        text(
            "SELECT engine_url FROM dispatchers"
            " WHERE abs(extract(epoch FROM statement_timestamp() - heartbeat_at)) <= :stale_s"
        ),
        {"stale_s": stale_s},
    )
    taken = set(found.scalars())
    open_ones = [one.url for one in await engines.in_use(session, static) if not one.draining]
    return [url for url in open_ones if url not in taken]


async def heartbeat_age_s(session: AsyncSession) -> float | None:
    """Since the newest heartbeat of any dispatcher; none where there is no dispatcher."""
    age_s: float | None = await session.scalar(
        text(
            "SELECT extract(epoch FROM statement_timestamp() - max(heartbeat_at))::float8"
            " FROM dispatchers"
        )
    )
    return age_s


async def has_claimable_rows(session: AsyncSession) -> bool:
    """Whether any dispatcher has anything to do, now or after a back-off."""
    return bool(
        await session.scalar(
            text(
                f"""
                SELECT EXISTS (
                  SELECT 1 FROM batches b
                  WHERE {OPEN} AND b.expires_at > statement_timestamp()
                    AND EXISTS (SELECT 1 FROM batch_rows r
                                WHERE r.batch_id = b.id AND r.status = 'pending'))
                """
            )
        )
    )
