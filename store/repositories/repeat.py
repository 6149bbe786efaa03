"""Queries about rows that are given the answer of another row of their batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models.batch import OPEN, ROWS_MODEL


class Waiting(NamedTuple):
    """A pending row whose answer is there.

    Attributes:
        first_id: The row that got the answer.
        status: How that row ended.
        seq: The number of its result.
        num_bytes: Length of its line.
    """

    row_id: int
    custom_id: str
    first_id: int
    status: str
    seq: int
    num_bytes: int


async def batches_with_repeats(session: AsyncSession, models: Collection[str]) -> list[str]:
    """The open batches of these models in which rows ask what others ask."""
    found = await session.scalars(
        text(
            f"""
            SELECT id FROM batches
            WHERE {OPEN} AND {ROWS_MODEL} = ANY(:models) AND num_repeats > 0
            """
        ),
        {"models": [*models, ""]},
    )
    return list(found)


async def answered(
    session: AsyncSession, batch_id: str, *, after_seq: int, limit: int
) -> list[Waiting]:
    """Pending rows whose answer is among the results after number `after_seq`, in their order."""
    found = await session.execute(
        text(
            """
            SELECT r.id AS row_id, r.custom_id, first.id AS first_id, first.status, x.seq,
                   octet_length(x.line) AS num_bytes
            FROM row_results x
            JOIN batch_rows first ON first.id = x.row_id
            JOIN batch_rows r ON r.batch_id = x.batch_id AND r.same_as = first.custom_id
              AND r.status = 'pending'
            WHERE x.batch_id = :batch_id AND x.seq > :after_seq
            ORDER BY x.seq, r.id LIMIT :limit
            """
        ),
        {"batch_id": batch_id, "after_seq": after_seq, "limit": limit},
    )
    return [Waiting(**row) for row in found.mappings()]


async def known(
    session: AsyncSession, batch_id: str, *, after_row: int, limit: int
) -> list[Waiting]:
    """Pending rows whose answer an earlier batch has, after one of them, in the order of their ids.

    Of the same project, model and endpoint, where both batches use answers again.
    """
    found = await session.execute(
        text(
            """
            SELECT DISTINCT ON (r.id) r.id AS row_id, r.custom_id, first.id AS first_id,
                   first.status, 0 AS seq, octet_length(x.line) AS num_bytes
            FROM batches b
            JOIN batch_rows r ON r.batch_id = b.id AND r.status = 'pending' AND r.id > :after_row
            JOIN batch_rows first ON first.digest = r.digest AND first.status = 'succeeded'
            JOIN batches source ON source.id = first.batch_id
              AND source.project_id = b.project_id AND source.model = b.model
              AND source.endpoint = b.endpoint
              AND source.created_at
                > statement_timestamp() - make_interval(secs => source.reuse_s)
            JOIN row_results x ON x.row_id = first.id
            WHERE b.id = :batch_id AND b.reuse_s IS NOT NULL AND r.digest IS NOT NULL
            ORDER BY r.id, first.id DESC LIMIT :limit
            """
        ),
        {"batch_id": batch_id, "after_row": after_row, "limit": limit},
    )
    return [Waiting(**row) for row in found.mappings()]


async def lines(session: AsyncSession, row_ids: Collection[int]) -> dict[int, bytes]:
    """The result lines of rows."""
    found = await session.execute(
        text("SELECT row_id, line FROM row_results WHERE row_id = ANY(:ids)"),
        {"ids": list(row_ids)},
    )
    return {row_id: bytes(line) for row_id, line in found}
