"""Moving batches: the state table applied to the database, with an event for every move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from batch.states import TERMINAL_BATCH, BatchStatus, sources_of
from batch.webhooks import events
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import webhook_delivery as deliveries
from store.repositories.batch import Move
from store.repositories.result import Written


async def move(
    session: AsyncSession,
    batch_id: str,
    target: BatchStatus,
    *,
    values: Mapping[str, Any] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Batch | None:
    """Move one batch: see `move_all`; none where the move is not legal."""
    moved = await move_all(session, [Move(batch_id, target, values or {}, detail)])
    return moved[0] if moved else None


async def move_all(session: AsyncSession, moves: Collection[Move]) -> list[Batch]:
    """Let each batch enter its target if the table allows it from where the batch is.

    Locks the batches, stamps `{target}_at` by the database's clock and appends the events, all in
    the caller's transaction; at a batch's end the webhook deliveries of the event too.

    Returns:
        The batches that were moved, as they are now. Where a move is not legal, another one was
        faster, and that is no error.
    """
    targets = {BatchStatus(one.target) for one in moves}
    moved = await batches.move(session, moves, {one: sources_of(one) for one in targets})
    for target in targets & TERMINAL_BATCH:
        event_ids = {
            batch.id: events.new_event_id()
            for batch in moved
            if batch.status == target and batch.response_id is None
        }
        if event_ids:
            await deliveries.publish(
                session, event_ids, status=target, event_type=events.type_of(target)
            )
    return moved


async def all_rows_closed(
    session: AsyncSession, batch_ids: Collection[str]
) -> dict[str, BatchStatus]:
    """Let batches leave `in_progress` whose last row has its end.

    To `finalizing`, unless rows expired: then the batch stays where it is until its finalization
    has delivered what was finished, and moves it to `expired` (row R-02 knows no status
    in between). A paused batch stays too, until it is resumed or its window ends.

    Returns:
        Where each goes on to, `completed` or `expired`; a paused one is left out.
    """
    # Those are not locked here: a cancel may still come while the files are written.
    expired = await batches.with_expired_rows(session, batch_ids)
    # Locked: else one could be paused between this look and the move.
    others = await batches.lock_all(session, set(batch_ids) - expired)
    closed = [
        batch.id
        for batch in others.values()
        if batch.paused_at is None or await batches.is_overdue(session, batch.id)
    ]
    if closed:
        await move_all(session, [Move(one, BatchStatus.FINALIZING) for one in closed])
    return {
        **dict.fromkeys(expired, BatchStatus.EXPIRED),
        **dict.fromkeys(closed, BatchStatus.COMPLETED),
    }


async def go_on(session: AsyncSession, written: Written) -> list[str]:
    """Let batches go on whose last row a write has closed; which ones want a worker now.

    A paused one goes on nowhere: whoever resumes it asks again.
    """
    running = [one for one, at in written.closed if at == BatchStatus.IN_PROGRESS]
    going_on = await all_rows_closed(session, running) if running else {}
    return [one for one, _ in written.closed if one not in running] + list(going_on)
