"""Queries about how batches get on: retries, pace, what a batch waits for."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch
from store.repositories.row import READY

PACE_ROWS = 1024
"""The pace of a batch is measured over the last quarter of its results, at least so many: several
writes of a dispatcher, and for longer the more it has behind it."""

SPREAD_ROWS = 32
"""A pace over fewer says nothing about how much the pace varies."""

SAMPLE_ROWS = 128
"""Tokens of a result are averaged over the last so many."""

WRITE_LAG_S = 1.0
"""How long a result may be on its way: silence counts against the pace from then on."""

AGE = 20.0
"""So many times as old as it took to make may a reading of the service be: however many batches
are live, a process spends a twentieth of one connection on it."""

HISTORY_BATCHES = 5
HISTORY_MIN_ROWS = 32
"""A finished batch with fewer rows says more about its start than about speed. It stands in the
definition of the index `ix_batches_past`, which finds those that are looked at."""


@dataclass(frozen=True)
class BatchReading:
    """How one live batch gets on.

    Attributes:
        now: The database's clock.
        num_paced: Those of its last results (`PACE_ROWS`) that came after the oldest of them.
        paced_tokens: Prompt and completion tokens of those, about.
        paced_s: How long they took; none before there is a result.
        last_result_at: When the newest came.
        num_leased: Rows that are with a dispatcher.
        has_ready: Whether rows could be claimed this moment.
        other_paces: Rows per second over longer and shorter stretches up to now, which say how
            much it varies.
    """

    batch_id: str
    now: datetime
    num_paced: int
    paced_tokens: int
    paced_s: float | None
    last_result_at: datetime | None
    num_leased: int
    has_ready: bool
    other_paces: Sequence[float] = ()


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


# Results are written many at a time and share an instant then. So those of the oldest instant only
# say when the others began, and the time ends with the last write unless that is long ago. Found
# by their numbers, not counted: batches are looked at often. A pause is no part of the time.
_PACE = """
  SELECT COALESCE(b.num_results + 1 - f.seq, 0) AS num_rows,
         COALESCE(round((b.num_results + 1 - f.seq) * t.tokens), 0)::bigint AS num_tokens,
         GREATEST(s.last_at - s.since_at,
                  statement_timestamp() - s.since_at - make_interval(secs => :write_lag_s)) AS took,
         s.last_at
  FROM (SELECT GREATEST(b.num_results - GREATEST(:pace_rows, b.num_results / 4), 0) AS seq) before
  CROSS JOIN LATERAL (
    SELECT GREATEST((SELECT created_at FROM row_results
                     WHERE batch_id = b.id AND seq = before.seq + 1),
                    (SELECT max(created_at) FROM batch_events
                     WHERE batch_id = b.id AND event = 'resumed')) AS since_at,
           (SELECT created_at FROM row_results
            WHERE batch_id = b.id AND seq = b.num_results) AS last_at) s
  LEFT JOIN LATERAL (
    SELECT seq FROM row_results
    WHERE batch_id = b.id AND seq > before.seq AND created_at > s.since_at
    ORDER BY seq LIMIT 1) f ON true
  LEFT JOIN LATERAL (
    SELECT avg(prompt_tokens + completion_tokens) AS tokens FROM row_results
    WHERE batch_id = b.id AND seq > b.num_results - :sample_rows) t ON true
"""
# The same over all, the last half and the last sixteenth, each one look-up; none spans a pause.
_OTHER_PACES = """
  SELECT array_agg(w.num / extract(epoch FROM statement_timestamp() - r.created_at))::float8[]
         AS paces
  FROM (VALUES (b.num_results - 1), (b.num_results / 2), (b.num_results / 16)) w(num)
  JOIN row_results r ON r.batch_id = b.id AND r.seq = b.num_results - w.num
  WHERE w.num >= :spread_rows AND r.created_at < statement_timestamp()
    AND NOT EXISTS (SELECT 1 FROM batch_events e
                    WHERE e.batch_id = b.id AND e.event = 'resumed' AND e.created_at > r.created_at)
