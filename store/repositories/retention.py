"""Queries that remove what has ended, a few rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories.statements import num_changed

_ENDED_AT = "COALESCE(completed_at, failed_at, expired_at, cancelled_at)"


@dataclass(frozen=True)
class FileResults:
    """The results that a produced file was written from."""

    batch_id: str
    succeeded: bool


async def results_of_file(session: AsyncSession, file_id: str) -> FileResults | None:
    """Which results a file was written from; none for one that no batch produced."""
    found = await session.execute(
        text(
            """
            SELECT id AS batch_id, true AS succeeded FROM batches WHERE output_file_id = :id
            UNION ALL SELECT id, false FROM batches WHERE error_file_id = :id
            """
        ),
        {"id": file_id},
    )
    row = found.one_or_none()
    return None if row is None else FileResults(row.batch_id, row.succeeded)


async def forget_results(
    session: AsyncSession, source: FileResults, *, after: int, limit: int
) -> Sequence[int]:
    """Remove up to `limit` results that follow number `after`; their numbers."""
    found = await session.scalars(
        text(
            """
            DELETE FROM row_results WHERE batch_id = :batch_id AND seq IN (
              SELECT seq FROM row_results
              WHERE batch_id = :batch_id AND succeeded = :succeeded AND seq > :after
              ORDER BY seq LIMIT :limit)
            RETURNING seq
            """
        ),
        {
            "batch_id": source.batch_id,
            "succeeded": source.succeeded,
            "after": after,
            "limit": limit,
        },
    )
    return found.all()


async def oldest_ended(session: AsyncSession, *, older_than_s: float) -> str | None:
    """The batch that ended first, if that is so long ago."""
    found: str | None = await session.scalar(
        text(
            f"""
            SELECT id FROM batches
            WHERE {_ENDED_AT} IS NOT NULL
              AND {_ENDED_AT} < statement_timestamp() - make_interval(secs => :s)
            ORDER BY {_ENDED_AT} LIMIT 1
            """
        ),
        {"s": older_than_s},
    )
    return found


async def forget_rows(session: AsyncSession, batch_id: str, *, limit: int) -> int:
    """Remove up to `limit` rows of a batch that has ended, and their results; how many."""
    done = await session.execute(
        text(
            """
            WITH gone AS (
              DELETE FROM batch_rows WHERE id IN (
                SELECT id FROM batch_rows WHERE batch_id = :batch_id LIMIT :limit)
              RETURNING id
            ), results AS (
              DELETE FROM row_results r USING gone WHERE r.row_id = gone.id
            )
            SELECT count(*) FROM gone
            """
        ),
        {"batch_id": batch_id, "limit": limit},
    )
    return int(done.scalar_one())


async def forget_batch(session: AsyncSession, batch_id: str) -> int:
    """Remove a batch without rows, its events and deliveries; whether it was there, as 0 or 1.

    A batch that ran its unanswered rows again stays and forgets where they came from.
    """
    await session.execute(
        text("UPDATE batches SET retry_of = NULL WHERE retry_of = :id"), {"id": batch_id}
    )
    return await num_changed(session, text("DELETE FROM batches WHERE id = :id"), {"id": batch_id})


async def forget_files(session: AsyncSession, *, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` files whose bytes went so long ago, and which no batch names."""
    return await num_changed(
        session,
        text(
            """
            DELETE FROM files WHERE id IN (
              SELECT f.id FROM files f
              WHERE f.collected_at < statement_timestamp() - make_interval(secs => :s)
                AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.input_file_id = f.id)
                AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.output_file_id = f.id)
                AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.error_file_id = f.id)
              ORDER BY f.collected_at LIMIT :limit)
            """
        ),
        {"s": older_than_s, "limit": limit},
    )
