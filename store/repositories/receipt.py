"""Queries about receipts: a write whose COMMIT got no answer is applied once."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import WriteReceipt
from store.repositories.statements import forget_old

KEPT_S: Final = 7 * 86400
"""Far longer than any writer repeats a write."""


async def take(session: AsyncSession, writer: str, number: int) -> bool:
    """Note in this transaction that a writer's write is applied by it.

    Call it first: an earlier attempt that the server is still committing is waited for.

    Returns:
        Whether the write is to be made; false where an earlier attempt has made it.
    """
    taken = await session.scalar(
        text(
            """
            INSERT INTO write_receipts AS w (writer, number) VALUES (:writer, :number)
            ON CONFLICT (writer) DO UPDATE
            SET number = excluded.number, written_at = statement_timestamp()
            WHERE w.number < excluded.number
            RETURNING 1
            """
        ),
        {"writer": writer, "number": number},
    )
    return taken is not None


async def collect(session: AsyncSession, limit: int) -> int:
    """Forget up to `limit` writers that have written nothing for `KEPT_S`; how many."""
    return await forget_old(session, WriteReceipt.written_at, older_than_s=KEPT_S, limit=limit)
