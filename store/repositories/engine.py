"""Queries about engines: what the services last saw of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Engine


async def saw(
    session: AsyncSession, url: str, model: str, context_tokens: int, facts: Mapping[str, Any]
) -> None:
    """Remember what an engine said about itself just now."""
    values = {
        "model": model,
        "context_tokens": context_tokens,
        "facts": dict(facts),
        "seen_at": func.statement_timestamp(),
    }
    statement = insert(Engine).values(url=url, **values)
    await session.execute(statement.on_conflict_do_update(index_elements=["url"], set_=values))


async def list_all(session: AsyncSession) -> Sequence[Engine]:
    """Every engine ever seen, oldest first."""
    statement = select(Engine).order_by(Engine.created_at, Engine.url)
    return (await session.execute(statement)).scalars().all()
