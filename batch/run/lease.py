"""The lease of a dispatcher on an engine: acquired, kept by a heartbeat, lost or given back.

Invariant: whatever is written under a lease names its id, so a dispatcher that was stopped for an
hour and wakes up can change nothing: its rows have been reaped and its id is on none of them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from dataclasses import dataclass

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.run.reap import reap_in
from batch.settings import HEARTBEAT_S, LEASE_STALE_S
from service.clock import Clock
from store.failures import is_full
from store.repositories import dispatcher as dispatchers
from store.repositories import row as rows
from store.session import Database
from store.types import new_id

logger = logging.getLogger(__name__)

_STDERR_FD = 2
WATCHDOG_S = 60.0
"""A process whose event loop has not beaten the heart for this long is ended from outside it."""


class LeaseLost(Exception):
    """The engine has another dispatcher, or ours could not prove that it is alive."""


@dataclass(frozen=True)
class LeaseTimes:
    """How often to beat, and for how long a silent heart counts as alive, seconds."""

    heartbeat_s: float = HEARTBEAT_S
    stale_s: float = LEASE_STALE_S


class Lease:
    """A held lease. `id` is the fencing token.

    Attributes:
        engine_draining: Set by a heartbeat once nothing new may be sent to the engine.
    """

    def __init__(
        self,
        dispatcher_id: str,
        engine_url: str,
        database: Database,
        clock: Clock,
        times: LeaseTimes,
    ) -> None:
        self.id = dispatcher_id
        self.engine_url = engine_url
        self.engine_draining = asyncio.Event()
        self._database = database
        self._clock = clock
        self._times = times

    async def renew(self) -> None:
        """Beat the heart once.

        Raises:
            LeaseLost: The lease is another's by now.
        """
        async with self._database.unit_of_work() as session:
            renewed = await dispatchers.renew(session, self.id)
        if renewed is None:
            raise LeaseLost(f"{self.engine_url} has another dispatcher")
        if renewed.draining:
            self.engine_draining.set()

    async def keep(self, *, watchdog: bool = False) -> None:
        """Beat the heart until cancelled.

        Args:
            watchdog: End the whole process (with a traceback of every thread) when this loop has
                not run for `WATCHDOG_S`. For a process that does nothing else.

        Raises:
            LeaseLost: The lease is another's, or the database was away for as long as it takes
                for another one to get it.
        """
        beaten_at_s = self._clock.monotonic()
        try:
            while True:
                if watchdog:
                    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True, file=_STDERR_FD)
                try:
                    await self.renew()
                    beaten_at_s = self._clock.monotonic()
                except (OperationalError, InterfaceError) as away:
                    # On a full disk nobody else can take it either, or has by the next beat.
                    late_s = self._clock.monotonic() - beaten_at_s
                    if late_s > self._times.stale_s and not is_full(away):
                        raise LeaseLost("the database cannot be reached") from away
                    logger.warning("heartbeat missed: %s", type(away.orig).__name__)
                await self._clock.sleep(self._times.heartbeat_s)
        finally:
            if watchdog:
                faulthandler.cancel_dump_traceback_later()

    async def give_back(self) -> int:
        """Make the rows still held pending and end the lease; how many rows that were."""
        async with self._database.unit_of_work() as session:
            num_rows = await rows.release_all(session, self.id)
            await dispatchers.release(session, self.id)
        return num_rows


async def acquire(
    engine_url: str, database: Database, clock: Clock, times: LeaseTimes | None = None
) -> Lease | None:
    """The engine's lease, or none while another dispatcher of it is alive."""
    times = times or LeaseTimes()
    dispatcher_id = new_id("disp_")
    async with database.unit_of_work() as session:
        # Whoever was there before may be gone: its rows need not wait for the next sweep.
        await reap_in(session, stale_s=times.stale_s, engine_url=engine_url)
        if not await dispatchers.acquire(session, dispatcher_id, engine_url):
            return None
    return Lease(dispatcher_id, engine_url, database, clock, times)
