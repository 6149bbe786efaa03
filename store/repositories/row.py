"""Queries about rows: ingest, claim, and putting back. Hot paths are one SQL statement each."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories.statements import num_changed

MAX_LOSSES = 32767
"""The largest number of losses a row can count."""

LARGE_BYTES = 1024**2
"""Lines above this are large."""


@dataclass(frozen=True, slots=True)
class ByteRoom:
    """How many bytes of lines may be claimed: no row is added to so many, the last one may exceed.

    Attributes:
        num_bytes: In all.
        for_large: Before a large line; less, so that large ones keep no others waiting.
    """

    num_bytes: int
    for_large: int

    @classmethod
    def left(cls, max_bytes: int, num_held: int) -> ByteRoom:
        """What is left of a budget; a quarter of it is not for large lines."""
        return cls(max_bytes - num_held, max_bytes - max_bytes // 4 - num_held)


NO_BYTE_LIMIT = ByteRoom(2**62, 2**62)


@dataclass(frozen=True, slots=True)
class NewRow:
    """One validated line, ready to be stored.

    Attributes:
        offset_bytes: Where the line's JSON begins in the input file.
        length_bytes: Its length without the line end.
        prefix_hash: Signed 64 bits; equal for rows that begin alike.
        num_tokens: Estimated tokens of its prompt.
        same_as: The row of its batch whose answer it is given, if any.
        digest: Of what it asks, where its batch's answers are used again.
    """

    line_no: int
    custom_id: str
    offset_bytes: int
    length_bytes: int
    prefix_hash: int = 0
    num_tokens: int = 0
    same_as: str | None = None
    digest: bytes | None = None


class ClaimedRow(NamedTuple):
    """A row that is ours until it is finished, put back or reaped."""

    id: int
    batch_id: str
    custom_id: str
    offset_bytes: int
    length_bytes: int
    attempt: int
    num_losses: int = 0
    num_refusals: int = 0
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PutBack:
    """A leased row that is to be pending again.

    Attributes:
        delay_s: Not claimed again before this has passed.
        counts: Whether the attempt counts towards the bound on attempts.
        lost: Whether the engine was lost while the row was there.
        refused: Whether the engine turned the row away because it takes none now.
        error: The error of the attempt, in the wire's shape.
    """

    row_id: int
    delay_s: float = 0.0
    counts: bool = False
    lost: bool = False
    refused: bool = False
    error: Mapping[str, Any] | None = None


_columns = attrgetter(
    "line_no",
    "custom_id",
    "offset_bytes",
    "length_bytes",
    "prefix_hash",
    "num_tokens",
    "same_as",
    "digest",
)


async def ingest(session: AsyncSession, batch_id: str, rows: AsyncIterable[NewRow]) -> int:
    """Store a batch's rows by COPY, in the session's transaction; how many there were."""

    async def named() -> AsyncIterator[tuple[str, NewRow]]:
        async for row in rows:
            yield batch_id, row

    return await ingest_all(session, named())


async def ingest_all(session: AsyncSession, rows: AsyncIterable[tuple[str, NewRow]]) -> int:
    """Store the rows of several batches, as `ingest` does; each comes with its batch's id."""
    connection = await (await session.connection()).get_raw_connection()
    driver: Any = connection.driver_connection
    num_rows = 0
    async with (
        driver.cursor() as cursor,
        cursor.copy(
            "COPY batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes,"
            " prefix_hash, num_tokens, same_as, digest) FROM STDIN (FORMAT BINARY)"
        ) as copy,
    ):
        copy.set_types(["text", "int4", "text", "int8", "int4", "int8", "int4", "text", "bytea"])
        async for batch_id, row in rows:
            await copy.write_row((batch_id, *_columns(row)))
            num_rows += 1
    return num_rows


