"""Queries of the validation stage."""

from __future__ import annotations

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Engine


async def try_exclusive(session: AsyncSession, batch_id: str, *, idle_limit_s: float) -> bool:
    """Take the batch's validation for this transaction; false where another one has it.

    Not a lock on the batch's row: whoever cancels meanwhile must not wait for the file to be
    read. The server ends the transaction if it is idle for `idle_limit_s`, so that a stopped
    process cannot hold it for ever.
    """
    await session.execute(
        text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"),
        {"limit": str(int(idle_limit_s * 1000))},
    )
    return bool(
        await session.scalar(
            text("SELECT pg_try_advisory_xact_lock(hashtextextended(:id, 10))"), {"id": batch_id}
        )
    )


async def served_models(session: AsyncSession, *, embeds: bool = False) -> dict[str, bool] | None:
    """The models that engines were seen to serve, and whether they suit; None before any was seen.

    Args:
        session: Read only.
        embeds: Those suit that make embeddings; else those that generate text.
    """
    query = select(Engine.model, Engine.facts).where(Engine.model.is_not(None))
    seen = (await session.execute(query)).all()
    if not seen:
        return None
    served: dict[str, bool] = {}
    for model, facts in seen:
        suits = bool((facts or {}).get("embeds")) == embeds
        served[model or ""] = served.get(model or "", False) or suits
    return served
