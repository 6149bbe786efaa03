"""Queries about stage work: which live batches want a worker, and whose turn it is.

A batch says itself when it wants one (`STAGE_DUE_AT`). A claim moves that instant to the end of a
lease, which is also the claim's token: whoever dies with it is followed by another worker then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models.batch import LIVE, STAGE_DUE_AT
from store.repositories.long_stage import LONG

SMALL = """(b.status IN ('validating', 'finalizing') AND b.response_id IS NULL
  AND (b.status = 'finalizing' OR b.expires_at > statement_timestamp())
  AND f.size_bytes <= :small_bytes AND b.num_total <= :small_rows
  AND NOT EXISTS (SELECT 1 FROM output_parts p WHERE p.batch_id = b.id))"""
"""SQL: whether the next stage of a batch `b` with the input file `f` is usual, and short."""

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

# Of the first projects as many batches as are wanted; of those that are not small the first.
_CLAIM = text(
    f"""
    WITH {_PROJECTS}, due AS (
      SELECT first.*, row_number() OVER () AS place FROM owners o CROSS JOIN LATERAL (
        SELECT id, status, expires_at, response_id, num_total, input_file_id FROM batches
        WHERE {LIVE} AND project_id = o.project_id AND {STAGE_DUE_AT} <= statement_timestamp()
          AND o.project_id <> ALL(CAST(:resting AS text[]))
        ORDER BY {STAGE_DUE_AT} LIMIT :num
        FOR NO KEY UPDATE SKIP LOCKED) first
      LIMIT :num
    ), sized AS (
      SELECT b.id, b.place, {LONG} AS is_long, {SMALL} AS is_small
      FROM due b JOIN files f ON f.id = b.input_file_id
    ), picked AS (
      SELECT id, is_long, is_small FROM sized
      WHERE is_small OR place = (SELECT min(place) FROM sized WHERE NOT is_small)
    )
    UPDATE batches b SET stage_at = clock_timestamp() + make_interval(secs => :lease_s)
    FROM picked WHERE b.id = picked.id
    RETURNING b.id, b.project_id, b.status, b.stage_at,
              b.expires_at <= statement_timestamp() AS is_overdue,
              picked.is_long, picked.is_small
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
class Sizes:
    """What makes a stage long, or small; bytes of its input and rows.

    Attributes:
        long_bytes: A stage with so large an input is long,
        long_rows: or one of so many rows.
        small_bytes: A stage with no larger an input is small,
        small_rows: if it has no more rows.
    """

    long_bytes: int
    long_rows: int
    small_bytes: int
    small_rows: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch whose next stage is one worker's, until `stage_at`.

    Attributes:
        stage_at: The end of its lease, and the token that later writes name.
        is_overdue: Its completion window has ended.
        is_long: Its stages take long (batch/worker/long_stage_lock.py).
        is_small: Its stage can be run together with others.
    """

    id: str
    project_id: str
    status: str
    stage_at: datetime
    is_overdue: bool
    is_long: bool
    is_small: bool


async def claim(
    session: AsyncSession,
    *,
    after: str,
    resting: Collection[str] = (),
    lease_s: float,
    sizes: Sizes,
    num: int,
) -> list[Claim]:
    """Take the batches that have waited longest, of the next projects that have any.

    Small ones; and one that is not small at most.

    Args:
        session: An open transaction; the claim is made when it commits.
        after: The project that had the last turn: the next one in the order of ids has this one.
        resting: Projects that have no turn now.
        lease_s: For how long nobody else takes the batches.
        sizes: Which are small.
        num: At most so many. Where the next project has fewer, those after it have the rest.

    Returns:
        By project, in the order of their ids: the last one had the last turn.
    """
    values = {"lease_s": lease_s, "num": num, **asdict(sizes)}
    for start in dict.fromkeys((after, "")):
        found = await session.execute(_CLAIM, {"after": start, "resting": list(resting), **values})
        if claims := [Claim(**row) for row in found.mappings()]:
            return sorted(claims, key=lambda one: (one.project_id, one.id))
    return []


async def renew(
    session: AsyncSession, held: Collection[Claim], *, lease_s: float
) -> dict[str, datetime]:
    """The new ends of claims' leases, by batch, without those that are another worker's by now."""
    found = await session.execute(_RENEW, {**_tokens(held), "lease_s": lease_s})
    return {one.id: one.stage_at for one in found}


async def release(session: AsyncSession, held: Collection[Claim], *, delay_s: float = 0.0) -> None:
    """Let others take the batches, after a delay; but for those that another has by now."""
    await session.execute(_RENEW, {**_tokens(held), "lease_s": delay_s})


def _tokens(held: Collection[Claim]) -> dict[str, list[object]]:
    return {"ids": [one.id for one in held], "tokens": [one.stage_at for one in held]}


_RENEW = text(
    """
    UPDATE batches b SET stage_at = clock_timestamp() + make_interval(secs => :lease_s)
    FROM unnest(CAST(:ids AS text[]), CAST(:tokens AS timestamptz[])) AS held(id, token)
    WHERE b.id = held.id AND b.stage_at = held.token
    RETURNING b.id, b.stage_at
    """
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
