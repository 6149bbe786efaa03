"""Outcomes on their way to Postgres: gathered for a moment, written together under the lease.

A flush is one transaction: every result, every put-back, what they used, and the move to
`finalizing` of batches that it closed. Written in a row or not at all; asked twice, the fence
refuses the second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.clock import Clock
from batch.queue import Queue
from batch.states import BatchStatus
from batch.transition import all_rows_closed
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories import usage as usages
from store.repositories.result import NewResult
from store.repositories.row import PutBack
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database

logger = logging.getLogger(__name__)

FLUSH_S = 0.2
"""A transaction costs as much as many results: one for what lands in this time (decision 0066)."""

FLUSH_ROWS = 500
DATABASE_RETRY_S = 0.25


class Used(NamedTuple):
    """What one attempt of a row used, and whose it was."""

    key: UsageKey
    tokens: UsageCount


class Outbox:
    """Collects outcomes of one dispatcher and writes them.

    Attributes:
        num_written: Results accepted so far.
        num_refused: Results refused by the fence so far (a row that was not ours any more).
    """

    def __init__(self, dispatcher_id: str, database: Database, queue: Queue, clock: Clock) -> None:
        self.num_written = 0
        self.num_refused = 0
        self._dispatcher_id = dispatcher_id
        self._database = database
        self._queue = queue
        self._clock = clock
        self._results: list[NewResult] = []
        self._put_backs: list[PutBack] = []
        self._used: dict[UsageKey, UsageCount] = {}
        self._something = asyncio.Event()
        self._closing = False

    def __len__(self) -> int:
        return len(self._results) + len(self._put_backs)

    def add(self, outcome: NewResult | PutBack, used: Used | None = None) -> None:
        """Take an outcome; it is written within `FLUSH_S` unless the database is away."""
        if used is not None:
            known = self._used.get(used.key)
            self._used[used.key] = used.tokens if known is None else known + used.tokens
        if isinstance(outcome, NewResult):
            self._results.append(outcome)
        else:
            self._put_backs.append(outcome)
        self._something.set()

    def close(self) -> None:
        """Write what is left, then let `run` return."""
        self._closing = True
        self._something.set()

    async def run(self) -> None:
        """Write until closed and empty."""
        while True:
            await self._something.wait()
            if not self._closing and len(self) < FLUSH_ROWS:
                await self._clock.sleep(FLUSH_S)
            self._something.clear()
            while len(self):
                await self._flush()
            if self._closing and not len(self):
                return

    async def _flush(self) -> None:
        batch_of_results = self._results[:FLUSH_ROWS]
        batch_of_put_backs = self._put_backs[:FLUSH_ROWS]
        # All of it, whichever rows it belongs to: it is written once, in whatever flush succeeds.
        used, self._used = self._used, {}
        while True:
            try:
                closed = await self._write(batch_of_results, batch_of_put_backs, used)
            except (OperationalError, InterfaceError) as away:
                # The heartbeat decides when this has lasted too long; until then nothing is lost.
                logger.warning("flush failed, again: %s", type(away.orig).__name__)
                await self._clock.sleep(DATABASE_RETRY_S)
            else:
                break
        # Only now: what is not written yet counts as unwritten.
        del self._results[: len(batch_of_results)]
        del self._put_backs[: len(batch_of_put_backs)]
        for batch_id in closed:
            await self._queue.enqueue_finalize(batch_id)

    async def _write(
        self,
        new_results: list[NewResult],
        put_backs: list[PutBack],
        used: Mapping[UsageKey, UsageCount],
    ) -> list[str]:
        closed: list[str] = []
        async with self._database.unit_of_work() as session:
            if new_results:
                written = await results.write(
                    session, new_results, dispatcher_id=self._dispatcher_id
                )
                for batch_id, status in written.closed:
                    if status == BatchStatus.IN_PROGRESS:
                        await all_rows_closed(session, batch_id)
                    closed.append(batch_id)
            if put_backs:
                await rows.put_back(session, self._dispatcher_id, put_backs)
            # After the batches: everybody locks batches first and counters last.
            await usages.add(
                session, {key: count for key, count in used.items() if count != UsageCount()}
            )
        if new_results:
            self.num_written += written.num_written
            self.num_refused += written.num_refused
        return closed
