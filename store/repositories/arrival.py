"""Queries about arrivals: objects of the file store that have no file yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncSession


async def announce(session: AsyncSession, storage_key: str) -> None:
    """Say that an object is about to be stored."""
    await session.execute(
        text("INSERT INTO arrivals (storage_key) VALUES (:key)"), {"key": storage_key}
    )


async def settle(session: AsyncSession, storage_key: str) -> bool:
    """Remove an arrival; whether there was one. A collection that has it is waited for."""
    done = await session.execute(
        text("DELETE FROM arrivals WHERE storage_key = :key"), {"key": storage_key}
    )
    return cast("CursorResult[object]", done).rowcount > 0


async def abandoned(session: AsyncSession, *, older_than_s: float, limit: int) -> Sequence[str]:
    """Keys that arrived long ago and were never listed, locked: their files cannot appear."""
    found = await session.scalars(
        text(
            """
            SELECT storage_key FROM arrivals
            WHERE created_at < statement_timestamp() - make_interval(secs => :s)
            ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
            """
        ),
        {"s": older_than_s, "limit": limit},
    )
    return found.all()
