"""Lists and the dashboard's sums may be some seconds old: they are read from a replica if there is
one (`DATABASE_REPLICA_URL`), and from the database itself while it is away or too far behind.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from service.clock import Clock
from store.failures import AWAY
from store.session import Database

POLL_INTERVAL_S: Final = 1.0
MAX_LAG_S: Final = 10.0

logger = logging.getLogger(__name__)

_WRITTEN = text("SELECT pg_current_wal_lsn()::text")
# A server that replays nothing is no standby: another kind of copy, which is taken at its word.
_HAS = text("SELECT coalesce(pg_last_wal_replay_lsn() >= CAST(:written AS pg_lsn), true)")


class Readings:
    """Where a list is read.

    Args:
        database: The database itself.
        replica: A copy of it; none: there is no other.
        clock: For the age of what was written.
        max_lag_s: What was written so long ago must be in the replica.
    """

    def __init__(
        self,
        database: Database,
        replica: Database | None,
        clock: Clock,
        *,
        max_lag_s: float = MAX_LAG_S,
    ) -> None:
        self._database = database
        self._replica = replica
        self._clock = clock
        self.max_lag_s = max_lag_s
        self._written: deque[tuple[float, str]] = deque()
        self.from_replica = False

    def snapshot(self) -> AbstractAsyncContextManager[AsyncSession]:
        """Only reads, all as of one instant, which may be some seconds ago."""
        source = self._replica if self.from_replica else None
        return (source or self._database).snapshot()

    async def poll(self) -> None:
        """Look at the replica, if there is one; done every second."""
        usable = self._replica is not None and await self._is_near(self._replica)
        if usable != self.from_replica:
            logger.warning("lists are read from %s", "the replica" if usable else "the primary")
        self.from_replica = usable

    async def _is_near(self, replica: Database) -> bool:
        """Whether it has everything that was written before the longest lag allowed.

        While the primary is away, it is held to what was last known of that.
        """
        now_s = self._clock.monotonic()
        try:
            async with self._database.unit_of_work() as session:
                self._written.append((now_s, await session.scalar(_WRITTEN) or "0/0"))
        except AWAY:
            pass
        while len(self._written) > 1 and self._written[1][0] <= now_s - self.max_lag_s:
            self._written.popleft()
        if not self._written:
            return False
        try:
            # A standby begins only transactions that read.
            async with replica.snapshot() as session:
                return bool(await session.scalar(_HAS, {"written": self._written[0][1]}))
        except AWAY:
            return False