async def copy(
    session: AsyncSession, source_id: str, target_id: str, *, statuses: Collection[str]
) -> tuple[int, int]:
    """Give a batch fresh rows for another's that ended in one of `statuses`.

    Returns:
        How many, and how many of them are given the answer of another.
    """
    found = await session.execute(
        text(
            """
            WITH copied AS (
            INSERT INTO batch_rows
              (batch_id, line_no, custom_id, offset_bytes, length_bytes, prefix_hash, num_tokens,
               same_as)
            SELECT :target_id, line_no, custom_id, offset_bytes, length_bytes, prefix_hash,
                   num_tokens,
                   NULLIF(first_value(custom_id) OVER (
                     PARTITION BY COALESCE(same_as, custom_id) ORDER BY line_no), custom_id)
            FROM batch_rows WHERE batch_id = :source_id AND status = ANY(:statuses)
            ORDER BY line_no
            RETURNING same_as)
            SELECT count(*), count(same_as) FROM copied
            """
        ),
        {"source_id": source_id, "target_id": target_id, "statuses": sorted(statuses)},
    )
    num_rows, num_repeats = found.one()
    return num_rows, num_repeats


LONGEST_DELAY_S = 120
"""No back-off is longer: one that seems to be was begun before the clock was set back."""

READY = (
    "(available_at IS NULL OR available_at <= statement_timestamp()"
    f" OR available_at > statement_timestamp() + make_interval(secs => {LONGEST_DELAY_S}))"
)
"""SQL: whether a pending row may be claimed now."""

_CLAIM = text(
    f"""
    WITH wanted AS (
      SELECT * FROM unnest(CAST(:batch_ids AS text[]), CAST(:limits AS int[])) AS w(batch_id, n)
    ), locked AS (
      SELECT r.*, row_number() OVER (PARTITION BY w.batch_id ORDER BY prefix_hash, line_no) AS place
      FROM wanted w CROSS JOIN LATERAL (
        SELECT id, length_bytes, prefix_hash, line_no FROM batch_rows
        WHERE batch_id = w.batch_id AND status = 'pending' AND num_losses < :suspect_losses
          AND same_as IS NULL AND {READY}
        ORDER BY prefix_hash, line_no LIMIT w.n
        FOR UPDATE SKIP LOCKED) r
    ), summed AS (
      SELECT id, length_bytes, length_bytes > :large_bytes AS large,
             sum(length_bytes) OVER (PARTITION BY length_bytes > :large_bytes
                                     ORDER BY place, id) - length_bytes AS before
      FROM locked
    ), large AS (
      SELECT id, length_bytes FROM summed WHERE large AND before < :room_for_large
    ), picked AS (
      SELECT id FROM large
      UNION ALL
      SELECT id FROM summed
      WHERE NOT large AND before + (SELECT COALESCE(sum(length_bytes), 0) FROM large) < :room
    ), leased AS (
      UPDATE batch_rows r SET status = 'leased', dispatcher_id = :dispatcher_id, claim_id = :claim
      FROM picked
      WHERE r.id = picked.id
        AND EXISTS (SELECT 1 FROM dispatchers d WHERE d.id = :dispatcher_id)
      RETURNING r.*
    )
    SELECT id, batch_id, custom_id, offset_bytes, length_bytes, attempt, num_losses, num_refusals,
           num_tokens
    FROM leased ORDER BY batch_id, prefix_hash, line_no
    """
)

_CLAIM_SUSPECTS = text(
    f"""
    WITH locked AS (
      SELECT id, length_bytes, num_losses FROM batch_rows
      WHERE status = 'pending' AND batch_id = ANY(:batch_ids)
        AND num_losses BETWEEN :min_losses AND :max_losses
        AND {READY}
      ORDER BY num_losses, id LIMIT :limit
      FOR UPDATE SKIP LOCKED
    ), picked AS (
      SELECT id FROM (
        SELECT id, sum(length_bytes) OVER (ORDER BY num_losses, id) - length_bytes AS before
        FROM locked) l
      WHERE before < :room
    )
    UPDATE batch_rows r SET status = 'leased', dispatcher_id = :dispatcher_id, claim_id = :claim
    FROM picked
    WHERE r.id = picked.id
      AND EXISTS (SELECT 1 FROM dispatchers d WHERE d.id = :dispatcher_id)
    RETURNING r.id, r.batch_id, r.custom_id, r.offset_bytes, r.length_bytes, r.attempt,
              r.num_losses, r.num_refusals, r.num_tokens
    """
)


