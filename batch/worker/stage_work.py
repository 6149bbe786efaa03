"""A worker's stage work: it claims batches that want a stage, and runs their stages.

    claim ──► small ones together, then one that is not ──► release, and the next claim

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

A claim takes up to `NUM_TOGETHER` batches, but one at most that is not small. A commit costs as
much as dozens of lines, so the small ones share their transactions. They are released before a
run that may take long begins. What goes wrong with one of them goes wrong alone: those that were
left over have runs of their own, one at each claim.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
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
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import StorageFull
from batch.files import FileStore
from batch.finish.cancel import expire
from batch.finish.finalize import finalize
from batch.finish.finalize_small import finalize_small
from batch.intake.validate import validate
from batch.intake.validate_small import validate_small
from batch.queue import DELIVER, DISPATCH, STAGES, Queue
from batch.run.repeats import give_known
from batch.states import TERMINAL_BATCH, BatchStatus
from batch.storage import fail_unstorable, full_place, note_if_away
from batch.worker.long_stage_lock import LONG_BYTES, LONG_LINES, long_stage_lock
from engine_adapter.client.aliases import Aliases
from service.clock import Clock
from store.failures import DATABASE_ERRORS, is_refused
from store.repositories import stage as stages
from store.repositories.stage import Claim, Sizes
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

NUM_TOGETHER: Final = 32
SIZES: Final = Sizes(LONG_BYTES, LONG_LINES, small_bytes=64 * 1024, small_rows=64)
"""So many batches are claimed at once, of which those with a small stage are run together."""

SMALL_LIMIT_S: Final = 30.0
"""Small stages that take longer are run one by one."""

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
_LEFT = _Again()
"""It was not run."""

_NOT_NOW = _Again(WAIT_S)
_LONG = _Again(LONG_WAIT_S, rests=True)
_FAILED = _Again(FAILED_WAIT_S, rests=True)


class StageWork:
    """Of one worker process, for as long as it lives: it remembers whose turn it is.

    Args:
        measured: Around each run of a stage, by its name and how many batches it is of.
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
        measured: Callable[[str, int], AbstractContextManager[None]],
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
        self._held: dict[str, Claim] = {}
        self._token_lock = asyncio.Lock()  # renewing a claim changes what releases it
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
        await self._next({})
        if self._held:
            # There may be more: another process looks, and wakes the next one if there is.
            await self._queue.wake(STAGES)
        try:
            while self._held:
                try:
                    endings = await self._run()
                except StorageFull:
                    await self._release({})  # they are asked again at the next wake
                    raise
                num_run += sum(ending is not _LEFT for ending in endings.values())
                is_over = drain.is_set() or self._clock.monotonic() >= until_s
                if is_over:
                    await self._release(endings)
                    self._to_wake.add(STAGES)
                    break
                await self._next(endings)
                await self._wake(at_once=False)
        finally:
            await self._wake(at_once=True)
        return num_run

    async def _next(self, endings: Mapping[str, _Again]) -> None:
        """Release what is done and claim what is next, in one transaction."""
        now_s = self._clock.monotonic()
        for batch_id, ending in endings.items():
            if ending.rests and batch_id in self._held:
                self._resting[self._held[batch_id].project_id] = now_s + REST_S
        self._resting = {name: until for name, until in self._resting.items() if until > now_s}
        async with self._database.unit_of_work() as session:
            await self._put_back(session, self._held, endings)
            claimed = await stages.claim(
                session,
                after=self._last_project,
                resting=self._resting,
                lease_s=LEASE_S,
                sizes=SIZES,
                num=NUM_TOGETHER,
            )
        self._held = {one.id: one for one in claimed}
        if claimed:
            self._last_project = claimed[-1].project_id

    async def _release(self, endings: Mapping[str, _Again]) -> None:
        async with self._database.unit_of_work() as session:
            await self._put_back(session, self._held, endings)

    async def _put_back(
        self, session: AsyncSession, claims: Mapping[str, Claim], endings: Mapping[str, _Again]
    ) -> None:
        """Release claims, each as its run has ended; without one: at once."""
        delays: dict[float, list[Claim]] = {}
        for batch_id, held in claims.items():
            if (delay_s := endings.get(batch_id, _MOVED).delay_s) is not None:
                delays.setdefault(delay_s, []).append(held)
        for delay_s, ended in delays.items():
            await stages.release(session, ended, delay_s=delay_s)

    async def _run(self) -> dict[str, _Again]:
        """Run the next stages of what is held; each fails alone, unless the database is away.

        Small ones together, then what is no small one, and one of those that were left over.
        """
        endings: dict[str, _Again] = {}
        left: list[Claim] = []
        async with self._kept():
            for stage, together in self._small().items():
                done = await self._run_together(stage, together)
                endings |= done
                left += [one for one in together if one.id not in done]
            endings |= dict.fromkeys((one.id for one in left), _LEFT)
            alone = [one for one in self._held.values() if not one.is_small] + left[:1]
            if alone:
                await self._release_all_but({one.id for one in alone}, endings)
            for batch_id in [one.id for one in alone]:
                endings[batch_id] = await self._run_one(self._held[batch_id])
        return endings

    async def _release_all_but(self, kept: set[str], endings: Mapping[str, _Again]) -> None:
        """What has run waits for no run that takes long, nor does whoever goes on with it."""
        if self._held.keys() <= kept:
            return
        async with self._token_lock:
            done = {one: held for one, held in self._held.items() if one not in kept}
            async with self._database.unit_of_work() as session:
                await self._put_back(session, done, endings)
            self._held = {one: held for one, held in self._held.items() if one in kept}
        await self._wake(at_once=True)

    def _small(self) -> dict[str, list[Claim]]:
        found: dict[str, list[Claim]] = {}
        for held in self._held.values():
            if held.is_small:
                found.setdefault(self._stage_of(held)[0], []).append(held)
        return found

    async def _run_together(self, stage: str, together: list[Claim]) -> dict[str, _Again]:
        """Run a stage of small batches; those that are missing from what it returns were not."""
        run = self._finalize_small if stage == "finalize" else self._validate_small
        try:
            with self._watched(), self._measured(stage, len(together)):
                async with asyncio.timeout(SMALL_LIMIT_S):
                    return await run([one.id for one in together])
        except Exception as error:
            if isinstance(error, (OperationalError, InterfaceError)) or full_place(error):
                raise
            logger.exception("%s of %d small batches failed: one by one", stage, len(together))
        return {}

    async def _run_one(self, held: Claim) -> _Again:
        stage, run = self._stage_of(held)
        try:
            with self._measured(stage, 1):
                return await run(held)
        except Exception as error:
            if isinstance(error, (OperationalError, InterfaceError)) or full_place(error):
                raise
            logger.exception("%s of %s failed", stage, held.id)
            await note_if_away(self._database, error)
        return _FAILED

    def _stage_of(self, held: Claim) -> tuple[str, Callable[[Claim], Awaitable[_Again]]]:
        if held.status != BatchStatus.VALIDATING:
            return "finalize", self._finalize
        return ("expire", self._expire) if held.is_overdue else ("validate", self._validate)

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """Keep the claims for as long as the block runs."""
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
        async with self._token_lock:
            try:
                async with self._database.unit_of_work() as session:
                    until = await stages.renew(session, self._held.values(), lease_s=LEASE_S)
            except (OperationalError, InterfaceError) as away:
                logger.warning("claims not renewed: %s", type(away.orig).__name__)
                return
            if lost := len(self._held) - len(until):
                # Other workers have them, and find that this run is at it: the stages see to that.
                logger.warning("%d of %d claims are another worker's", lost, len(self._held))
            self._held |= {one: replace(self._held[one], stage_at=at) for one, at in until.items()}

    def _turn(self, held: Claim) -> AbstractAsyncContextManager[bool]:
        return long_stage_lock(self._database, held.id) if held.is_long else nullcontext(True)

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
        await give_known(self._database, self._queue, held.id)
        self._to_wake.add(DISPATCH)
        return _MOVED

    async def _validate_small(self, batch_ids: list[str]) -> dict[str, _Again]:
        found = await validate_small(
            self._database,
            self._file_store,
            batch_ids,
            enqueued_token_limit=self._enqueued_token_limit,
            aliases=self._aliases,
        )
        self._to_wake |= {
            DELIVER if status is BatchStatus.FAILED else DISPATCH for status in found.values()
        }
        return {
            batch_id: _ENDED if status is BatchStatus.FAILED else _MOVED
            for batch_id, status in found.items()
        }

    async def _finalize_small(self, batch_ids: list[str]) -> dict[str, _Again]:
        found = await finalize_small(self._database, self._file_store, batch_ids)
        if found:
            self._to_wake.add(DELIVER)
        return dict.fromkeys(found, _ENDED)

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
