"""Rows that ask what another row asks: they go to no engine, and get its answer.

Which rows those are is found as the file is checked (`batch/intake/line.py`): those with equal
bodies, a temperature of 0 or a seed. Each dispatcher looks for results that others wait for, and
writes them under the lock of the batch. It keeps only how far it has looked: whoever follows
looks from the first result on. Where two batches of a project wish it (`coserve.reuse`), the
later one's rows are given the earlier one's answers once they are validated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from itertools import accumulate
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from batch.finish.output import repeated_line
from batch.queue import STAGES, Queue
from batch.states import BatchStatus
from batch.transition import go_on
from service.clock import Clock
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import repeat as repeats
from store.repositories import result as results
from store.repositories.repeat import Waiting
from store.repositories.result import NewResult
from store.session import Database

logger = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 0.25

WRITE_ROWS: Final = 500
WRITE_BYTES: Final = 8 * 1024**2
"""No line is added to a write of so many bytes."""


class Repeats:
    """Gives answers on, for one dispatcher."""

    def __init__(self, database: Database, queue: Queue, clock: Clock) -> None:
        self._database = database
        self._queue = queue
        self._clock = clock
        self._seen: dict[str, int] = {}  # by batch: nobody waits for results up to this number

    async def run(self, models: Callable[[], Collection[str]]) -> None:
        """Look every `POLL_INTERVAL_S` at the batches of `models`, until cancelled."""
        while True:
            await self._clock.sleep(POLL_INTERVAL_S)
            try:
                await self.give(models())
            except (OperationalError, InterfaceError) as away:
                logger.warning("repeated rows wait: %s", type(away.orig).__name__)

    async def give(self, models: Collection[str]) -> None:
        """Give every answer on that is there."""
        async with self._database.unit_of_work() as session:
            open_ids = await repeats.batches_with_repeats(session, models)
        self._seen = {one: self._seen.get(one, 0) for one in open_ids}
        for batch_id in open_ids:
            while await self._give_some(batch_id):
                pass

    async def _give_some(self, batch_id: str) -> bool:
        """One transaction; whether there may be more."""
        async with self._database.unit_of_work() as session:
            batch = await _running(session, batch_id, skip_locked=True)
            if batch is None:
                return False
            seen = batch.num_results
            waiting = await repeats.answered(
                session, batch_id, after_seq=self._seen[batch_id], limit=WRITE_ROWS
            )
            some = _first_bytes(waiting)
            more = len(waiting) == WRITE_ROWS or len(some) < len(waiting)
            if more:
                seen = some[-1].seq - 1
            _, closed = await _write(session, batch_id, some)
        self._seen[batch_id] = seen
        if closed:
            await self._queue.wake(STAGES)
        return more


async def give_known(database: Database, queue: Queue, batch_id: str) -> None:
    """Give rows the answers that earlier batches of the project have, where both wish it.

    A row that a dispatcher takes meanwhile is asked all the same.
    """
    after_row = 0
    while True:
        async with database.unit_of_work() as session:
            batch = await _running(session, batch_id)
            if batch is None or batch.reuse_s is None:
                return
            known = await repeats.known(session, batch_id, after_row=after_row, limit=WRITE_ROWS)
            some = _first_bytes(known)
            num_written, closed = await _write(session, batch_id, some)
            batch.num_repeats += num_written
        if closed:
            await queue.wake(STAGES)
        if not some:
            return
        after_row = some[-1].row_id


async def _running(
    session: AsyncSession, batch_id: str, *, skip_locked: bool = False
) -> Batch | None:
    """The batch, locked, if its rows run."""
    ours = await batches.lock_all(session, [batch_id], skip_locked=skip_locked)
    batch = ours.get(batch_id)
    return batch if batch is not None and batch.status == BatchStatus.IN_PROGRESS else None


async def _write(
    session: AsyncSession, batch_id: str, some: list[Waiting]
) -> tuple[int, list[str]]:
    """Write rows' answers; how many, and the batches that want a worker now."""
    if not some:
        return 0, []
    lines = await repeats.lines(session, {one.first_id for one in some})
    news = [_result(batch_id, one, lines[one.first_id]) for one in some]
    written = await results.write(session, news, dispatcher_id=None)
    return written.num_written, await go_on(session, written)


def _first_bytes(waiting: list[Waiting]) -> list[Waiting]:
    """At least one, and none after `WRITE_BYTES`."""
    before = accumulate((one.num_bytes for one in waiting), initial=0)
    return [one for one, num in zip(waiting, before, strict=False) if num < WRITE_BYTES]


def _result(batch_id: str, waiting: Waiting, line: bytes) -> NewResult:
    own, tokens = repeated_line(line, waiting.row_id, waiting.custom_id)
    return NewResult(
        waiting.row_id,
        batch_id,
        waiting.status,
        own,
        prompt_tokens=tokens.prompt_tokens,
        cached_tokens=tokens.cached_tokens,
        completion_tokens=tokens.completion_tokens,
        reasoning_tokens=tokens.reasoning_tokens,
    )