async def claim(
    session: AsyncSession,
    dispatcher_id: str,
    quotas: Mapping[str, int],
    *,
    suspect_losses: int = MAX_LOSSES,
    claim_id: str | None = None,
    room: ByteRoom = NO_BYTE_LIMIT,
) -> list[ClaimedRow]:
    """Lease up to `quotas[batch]` pending rows of each batch to a live dispatcher.

    Where there is not room for all, the batches' first rows come first, then their second ones.

    Rows that another transaction holds are skipped, and those with `suspect_losses` or more engine
    losses. Each batch's rows come in its order: those that share a prefix together.
    `claim_id` is what `undo_claims` knows this claim by.
    """
    found = await session.execute(
        _CLAIM,
        {
            "dispatcher_id": dispatcher_id,
            "batch_ids": list(quotas),
            "limits": list(quotas.values()),
            "suspect_losses": suspect_losses,
            "claim": claim_id,
            "large_bytes": LARGE_BYTES,
            "room": room.num_bytes,
            "room_for_large": room.for_large,
        },
    )
    return list(map(ClaimedRow._make, found))


async def claim_suspects(
    session: AsyncSession,
    dispatcher_id: str,
    batch_ids: Collection[str],
    *,
    losses: tuple[int, int],
    limit: int,
    claim_id: str | None = None,
    room: ByteRoom = NO_BYTE_LIMIT,
) -> list[ClaimedRow]:
    """Lease up to `limit` pending rows that have seen so many losses: the least, the most."""
    found = await session.execute(
        _CLAIM_SUSPECTS,
        {
            "dispatcher_id": dispatcher_id,
            "batch_ids": list(batch_ids),
            "min_losses": losses[0],
            "max_losses": losses[1],
            "limit": limit,
            "claim": claim_id,
            "room": room.num_bytes,
        },
    )
    return list(map(ClaimedRow._make, found))


async def num_claimable(
    session: AsyncSession, limits: Mapping[str, int], *, suspect_losses: int = MAX_LOSSES
) -> dict[str, int]:
    """How many rows of each batch could be claimed now, counted up to its limit; none with zero."""
    found = await session.execute(
        text(
            f"""
            SELECT w.batch_id, count(r.id) AS num_rows
            FROM unnest(CAST(:batch_ids AS text[]), CAST(:limits AS int[])) AS w(batch_id, n)
            CROSS JOIN LATERAL (
              SELECT id FROM batch_rows
              WHERE batch_id = w.batch_id AND status = 'pending' AND num_losses < :suspect_losses
                AND same_as IS NULL AND {READY}
              LIMIT w.n) r
            GROUP BY w.batch_id
            """
        ),
        {
            "batch_ids": list(limits),
            "limits": list(limits.values()),
            "suspect_losses": suspect_losses,
        },
    )
    return {row.batch_id: row.num_rows for row in found}


async def undo_claims(session: AsyncSession, dispatcher_id: str, claim_ids: Collection[str]) -> int:
    """Make the rows of claims whose answer never came pending again; how many."""
    return await num_changed(
        session,
        text(
            """
            UPDATE batch_rows SET status = 'pending', dispatcher_id = NULL, claim_id = NULL
            WHERE status = 'leased' AND dispatcher_id = :dispatcher_id AND claim_id = ANY(:claims)
            """
        ),
        {"dispatcher_id": dispatcher_id, "claims": list(claim_ids)},
    )


async def has_overdue_suspects(
    session: AsyncSession, batch_ids: Collection[str], *, min_losses: int, overdue_s: float
) -> bool:
    """Whether a row with so many engine losses could have been claimed for `overdue_s`."""
    return bool(
        await session.scalar(
            text(
                """
                SELECT EXISTS (
                  SELECT 1 FROM batch_rows
                  WHERE status = 'pending' AND batch_id = ANY(:batch_ids)
                    AND num_losses >= :min_losses AND available_at
                      <= statement_timestamp() - make_interval(secs => :overdue_s))
                """
            ),
            {"batch_ids": list(batch_ids), "min_losses": min_losses, "overdue_s": overdue_s},
        )
    )


