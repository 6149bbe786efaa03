"""Outcomes on their way to Postgres: gathered for a moment, written together under the lease.

A flush is one transaction: every result, every put-back, what they used, and the move to
`finalizing` of batches that it closed. It has a number, kept in the same transaction: repeated
because the answer to its COMMIT was lost, it finds that it was applied, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from batch.finish.output import NOT_STORABLE_CODE, NOT_STORABLE_MESSAGE, failure_line
from batch.queue import STAGES, Queue
from batch.run import quarantine
from batch.states import RowStatus
from batch.transition import go_on
from service.clock import Clock
from store.failures import is_refused
from store.repositories import receipt as receipts
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories import suspect as suspects
from store.repositories import usage as usages
from store.repositories.result import NewResult
from store.repositories.row import PutBack
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database

logger = logging.getLogger(__name__)

FLUSH_S = 0.2
"""A transaction costs as much as many results: one for what lands in this time."""

FLUSH_ROWS = 500
FLUSH_BYTES = 8 * 1024**2
"""No result is added to a write of so many bytes: a few copies of it are made on the way."""

DATABASE_RETRY_S = 0.25


class Used(NamedTuple):
    """What one attempt of a row used, and whose it was."""

    key: UsageKey
    tokens: UsageCount


class ResultWriter:
    """Collects outcomes of one dispatcher and writes them.

    Attributes:
        num_written: Results accepted so far.
        num_fenced: Results refused by the fence so far (a row that was not ours any more).
        num_bytes: Length of the result lines that are not written yet.
    """

    def __init__(self, dispatcher_id: str, database: Database, queue: Queue, clock: Clock) -> None:
        self.num_written = 0
        self.num_fenced = 0
        self.num_bytes = 0
        self._dispatcher_id = dispatcher_id
        self._database = database
        self._queue = queue
        self._clock = clock
        self._results: list[NewResult] = []
        self._put_backs: list[PutBack] = []
        self._used: dict[UsageKey, UsageCount] = {}
        self._condemned: set[bytes] = set()
        self._something = asyncio.Event()
        self._closing = False
        self._num_flushes = 0

    def __len__(self) -> int:
        return len(self._results) + len(self._put_backs)

    def add(self, outcome: NewResult | PutBack, used: Used | None = None) -> None:
        """Take an outcome; it is written within `FLUSH_S` unless the database is away."""
        if used is not None:
            known = self._used.get(used.key)
            self._used[used.key] = used.tokens if known is None else known + used.tokens
        if isinstance(outcome, NewResult):
            self._results.append(outcome)
            self.num_bytes += len(outcome.line)
        else:
            self._put_backs.append(outcome)
        self._something.set()

    def condemn(self, digests: Iterable[bytes]) -> None:
        """Enter what a row that is given up looked like to engines; written with its result."""
        self._condemned.update(digests)

    def close(self) -> None:
        """Write what is left, then let `run` return."""
        self._closing = True
        self._something.set()

    async def run(self) -> None:
        """Write until closed and empty."""
        while True:
            await self._something.wait()
            if not self._closing and len(self) < FLUSH_ROWS and self.num_bytes < FLUSH_BYTES:
                await self._clock.sleep(FLUSH_S)
            self._something.clear()
            while len(self):
                await self._flush()
            if self._closing and not len(self):
                return

    async def _flush(self) -> None:
        batch_of_results = self._first_results()
        batch_of_put_backs = self._put_backs[:FLUSH_ROWS]
        # All of it, whichever rows it belongs to: it is written once, in whatever flush succeeds.
        used, self._used = self._used, {}
        try:
            closed = await self._repeat(batch_of_results, batch_of_put_backs, used)
        except DBAPIError as refused:
            if not batch_of_results:
                raise
            logger.error(
                "a flush is refused, each line goes alone: %s", type(refused.orig).__name__
            )
            closed = await self._repeat([], batch_of_put_backs, used)
            for one in batch_of_results:
                closed += await self._alone(one)
        # Only now: what is not written yet counts as unwritten.
        del self._results[: len(batch_of_results)]
        self.num_bytes -= sum(len(one.line) for one in batch_of_results)
        del self._put_backs[: len(batch_of_put_backs)]
        if closed:
            await self._queue.wake(STAGES)

    async def _repeat(
        self,
        new_results: list[NewResult],
        put_backs: list[PutBack],
        used: Mapping[UsageKey, UsageCount],
    ) -> list[str]:
        """Write until it is written; which batches that closed.

        Raises:
            DBAPIError: It never will be: the values are refused.
        """
        self._num_flushes += 1
        while True:
            try:
                return await self._write(new_results, put_backs, used)
            except DBAPIError as error:
                if is_refused(error) or not isinstance(error, (OperationalError, InterfaceError)):
                    raise
                # The heartbeat decides when this has lasted too long; until then nothing is lost.
                logger.warning("flush failed, again: %s", type(error.orig).__name__)
                await self._clock.sleep(DATABASE_RETRY_S)

    async def _alone(self, result: NewResult) -> list[str]:
        """Write one line; in its place its error, where the database refuses it."""
        try:
            return await self._repeat([result], [], {})
        except DBAPIError as refused:
            logger.error("row %d: refused (%s)", result.row_id, type(refused.orig).__name__)
        async with self._database.unit_of_work() as session:
            custom_id = await rows.custom_id(session, result.row_id)
        line = failure_line(
            result.row_id, custom_id, code=NOT_STORABLE_CODE, message=NOT_STORABLE_MESSAGE
        )
        failed = replace(result, status=RowStatus.ERRORED, line=line)
        return await self._repeat([failed], [], {})

    def _first_results(self) -> list[NewResult]:
        num_bytes = 0
        for place, one in enumerate(self._results[:FLUSH_ROWS]):
            if num_bytes >= FLUSH_BYTES:
                return self._results[:place]
            num_bytes += len(one.line)
        return self._results[:FLUSH_ROWS]

    async def _write(
        self,
        new_results: list[NewResult],
        put_backs: list[PutBack],
        used: Mapping[UsageKey, UsageCount],
    ) -> list[str]:
        closed: list[str] = []
        condemned = set(self._condemned)
        async with self._database.unit_of_work() as session:
            if not await receipts.take(session, self._dispatcher_id, self._num_flushes):
                return self._found_applied(new_results)
            if new_results:
                written = await results.write(
                    session, new_results, dispatcher_id=self._dispatcher_id
                )
                closed += await go_on(session, written)
            if condemned:
                await suspects.condemn(session, condemned, num_losses=quarantine.MAX_LOSSES)
            if put_backs:
                await rows.put_back(session, self._dispatcher_id, put_backs)
            # After the batches: everybody locks batches first and counters last.
            await usages.add(
                session, {key: count for key, count in used.items() if count != UsageCount()}
            )
        self._condemned -= condemned
        if new_results:
            self.num_written += written.num_written
            self.num_fenced += written.num_fenced
        return closed

    def _found_applied(self, new_results: list[NewResult]) -> list[str]:
        """An earlier attempt was applied; which batches it closed is not known any more.

        Each is asked for: one that has open rows says that it is not its turn.
        """
        self.num_written += len(new_results)
        return sorted({result.batch_id for result in new_results})
