"""Moving a batch: the state table applied to the database, with an event for every move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from batch.states import TERMINAL_BATCH, BatchStatus, sources_of
from batch.webhooks import events
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import webhook_delivery as deliveries


async def move(
    session: AsyncSession,
    batch_id: str,
    target: BatchStatus,
    *,
    values: Mapping[str, Any] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Batch | None:
    """Enter `target` if the table allows it from where the batch is.

    Locks the batch, stamps `{target}_at` by the database's clock and appends the event, all in
    the caller's transaction; at the batch's end the webhook deliveries of the event too.

    Args:
        session: An open transaction.
        batch_id: Which batch.
        target: The status to enter.
        values: Further columns to set with it.
        detail: What the event remembers.

    Returns:
        The batch as it is now, or none where the move is not legal: another one was faster, and
        that is no error.
    """
    moved = await batches.move(
        session, batch_id, sources=sources_of(target), target=target, values=values, detail=detail
    )
    if moved is not None and moved.response_id is None and target in TERMINAL_BATCH:
        await deliveries.publish(
            session,
            batch_id,
            status=target,
            event_id=events.new_event_id(),
            event_type=events.type_of(target),
        )
    return moved


async def all_rows_closed(session: AsyncSession, batch_id: str) -> BatchStatus | None:
    """Leave `in_progress` once the last row has its end.

    To `finalizing`, unless rows expired: then the batch stays where it is until its finalization
    has delivered what was finished, and moves it to `expired` (contract row R-02 knows no status
    in between). A paused batch stays too, until it is resumed or its window ends.

    Returns:
        Where the batch goes on to, `completed` or `expired`; none while it is paused.
    """
    if await batches.has_expired_rows(session, batch_id):
        # Not locked here: a cancel may still come while the files are written.
        return BatchStatus.EXPIRED
    # Locked: else it could be paused between this look and the move.
    batch = await batches.lock(session, batch_id)
    if batch is None:
        return None
    if batch.paused_at is not None and not await batches.is_over_window(session, batch_id):
        return None
    await move(session, batch_id, BatchStatus.FINALIZING)
    return BatchStatus.COMPLETED
