"""Queries about places that are full."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

SHOWN_S: Final = 30.0
"""A place counts as full for so long after a write failed there: what waits tries again sooner."""


async def note(session: AsyncSession, store: str) -> None:
    """A write failed in this place for want of room."""
    await session.execute(
        text("UPDATE full_stores SET full_at = statement_timestamp() WHERE store = :store"),
        {"store": store},
    )


async def full(session: AsyncSession) -> set[str]:
    """The places that are full."""
    found = await session.scalars(
        text(
            "SELECT store FROM full_stores"
            " WHERE full_at > statement_timestamp() - make_interval(secs => :shown_s)"
        ),
        {"shown_s": SHOWN_S},
    )
    return set(found)
