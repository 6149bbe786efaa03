"""Queries about stage work: which live batches want a worker, and whose turn it is.

A batch says itself when it wants one (`STAGE_DUE_AT`). A claim moves that instant to the end of a
lease, which is also the claim's token: whoever dies with it is followed by another worker then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models.batch import LIVE, STAGE_DUE_AT
from store.repositories.turn import LONG

# Project by project, by the first entry of each in the index: batches that are live and want
# nothing cost nothing, however many there are.
_PROJECTS = f"""
  RECURSIVE owners(project_id) AS (
    SELECT (SELECT project_id FROM batches WHERE {LIVE} AND project_id > :after
            ORDER BY project_id LIMIT 1)
    UNION ALL
    SELECT (SELECT project_id FROM batches WHERE {LIVE} AND project_id > o.project_id
            ORDER BY project_id LIMIT 1)
    FROM owners o WHERE o.project_id IS NOT NULL
  )
"""

_CLAIM = text(
    f"""
    WITH {_PROJECTS}, picked AS (
      SELECT first.id FROM owners o CROSS JOIN LATERAL (
        SELECT id FROM batches
        WHERE {LIVE} AND project_id = o.project_id AND {STAGE_DUE_AT} <= statement_timestamp()
          AND o.project_id <> ALL(CAST(:resting AS text[]))
        ORDER BY {STAGE_DUE_AT} LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED) first
      LIMIT 1
    )
    UPDATE batches b SET stage_at = clock_timestamp() + make_interval(secs => :lease_s)
    FROM picked WHERE b.id = picked.id
    RETURNING b.id, b.project_id, b.status, b.stage_at,
              b.expires_at <= statement_timestamp() AS is_over_window,
              (SELECT {LONG} FROM files f WHERE f.id = b.input_file_id) AS is_long
    """
)

_OLDEST = text(
    f"""
    WITH {_PROJECTS}
    SELECT extract(epoch FROM statement_timestamp() - min(first.due_at))::float8
    FROM owners o CROSS JOIN LATERAL (
      SELECT {STAGE_DUE_AT} AS due_at FROM batches
      WHERE {LIVE} AND project_id = o.project_id AND {STAGE_DUE_AT} <= statement_timestamp()
      ORDER BY {STAGE_DUE_AT} LIMIT 1) first
    """
)


LONGEST_S = 60.0
"""No lease and no delay is longer: one that seems to be was begun before the clock was set back."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch whose next stage is one worker's, until `stage_at`.

    Attributes:
        stage_at: The end of its lease, and the token that later writes name.
        is_over_window: Its window has ended.
        is_long: Its stages take long (batch/worker/long_stage_lock.py).
    """

    id: str
    project_id: str
    status: str
    stage_at: datetime
    is_over_window: bool
    is_long: bool


async def claim(
    session: AsyncSession,
    *,
    after: str,
    resting: Collection[str] = (),
    lease_s: float,
    long_bytes: int,
    long_lines: int,
) -> Claim | None:
    """Take the batch that has waited longest, of the next project that has one which wants a stage.

    Args:
        session: An open transaction; the claim is made when it commits.
        after: The project that had the last turn: the next one in the order of ids has this one.
        resting: Projects that have no turn now.
        lease_s: For how long nobody else takes the batch.
        long_bytes: Stages of an input of so many bytes are long,
        long_lines: or of so many rows.
    """
    values = {"lease_s": lease_s, "long_bytes": long_bytes, "long_lines": long_lines}
    for start in dict.fromkeys((after, "")):
        found = await session.execute(_CLAIM, {"after": start, "resting": list(resting), **values})
        if (row := found.one_or_none()) is not None:
            return Claim(*row)
    return None


async def renew(session: AsyncSession, held: Claim, *, lease_s: float) -> datetime | None:
    """The new end of a claim's lease; none where it is another worker's by now."""
    until: datetime | None = await session.scalar(
        text(
            "UPDATE batches SET stage_at = clock_timestamp() + make_interval(secs => :lease_s)"
            " WHERE id = :id AND stage_at = :token RETURNING stage_at"
        ),
        {"id": held.id, "token": held.stage_at, "lease_s": lease_s},
    )
    return until


async def release(session: AsyncSession, held: Claim, *, delay_s: float = 0.0) -> None:
    """Let others take the batch, after a delay; nothing happens where another has it by now."""
    await session.execute(
        text(
            "UPDATE batches SET stage_at = clock_timestamp() + make_interval(secs => :delay_s)"
            " WHERE id = :id AND stage_at = :token"
        ),
        {"id": held.id, "token": held.stage_at, "delay_s": delay_s},
    )


async def end_future_leases(session: AsyncSession) -> None:
    """Let those batches be claimed that the database's clock, set back, would keep for hours."""
    await session.execute(
        text(
            f"UPDATE batches SET stage_at = statement_timestamp() WHERE {LIVE}"
            " AND stage_at > statement_timestamp() + make_interval(secs => :longest_s)"
        ),
        {"longest_s": LONGEST_S},
    )


async def oldest_due_s(session: AsyncSession) -> float | None:
    """For how long a batch has wanted a worker that none has taken, the longest; none: no batch."""
    age_s: float | None = await session.scalar(_OLDEST, {"after": ""})
    return age_s
