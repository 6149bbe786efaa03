"""The quota on enqueued tokens: how much a project may have waiting per model (row B-31).

What counts is the estimated prompt tokens of rows that are still to run. Nothing is reserved and
nothing is given back: the sum is taken over the rows when a batch is let in, under a lock, so two
batches at once cannot both take the last room.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories import quota as quotas

CODE: Final = "token_limit_exceeded"


async def why_full(
    session: AsyncSession,
    project_id: str,
    model: str,
    num_tokens: int,
    *,
    default_limit: int | None,
) -> str | None:
    """Why so many more tokens cannot be enqueued, or none if they can.

    The rows must be added in the same transaction: it holds the lock.

    Args:
        session: The caller's transaction.
        project_id: Whose quota.
        model: Each model has its own.
        num_tokens: Estimated prompt tokens of the new rows.
        default_limit: For projects without a limit of their own; none: no limit.
    """
    limit = await quotas.project_limit(session, project_id)
    if limit is None:
        limit = default_limit
    if limit is None:
        return None
    await quotas.lock(session, project_id, model)
    enqueued = await quotas.enqueued_tokens(session, project_id, model)
    if enqueued + num_tokens <= limit:
        return None
    return (
        f"Enqueued token limit reached for {model[:128]} in project {project_id}. "
        f"Limit: {limit:,} enqueued tokens, used: {enqueued:,}, this batch: {num_tokens:,}. "
        "Please try again once some in_progress batches have been completed."
    )
