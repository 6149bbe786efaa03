"""A worker's stage work: it claims batches that want a stage, and runs one after the other.

    claim ──► validate | expire | finalize ──► release, and the next claim

Projects take turns, and a project's batches come in the order in which they began to wait: whatever
one project has waiting, another's next stage follows those that run now. What wants a stage is told
by the batches themselves (`STAGE_DUE_AT`), so a message that was lost, or a worker that died, costs
no more than time.

| the run of a stage | the batch is claimed again |
| --- | --- |
| moved it on, or wrote a part of its files | when it is its turn, if it wants another stage |
| had to wait for others: rows in flight, another run of it | after `WAIT_S` |
| met another long stage of its project | after `LONG_WAIT_S`; the project rests |
| failed | after `FAILED_WAIT_S`; the project rests |
| died with its worker | when its lease ends |

A project that rests has no turn in this process for `REST_S`: what cannot be done now, however much
of it there is, costs the others little.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError

from api.batch_errors import StorageFull
from batch.files import FileStore
from batch.finish.expire import expire
from batch.finish.finalize import finalize
from batch.intake.validate import validate
from batch.queue import DELIVER, DISPATCH, STAGES, Queue
from batch.states import TERMINAL_BATCH, BatchStatus
from batch.storage import fail_unstorable, full_place
from batch.worker.long_stage_lock import LONG_BYTES, LONG_LINES, turn
from engine_adapter.client.aliases import Aliases
from service.clock import Clock
from store.failures import DATABASE_ERRORS, is_refused
from store.repositories import stage as stages
from store.repositories.stage import Claim
from store.session import Database

LEASE_S: Final = 10.0
"""A stage of a worker that has died is begun again after so long."""

RENEW_S: Final = 3.0
"""How often a worker that lives says so."""

SLICE_S: Final = 5.0
"""No claim is made after so long: the process is there for other tasks, too."""

WAIT_S: Final = 1.0
LONG_WAIT_S: Final = 3.0
FAILED_WAIT_S: Final = 5.0
REST_S: Final = 0.25

FINALIZE_LIMIT_S: Final = 90.0
"""A run of a finalization ends itself after some seconds (`RUN_S`); one that does not, fails."""

FINALIZE_KILL_S: Final = 110.0
"""One that does not hear of that ends its process."""

WAKE_S: Final = 0.5
"""How often others are woken at most, while there is stage work."""

_STDERR_FD: Final = 2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Again:
    """How a run ended.

    Attributes:
        delay_s: The batch is claimed no sooner; none: it has ended, and wants no stage any more.
        rests: Its project has no turn for a moment.
    """

    delay_s: float | None = 0.0
    rests: bool = False


_ENDED = _Again(None)
_MOVED = _Again()
_NOT_NOW = _Again(WAIT_S)
_LONG = _Again(LONG_WAIT_S, rests=True)
_FAILED = _Again(FAILED_WAIT_S, rests=True)


class StageWork:
    """Of one worker process, for as long as it lives: it remembers whose turn it is.

    Args:
        measured: Around each run of a stage, by its name.
        enqueued_token_limit: Quota of projects that have none of their own; none: no limit.
        aliases: Further names of models, by what they stand for.
        watchdog: End the process when a stage hangs. For one that does nothing else.
    """

    def __init__(  # noqa: PLR0913
        self,
        database: Database,
        file_store: FileStore,
        queue: Queue,
        clock: Clock,
        *,
        measured: Callable[[str], AbstractContextManager[None]],
        enqueued_token_limit: int | None = None,
        aliases: Aliases | None = None,
        watchdog: bool = False,
    ) -> None:
        self._database = database
        self._file_store = file_store
        self._queue = queue
        self._clock = clock
        self._measured = measured
        self._enqueued_token_limit = enqueued_token_limit
        self._aliases = aliases
        self._watchdog = watchdog
        self._last_project = ""
        self._resting: dict[str, float] = {}
        self._to_wake: set[str] = set()
        self._woken_at_s = clock.monotonic()

    async def run(self, drain: asyncio.Event, *, slice_s: float = SLICE_S) -> int:
        """Work until nothing wants a stage, the time is over, or the worker drains.

        Returns:
            How many stages were run.

        Raises:
            OperationalError: The database is away. What was claimed is another's after its lease.
            StorageFull: There is no room for files.
        """
        until_s = self._clock.monotonic() + slice_s
        num_run = 0
        held = await self._next(None, _MOVED)
        if held is not None:
            # There may be more: another process looks, and wakes the next one if there is.
            await self._queue.wake(STAGES)
        try:
            while held is not None:
                try:
                    ending = await self._run(held)
                except StorageFull:
                    await self._release(self._held, _MOVED)  # it is asked again at the next wake
                    raise
                num_run += 1
                is_over = drain.is_set() or self._clock.monotonic() >= until_s
                if is_over:
                    await self._release(self._held, ending)
                    self._to_wake.add(STAGES)
                    break
                held = await self._next(self._held, ending)
                await self._wake(at_once=False)
        finally:
            await self._wake(at_once=True)
        return num_run

    async def _next(self, done: Claim | None, ending: _Again) -> Claim | None:
        """Release what is done and claim the next one, in one transaction."""
        now_s = self._clock.monotonic()
        if done is not None and ending.rests:
            self._resting[done.project_id] = now_s + REST_S
        self._resting = {name: until for name, until in self._resting.items() if until > now_s}
        async with self._database.unit_of_work() as session:
            if done is not None and ending.delay_s is not None:
                await stages.release(session, done, delay_s=ending.delay_s)
            held = await stages.claim(
                session,
                after=self._last_project,
                resting=self._resting,
                lease_s=LEASE_S,
                long_bytes=LONG_BYTES,
                long_lines=LONG_LINES,
            )
        if held is not None:
            self._last_project = held.project_id
        return held

    async def _release(self, done: Claim, ending: _Again) -> None:
        if ending.delay_s is not None:
            async with self._database.unit_of_work() as session:
                await stages.release(session, done, delay_s=ending.delay_s)

    async def _run(self, held: Claim) -> _Again:
        """Run the batch's next stage; it fails alone, unless the database is away."""
        self._held = held
        stage, run = self._stage_of(held)
        async with self._kept():
            try:
                with self._measured(stage):
                    return await run(held)
            except Exception as error:
                if isinstance(error, (OperationalError, InterfaceError)) or full_place(error):
                    raise
                logger.exception("%s of %s failed", stage, held.id)
        return _FAILED

    def _stage_of(self, held: Claim) -> tuple[str, Callable[[Claim], Awaitable[_Again]]]:
        if held.status != BatchStatus.VALIDATING:
            return "finalize", self._finalize
        return ("expire", self._expire) if held.is_over_window else ("validate", self._validate)

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """Keep the claim for as long as the block runs."""
        over = asyncio.Event()

        async def keep() -> None:
            while not over.is_set():
                try:
                    async with asyncio.timeout(RENEW_S):
                        await over.wait()
                except TimeoutError:
                    await self._renew()

        # No group: it would wrap the errors of the block, which callers tell apart.
        keeping = asyncio.ensure_future(keep())
        try:
            yield
        finally:
            over.set()
            await keeping

    async def _renew(self) -> None:
        try:
            async with self._database.unit_of_work() as session:
                until = await stages.renew(session, self._held, lease_s=LEASE_S)
        except (OperationalError, InterfaceError) as away:
            logger.warning("claim of %s not renewed: %s", self._held.id, type(away.orig).__name__)
            return
        if until is None:
            # Another worker has it, and finds that this run is at it: the stages see to that.
            logger.warning("claim of %s is another worker's", self._held.id)
            return
        self._held = replace(self._held, stage_at=until)

    def _turn(self, held: Claim) -> AbstractAsyncContextManager[bool]:
        return turn(self._database, held.id) if held.is_long else nullcontext(True)

    async def _expire(self, held: Claim) -> _Again:
        if not await expire(self._database, held.id):
            return _NOT_NOW
        self._to_wake.add(DELIVER)
        return _ENDED

    async def _validate(self, held: Claim) -> _Again:
        async with self._turn(held) as may_run:
            if not may_run:
                return _LONG
            status = await self._validated(held.id)
        if status is BatchStatus.FAILED:
            self._to_wake.add(DELIVER)
            return _ENDED
        if status is None:
            return _NOT_NOW
        self._to_wake.add(DISPATCH)
        return _MOVED

    async def _validated(self, batch_id: str) -> BatchStatus | None:
        try:
            return await validate(
                self._database,
                self._file_store,
                batch_id,
                enqueued_token_limit=self._enqueued_token_limit,
                aliases=self._aliases,
                watchdog=self._watchdog,
            )
        except DATABASE_ERRORS as error:
            if not is_refused(error):
                raise
            logger.exception("the rows of %s cannot be stored", batch_id)
            return await fail_unstorable(self._database, batch_id)

    async def _finalize(self, held: Claim) -> _Again:
        async with self._turn(held) as may_run:
            if not may_run:
                return _LONG
            with self._watched():
                async with asyncio.timeout(FINALIZE_LIMIT_S):
                    status = await finalize(self._database, self._file_store, held.id)
        if status in TERMINAL_BATCH:
            self._to_wake.add(DELIVER)
            return _ENDED
        return _NOT_NOW if status is None else _MOVED

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if not self._watchdog:
            yield
            return
        faulthandler.dump_traceback_later(FINALIZE_KILL_S, exit=True, file=_STDERR_FD)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def _wake(self, *, at_once: bool) -> None:
        """Wake whoever has something to do after the stages that ran."""
        now_s = self._clock.monotonic()
        if not at_once and now_s < self._woken_at_s + WAKE_S:
            return
        self._woken_at_s = now_s
        to_wake, self._to_wake = self._to_wake, set()
        for task in sorted(to_wake):
            await self._queue.wake(task)
