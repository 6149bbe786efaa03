"""Statements that several repositories make."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, Executable, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute


async def now(session: AsyncSession) -> datetime:
    """The database's clock; every `created_at` and expiry is measured by it."""
    instant: datetime = (await session.execute(select(func.statement_timestamp()))).scalar_one()
    return instant


async def num_changed(session: AsyncSession, change: Executable, values: Any = None) -> int:
    """How many rows a statement inserts, updates or deletes; it is run once.

    Args:
        session: An open transaction.
        change: The statement.
        values: Of its parameters: a mapping, or several.
    """
    done = await session.execute(change, values)
    return cast("CursorResult[Any]", done).rowcount


async def changed(session: AsyncSession, change: Executable, values: Any = None) -> bool:
    """Whether a statement changes any row: see `num_changed`."""
    return await num_changed(session, change, values) > 0


async def forget_old(
    session: AsyncSession, instant: InstrumentedAttribute[Any], *, older_than_s: float, limit: int
) -> int:
    """Delete up to `limit` rows of a table whose `instant` is so long ago; how many.

    Rows that others have locked are left for the next time.
    """
    table = instant.class_.__tablename__
    statement = text(
        f"""
        DELETE FROM {table} WHERE ctid = ANY(ARRAY(
          SELECT ctid FROM {table}
          WHERE {instant.key} < statement_timestamp() - make_interval(secs => :s)
          LIMIT :limit FOR UPDATE SKIP LOCKED))
        """
    )
    return await num_changed(session, statement, {"s": older_than_s, "limit": limit})


def array_literal(values: Iterable[int | str]) -> str:
    """An array as Postgres reads it from text, for numbers and words that need no quotes.

    The driver adapts the elements of a list one by one, which costs more than all else it does
    for a statement with thousands of them.
    """
    return f"{{{','.join(map(str, values))}}}"
