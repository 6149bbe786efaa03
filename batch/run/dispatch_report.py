"""What a dispatcher has done, written to the database every few seconds: gateways export it.

A dispatcher is a Celery task in a forked child without a port of its own; what it counts survives
it in Postgres, whichever host it ran on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.storage import DATABASE, note_full
from service.clock import Clock
from store.repositories import dispatch_count
from store.repositories.dispatch_count import DispatchCounts
from store.session import Database

logger = logging.getLogger(__name__)

REPORT_S = 2.0


class DispatchReport:
    """Adds what is new since the last time to the engine's counters."""

    def __init__(
        self,
        engine_url: str,
        database: Database,
        clock: Clock,
        read: Callable[[], DispatchCounts],
    ) -> None:
        self._engine_url = engine_url
        self._database = database
        self._clock = clock
        self._read = read
        self._written = DispatchCounts()
        self._met_full = False
        database.met_full = self._note_full

    async def run(self) -> None:
        """Write every `REPORT_S` until cancelled."""
        while True:
            await self._clock.sleep(REPORT_S)
            await self.write()
            if self._met_full:
                self._met_full = False
                await note_full(self._database, DATABASE)

    def _note_full(self) -> None:
        self._met_full = True

    async def write(self) -> None:
        """Write now; what cannot be written is part of the next time."""
        counts = self._read()
        try:
            async with self._database.unit_of_work() as session:
                await dispatch_count.add(session, self._engine_url, counts.since(self._written))
        except (OperationalError, InterfaceError) as away:
            logger.warning("counts not written: %s", type(away.orig).__name__)
            return
        self._written = counts
