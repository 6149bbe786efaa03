"""Rows that ask what another row of their batch asks: they go to no engine, and get its answer.

Which rows those are is found as the file is checked (`batch/intake/line.py`): those with equal
bodies, a temperature of 0 or a seed. Each dispatcher looks for results that others wait for, and
writes them under the lock of the batch. It keeps only how far it has looked: whoever follows
looks from the first result on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from itertools import accumulate
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError

from batch.finish.output import repeated_line
from batch.queue import STAGES, Queue
from batch.states import BatchStatus
from batch.transition import go_on
from service.clock import Clock
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
            ours = await batches.lock_all(session, [batch_id], skip_locked=True)
            batch = ours.get(batch_id)
            if batch is None or batch.status != BatchStatus.IN_PROGRESS:
                return False
            seen = batch.num_results
            waiting = await repeats.answered(
                session, batch_id, after_seq=self._seen[batch_id], limit=WRITE_ROWS
            )
            some = _first_bytes(waiting)
            more = len(waiting) == WRITE_ROWS or len(some) < len(waiting)
            if more:
                seen = some[-1].seq - 1
            closed: list[str] = []
            if some:
                lines = await repeats.lines(session, {one.first_id for one in some})
                news = [_result(batch_id, one, lines[one.first_id]) for one in some]
                closed = await go_on(
                    session, await results.write(session, news, dispatcher_id=None)
                )
        self._seen[batch_id] = seen
        if closed:
            await self._queue.wake(STAGES)
        return more


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
