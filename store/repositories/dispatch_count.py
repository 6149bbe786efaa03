"""Queries about what dispatchers count, and about the work that waits for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import DispatchCount

_COUNTERS = (
    "num_claimed",
    "num_results",
    "num_retries",
    "num_fenced",
    "num_refused",
    "num_losses",
    "num_handed_back",
)


@dataclass(frozen=True, slots=True)
class DispatchCounts:
    """Counts of one dispatcher; what each means: `store.models.dispatcher`."""

    num_claimed: int = 0
    num_results: int = 0
    num_retries: int = 0
    num_fenced: int = 0
    num_refused: int = 0
    num_losses: int = 0
    num_handed_back: int = 0
    num_in_flight: int = 0
    num_unwritten: int = 0
    window_rows: int = 0
    in_flight_bytes: int = 0
    unwritten_bytes: int = 0

    def since(self, before: DispatchCounts) -> DispatchCounts:
        """What was counted since `before`, and the state as it is now."""
        return replace(
            self, **{name: getattr(self, name) - getattr(before, name) for name in _COUNTERS}
        )


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """Counts of all dispatchers that an engine had.

    Attributes:
        counts: The counters; the state is zero where no dispatcher is at work.
        heartbeat_age_s: Since the dispatcher's last heartbeat; none where there is none.
    """

    engine_url: str
    counts: DispatchCounts
    heartbeat_age_s: float | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work of one model that waits.

    Attributes:
        num_batches: Batches with unfinished rows, paused ones excluded.
        num_rows: Their rows without a result.
        lag_s: The longest time such a batch has been without a new result.
    """

    model: str
    num_batches: int
    num_rows: int
    lag_s: float


async def add(session: AsyncSession, engine_url: str, new: DispatchCounts) -> None:
    """Add new counts to an engine's counters, and keep the state."""
    statement = insert(DispatchCount).values(engine_url=engine_url, **asdict(new))
    changes: dict[str, Any] = {
        name: getattr(DispatchCount, name) + statement.excluded[name]
        if name in _COUNTERS
        else statement.excluded[name]
        for name in asdict(new)
    }
    changes["updated_at"] = text("statement_timestamp()")
    await session.execute(
        statement.on_conflict_do_update(index_elements=["engine_url"], set_=changes)
    )


async def by_engine(session: AsyncSession) -> list[EngineCounts]:
    """The counts of every engine that ever had a dispatcher."""
    found = await session.execute(
        text(
            """
            SELECT c.engine_url, c.num_claimed, c.num_results, c.num_retries, c.num_fenced,
                   c.num_refused, c.num_losses, c.num_handed_back,
                   CASE WHEN d.id IS NULL THEN 0 ELSE c.num_in_flight END AS num_in_flight,
                   CASE WHEN d.id IS NULL THEN 0 ELSE c.num_unwritten END AS num_unwritten,
                   CASE WHEN d.id IS NULL THEN 0 ELSE c.window_rows END AS window_rows,
                   CASE WHEN d.id IS NULL THEN 0 ELSE c.in_flight_bytes END AS in_flight_bytes,
                   CASE WHEN d.id IS NULL THEN 0 ELSE c.unwritten_bytes END AS unwritten_bytes,
                   extract(epoch FROM statement_timestamp() - d.heartbeat_at)::float8 AS age_s
            FROM dispatch_counts c LEFT JOIN dispatchers d ON d.engine_url = c.engine_url
            ORDER BY c.engine_url
            """
        )
    )
    return [
        EngineCounts(
            row["engine_url"],
            DispatchCounts(**{name: row[name] for name in DispatchCounts.__slots__}),
            row["age_s"],
        )
        for row in found.mappings()
    ]


async def backlog(session: AsyncSession) -> list[Backlog]:
    found = await session.execute(
        text(
            """
            SELECT b.model, count(*) AS num_batches,
                   sum(b.num_total - b.num_completed - b.num_failed)::bigint AS num_rows,
                   max(extract(epoch FROM statement_timestamp() - GREATEST(
                     b.in_progress_at,
                     (SELECT r.created_at FROM row_results r
                      WHERE r.batch_id = b.id AND r.seq = b.num_results))))::float8 AS lag_s
            FROM batches b
            WHERE b.status = 'in_progress' AND b.paused_at IS NULL AND b.model IS NOT NULL
              AND b.num_total > b.num_completed + b.num_failed
            GROUP BY b.model ORDER BY b.model
            """
        )
    )
    return [Backlog(**row) for row in found.mappings()]
