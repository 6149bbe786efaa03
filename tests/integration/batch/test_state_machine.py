"""Random lives of batches over real Postgres: the invariants of both state tables hold always.

Dispatchers here are puppets: they claim, answer, fall silent and wake up as the rules say, through
the very queries that the real one uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from api.errors import Conflict
from batch.files.memory import MemoryFileStore
from batch.finish.cancel import cancel, expire
from batch.finish.finalize import finalize
from batch.finish.output import line_id
from batch.rerun import retry_failed
from batch.run.reap import reap
from batch.states import BatchStatus
from batch.steer import pause, resume
from batch.transition import all_rows_closed, move
from batch.worker.sweep import sweep
from store.repositories import batch as batches
from store.repositories import dispatcher as dispatchers
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.repositories.row import ClaimedRow, PutBack
from store.session import Database
from store.types import new_id
from tests.fakes.seams import MemoryQueue
from tests.fixtures.batch_invariants import Seen, check
from tests.fixtures.batches import Bench, add_batch, add_validating, end_window, line

T = TypeVar("T")
NUM_PUPPETS = 2
ENGINE = "http://engine"
NOT_CANCELLABLE = ("failed", "finalizing", "completed", "expired")


@dataclass
class Puppet:
    """A dispatcher: its token and the rows it believes to hold."""

    id: str = ""
    held: dict[int, ClaimedRow] = field(default_factory=dict)


class Lives(RuleBasedStateMachine):
    """Up to two batches and two puppets: few enough to get in each other's way."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = Database(self.url)
        self.files = MemoryFileStore()
        self.queue = MemoryQueue()
        self.puppets = [Puppet() for _ in range(NUM_PUPPETS)]
        self.seen: dict[str, Seen] = {}
        self.run(self._empty())

    def run(self, stage: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(stage)

    def teardown(self) -> None:
        self.run(self.database.dispose())
        self.runner.close()

    async def _empty(self) -> None:
        async with self.database.unit_of_work() as session:
            await session.execute(text("TRUNCATE batches, dispatchers, files CASCADE"))

    def pick(self, number: int) -> str | None:
        names = sorted(self.seen)
        return names[number % len(names)] if names else None

    # --- a batch's own life ---------------------------------------------------------------

    @initialize(num_rows=st.lists(st.integers(1, 6), min_size=1, max_size=2))
    def create(self, num_rows: list[int]) -> None:
        for num in num_rows:
            lines = [line(f"r{n}") for n in range(num)]
            self.seen[self.run(add_batch(self.database, self.files, lines))] = Seen()
        for who in range(NUM_PUPPETS):
            self.begin(who)

    @precondition(lambda self: len(self.seen) < 3)
    @rule()
    def create_and_leave_validating(self) -> None:
        batch_id = self.run(add_validating(self.database, self.files, [line("r0")]))
        self.seen[batch_id] = Seen()

    @rule(number=st.integers(0, 2))
    def fail_validation(self, number: int) -> None:
        async def fail(batch_id: str) -> None:
            async with self.database.unit_of_work() as session:
                await move(session, batch_id, BatchStatus.FAILED)

        if batch_id := self.pick(number):
            self.run(fail(batch_id))

    @rule(number=st.integers(0, 2))
    def cancel(self, number: int) -> None:
        async def ask(batch_id: str) -> None:
            async with self.database.unit_of_work() as session:
                await cancel(session, "proj_default", batch_id)

        if batch_id := self.pick(number):
            if self.seen[batch_id].status in NOT_CANCELLABLE:
                with pytest.raises(Conflict):
                    self.run(ask(batch_id))
            else:
                self.run(ask(batch_id))

    @rule(number=st.integers(0, 2), how=st.sampled_from([pause, resume, retry_failed]))
    def steer(self, number: int, how: Any) -> None:
        async def ask(batch_id: str) -> str:
            async with self.database.unit_of_work() as session:
                return str((await how(session, "proj_default", batch_id)).id)

        with suppress(Conflict):
            self.seen.setdefault(self.run(ask(str(self.pick(number)))), Seen())

    @rule(number=st.integers(0, 2), to_the_end=st.booleans())
    def end_window(self, number: int, to_the_end: bool) -> None:
        if batch_id := self.pick(number):
            self.run(end_window(self.database, batch_id))
            if to_the_end:
                self.run(finalize(self.database, self.files, batch_id))
                self.tables_hold()
                self.run(reap(self.database, stale_s=-1))
                self.run(finalize(self.database, self.files, batch_id))

    @rule(number=st.integers(0, 2))
    def expire(self, number: int) -> None:
        async def is_overdue(batch_id: str) -> bool:
            async with self.database.unit_of_work() as session:
                return await batches.is_overdue(session, batch_id)

        batch_id = self.pick(number)
        if batch_id and self.run(is_overdue(batch_id)):
            self.run(expire(self.database, batch_id))

    @rule()
    def work(self) -> None:
        """A worker claims whatever wants a stage; a lease of one that died has run out by then."""
        self.run(self._end_leases())
        bench = Bench(self.database, self.files, self.queue)
        self.run(bench.work())
        due = self.run(bench.due())
        assert not due, "nothing is left that could have been done"

    async def _end_leases(self) -> None:
        async with self.database.unit_of_work() as session:
            await session.execute(text("UPDATE batches SET stage_at = statement_timestamp()"))

    @rule(number=st.integers(0, 2))
    def finalize(self, number: int) -> None:
        if batch_id := self.pick(number):
            self.run(finalize(self.database, self.files, batch_id))

    @rule()
    def sweep(self) -> None:
        self.run(sweep(self.database, self.queue, (ENGINE,), stale_s=60))

    # --- dispatchers ----------------------------------------------------------------------

    @rule(who=st.integers(0, NUM_PUPPETS - 1))
    def begin(self, who: int) -> None:
        """A puppet becomes the dispatcher of its engine, even if it was one: a new token."""

        async def acquire(token: str) -> None:
            async with self.database.unit_of_work() as session:
                engine_url = f"{ENGINE}{who}"
                await dispatchers.forget_stale(session, stale_s=-1, engine_url=engine_url)
                assert await dispatchers.acquire(session, token, engine_url)

        self.puppets[who] = Puppet(new_id("disp_"))
        self.run(acquire(self.puppets[who].id))

    @rule(who=st.integers(0, NUM_PUPPETS - 1), number=st.integers(0, 2), limit=st.integers(1, 4))
    def claim(self, who: int, number: int, limit: int) -> None:
        async def take(batch_id: str) -> list[ClaimedRow]:
            async with self.database.unit_of_work() as session:
                # What the dispatcher asks first: is the batch one to claim from?
                if batch_id not in {
                    one.id for one in await batches.live(session, ["fake-model"], per_project=10)
                }:
                    return []
                return await rows.claim(session, self.puppets[who].id, {batch_id: limit})

        if batch_id := self.pick(number):
            self.puppets[who].held |= {row.id: row for row in self.run(take(batch_id))}

    @rule(
        who=st.integers(0, NUM_PUPPETS - 1),
        status=st.sampled_from(["succeeded", "errored", "cancelled", "expired"]),
        num=st.integers(1, 4),
        forget=st.booleans(),
    )
    def answer(self, who: int, status: str, num: int, forget: bool) -> None:
        """Write results for rows the puppet believes to hold, perhaps for the second time."""

        async def write(new: list[NewResult]) -> None:
            async with self.database.unit_of_work() as session:
                stopped = await batches.stopped(session, {one.batch_id for one in new})
                # A real dispatcher ends rows so only where the batch has ended so.
                new = [
                    one
                    for one in new
                    if one.status in ("succeeded", "errored")
                    or stopped.get(one.batch_id) == one.status
                ]
                if not new:
                    return
                held = await session.scalar(
                    text(
                        "SELECT count(*) FROM batch_rows WHERE id = ANY(:ids)"
                        " AND status = 'leased' AND dispatcher_id = :token"
                    ),
                    {"ids": [one.row_id for one in new], "token": self.puppets[who].id},
                )
                written = await results.write(session, new, dispatcher_id=self.puppets[who].id)
                assert written.num_written == held
                assert written.num_fenced == len(new) - written.num_written
                running = [one for one, at in written.closed if at == BatchStatus.IN_PROGRESS]
                await all_rows_closed(session, running)

        puppet = self.puppets[who]
        chosen = list(puppet.held.values())[:num]
        self.run(
            write(
                [
                    NewResult(row.id, row.batch_id, status, f"{status} {line_id(row.id)}".encode())
                    for row in chosen
                ]
            )
        )
        if forget:
            for row in chosen:
                del puppet.held[row.id]

    @rule(who=st.integers(0, NUM_PUPPETS - 1), num=st.integers(1, 4), counts=st.booleans())
    def put_back(self, who: int, num: int, counts: bool) -> None:
        async def write(chosen: list[ClaimedRow]) -> None:
            async with self.database.unit_of_work() as session:
                await rows.put_back(
                    session,
                    self.puppets[who].id,
                    [PutBack(row.id, counts=counts, error={"code": None}) for row in chosen],
                )

        self.run(write(list(self.puppets[who].held.values())[:num]))

    @rule(who=st.integers(0, NUM_PUPPETS - 1))
    def fall_silent(self, who: int) -> None:
        """Its heart stops; it still believes to hold its rows, and may answer later."""

        async def stop() -> None:
            async with self.database.unit_of_work() as session:
                await session.execute(
                    text(
                        "UPDATE dispatchers SET heartbeat_at = heartbeat_at - interval '1 hour'"
                        " WHERE id = :id"
                    ),
                    {"id": self.puppets[who].id},
                )

        self.run(stop())

    @rule(who=st.integers(0, NUM_PUPPETS - 1), number=st.integers(0, 2))
    def answer_too_late(self, who: int, number: int) -> None:
        """It loses its rows to another one, and answers for them all the same."""
        self.fall_silent(who)
        self.reap()
        self.claim(1 - who, number, 4)
        self.answer(who, "succeeded", 4, forget=False)

    @rule()
    def reap(self) -> None:
        self.run(reap(self.database, stale_s=60))

    # --- what always holds ----------------------------------------------------------------

    @invariant()
    def tables_hold(self) -> None:
        for batch_id, seen in self.seen.items():
            self.seen[batch_id] = self.run(check(self.database, self.files, batch_id, seen))


def test_random_lives(database_url: str) -> None:
    Lives.url = database_url
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
