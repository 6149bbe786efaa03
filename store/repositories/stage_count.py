"""Queries about what the workers' stages did."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession


@dataclass(frozen=True, slots=True)
class StageRuns:
    """Runs of a stage, as a worker process saw them.

    Attributes:
        stage: Its name.
        num_runs: How many.
        num_failed: Of them ended in an error.
        wall_s: How long they took.
        cpu_s: CPU time of the process meanwhile.
        peak_rss_bytes: The most memory the process ever had.
    """

    stage: str
    num_runs: int
    num_failed: int
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class StageTotals:
    """All runs of a stage; what each figure means: `store.models.dispatcher`.

    Attributes:
        ended_age_s: Since the newest end.
    """

    stage: str
    num_runs: int
    num_failed: int
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    ended_age_s: float


async def add(session: AsyncSession, runs: StageRuns) -> None:
    await session.execute(
        text(
            """
            INSERT INTO stage_counts AS s
              (stage, num_runs, num_failed, wall_s, cpu_s, peak_rss_bytes, ended_at)
            VALUES (:stage, :num_runs, :num_failed, :wall_s, :cpu_s, :peak_rss_bytes,
                    statement_timestamp())
            ON CONFLICT (stage) DO UPDATE
            SET num_runs = s.num_runs + excluded.num_runs,
                num_failed = s.num_failed + excluded.num_failed,
                wall_s = s.wall_s + excluded.wall_s, cpu_s = s.cpu_s + excluded.cpu_s,
                peak_rss_bytes = excluded.peak_rss_bytes, ended_at = excluded.ended_at
            """
        ),
        asdict(runs),
    )


async def totals(session: AsyncSession) -> list[StageTotals]:
    """Every stage that ever ran."""
    found = await session.execute(
        text(
            """
            SELECT stage, num_runs, num_failed, wall_s, cpu_s, peak_rss_bytes,
                   extract(epoch FROM statement_timestamp() - ended_at)::float8 AS ended_age_s
            FROM stage_counts ORDER BY stage
            """
        )
    )
    return [StageTotals(**row) for row in found.mappings()]
