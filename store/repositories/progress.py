"""Queries about how batches get on: retries, pace, what a batch waits for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch

PACE_ROWS = 256
"""The pace of a batch is measured over its last so many results."""

HISTORY_BATCHES = 5
HISTORY_MIN_ROWS = 32
"""A finished batch with fewer lines says more about its start than about speed."""


@dataclass(frozen=True)
class BatchReading:
    """How one live batch gets on.

    Attributes:
        now: The database's clock.
        num_paced: Results between `paced_since_at` (exclusive) and now.
        paced_tokens: Prompt and completion tokens of those.
        paced_since_at: When the oldest of the last `PACE_ROWS` results came.
        last_result_at: When the newest came.
        has_leased: Whether rows are with a dispatcher.
        has_ready: Whether rows could be claimed this moment.
    """

    batch_id: str
    now: datetime
    num_paced: int
    paced_tokens: int
    paced_since_at: datetime | None
    last_result_at: datetime | None
    has_leased: bool
    has_ready: bool


@dataclass(frozen=True)
class ServiceReading:
    """How the service as a whole gets on.

    Attributes:
        backlog_bytes: Input bytes of the unfinished lines of all live batches that are not paused.
        live_bytes_per_s: Input bytes per second of the batches running now; none where unknown.
        past_bytes_per_s: The same of the last finished batches; none before there are any.
        num_dispatchers: Engines that have a dispatcher.
    """

    backlog_bytes: float
    live_bytes_per_s: float | None
    past_bytes_per_s: float | None
    num_dispatchers: int


async def read_batches(
    session: AsyncSession, batch_ids: Collection[str]
) -> dict[str, BatchReading]:
    """Readings of those of the batches that are `in_progress`."""
    found = await session.execute(
        text(
            """
            SELECT b.id AS batch_id, statement_timestamp() AS now,
                   GREATEST(p.num_rows - 1, 0) AS num_paced,
                   COALESCE(p.tokens, 0) AS paced_tokens,
                   p.since_at AS paced_since_at, p.last_at AS last_result_at,
                   EXISTS (SELECT 1 FROM batch_rows r
                           WHERE r.batch_id = b.id AND r.status = 'leased') AS has_leased,
                   EXISTS (SELECT 1 FROM batch_rows r
                           WHERE r.batch_id = b.id AND r.status = 'pending'
                             AND (r.available_at IS NULL
                                  OR r.available_at <= statement_timestamp())) AS has_ready
            FROM batches b CROSS JOIN LATERAL (
              SELECT count(*) AS num_rows, min(created_at) AS since_at, max(created_at) AS last_at,
                     sum(prompt_tokens + completion_tokens)
                       FILTER (WHERE seq > GREATEST(b.num_results - :pace_rows, 0) + 1) AS tokens
              FROM row_results r
              WHERE r.batch_id = b.id AND r.seq > b.num_results - :pace_rows) p
            WHERE b.id = ANY(:ids) AND b.status = 'in_progress'
            """
        ),
        {"ids": list(batch_ids), "pace_rows": PACE_ROWS},
    )
    return {row["batch_id"]: BatchReading(**row) for row in found.mappings()}


async def read_service(session: AsyncSession) -> ServiceReading:
    """Backlog and speed over all live batches, and the speed of the last finished ones.

    Work is counted in input bytes: the only measure known of a batch that is not validated yet.
    """
    found = await session.execute(
        text(
            """
            WITH live AS (
              SELECT b.*, f.size_bytes
                     * CASE WHEN s.num_total > 0 THEN b.num_total::float8 / s.num_total
                            ELSE 1 END AS bytes
              FROM batches b JOIN files f ON f.id = b.input_file_id
              LEFT JOIN batches s ON s.id = b.retry_of
              WHERE b.status IN ('validating', 'in_progress') AND b.paused_at IS NULL
                AND b.expires_at > statement_timestamp()
            ), past AS (
              SELECT f.size_bytes AS bytes,
                     extract(epoch FROM b.finalizing_at - b.in_progress_at)::float8 AS s
              FROM batches b JOIN files f ON f.id = b.input_file_id
              WHERE b.status = 'completed' AND b.retry_of IS NULL
                AND b.num_completed >= :min_rows
                AND b.created_at > statement_timestamp() - interval '7 days'
                AND NOT EXISTS (SELECT 1 FROM batch_events e
                                WHERE e.batch_id = b.id AND e.event = 'paused')
              ORDER BY b.finalizing_at DESC LIMIT :num_past
            )
            SELECT
              (SELECT COALESCE(sum(CASE WHEN status = 'validating' THEN bytes ELSE
                 bytes * (num_total - num_completed - num_failed) / GREATEST(num_total, 1) END), 0)
               FROM live)::float8 AS backlog_bytes,
              (SELECT sum(l.bytes / l.num_total * (p.num_rows - 1)
                          / GREATEST(extract(epoch FROM statement_timestamp() - p.since_at), 0.001))
               FROM live l CROSS JOIN LATERAL (
                 SELECT count(*) AS num_rows, min(r.created_at) AS since_at FROM row_results r
                 WHERE r.batch_id = l.id AND r.seq > l.num_results - :pace_rows) p
               WHERE l.status = 'in_progress' AND p.num_rows > 1)::float8 AS live_bytes_per_s,
              (SELECT sum(bytes) / GREATEST(sum(s), 0.001) FROM past)::float8 AS past_bytes_per_s,
              (SELECT count(*) FROM dispatchers) AS num_dispatchers
            """
        ),
        {"pace_rows": PACE_ROWS, "min_rows": HISTORY_MIN_ROWS, "num_past": HISTORY_BATCHES},
    )
    return ServiceReading(**found.mappings().one())


async def retry_of(session: AsyncSession, batch_id: str) -> Batch | None:
    """The batch that runs the unanswered lines of this one again, if there is one."""
    found = await session.execute(select(Batch).where(Batch.retry_of == batch_id))
    return found.scalar_one_or_none()
