"""Which places are full, as far as this gateway and the workers have met it."""

from __future__ import annotations

from typing import Final

from batch.storage import note_full
from service.clock import Clock
from store.failures import AWAY
from store.repositories import full_store
from store.repositories.full_store import SHOWN_S
from store.session import Database, takes_writes

POLL_INTERVAL_S: Final = 2.0


class StorageWatch:
    """What /readyz, the metrics and the dashboard say of it: read without waiting for anything."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._met_s: dict[str, float] = {}
        self._untold: set[str] = set()
        self._told: set[str] = set()
        self.takes_writes = True  # of the database itself: a replica never does

    @property
    def full(self) -> list[str]:
        """`database`, `files`, both or none."""
        since_s = self._clock.monotonic() - SHOWN_S
        return sorted(self._told | {one for one, met_s in self._met_s.items() if met_s > since_s})

    def note(self, place: str) -> None:
        """A write of this gateway failed for want of room."""
        self._met_s[place] = self._clock.monotonic()
        self._untold.add(place)

    async def poll(self) -> None:
        """Tell the others what was met here, and read what they told."""
        untold, self._untold = self._untold, set()
        for place in sorted(untold):
            await note_full(self._database, place)
        try:
            async with self._database.unit_of_work() as session:
                self._told = await full_store.full(session)
                self.takes_writes = await takes_writes(session)
        except AWAY:
            # Another matter; what was told last is not true for ever.
            self._told, self.takes_writes = set(), True
