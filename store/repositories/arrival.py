"""Queries about arrivals: objects of the file store that have no file yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories.statements import changed


async def announce(session: AsyncSession, storage_key: str) -> None:
    """Say that an object is about to be stored."""
    await session.execute(
        text("INSERT INTO arrivals (storage_key) VALUES (:key)"), {"key": storage_key}
    )


async def settle(session: AsyncSession, storage_key: str) -> bool:
    """Remove an arrival; whether there was one. A collection that has it is waited for."""
    return await changed(
        session, text("DELETE FROM arrivals WHERE storage_key = :key"), {"key": storage_key}
    )


async def abandoned(
    session: AsyncSession, *, older_than_s: float, limit: int, failed_before: datetime | None = None
) -> Sequence[str]:
    """Keys that arrived long ago and were never listed, locked: their files cannot appear.

    Those whose removal has failed are left out; or only they are found, if it failed before then.
    """
    failed = "IS NULL" if failed_before is None else "< :failed_before"
    order = "created_at" if failed_before is None else "removal_failed_at"
    found = await session.scalars(
        text(
            f"""
            SELECT storage_key FROM arrivals
            WHERE created_at < statement_timestamp() - make_interval(secs => :s)
              AND removal_failed_at {failed}
            ORDER BY {order} LIMIT :limit FOR UPDATE SKIP LOCKED
            """
        ),
        {
            "s": older_than_s,
            "limit": limit,
            **({} if failed_before is None else {"failed_before": failed_before}),
        },
    )
    return found.all()


async def note_failed(session: AsyncSession, storage_keys: Collection[str]) -> None:
    """Say that these could not be removed."""
    await session.execute(
        text(
            "UPDATE arrivals SET removal_failed_at = statement_timestamp()"
            " WHERE storage_key = ANY(:keys)"
        ),
        {"keys": list(storage_keys)},
    )
