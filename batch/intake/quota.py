"""The quota on enqueued tokens: how much a project may have waiting per model (row B-31).

What counts is the estimated prompt tokens of rows that are still to run. Nothing is reserved and
nothing is given back: the sum is taken over the rows when a batch is let in, under a lock, so two
batches at once cannot both take the last room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories import quota as quotas

CODE: Final = "token_limit_exceeded"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Estimated prompt tokens of new rows: whose, and of which model; each has its own quota."""

    project_id: str
    model: str
    num_tokens: int


async def why_full(
    session: AsyncSession,
    project_id: str,
    model: str,
    num_tokens: int,
    *,
    default_limit: int | None,
) -> str | None:
    """Why so many more tokens cannot be enqueued, or none if they can; see `reasons`."""
    wanted = Wanted(project_id, model, num_tokens)
    return (await reasons(session, [wanted], default_limit=default_limit))[0]


async def reasons(
    session: AsyncSession, wanted: Sequence[Wanted], *, default_limit: int | None
) -> list[str | None]:
    """Of each that is wanted, in this order, why it cannot be enqueued; none where it can.

    The rows must be added in the same transaction: it holds the locks.

    Args:
        session: The caller's transaction.
        wanted: One entry for each batch.
        default_limit: For projects without a limit of their own; none: no limit.
    """
    limits: dict[str, int | None] = {}
    for project_id in {one.project_id for one in wanted}:
        own = await quotas.project_limit(session, project_id)
        limits[project_id] = default_limit if own is None else own
    enqueued: dict[tuple[str, str], int] = {}
    for name in sorted({(one.project_id, one.model) for one in wanted}):
        if limits[name[0]] is not None:
            await quotas.lock(session, *name)
            enqueued[name] = await quotas.enqueued_tokens(session, *name)
    found: list[str | None] = []
    for one in wanted:
        limit, name = limits[one.project_id], (one.project_id, one.model)
        if limit is None or enqueued[name] + one.num_tokens <= limit:
            found.append(None)
            if limit is not None:
                enqueued[name] += one.num_tokens
            continue
        found.append(
            f"Enqueued token limit reached for {one.model[:128]} in project {one.project_id}. "
            f"Limit: {limit:,} enqueued tokens, used: {enqueued[name]:,}, "
            f"this batch: {one.num_tokens:,}. "
            "Please try again once some in_progress batches have been completed."
        )
    return found