async def put_back(session: AsyncSession, dispatcher_id: str, rows: Sequence[PutBack]) -> int:
    """Make leased rows pending again, those which are still this dispatcher's; how many."""
    if not rows:
        return 0
    return await num_changed(
        session,
        text(
            """
            UPDATE batch_rows r
            SET status = 'pending', dispatcher_id = NULL, claim_id = NULL,
                attempt = r.attempt + t.counts,
                num_losses = LEAST(r.num_losses + t.lost, 32767),
                num_refusals = LEAST(r.num_refusals + t.refused, 32767),
                available_at = CASE WHEN t.delay_s > 0
                  THEN statement_timestamp() + make_interval(secs => t.delay_s) END,
                last_error = COALESCE(CAST(t.error AS jsonb), r.last_error)
            FROM unnest(CAST(:ids AS bigint[]), CAST(:delays AS float8[]), CAST(:counts AS int[]),
                        CAST(:losses AS int[]), CAST(:refusals AS int[]), CAST(:errors AS text[]))
                 AS t(row_id, delay_s, counts, lost, refused, error)
            WHERE r.id = t.row_id AND r.status = 'leased' AND r.dispatcher_id = :dispatcher_id
            """
        ),
        {
            "dispatcher_id": dispatcher_id,
            "ids": [row.row_id for row in rows],
            "delays": [float(row.delay_s) for row in rows],
            "counts": [int(row.counts) for row in rows],
            "losses": [int(row.lost) for row in rows],
            "refusals": [int(row.refused) for row in rows],
            "errors": [
                orjson.dumps(row.error).decode() if row.error is not None else None for row in rows
            ],
        },
    )


async def release_all(session: AsyncSession, dispatcher_id: str) -> int:
    """Make every row that a dispatcher holds pending again; how many."""
    return await num_changed(
        session,
        text(
            """
            UPDATE batch_rows SET status = 'pending', dispatcher_id = NULL, claim_id = NULL
            WHERE status = 'leased' AND dispatcher_id = :dispatcher_id
            """
        ),
        {"dispatcher_id": dispatcher_id},
    )


async def custom_id(session: AsyncSession, row_id: int) -> str:
    """What the caller calls the row."""
    found = await session.scalar(
        text("SELECT custom_id FROM batch_rows WHERE id = :id"), {"id": row_id}
    )
    return str(found)


@dataclass(frozen=True, slots=True)
class Reaped:
    """A row of a dispatcher that is gone, pending again."""

    id: int
    batch_id: str
    custom_id: str
    num_losses: int


async def reap(session: AsyncSession, died: Collection[str] = ()) -> list[Reaped]:
    """Make rows of gone dispatchers pending; which those are. Locks the batches first.

    Those of dispatchers that died have one loss more: any of them may be the one they died of.
    """
    orphaned = (
        "r.status = 'leased' AND NOT EXISTS"
        " (SELECT 1 FROM dispatchers d WHERE d.id = r.dispatcher_id)"
    )
    batches = await session.scalars(
        text(
            "SELECT id FROM batches WHERE id IN"
            f" (SELECT r.batch_id FROM batch_rows r WHERE {orphaned})"
            " ORDER BY id FOR NO KEY UPDATE"
        )
    )
    found = await session.execute(
        text(
            f"""
            WITH reaped AS (
              UPDATE batch_rows r SET status = 'pending',
                num_losses = LEAST(r.num_losses + (r.dispatcher_id = ANY(:died))::int, 32767),
                available_at = CASE WHEN r.dispatcher_id = ANY(:died)
                  THEN statement_timestamp() END,
                dispatcher_id = NULL, claim_id = NULL
              WHERE {orphaned} AND r.batch_id = ANY(:batches)
              RETURNING r.id, r.batch_id, r.custom_id, r.num_losses)
            SELECT id, batch_id, custom_id, num_losses FROM reaped ORDER BY batch_id, id
            """
        ),
        {"batches": list(batches), "died": list(died)},
    )
    return [Reaped(**row) for row in found.mappings()]
