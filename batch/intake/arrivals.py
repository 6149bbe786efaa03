"""Objects that are on their way into the file store and have no file yet.

    announce ──► bytes ──► file listed (settles the arrival in its transaction)
        └──────────────────► given up: bytes removed, arrival settled
        └──────────────────► nobody knows: collected a day later

An upload whose COMMIT got no answer is the third kind: its file may be listed, so its bytes are
left alone (decision 0111).
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.files import FileStore
from batch.removal import COLLECT_AT_ONCE, Budget, in_steps, removed
from store.repositories import arrival as arrivals
from store.repositories import statements
from store.session import Database

logger = logging.getLogger(__name__)

ABANDONED_AFTER_S: Final = 86400.0


class Arrivals(Protocol):
    """Where objects are announced before they are stored."""

    async def announce(self, key: str) -> None:
        """Say that an object is about to be stored under `key`."""
        ...

    async def forget(self, key: str) -> None:
        """Say that nothing is stored under `key`, and nothing will be. Never raises."""
        ...


class StoredArrivals:
    """Arrivals in the database, where the collection finds those that a crash cut off."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def announce(self, key: str) -> None:
        async with self._database.unit_of_work() as session:
            await arrivals.announce(session, key)

    async def forget(self, key: str) -> None:
        """See `Arrivals.forget`; what cannot be written now is collected later."""
        try:
            async with self._database.unit_of_work() as session:
                await arrivals.settle(session, key)
        except (OperationalError, InterfaceError) as away:
            logger.warning("arrival of %s left to collection: %s", key, type(away.orig).__name__)


async def discard(file_store: FileStore, known: Arrivals, key: str) -> None:
    """Remove an object that is known to have no file."""
    await file_store.delete(key)
    await known.forget(key)


async def collect_arrivals(
    database: Database,
    file_store: FileStore,
    budget: Budget | None = None,
    *,
    older_than_s: float = ABANDONED_AFTER_S,
) -> int:
    """Remove objects that arrived long ago and were never listed; how many."""
    num_collected = 0
    async with database.unit_of_work() as session:
        began_at = await statements.now(session)

    async def step(failed_before: bool) -> int:
        nonlocal num_collected
        async with database.unit_of_work() as session:
            keys = await arrivals.abandoned(
                session,
                older_than_s=older_than_s,
                limit=COLLECT_AT_ONCE,
                failed_before=began_at if failed_before else None,
            )
            done = await removed(keys, file_store.delete)
            for key in done:
                await arrivals.settle(session, key)
            await arrivals.note_failed(session, set(keys) - done)
        num_collected += len(done)
        return len(keys)

    await in_steps(step, budget or Budget.of())
    return num_collected
