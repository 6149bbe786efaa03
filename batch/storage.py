"""Where there is no room: told apart from what is away, and said to whoever operates the service.

A stage that meets a full disk waits: the sweep asks for it again, and all goes on when there is
room. What cannot be kept whatever the room is fails alone (`store.failures.is_refused`).
"""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.batch_errors import StorageFull, StorageUnavailable
from batch.intake.line_error import LineError
from batch.states import BatchStatus
from batch.transition import move
from store.failures import is_full
from store.repositories import full_store
from store.session import Database

DATABASE: Final = "database"
FILES: Final = "files"
FILES_AWAY: Final = "files_away"
"""The file store cannot be used: read-only, refused, or out of reach."""
NOT_STORABLE_CODE: Final = "rows_not_storable"

_SAID: Final = {
    DATABASE: "no room left in the database",
    FILES: "no room left in the file store",
    FILES_AWAY: "the file store cannot be used",
}

logger = logging.getLogger(__name__)


class StageWaits(Exception):
    """A stage ended for want of room; nothing is lost, and it will be asked for again."""


def full_place(error: BaseException) -> str | None:
    """Which place is full, if that is what the error says."""
    if isinstance(error, StorageFull):
        return FILES
    return DATABASE if is_full(error) else None


async def fail_unstorable(database: Database, batch_id: str) -> BatchStatus | None:
    """End a batch whose rows the database refuses: asking again would refuse them again."""
    fault = LineError(NOT_STORABLE_CODE, "The database refuses to keep the lines of this file.")
    async with database.unit_of_work() as session:
        moved = await move(
            session, batch_id, BatchStatus.FAILED, values={"errors": [fault.as_wire()]}
        )
    return BatchStatus.FAILED if moved is not None else None


async def note_if_away(database: Database, error: Exception) -> None:
    """Say so where an error means that the file store cannot be used. Never raises."""
    if isinstance(error, StorageUnavailable):
        await note_full(database, FILES_AWAY)


async def note_full(database: Database, place: str) -> None:
    """Say so where every gateway reads it. Never raises."""
    logger.warning(_SAID[place])
    try:
        async with database.unit_of_work() as session:
            await full_store.note(session, place)
    except (SQLAlchemyError, OSError) as error:
        logger.warning("that could not be noted: %s", type(error).__name__)
