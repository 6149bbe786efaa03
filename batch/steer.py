"""A live batch is steered by its owner: paused, resumed, given another priority.

Pausing is a flag beside the status: the wire's eight statuses stay as they are (row
R-01). No new row is claimed, those at the engine are taken off it within a second and run again
later, and the window goes on. A paused batch does not end before its window does.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import BatchNotFound
from api.errors import Conflict, InvalidRequest
from batch.states import BatchStatus
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import event, statements

MIN_PRIORITY: Final = -100
MAX_PRIORITY: Final = 100

STEERABLE: Final = frozenset({BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS})
"""Later there is no row left to hold back or to prefer."""


async def pause(session: AsyncSession, project_id: str, batch_id: str) -> Batch:
    """Run no row of the batch; a second pause changes nothing.

    Raises:
        BatchNotFound: No such batch in the project.
        Conflict: The batch is over, or on its way there.
    """
    batch = await _steerable(session, project_id, batch_id, "pause")
    if batch.paused_at is None:
        batch.paused_at = await statements.now(session)
        await event.append(session, batch_id, "paused")
    return batch


async def resume(session: AsyncSession, project_id: str, batch_id: str) -> Batch:
    """Let the batch go on; after the commit the caller asks for dispatchers and finalization.

    The latter since its last row may have ended in the moment of the pause. A batch that is not
    paused stays as it is.

    Raises:
        BatchNotFound: No such batch in the project.
        Conflict: The batch is over, or on its way there.
    """
    batch = await _steerable(session, project_id, batch_id, "resume")
    if batch.paused_at is not None:
        batch.paused_at = None
        await event.append(session, batch_id, "resumed")
    return batch


async def prioritize(session: AsyncSession, project_id: str, batch_id: str, priority: int) -> Batch:
    """Change the batch's place among the live batches of its project: a higher one goes first.

    Raises:
        InvalidRequest: The priority is out of bounds.
        BatchNotFound: No such batch in the project.
        Conflict: The batch is over, or on its way there.
    """
    check_priority(priority, param="priority")
    batch = await _steerable(session, project_id, batch_id, "change the priority of")
    if batch.priority != priority:
        detail = {"from": batch.priority, "to": priority}
        batch.priority = priority
        await event.append(session, batch_id, "priority_changed", detail=detail)
    return batch


def check_priority(priority: int, *, param: str) -> None:
    """Refuse a priority out of bounds.

    Raises:
        InvalidRequest: Naming `param`.
    """
    if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"The priority must lie between {MIN_PRIORITY} and {MAX_PRIORITY}.", param=param
        )


async def _steerable(session: AsyncSession, project_id: str, batch_id: str, verb: str) -> Batch:
    """The batch, locked, in a status in which steering it means something."""
    batch = await batches.lock(session, batch_id)
    if batch is None or batch.project_id != project_id:
        raise BatchNotFound(batch_id)
    if batch.status not in STEERABLE:
        raise Conflict(
            f"Cannot {verb} a batch with status '{batch.status}'.",
            current=batch.status,
            expected=tuple(sorted(STEERABLE)),
        )
    return batch