"""
_PACE_VALUES = {"pace_rows": PACE_ROWS, "sample_rows": SAMPLE_ROWS, "write_lag_s": WRITE_LAG_S}


async def read_batches(
    session: AsyncSession, batch_ids: Collection[str]
) -> dict[str, BatchReading]:
    """Readings of those of the batches that are `in_progress`."""
    found = await session.execute(
        text(
            f"""
            SELECT b.id AS batch_id, statement_timestamp() AS now,
                   p.num_rows AS num_paced, p.num_tokens AS paced_tokens,
                   extract(epoch FROM p.took)::float8 AS paced_s, p.last_at AS last_result_at,
                   COALESCE(l.num, 0) AS num_leased,
                   EXISTS (SELECT 1 FROM batch_rows r
                           WHERE r.batch_id = b.id AND r.status = 'pending'
                             AND {READY}) AS has_ready,
                   COALESCE(o.paces, '{{}}') AS other_paces
            FROM batches b CROSS JOIN LATERAL ({_PACE}) p CROSS JOIN LATERAL ({_OTHER_PACES}) o
            LEFT JOIN (SELECT batch_id, count(*) AS num FROM batch_rows
                       WHERE status = 'leased' GROUP BY batch_id) l ON l.batch_id = b.id
            WHERE b.id = ANY(:ids) AND b.status = 'in_progress'
            """
        ),
        {"ids": list(batch_ids), "spread_rows": SPREAD_ROWS, **_PACE_VALUES},
    )
    return {row["batch_id"]: BatchReading(**row) for row in found.mappings()}


async def read_service(session: AsyncSession) -> ServiceReading:
    """Backlog and speed over all live batches, and the speed of the last finished ones.

    Work is counted in input bytes: the only measure known of a batch that is not validated yet.
    """
    found = await session.execute(
        text(
            f"""
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
                AND b.num_completed >= {HISTORY_MIN_ROWS}
                AND b.finalizing_at > statement_timestamp() - interval '7 days'
                AND NOT EXISTS (SELECT 1 FROM batch_events e
                                WHERE e.batch_id = b.id AND e.event = 'paused')
              ORDER BY b.finalizing_at DESC LIMIT :num_past
            )
            SELECT
              (SELECT COALESCE(sum(CASE WHEN status = 'validating' THEN bytes ELSE
                 bytes * (num_total - num_completed - num_failed) / GREATEST(num_total, 1) END), 0)
               FROM live)::float8 AS backlog_bytes,
              (SELECT sum(b.bytes / b.num_total * p.num_rows / extract(epoch FROM p.took))
               FROM live b CROSS JOIN LATERAL ({_PACE}) p
               WHERE b.status = 'in_progress' AND p.num_rows > 0)::float8 AS live_bytes_per_s,
              (SELECT sum(bytes) / GREATEST(sum(s), 0.001) FROM past)::float8 AS past_bytes_per_s,
              (SELECT count(*) FROM dispatchers) AS num_dispatchers
            """
        ),
        {"num_past": HISTORY_BATCHES, **_PACE_VALUES},
    )
    return ServiceReading(**found.mappings().one())


async def mean_answer_tokens(
    session: AsyncSession, project_id: str, model: str, endpoint: str
) -> float | None:
    """Of a row, in the project's last batches of the kind; none where it had none."""
    found: float | None = await session.scalar(
        text(
            """
            SELECT sum(completion_tokens)::float8 / sum(num_completed)
            FROM (SELECT completion_tokens, num_completed FROM batches
                  WHERE project_id = :project_id AND model = :model AND endpoint = :endpoint
                    AND num_completed >= :min_rows AND response_id IS NULL
                  ORDER BY created_at DESC, id DESC LIMIT :num_past) past
            """
        ),
        {
            "project_id": project_id,
            "model": model,
            "endpoint": endpoint,
            "min_rows": SPREAD_ROWS,
            "num_past": HISTORY_BATCHES,
        },
    )
    return found


@dataclass
class _Kept:
    """The last reading of a process, and until when it is not made anew."""

    reading: ServiceReading
    until_s: float
    renewing: bool = False


_KEPT: WeakKeyDictionary[object, _Kept] = WeakKeyDictionary()


async def recent_service(session: AsyncSession) -> ServiceReading:
    """The reading of the service, or the last one of this process where that is recent.

    It is a sum over all live batches: for answers that are made often. It is made anew after
    `AGE` times as long as it took, by one caller at a time.
    """
    database = session.get_bind()
    kept = _KEPT.get(database)
    began_s = time.monotonic()
    if kept is not None and (kept.renewing or began_s < kept.until_s):
        return kept.reading
    if kept is not None:
        kept.renewing = True
    try:
        reading = await read_service(session)
        now_s = time.monotonic()
        _KEPT[database] = _Kept(reading, now_s + AGE * (now_s - began_s))
    finally:
        if kept is not None:
            kept.renewing = False
    return reading


async def retry_of(session: AsyncSession, batch_id: str) -> Batch | None:
    """The batch that runs the unanswered rows of this one again, if there is one."""
    found = await session.execute(select(Batch).where(Batch.retry_of == batch_id))
    return found.scalar_one_or_none()
