"""The dispatcher: everything between a pending row and its result, for one engine.

    claim (≤512 rows) ──► attempts (one call each) ──► results (one fenced write per 200 ms)
         ▲ places free          │ stopped batch: abort
         └── engine watch ──────┘ engine gone: put back

It runs in one process and one event loop, under one lease, and lasts as long as there is work:
an offline request may be parked by the engine for minutes, so a call must be able to outlive any
time slice (decision 0006). Liveness is the heartbeat's business, not a time limit's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.files import FileStore
from batch.queue import Queue
from batch.run.claim import CLAIM_ROWS, Intake, RowClaimer
from batch.run.engine_watch import EngineWatch
from batch.run.execute import AttemptLimits
from batch.run.flight import InFlight
from batch.run.lease import Lease, LeaseLost
from batch.run.quarantine import COHORTS, POLL_INTERVAL_S, Cohort
from batch.run.repeats import Repeats
from batch.run.results import ResultWriter
from batch.storage import DATABASE, note_full
from engine_adapter.client.base import EngineClient
from service.clock import Clock
from store.repositories import chat_report, dispatch_count
from store.repositories.chat_report import ChatNow
from store.repositories.dispatch_count import DispatchCounts
from store.repositories.row import ByteRoom
from store.session import Database

# --- What a dispatcher has done, written to the database every few seconds: gateways export it.
#
# A dispatcher is a Celery task in a forked child without a port of its own; what it counts survives
# it in Postgres, whichever host it ran on.


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


CLAIM_INTERVAL_S = 0.1
"""Between two claims: what lands meanwhile is claimed for together."""

QUICK_CLAIM_INTERVAL_S = 0.02
"""The same once half of the places are free again of those that a claim has filled: the engine is
faster than the claims."""

IDLE_POLL_INTERVAL_S = 0.25
STOPPED_POLL_INTERVAL_S = 0.5
BALANCE_S = 0.5
GIVE_WAY_S = 0.1
LINGER_S = 1.0
"""How long a dispatcher with nothing to do stays, so that bursts do not start a new one each."""

DRAIN_LANDING_S = 1.5
DRAIN_ABORT_S = 2.0
"""On shutdown: how long calls may finish, and how long aborting the rest may take; below 5 s with
the last write. Rows are put back in either case."""

ENGINE_LANDING_S = 30.0
"""How long calls may finish on an engine that is to be drained; the rest go to other engines."""


@dataclass(frozen=True)
class DispatchLimits:
    """Bounds of one dispatcher; see batch/settings.py."""

    max_in_flight: int = 256
    max_bytes: int = 64 * 1024**2
    max_attempts: int = 10
    row_timeout_s: float = 3600.0


@dataclass(frozen=True)
class Ending:
    """How a dispatcher ended.

    Attributes:
        num_written: Results it wrote.
        num_fenced: Results that the fence refused.
        num_released: Rows it gave back unfinished.
        lease_lost: Whether it ended because its lease was another's.
        more_work: Whether rows were pending when it ended: other ones should follow.
    """

    num_written: int
    num_fenced: int
    num_released: int
    lease_lost: bool
    more_work: bool


class Dispatcher:
    """One dispatcher under one lease; `run` once."""

    def __init__(  # noqa: PLR0913
        self,
        lease: Lease,
        engine: EngineClient,
        database: Database,
        file_store: FileStore,
        queue: Queue,
        clock: Clock,
        limits: DispatchLimits,
        *,
        drain: asyncio.Event,
        watchdog: bool = False,
    ) -> None:
        self._lease = lease
        self._database = database
        self._clock = clock
        self._drain = drain
        self._watchdog = watchdog
        self._wake = asyncio.Event()
        self.results = ResultWriter(lease.id, database, queue, clock)
        self._watch = EngineWatch(
            engine,
            clock,
            max_in_flight=limits.max_in_flight,
            changed=self._wake,
            chat=self._chat_now,
        )
        attempt = AttemptLimits(limits.max_attempts, limits.row_timeout_s)
        self._in_flight = InFlight(
            engine, self._watch, self.results, clock, attempt, landed=self._wake
        )
        self._watch.rows = self._in_flight
        self._repeats = Repeats(database, queue, clock)
        self._source = RowClaimer(lease.id, database, file_store, clock)
        self._report = DispatchReport(lease.engine_url, database, clock, self.counts)
        self._num_claimed = 0
        self._max_bytes = limits.max_bytes
        self._cohort: Cohort | None = None
        self._overdue = False
        self._num_leaving = 0
        self._next_suspect_poll_s = 0.0

    async def run(self) -> Ending:
        """Dispatch until nothing is left to do, a drain is asked for, or the lease is lost."""
        lease_lost = False
        try:
            async with asyncio.TaskGroup() as group:
                followers = [
                    group.create_task(self._lease.keep(watchdog=self._watchdog)),
                    group.create_task(self._watch.run()),
                    group.create_task(self._stop_ended_batches()),
                    group.create_task(self._balance()),
                    group.create_task(self._give_way()),
                    group.create_task(self._repeats.run(lambda: self._watch.models)),
                    group.create_task(self._wake_on(self._drain)),
                    group.create_task(self._wake_on(self._lease.engine_draining)),
                    group.create_task(self._report.run()),
                ]
                writer = group.create_task(self.results.run())
                await self._fill(group)
                await self._land()
                self.results.close()
                await writer
                for follower in followers:
                    follower.cancel()
        except* LeaseLost as lost:
            # Nothing to clean up: the rows have been, or will be, reaped, and no write of ours
            # can land any more.
            logger.warning("lease lost: %s", lost.exceptions[0])
            lease_lost = True
        await self._report.write()
        num_released = 0 if lease_lost else await self._lease.give_back()
        return Ending(
            num_written=self.results.num_written,
            num_fenced=self.results.num_fenced,
            num_released=num_released,
            lease_lost=lease_lost,
            # Asked after the lease is given back: a batch that became ready in between sent its
            # wake to a lease that was still held.
            more_work=not self._drain.is_set() and await self._source.has_work(),
        )

    @property
    def _is_ending(self) -> bool:
        return self._drain.is_set() or self._lease.engine_draining.is_set()

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        """Keep the engine's places filled; returns when there is nothing to do, or on a drain."""
        idle_since_s = self._clock.monotonic()
        while not self._is_ending:
            num_new = await self._claim(group) if self._watch.open else 0
            now_s = self._clock.monotonic()
            if num_new or len(self._in_flight) or len(self.results):
                idle_since_s = now_s
            elif now_s - idle_since_s > LINGER_S:
                if not await self._source.has_work():
                    return
                idle_since_s = now_s
            if not self._watch.up and len(self._in_flight):
                await self._in_flight.put_back_all(lost=True)
            if num_new < CLAIM_ROWS:  # else there may be room for more of them now
                await self._wait_a_turn(num_new)
            # Cleared before the claim that follows: what happens during it wakes the next turn.
            self._wake.clear()

    async def _claim(self, group: asyncio.TaskGroup) -> int:
        """Claim for the free places and send what came; how many rows that were."""
        intake = await self._take()
        self._in_flight.suspects = self._source.suspects
        self._num_claimed += len(intake.ready) + len(intake.unreadable)
        for one in intake.ready:
            self._in_flight.start(group, one.row, one.batch, one.raw_line)
        for put_back in intake.unreadable:
            self.results.add(put_back)
        return len(intake.ready)

    async def _take(self) -> Intake:
        """What may be sent now; suspects only where the engine is empty (`quarantine`)."""
        models = self._watch.models
        if self._watch.size <= 0:
            return Intake()
        held_bytes = self._in_flight.num_bytes + self.results.num_bytes
        room = ByteRoom.left(self._max_bytes, held_bytes)
        if room.num_bytes <= 0:
            return Intake()
        if self._cohort is not None and len(self._in_flight):
            num_free = self._cohort.num_rows - len(self._in_flight)
            if num_free <= 0:
                return Intake()
            return await self._source.take_cohort(models, self._cohort, num_free, room)
        self._cohort = None
        if not len(self._in_flight):
            for cohort in COHORTS:
                intake = await self._source.take_cohort(models, cohort, cohort.num_rows, room)
                if intake.ready or intake.unreadable:
                    self._cohort = cohort
                    return intake
        num_free = self._watch.size + self._num_leaving - len(self._in_flight)
        if num_free <= 0 or await self._suspects_are_overdue():
            return Intake()
        return await self._source.take(models, num_free, self._in_flight.num_by_batch(), room)

    async def _suspects_are_overdue(self) -> bool:
        """Looked up now and then, while the engine is busy with others."""
        now_s = self._clock.monotonic()
        if not len(self._in_flight):
            self._overdue = False
        elif now_s >= self._next_suspect_poll_s:
            self._next_suspect_poll_s = now_s + POLL_INTERVAL_S
            self._overdue = await self._source.has_overdue_suspects()
        return self._overdue

    async def _wait_a_turn(self, num_new: int) -> None:
        """Wait a turn; without new rows also until something happened since the last claim."""
        until_s = self._clock.monotonic() + CLAIM_INTERVAL_S
        is_busy = num_new > 0 and 4 * num_new >= self._watch.size
        while (left_s := until_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(
                min(left_s, QUICK_CLAIM_INTERVAL_S if is_busy else CLAIM_INTERVAL_S)
            )
            if is_busy and 2 * len(self._in_flight) <= self._watch.size:
                return
        if num_new:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_POLL_INTERVAL_S - CLAIM_INTERVAL_S):
                await self._wake.wait()

    async def _wake_on(self, event: asyncio.Event) -> None:
        await event.wait()
        self._wake.set()

    async def _land(self) -> None:
        """On a drain: let calls finish for a while, then call the rest home."""
        began_s = self._clock.monotonic()
        while len(self._in_flight):
            limit_s = DRAIN_LANDING_S if self._drain.is_set() else ENGINE_LANDING_S
            if not self._watch.up or self._clock.monotonic() >= began_s + limit_s:
                break
            await self._clock.sleep(CLAIM_INTERVAL_S)
        await self._in_flight.put_back_all(limit_s=DRAIN_ABORT_S)

    def counts(self) -> DispatchCounts:
        """What it has done so far, and holds now."""
        return DispatchCounts(
            num_claimed=self._num_claimed,
            num_results=self.results.num_written,
            num_retries=self._in_flight.num_retries,
            num_fenced=self.results.num_fenced,
            num_refused=self._watch.num_refused,
            num_losses=self._watch.num_lost,
            num_in_flight=len(self._in_flight),
            num_unwritten=len(self.results),
            num_handed_back=self._in_flight.num_handed_back,
            window_rows=self._watch.size,
            in_flight_bytes=self._in_flight.num_bytes,
            unwritten_bytes=self.results.num_bytes,
        )

    async def _balance(self) -> None:
        """Make room at a full engine for batches that hold too little of it."""
        while True:
            await self._clock.sleep(BALANCE_S)
            is_full = self._watch.open and len(self._in_flight) >= self._watch.size
            if not is_full or self._cohort is not None or self._is_ending:
                continue
            num_by_batch = await self._source.rebalance(
                self._watch.models, self._watch.size, self._in_flight.held()
            )
            if not num_by_batch:
                continue
            # Their places are given away at once: an engine may take seconds to confirm an abort,
            # and for so long its queue is longer by rows that somebody waits for.
            self._num_leaving = sum(num_by_batch.values())
            self._wake.set()
            try:
                await self._in_flight.hand_back(num_by_batch)
            finally:
                self._num_leaving = 0

    async def _chat_now(self) -> ChatNow:
        async with self._database.unit_of_work() as session:
            return await chat_report.read(session, self._lease.engine_url)

    async def _give_way(self) -> None:
        """Take rows off an engine of level 0 as soon as chat bears fewer of them."""
        while True:
            await self._clock.sleep(GIVE_WAY_S)
            num_over = len(self._in_flight) - self._watch.size
            if self._watch.classes_only and self._watch.up and num_over > 0:
                await self._in_flight.give_way(num_over)

    async def _stop_ended_batches(self) -> None:
        """Watch the batches in flight: a cancelled or expired one is taken off the engine."""
        while True:
            await self._clock.sleep(STOPPED_POLL_INTERVAL_S)
            in_flight = list(self._in_flight.num_by_batch())
            if not in_flight:
                continue
            stopped = await self._source.stopped(in_flight)
            if stopped:
                await self._in_flight.stop_batches(stopped)
